//! Calls under way, at most a few to each node, answered in whatever order they come.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::Sleep;

use crate::error::NodeError;
use crate::node::Call;
use crate::state::Reply;

type Answer = Result<Reply, NodeError>;

/// The calls whose answer has not been taken yet.
///
/// There are so few that polling them all at each wake-up is cheaper than knowing which one woke.
#[derive(Default)]
pub(super) struct Round {
    calls: Vec<(usize, Slot)>,
}

enum Slot {
    Waiting(Call),
    Answered(Answer),
}

impl Round {
    pub(super) fn add(&mut self, node: usize, call: Call) {
        self.calls.push((node, Slot::Waiting(call)));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Whether every call that is left has been answered well.
    pub(super) fn is_done(&self) -> bool {
        let well = |slot: &Slot| matches!(slot, Slot::Answered(Ok(_)));
        self.calls.iter().all(|(_, slot)| well(slot))
    }

    /// The next answer. When the timer has run out, that is a time-out for one call after the
    /// other. Must not be asked when it is empty: there would be nothing to wait for.
    pub(super) async fn next(
        &mut self,
        mut timer: Pin<&mut Sleep>,
        limit: Duration,
    ) -> (usize, Answer) {
        poll_fn(|cx| {
            if let Some(answer) = self.poll_calls(cx) {
                return Poll::Ready(answer);
            }
            ready!(timer.as_mut().poll(cx));
            match self.calls.pop() {
                Some((node, _)) => Poll::Ready((node, Err(NodeError::Timeout(limit)))),
                None => Poll::Pending,
            }
        })
        .await
    }

    fn poll_calls(&mut self, cx: &mut Context<'_>) -> Option<(usize, Answer)> {
        // All of them, even when the first is answered: a call is not sent before its first poll.
        for (_, slot) in &mut self.calls {
            if let Slot::Waiting(call) = slot
                && let Poll::Ready(answer) = call.as_mut().poll(cx)
            {
                *slot = Slot::Answered(answer);
            }
        }
        let answered = |(_, slot): &(usize, Slot)| matches!(slot, Slot::Answered(_));
        let place = self.calls.iter().position(answered)?;
        match self.calls.swap_remove(place) {
            (node, Slot::Answered(answer)) => Some((node, answer)),
            // Cannot be: the place was looked for by this very mark.
            (_, Slot::Waiting(_)) => None,
        }
    }
}
