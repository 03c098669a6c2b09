//! Too few nodes can be asked: a client that is cut off from the majority must not stand in its way.

use super::refresh::Refresh;
use super::{HEAD_START, LockQueue, POLL, QueueAction};
use crate::outcome::NodeOutcome;
use crate::wait::backoff::spread;
use crate::words::moment::Moment;

impl LockQueue {
    /// Whether enough nodes could be asked again, without queueing anywhere.
    pub(super) fn inspected(
        &mut self,
        outcomes: Vec<NodeOutcome>,
        share: f64,
        now: Moment,
        actions: &mut Vec<QueueAction>,
    ) {
        let heard = outcomes.iter().filter(|said| **said == NodeOutcome::Agreed);
        let is_enough = heard.count() >= self.quorum.needed();
        self.next_look = now + spread(POLL, share);
        if is_enough {
            self.is_withdrawn = false;
            self.look_by(now);
        } else {
            self.cut_off(outcomes, share, now, actions);
        }
    }

    pub(super) fn cut_off(
        &mut self,
        outcomes: Vec<NodeOutcome>,
        share: f64,
        now: Moment,
        actions: &mut Vec<QueueAction>,
    ) {
        self.is_withdrawn = true;
        self.refresh = Refresh::from(now);
        for waiter in self.waiters.values_mut() {
            waiter.is_worried = true;
        }
        if !self.waiters.is_empty() {
            actions.push(QueueAction::TellNoQuorum(outcomes));
        }
        let next = self.soon.next(share).max(HEAD_START);
        self.look_by(now + next);
    }
}
