//! What happens to those who wait, and what to do for them.

use std::time::Duration;

use crate::lock::NodeQueue;
use crate::outcome::{NodeError, NodeOutcome};
use crate::words::moment::Moment;
use crate::words::owner::Owner;
use crate::words::ticket::{Ticket, TicketId, TicketNumber, Wake};
use crate::words::token::FencingToken;

/// One waiter: the client's own number of its ticket.
pub type WaiterId = u64;

/// What happens to the waiters. A `share` is a random number from 0 to 1.
#[derive(Clone, Debug, PartialEq)]
pub enum QueueEvent {
    /// A waiter comes.
    Joined {
        /// Who. Larger than all before.
        waiter: WaiterId,
        /// Its ticket.
        ticket: TicketId,
        /// The number that it asks for.
        proposed: TicketNumber,
        /// Whether it wants to be told how it goes on.
        is_watched: bool,
    },
    /// A waiter gives up.
    Left(WaiterId),
    /// A waiter has acquired the lock, or one of the slots. What is left of its ticket goes with the lock.
    Served(WaiterId),
    /// A waiter goes, and may come back: its ticket stays for the rest of its lease.
    Paused(WaiterId),
    /// A waiter makes an attempt, woken or not.
    AttemptStarted(WaiterId),
    /// The attempt of a waiter failed, and it goes on waiting.
    AttemptFailed {
        /// Whose.
        waiter: WaiterId,
        /// Random.
        share: f64,
    },
    /// A waiter for one of many slots has looked at all of them, and all are taken.
    AllTaken(WaiterId),
    /// A node wakes a waiter.
    Woken {
        /// Which node.
        node: usize,
        /// Which waiter, by its number.
        waiter: WaiterId,
        /// What the node said.
        wake: Wake,
    },
    /// A release by our own client is on its way to the nodes, which will wake no waiter of
    /// this client: this waiter is next.
    HandedOff {
        /// The waiter.
        to: TicketId,
        /// Which slot is released, where they wait for one of many.
        slot: Option<usize>,
    },
    /// A node says that the lock was released, perhaps by a client that knows of no queue.
    Freed {
        /// Which node.
        node: usize,
    },
    /// A node says that who holds the lock has changed there since [`QueueAction::Track`].
    Changed {
        /// Which node.
        node: usize,
    },
    /// What a node said may have been missed: it is listened to on a new connection.
    MayHaveMissed {
        /// Which node.
        node: usize,
    },
    /// The time of [`LockQueue::next_look`](super::LockQueue::next_look) has come.
    LookDue {
        /// Random.
        share: f64,
    },
    /// What the nodes answered to [`QueueAction::Show`].
    Shown {
        /// In the order in which they were configured.
        answers: Vec<Result<NodeQueue, NodeError>>,
        /// Random.
        share: f64,
    },
    /// What the nodes answered to [`QueueAction::Inspect`].
    Inspected {
        /// `Agreed` for every node that could be asked.
        outcomes: Vec<NodeOutcome>,
        /// Random.
        share: f64,
    },
}

/// What to do for the waiters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueueAction {
    /// Look earlier than it was said before.
    LookAt(Moment),
    /// Show these tickets to all nodes, before an attempt of theirs is sent, and answer with
    /// [`QueueEvent::Shown`].
    Show(Vec<Ticket>),
    /// Ask all nodes about the lock without queueing, and answer with [`QueueEvent::Inspected`].
    Inspect,
    /// Let the nodes say when the holder changes, whose release wakes no waiter.
    Track,
    /// Let this waiter make an attempt.
    Wake(WaiterId),
    /// Tell this waiter how it goes on.
    Tell {
        /// Whom.
        waiter: WaiterId,
        /// Who holds the lock on a majority of the nodes.
        holder: Option<Owner>,
        /// Who has it on some nodes, if nobody is known to have it on a majority.
        split: Vec<Owner>,
        /// The holder's own token, for people: it tells since when.
        token: Option<FencingToken>,
        /// How long still, if nothing happens before. `None` when it has no end.
        remaining: Option<Duration>,
        /// The place in the queue: 1 is next.
        place: Option<usize>,
        /// Whether a majority has agreed on the place.
        is_settled: bool,
    },
    /// Tell all waiters that too few nodes could be asked, and what each node said.
    TellNoQuorum(Vec<NodeOutcome>),
    /// Take these tickets out of the queue on all nodes.
    Withdraw(Vec<TicketId>),
    /// No waiter is left.
    Close,
}
