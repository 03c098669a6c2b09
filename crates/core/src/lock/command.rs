//! What can be asked of one lock on one node, and what it answers.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::words::ticket::{ClientId, Place, Ticket, TicketId, TicketNumber};
use crate::words::token::FencingToken;
use crate::words::ttl::Ttl;
use crate::words::value::{AttemptValue, LeaseId, Stored};

/// What can be asked of one lock on one node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Command {
    /// Take the lock if it is free.
    Acquire {
        /// Who asks.
        value: AttemptValue,
        /// For how long, unless it is extended.
        ttl: Ttl,
        /// The token that the caller would like.
        proposed: FencingToken,
        /// Whether it is the caller's turn.
        turn: Precedence,
    },
    /// Take the lock together with other readers, if no writer holds it and none waits before the
    /// caller.
    Share {
        /// Who asks.
        value: AttemptValue,
        /// For how long, unless it is extended: each reader has an expiry of its own.
        ttl: Ttl,
        /// The token that the caller would like, if it is the first reader.
        proposed: FencingToken,
        /// Whether it is the caller's turn. A reader passes readers, and never a writer.
        turn: Precedence,
    },
    /// Lift the counter, as the holder or a reader.
    Raise {
        /// The holder.
        value: AttemptValue,
        /// The least that the counter shall be.
        to: FencingToken,
    },
    /// Keep the lock for another TTL; take it again where it was forgotten.
    Extend {
        /// The holder.
        value: AttemptValue,
        /// For how long from now.
        ttl: Ttl,
        /// The holder's token.
        token: FencingToken,
        /// How often the holder of a reentrant lock has entered it. For those who look: a node
        /// need not keep it, because only the holder counts, and any holder keeps others out.
        entries: NonZeroU32,
        /// When a node that has forgotten it takes it again.
        repair: Repair,
    },
    /// Keep the lock as a reader for another TTL; take it again where it was forgotten. A value that
    /// has it for itself has it as a reader from now on.
    ExtendShared {
        /// The reader.
        value: AttemptValue,
        /// For how long from now.
        ttl: Ttl,
        /// The reader's token.
        token: FencingToken,
    },
    /// Release the lock.
    Release {
        /// The holder, or a reader.
        value: AttemptValue,
        /// Set when a command of this value may still be on its way: refuse the value for that
        /// long, so that the late command cannot leave a lock that no lease holds.
        tombstone: Option<Duration>,
        /// What becomes of the holder's ticket.
        ticket: TicketDisposition,
        /// The client of one who waits, whose attempt follows at once: it wakes its waiters by
        /// itself, and the node does not.
        follower: Option<ClientId>,
    },
    /// Give back whatever a lease of the lock service has, whichever attempt got it, and refuse the lease
    /// from now on: its client may have sent an acquire that arrives later. A lease whose id the service
    /// made (attempt 0) is not refused, for nobody else can have sent one. Answered by
    /// [`Reply::LeaseReleased`], [`Reply::Tombstoned`] if that was done before, or [`Reply::NotHeld`].
    ReleaseLease {
        /// The lease.
        lease: LeaseId,
        /// For how long it is refused.
        tombstone: Duration,
    },
    /// Enqueue, or go on waiting: all these tickets are kept for another lease.
    Enqueue {
        /// The waiters of one client.
        tickets: Vec<Ticket>,
        /// For how long, unless it is shown again.
        lease: Duration,
    },
    /// Wait no longer.
    Leave {
        /// The waiters who go.
        tickets: Vec<TicketId>,
    },
    /// Look, and change nothing.
    Inspect,
    /// Take the lock from its holder: an operator's act. Or only from given values, as a later attempt
    /// of the same lease does.
    Steal {
        /// Who takes it.
        value: AttemptValue,
        /// For how long.
        ttl: Ttl,
        /// The token that the caller would like.
        proposed: FencingToken,
        /// Exactly the values it may be taken from. Empty: from any holder.
        from: Vec<AttemptValue>,
    },
}

impl Command {
    /// The value that it is sent for.
    #[must_use]
    pub fn value(&self) -> Option<&AttemptValue> {
        match self {
            Self::Acquire { value, .. }
            | Self::Share { value, .. }
            | Self::Steal { value, .. }
            | Self::Raise { value, .. }
            | Self::Extend { value, .. }
            | Self::ExtendShared { value, .. }
            | Self::Release { value, .. } => Some(value),
            Self::ReleaseLease { .. }
            | Self::Enqueue { .. }
            | Self::Leave { .. }
            | Self::Inspect => None,
        }
    }

    /// Whether it asks for a lock that its value does not have yet.
    #[must_use]
    pub fn may_take(&self) -> bool {
        matches!(
            self,
            Self::Acquire { .. } | Self::Share { .. } | Self::Steal { .. }
        )
    }
}

/// When an extension takes a lock again on a node that is free. It is no vote in either case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Repair {
    /// Whatever the register says: the validity of the lease was never interrupted, so no other client can have
    /// been granted the lock. A failed attempt may have lifted the register all the same.
    #[default]
    Always,
    /// Only where the register is not above the token: the validity of a detached lock may have been
    /// interrupted, and a holder since then has lifted the register.
    UnlessOvertaken,
}

/// How an acquirer stands to those who wait.
///
/// One with a ticket proposes a token above the ticket's number. A grant takes the ticket out of
/// the queue, and if the attempt fails the ticket returns: a waiter that came meanwhile is behind it,
/// because no ticket gets a number below the counter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Precedence {
    /// Not in the queue, and passes waiters that are not fair.
    #[default]
    MayPass,
    /// Not in the queue, and passes no waiter.
    PassNobody,
    /// In the queue.
    Ticket(TicketId),
}

/// What becomes of a ticket when its lock is released. A grant has taken it out of the queue, on
/// the nodes that granted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum TicketDisposition {
    /// There is none, or it stays where it is.
    #[default]
    Stays,
    /// It is of no use any more.
    Leaves(TicketId),
    /// The attempt has failed, and its waiter has its place again.
    Returns {
        /// The ticket.
        id: TicketId,
        /// Its number.
        number: TicketNumber,
        /// For how long, unless it is shown again.
        lease: Duration,
    },
}

impl TicketDisposition {
    /// The ticket whose waiter has its place again.
    pub(super) fn returns(&self) -> Option<&TicketId> {
        match self {
            Self::Returns { id, .. } => Some(id),
            Self::Stays | Self::Leaves(_) => None,
        }
    }
}

/// Who holds a lock on a node, and for how long still. All who read it together are one holder, by
/// the value [`AttemptValue::shared`], for as long as the last of them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Holder {
    /// Whose it is.
    pub value: AttemptValue,
    /// The holder's own token, which the node stores with its value. `None` for a foreign client, for
    /// those who read, and for one who only waits.
    pub token: Option<FencingToken>,
    /// `None` when it never expires: a foreign client set the key without a time to live.
    pub remaining: Option<Duration>,
}

/// What a node answers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Reply {
    /// The lock is the caller's; the node's counter was below this, and is this now.
    Granted {
        /// The counter after the grant.
        counter: FencingToken,
        /// Who was thrown out, by [`Command::Steal`] only.
        evicted: Option<AttemptValue>,
    },
    /// Another client holds it. Where it is free and others wait, that is the head of the queue, for as
    /// long as its ticket is kept.
    Held(Holder),
    /// This attempt was given up before its command arrived.
    Tombstoned,
    /// The counter cannot grow any more.
    Exhausted,
    /// The counter was below this, and is this now, under the caller's value.
    Raised(FencingToken),
    /// The lock is the caller's; the counter was at what it asked for already, or above: this, as far as
    /// the node tells. No vote for a token: another may have lifted it there.
    NotRaised(FencingToken),
    /// Kept for another TTL.
    Extended,
    /// Had been forgotten, and is held again. Not a vote: in between it may have been another's.
    Repaired,
    /// Released.
    Released,
    /// Given back by [`Command::ReleaseLease`]: these values, with the tokens that the node stored. Nothing
    /// is said of the time that was left.
    LeaseReleased(Vec<Stored>),
    /// The caller does not hold it; another client may.
    NotHeld(Option<Holder>),
    /// The caller does not hold it, because this one has stolen it. It is free now.
    Stolen(AttemptValue),
    /// The queue, to a waiter in it.
    Queue(NodeQueue),
    /// Out of the queue.
    Left,
    /// What [`Command::Inspect`] saw.
    Snapshot(Snapshot),
}

/// One lock on one node, as those see it who wait for it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NodeQueue {
    /// Who has the lock.
    pub holder: Option<Holder>,
    /// The head of the queue, and how long its ticket is kept.
    pub head: Option<(TicketId, Duration)>,
    /// Where the tickets stand that were shown, in the same order.
    pub places: Vec<Place>,
}

/// One lock on one node, as it is seen from outside.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Snapshot {
    /// Who has it.
    pub holder: Option<Holder>,
    /// Who reads it, if it is held for reading: whose time is up first comes first.
    pub readers: Vec<Holder>,
    /// The node's counter; zero if it was never used or has been forgotten. No holder's token: a failed
    /// attempt may have lifted it too.
    pub counter: FencingToken,
    /// How many wait for it.
    pub waiting: usize,
}
