//! Calls in flight, at most a few to each node, answered in any order.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use tokio::time::Sleep;

use crate::error::NodeError;
use crate::runtime::clock::Moment;
use crate::store::inbox::{Inbox, Taken};
use crate::store::{Call, Node, Request};
use fencepost_core::lock::Reply;

pub(super) type Answer = Result<Reply, NodeError>;

/// The calls whose answer has not been taken yet, each with a tag: its node, or more than that.
///
/// There are so few that polling them all at each wake-up is cheaper than knowing which one woke.
/// They are polled in the order in which they were added.
pub(crate) struct Calls<T = usize> {
    calls: Vec<(T, Slot)>,
}

enum Slot {
    /// The answer comes to an inbox, under that number.
    Posted(Arc<Inbox>, usize),
    Waiting(Call),
    Answered(Answer),
}

impl Slot {
    fn poll(&mut self, cx: &mut Context<'_>) {
        if let Self::Posted(inbox, number) = self {
            match inbox.take(*number) {
                Some(Taken::Usual(reply)) => *self = Self::Answered(Ok(reply)),
                Some(Taken::GoesOn(call)) => *self = Self::Waiting(call),
                None => {}
            }
        }
        if let Self::Waiting(call) = self
            && let Poll::Ready(answer) = call.as_mut().poll(cx)
        {
            *self = Self::Answered(answer);
        }
    }
}

impl<T> Default for Calls<T> {
    fn default() -> Self {
        Self { calls: Vec::new() }
    }
}

impl<T> Calls<T> {
    pub(super) fn add(&mut self, tag: T, call: Call) {
        self.calls.push((tag, Slot::Waiting(call)));
    }

    /// Sends a request to some nodes, which answer together. Nothing can be decided before so many of them have.
    pub(super) fn send<'n>(
        &mut self,
        request: &Request,
        now: Moment,
        nodes: impl Iterator<Item = (T, &'n dyn Node)>,
        decisive: usize,
    ) {
        self.calls
            .reserve_exact(nodes.size_hint().1.unwrap_or_default());
        let inbox = Inbox::of(&request.command);
        let mut all_posted = true;
        for (number, (tag, node)) in nodes.enumerate() {
            let slot = match &inbox {
                Some(inbox) if node.post(request, now, inbox, number) => {
                    Slot::Posted(Arc::clone(inbox), number)
                }
                _ => {
                    all_posted = false;
                    Slot::Waiting(node.send(request))
                }
            };
            self.calls.push((tag, slot));
        }
        // Otherwise the answer that decides may be the only one in the inbox.
        if let Some(inbox) = inbox.filter(|_| all_posted) {
            inbox.wakes_at(decisive);
        }
    }

    /// Takes over the calls of another round, under other tags.
    pub(super) fn append<U>(&mut self, other: Calls<U>, tag: impl Fn(U) -> T) {
        let others = other.calls.into_iter();
        self.calls
            .extend(others.map(|(old, slot)| (tag(old), slot)));
    }

    pub(super) fn len(&self) -> usize {
        self.calls.len()
    }

    /// Drops the call that was added first, and tells whose it was.
    pub(super) fn give_up_oldest(&mut self) -> Option<T> {
        (!self.calls.is_empty()).then(|| self.calls.remove(0).0)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Sends all of them, if they are not sent yet.
    pub(super) fn start(&mut self) {
        for (_, slot) in &mut self.calls {
            slot.poll(&mut Context::from_waker(Waker::noop()));
        }
    }

    /// The next answer. Once the timer has run out, every remaining call yields a time-out. Never
    /// resolves when there are no calls.
    pub(super) async fn next(
        &mut self,
        mut timer: Pin<&mut Sleep>,
        limit: Duration,
    ) -> (T, Answer) {
        poll_fn(|cx| {
            if let Some(answer) = self.poll_calls(cx) {
                return Poll::Ready(answer);
            }
            ready!(timer.as_mut().poll(cx));
            match self.calls.pop() {
                Some((tag, _)) => Poll::Ready((tag, Err(NodeError::Timeout(limit)))),
                None => Poll::Pending,
            }
        })
        .await
    }

    /// An answer that has come in already, without waiting for more.
    pub(super) fn try_next(&mut self) -> Option<(T, Answer)> {
        // A caller that wants to be woken polls again with its own waker.
        self.poll_calls(&mut Context::from_waker(Waker::noop()))
    }

    fn poll_calls(&mut self, cx: &mut Context<'_>) -> Option<(T, Answer)> {
        let mut registered: Option<&Arc<Inbox>> = None;
        for (_, slot) in &self.calls {
            if let Slot::Posted(inbox, _) = slot
                && !registered.is_some_and(|before| Arc::ptr_eq(before, inbox))
            {
                inbox.register(cx.waker());
                registered = Some(inbox);
            }
        }
        // All of them, even when the first is answered: a call is not sent before its first poll.
        for (_, slot) in &mut self.calls {
            slot.poll(cx);
        }
        let answered = |(_, slot): &(T, Slot)| matches!(slot, Slot::Answered(_));
        let place = self.calls.iter().position(answered)?;
        match self.calls.remove(place) {
            (tag, Slot::Answered(answer)) => Some((tag, answer)),
            // Unreachable: `position` matched an answered slot.
            (_, Slot::Waiting(_) | Slot::Posted(..)) => None,
        }
    }
}
