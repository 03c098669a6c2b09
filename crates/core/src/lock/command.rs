//! The commands of one lock on one node, and their replies.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::words::lease_id::LeaseId;
use crate::words::stored::Stored;
use crate::words::ticket::{ClientId, Place, Ticket, TicketId, TicketNumber};
use crate::words::token::FencingToken;
use crate::words::ttl::Ttl;
use crate::words::value::AttemptValue;

/// A command for one lock on one node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Command {
    /// Acquire the lock if it is free.
    Acquire {
        /// The caller's value.
        value: AttemptValue,
        /// TTL, unless extended.
        ttl: Ttl,
        /// The token that the caller proposes.
        proposed: FencingToken,
        /// The caller's place among the waiters.
        turn: Precedence,
    },
    /// Acquire the lock as a reader, if no writer holds it and none waits ahead of the caller.
    Share {
        /// The caller's value.
        value: AttemptValue,
        /// TTL, unless extended. Each reader has its own expiry.
        ttl: Ttl,
        /// The token that the caller proposes if it is the first reader.
        proposed: FencingToken,
        /// The caller's place among the waiters. A reader may pass readers, never a writer.
        turn: Precedence,
    },
    /// Raise the fence register, as the holder or a reader.
    Raise {
        /// The holder's value.
        value: AttemptValue,
        /// The minimum for the register.
        to: FencingToken,
    },
    /// Hold the lock for another TTL; acquire it again where the node has forgotten it.
    Extend {
        /// The holder's value.
        value: AttemptValue,
        /// TTL, from now.
        ttl: Ttl,
        /// The holder's token.
        token: FencingToken,
        /// How often the holder of a reentrant lock has entered it. Informational: a node need not
        /// store it, because only the holder counts entries and any holder excludes others.
        entries: NonZeroU32,
        /// Whether a node that has forgotten the lock acquires it again.
        repair: Repair,
    },
    /// Hold the lock as a reader for another TTL; acquire it again where the node has forgotten it.
    /// A value that held the lock exclusively becomes a reader.
    ExtendShared {
        /// The reader's value.
        value: AttemptValue,
        /// TTL, from now.
        ttl: Ttl,
        /// The reader's token.
        token: FencingToken,
    },
    /// Release the lock.
    Release {
        /// The value of the holder or reader.
        value: AttemptValue,
        /// Set when a command of this value may still be in flight: refuse the value for this long,
        /// so that the late command cannot leave a lock that no lease holds.
        tombstone: Option<Duration>,
        /// What happens to the holder's ticket.
        ticket: TicketDisposition,
        /// The client of a waiter whose attempt follows at once. That client wakes its waiters
        /// itself, so the node does not.
        follower: Option<ClientId>,
        /// Whether a lease is released, on every node, and not what a failed attempt was granted on
        /// some of them: then the head of the queue need not wait until other nodes wake it too.
        is_lease: bool,
    },
    /// Release whatever a lease of the lock service holds, under any attempt, and refuse the lease
    /// from now on: its client may have sent an acquire that arrives later. A lease whose id the
    /// service chose (attempt 0) is not refused, since only the service could have sent one. The
    /// reply is [`Reply::LeaseReleased`], [`Reply::Tombstoned`] if it was released before, or
    /// [`Reply::NotHeld`].
    ReleaseLease {
        /// The lease id.
        lease: LeaseId,
        /// How long to refuse it.
        tombstone: Duration,
    },
    /// Enqueue, or keep waiting: renews all these tickets.
    Enqueue {
        /// Tickets of one client.
        tickets: Vec<Ticket>,
        /// How long to keep them unless they are renewed.
        lease: Duration,
    },
    /// Leave the queue.
    Leave {
        /// The tickets to remove.
        tickets: Vec<TicketId>,
    },
    /// Read the state without changing it.
    Inspect,
    /// Take the lock over from its holder, on behalf of an operator. Restricted to given values, it
    /// is how a later attempt of the same lease takes over.
    Steal {
        /// The value of the new holder.
        value: AttemptValue,
        /// TTL.
        ttl: Ttl,
        /// The token that the caller proposes.
        proposed: FencingToken,
        /// The exact values that may be evicted. Empty: any holder.
        from: Vec<AttemptValue>,
    },
}

impl Command {
    /// The value that the command acts for.
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

    /// Whether its reply may count towards a quorum.
    #[must_use]
    pub fn is_vote(&self) -> bool {
        !matches!(
            self,
            Self::Release { .. }
                | Self::ReleaseLease { .. }
                | Self::Enqueue { .. }
                | Self::Leave { .. }
                | Self::Inspect
        )
    }

    /// The reply when nothing is in its way, of those that are sent by plain commands.
    #[must_use]
    pub fn usual_reply(&self) -> Option<Reply> {
        match self {
            Self::Acquire { proposed, .. } => Some(Reply::Granted {
                register: *proposed,
                evicted: None,
            }),
            Self::Release { .. } => Some(Reply::Released),
            _ => None,
        }
    }

    /// Whether it acquires a lock that its value does not hold yet.
    #[must_use]
    pub(crate) fn may_take(&self) -> bool {
        matches!(
            self,
            Self::Acquire { .. } | Self::Share { .. } | Self::Steal { .. }
        )
    }
}

/// When an extension may acquire the lock again on a node where it is free. Never a vote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Repair {
    /// Regardless of the register: the lease was valid without interruption, so no other client can
    /// have been granted the lock. A failed attempt may still have raised the register.
    #[default]
    Always,
    /// Only if the register is not above the token: the validity of a detached lock may have been
    /// interrupted, and any holder since then raised the register.
    UnlessOvertaken,
    /// Never: for a lock that may be extended by several processes at a time. What one of them acquires
    /// again, another would take for held all the time.
    Never,
}

/// The place of an acquire among the waiters.
///
/// With a ticket, the proposed token is above the ticket's number. A grant removes the ticket from
/// the queue, and the ticket returns if the attempt fails. A waiter that arrived in between stays
/// behind it, because no ticket gets a number below the register.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Precedence {
    /// Not enqueued; may pass waiters that are not fair.
    #[default]
    MayPass,
    /// Not enqueued; passes no waiter.
    PassNobody,
    /// Enqueued.
    Ticket(TicketId),
}

/// What happens to a ticket when its lock is released. On the nodes that granted the lock, the
/// grant has removed it from the queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum TicketDisposition {
    /// No ticket, or it stays where it is.
    #[default]
    Stays,
    /// Remove it.
    Leaves(TicketId),
    /// The attempt failed: put the waiter back in its place.
    Returns {
        /// The ticket.
        id: TicketId,
        /// Its number.
        number: TicketNumber,
        /// How long to keep it unless it is renewed.
        lease: Duration,
    },
}

impl TicketDisposition {
    /// The ticket to put back, if any.
    pub(super) fn returns(&self) -> Option<&TicketId> {
        match self {
            Self::Returns { id, .. } => Some(id),
            Self::Stays | Self::Leaves(_) => None,
        }
    }
}

/// The holder of a lock on one node, and its remaining time. All readers together are one holder
/// with the value [`AttemptValue::shared`], until the last of them expires.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Holder {
    /// The holder's value.
    pub value: AttemptValue,
    /// The holder's own token, stored with its value. `None` for foreign clients, for readers, and
    /// for a waiter.
    pub token: Option<FencingToken>,
    /// `None` without an expiry: a foreign client set the key without a TTL.
    pub remaining: Option<Duration>,
}

/// A node's reply.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Reply {
    /// The lock was granted, and the register was raised to this from below.
    Granted {
        /// The register after the grant.
        register: FencingToken,
        /// The evicted holder; only for [`Command::Steal`].
        evicted: Option<AttemptValue>,
    },
    /// Another client holds the lock. If the lock is free and others wait, this is the head of the
    /// queue, until its ticket expires.
    Held(Holder),
    /// The attempt was released before its command arrived.
    Tombstoned,
    /// The register is exhausted.
    Exhausted,
    /// The register was raised to this from below, under the caller's value.
    Raised(FencingToken),
    /// The lock was granted, but the register was already at or above the proposal. Not a vote for
    /// a token: another attempt may have raised it there.
    NotRaised(FencingToken),
    /// Extended for another TTL.
    Extended,
    /// Extended by a lock service, for so long from the request: for less than the TTL where the lease may not be
    /// held for longer.
    ExtendedFor(Duration),
    /// Forgotten by the node, and acquired again. Not a vote: another client may have held it in
    /// between.
    Repaired,
    /// Released.
    Released,
    /// Released by [`Command::ReleaseLease`]: these values, with their stored tokens. Says nothing
    /// about the remaining time.
    LeaseReleased(Vec<Stored>),
    /// The caller does not hold the lock; another client may.
    NotHeld(Option<Holder>),
    /// The caller does not hold the lock because this client stole it. The lock is free now.
    Stolen(AttemptValue),
    /// The queue, as a waiter sees it.
    Queue(NodeQueue),
    /// Removed from the queue.
    Left,
    /// The result of [`Command::Inspect`].
    Snapshot(Snapshot),
}

impl Reply {
    /// Whether it says that the node has the lock for the caller.
    #[must_use]
    pub fn holds(&self) -> bool {
        matches!(
            self,
            Self::Granted { .. }
                | Self::Raised(_)
                | Self::NotRaised(_)
                | Self::Extended
                | Self::ExtendedFor(_)
                | Self::Repaired
        )
    }
}

/// One lock on one node, as its waiters see it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NodeQueue {
    /// The holder.
    pub holder: Option<Holder>,
    /// The head of the queue, and the remaining time of its ticket: zero where neither the head nor any of the
    /// given tickets is fair, so that it keeps nobody out.
    pub head: Option<(TicketId, Duration)>,
    /// The places of the given tickets, in the same order.
    pub places: Vec<Place>,
}

/// One lock on one node, as an observer sees it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Snapshot {
    /// The holder.
    pub holder: Option<Holder>,
    /// The readers, if any, by expiry.
    pub readers: Vec<Holder>,
    /// The fence register; zero if never used or forgotten. Not a holder's token: failed attempts
    /// raise it too.
    pub register: FencingToken,
    /// The number of waiters.
    pub waiting: usize,
}
