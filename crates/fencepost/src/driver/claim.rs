//! [`Claim`]: one value's claim to one lock, and the commands that it sends; [`Grant`]: a lock that was acquired.

use std::num::NonZeroU32;

use super::in_flight::InFlight;
use crate::error::{LossReason, NodeReport};
use crate::runtime::clock::Moment;
use fencepost_core::lock::{Command, Precedence, Repair, TicketDisposition};
use fencepost_core::name::LockName;
use fencepost_core::ticket::{ClientId, TICKET_LEASE, Ticket};
use fencepost_core::token::FencingToken;
use fencepost_core::ttl::Ttl;
use fencepost_core::value::AttemptValue;

/// How to acquire a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AcquireMode {
    /// If it is free and it is our turn.
    Free {
        turn: Precedence,
        /// Whether the caller goes on waiting where it is not: then nobody needs to know for how long.
        goes_on: bool,
    },
    /// From its holder, if it has one.
    Stolen,
    /// From exactly these, or if it is free: they are earlier attempts of the same lease.
    Over(Vec<AttemptValue>),
}

/// Whether a lock is held exclusively, or shared by readers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Exclusive,
    Shared,
}

/// One value's claim to one lock: what extends and releases it.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    pub(crate) name: LockName,
    pub(crate) value: AttemptValue,
    pub(crate) ttl: Ttl,
    pub(crate) access: Access,
    /// Its place in the queue, if it has waited.
    pub(crate) ticket: Option<Ticket>,
    /// When a node that has forgotten it takes it again.
    pub(crate) repair: Repair,
    /// Whether an extension is to outlive the process that asks for it.
    pub(crate) outlives: bool,
}

impl Claim {
    pub(super) fn release(
        &self,
        may_still_arrive: bool,
        ticket: TicketDisposition,
        follower: Option<ClientId>,
        is_lease: bool,
    ) -> Command {
        Command::Release {
            value: self.value.clone(),
            tombstone: may_still_arrive.then(|| self.ttl.get()),
            ticket,
            follower,
            is_lease,
        }
    }

    pub(super) fn acquire(&self, proposed: FencingToken, turn: Precedence) -> Command {
        let (value, ttl) = (self.value.clone(), self.ttl);
        match self.access {
            Access::Exclusive => Command::Acquire {
                value,
                ttl,
                proposed,
                turn,
            },
            Access::Shared => Command::Share {
                value,
                ttl,
                proposed,
                turn,
            },
        }
    }

    pub(super) fn steal(&self, proposed: FencingToken, from: Vec<AttemptValue>) -> Command {
        Command::Steal {
            value: self.value.clone(),
            ttl: self.ttl,
            proposed,
            from,
        }
    }

    pub(super) fn extend(&self, token: FencingToken, entries: NonZeroU32) -> Command {
        let (value, ttl) = (self.value.clone(), self.ttl);
        match self.access {
            Access::Exclusive => Command::Extend {
                value,
                ttl,
                token,
                entries,
                repair: self.repair,
            },
            Access::Shared => Command::ExtendShared { value, ttl, token },
        }
    }

    /// The least token to propose: above the ticket's number, so that later waiters queue behind it if the
    /// attempt fails.
    pub(super) fn least_proposal(&self) -> FencingToken {
        let ticket = self.ticket.as_ref().map(|ticket| ticket.number.number());
        FencingToken::saturating(ticket.map_or(0, |number| number.next().get()))
    }

    /// What becomes of the ticket once the lock is released. It may be left on nodes that did not
    /// grant.
    pub(super) fn ticket_leaves(&self) -> TicketDisposition {
        let ticket = self.ticket.as_ref();
        ticket.map_or(TicketDisposition::Stays, |ticket| {
            TicketDisposition::Leaves(ticket.id.clone())
        })
    }

    /// What becomes of the ticket once a failed attempt is released.
    pub(super) fn ticket_returns(&self) -> TicketDisposition {
        self.ticket
            .as_ref()
            .map_or(TicketDisposition::Stays, |ticket| {
                TicketDisposition::Returns {
                    id: ticket.id.clone(),
                    number: ticket.number.number(),
                    lease: TICKET_LEASE,
                }
            })
    }
}

/// A lock that was acquired.
#[derive(Debug)]
pub(crate) struct Grant {
    pub(crate) claim: Claim,
    pub(crate) token: FencingToken,
    pub(crate) deadline: Moment,
    /// What was still in flight when it was decided.
    pub(crate) late: InFlight,
    /// The holder that a steal evicted.
    pub(crate) evicted: Option<AttemptValue>,
}

/// Why a lease was not extended.
#[derive(Debug)]
pub(crate) enum NotExtended {
    /// It is over: a majority says so.
    Lost(LossReason),
    /// It is over: its time had run out before a majority had answered.
    TooLate,
    /// It goes on as it was, until its old deadline.
    NoQuorum(Vec<NodeReport>),
}

impl NotExtended {
    /// Why, in one word, and for people.
    pub(crate) fn told(&self) -> (&'static str, String) {
        match self {
            Self::Lost(why) => ("lost", why.to_string()),
            Self::TooLate => (
                "too_late",
                "validity ended before a majority answered".into(),
            ),
            Self::NoQuorum(nodes) => {
                let nodes = nodes.iter();
                let nodes =
                    nodes.map(|NodeReport { node, outcome, .. }| format!("{node}: {outcome}"));
                ("no_quorum", nodes.collect::<Vec<_>>().join(", "))
            }
        }
    }
}
