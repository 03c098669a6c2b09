//! [`Posted`]: a command whose answer goes to an inbox, with nobody waiting for it on the way.

use std::sync::Arc;

use super::Link;
use super::reply::usual_reply;
use crate::runtime::clock::{Clock, Moment};
use crate::store::ReplySlot;
use crate::store::redis::encoding::plain;
use crate::store::redis::encoding::prepared::Prepared;
use crate::store::redis::protocol::wire::Answers;

/// A command that was posted.
pub(crate) struct Posted {
    pub(super) link: Arc<Link>,
    pub(super) prepared: Arc<Prepared>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) number: u64,
    /// How many releases there were before it.
    pub(super) before: u64,
    /// Empty once the answer has come.
    pub(super) slot: Option<ReplySlot>,
}

impl Posted {
    /// In the task of the connection, before whatever comes later on it; at that time, which is read if it was not yet.
    /// Whether it was waited for.
    pub(crate) fn answered(mut self, answers: Answers, now: &mut Option<Moment>) -> bool {
        let Some(slot) = self.slot.take() else {
            return false;
        };
        let now = *now.get_or_insert_with(|| self.clock.now());
        self.link.note_answer(self.number, now);
        let command = &self.prepared.command;
        let is_usual = match &answers {
            Answers::Usual => true,
            Answers::Other(answers) => plain::is_usual(command, answers),
        };
        let guard = self.link.guard.as_ref().filter(|_| command.is_vote());
        if is_usual && guard.is_none_or(|guard| guard.knows() == Some(Ok(()))) {
            return slot.usual();
        }
        slot.goes_on(Box::pin(async move {
            let Self {
                link,
                prepared,
                clock,
                before,
                ..
            } = &self;
            let reply = match &answers {
                Answers::Other(answers) if !is_usual => {
                    link.unusual(prepared, answers, *before, &**clock).await?
                }
                _ => usual_reply(&prepared.command),
            };
            match prepared.command.is_vote() {
                true => link.confirmed(reply).await,
                false => Ok(reply),
            }
        }))
    }
}

impl Drop for Posted {
    fn drop(&mut self) {
        // No answer has come, and none will.
        if self.slot.is_some() {
            self.link.broken.notify_one();
        }
    }
}
