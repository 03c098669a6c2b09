//! Acquiring with plain commands, without a script: which acquires qualify, and what the replies
//! mean. Pure.
//!
//! One write carries `SET key value NX GET`, `ZADD register GT CH` and a read of the head of the
//! queue. Each command is atomic, and all three run whatever the first one replies. So an attempt
//! that does not get the lock still raises the register, and a newcomer holds the lock briefly
//! before it sees that others wait. Tokens rely only on the strict rule of [the
//! tally](crate::quorum::AcquireTally).
//!
//! Anything unusual is left to the script, which is the reference. Never guess here.

use std::time::Duration;

use super::{Command, Holder, LockState, Precedence, Reply, TicketDisposition};
use crate::words::ticket::TicketId;
use crate::words::token::FencingToken;
use crate::words::ttl::Ttl;
use crate::words::value::AttemptValue;

/// An acquire that plain commands can do.
#[derive(Clone, Copy, Debug)]
pub struct PlainAcquire<'c> {
    /// The caller's value.
    pub value: &'c AttemptValue,
    /// TTL.
    pub ttl: Ttl,
    /// The proposed token, stored with the value.
    pub proposed: FencingToken,
    /// Whether it may pass waiters that are not fair.
    pub may_pass: bool,
}

/// What the replies say.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'s> {
    /// The previous holder. `None`: the lock was free, and the caller holds it now.
    pub holder: Option<&'s AttemptValue>,
    /// Whether the register was raised to the proposal from below.
    pub lifted: bool,
    /// The head of the queue, even if its ticket has expired.
    pub head: Option<&'s TicketId>,
    /// Whether the attempt's lease was released before the `EXISTS`, which follows the `SET`. A
    /// later release finds what was set.
    pub is_tombstoned: bool,
}

/// What follows from the replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Granted, and the register was raised to the proposal.
    Granted,
    /// Granted, but the register was already at or above the proposal.
    NotRaised,
    /// Another client holds the lock.
    Held,
    /// The lock was acquired for a lease that was already released: release it again.
    Tombstoned,
    /// Only the script can decide. If the lock was acquired, release it first.
    AskScript {
        /// Whether it was acquired.
        is_taken: bool,
    },
}

impl Verdict {
    /// Whether the lock was acquired in vain, and has to be released first.
    #[doc(hidden)]
    #[must_use]
    pub fn is_undone(self) -> bool {
        matches!(self, Self::Tombstoned | Self::AskScript { is_taken: true })
    }
}

impl<'c> PlainAcquire<'c> {
    /// `None` if it takes a script: tickets, readers, reentrant locks, foreign values, and tokens
    /// that no clock proposes.
    #[must_use]
    pub fn of(command: &'c Command) -> Option<Self> {
        let (acquire, turn) = Self::with_turn(command)?;
        match turn {
            // The grant has to remove it from the queue.
            Precedence::Ticket(_) => None,
            _ => Some(acquire),
        }
    }

    /// The same for a waiter in the queue, with its ticket: a short script can do it, if it is the
    /// head of the queue.
    #[must_use]
    pub fn by_turn(command: &'c Command) -> Option<(Self, &'c TicketId)> {
        match Self::with_turn(command)? {
            (acquire, Precedence::Ticket(ticket)) => Some((acquire, ticket)),
            _ => None,
        }
    }

    fn with_turn(command: &'c Command) -> Option<(Self, &'c Precedence)> {
        let Command::Acquire {
            value,
            ttl,
            proposed,
            turn,
        } = command
        else {
            return None;
        };
        let is_token = *proposed > FencingToken::ZERO && *proposed < FencingToken::MAX;
        let fits = is_token && value.has_token() && !value.is_reentrant();
        let acquire = Self {
            value,
            ttl: *ttl,
            proposed: *proposed,
            may_pass: *turn == Precedence::MayPass,
        };
        fits.then_some((acquire, turn))
    }

    /// Whether to look for a tombstone of its lease: its client chose the lease id and may have
    /// released it. No client knows an id chosen by the service before it was granted.
    #[must_use]
    pub fn looks_for_tombstone(&self) -> bool {
        self.value.lease_attempt().is_some_and(|of| of.attempt > 0)
    }

    /// What follows from one node's replies.
    #[must_use]
    pub fn decide(&self, seen: &Seen<'_>) -> Verdict {
        match seen.holder {
            // An attempt is never sent twice, so this is unusual.
            Some(holder) if holder == self.value => Verdict::AskScript { is_taken: false },
            Some(_) => Verdict::Held,
            None if self.is_behind(seen.head) => Verdict::AskScript { is_taken: true },
            None if seen.is_tombstoned => Verdict::Tombstoned,
            None if seen.lifted => Verdict::Granted,
            None => Verdict::NotRaised,
        }
    }

    /// The reply to the attempt, where `SET` answered this holder. `None`: the script is asked.
    #[doc(hidden)]
    #[must_use]
    pub fn reply(&self, verdict: Verdict, holder: Option<Holder>) -> Option<Reply> {
        match (verdict, holder) {
            (Verdict::Granted, _) => Some(Reply::Granted {
                register: self.proposed,
                evicted: None,
            }),
            (Verdict::NotRaised, _) => Some(Reply::NotRaised(self.proposed)),
            (Verdict::Held, Some(holder)) => Some(Reply::Held(holder)),
            (Verdict::Tombstoned, _) => Some(Reply::Tombstoned),
            (Verdict::Held, None) | (Verdict::AskScript { .. }, _) => None,
        }
    }

    /// Releases what was acquired in vain.
    #[doc(hidden)]
    #[must_use]
    pub fn undo(&self) -> Command {
        Command::Release {
            value: self.value.clone(),
            tombstone: None,
            ticket: TicketDisposition::default(),
            follower: None,
            is_lease: false,
        }
    }

    /// Whether this waiter goes first. Its ticket may have expired: only the script, which reads
    /// the time, can decide.
    fn is_behind(&self, head: Option<&TicketId>) -> bool {
        head.is_some_and(|head| !self.may_pass || head.is_fair())
    }
}

/// The plain commands as a node runs them, for checks that compare.
impl LockState {
    /// `SET NX GET`: the holder, if the lock was not free.
    #[doc(hidden)]
    pub fn set_if_free(&mut self, acquire: &PlainAcquire<'_>, now: Duration) -> Option<Holder> {
        self.drop_expired(now);
        let holder = self.held_by(now);
        if holder.is_none() {
            self.hold(acquire.value, acquire.ttl, acquire.proposed, now);
        }
        holder
    }

    /// The commands behind `SET`, which answered `holder`: other clients' commands may have come between. `head`: of
    /// the queue in which the lock is waited for.
    #[doc(hidden)]
    pub fn follow_set(
        &mut self,
        acquire: &PlainAcquire<'_>,
        holder: Option<&Holder>,
        head: Option<&TicketId>,
    ) -> Verdict {
        let lifted = self.lift(acquire.proposed);
        acquire.decide(&Seen {
            holder: holder.map(|holder| &holder.value),
            lifted,
            head,
            is_tombstoned: self.is_tombstoned(acquire),
        })
    }

    /// `ZRANGE`: the head of the queue.
    #[doc(hidden)]
    #[must_use]
    pub fn head(&self) -> Option<&TicketId> {
        self.queue.first().map(|waiting| &waiting.id)
    }

    /// `EXISTS`: whether the attempt's lease was released.
    #[doc(hidden)]
    #[must_use]
    pub fn is_tombstoned(&self, acquire: &PlainAcquire<'_>) -> bool {
        acquire.looks_for_tombstone() && self.has_released_lease_of(acquire.value)
    }

    /// `ZADD GT CH`: whether the register was below.
    #[doc(hidden)]
    pub fn lift(&mut self, to: FencingToken) -> bool {
        let is_below = self.register < to;
        self.register = self.register.max(to);
        is_below
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::owner::Owner;
    use crate::words::ticket::{ClientId, TicketMode};

    const FREE: Seen<'_> = Seen {
        holder: None,
        lifted: true,
        head: None,
        is_tombstoned: false,
    };

    fn value(random: u128) -> AttemptValue {
        AttemptValue::labelled(random, &Owner::readable("me"))
    }

    fn acquire(value: AttemptValue, proposed: u64, turn: Precedence) -> Command {
        Command::Acquire {
            value,
            ttl: Ttl::new(Duration::from_secs(10)).unwrap(),
            proposed: FencingToken::new(proposed).unwrap(),
            turn,
        }
    }

    fn ticket(mode: TicketMode) -> TicketId {
        TicketId::of_mode(&ClientId::of(7), 1, mode, &Owner::readable("waiter"))
    }

    #[test]
    fn only_a_newcomers_attempt_at_a_plain_lock_needs_no_script() {
        let fits = |command: &Command| PlainAcquire::of(command).is_some();
        let turn = Precedence::Ticket(ticket(TicketMode::Default));
        assert!(fits(&acquire(value(1), 5, Precedence::MayPass)));
        assert!(fits(&acquire(value(1), 5, Precedence::PassNobody)));
        assert!(!fits(&acquire(value(1), 5, turn)));
        let reentrant = AttemptValue::reentrant(1, 1);
        let foreign = AttemptValue::reported("my_random_value");
        for value in [reentrant, foreign, AttemptValue::shared()] {
            assert!(!fits(&acquire(value, 5, Precedence::MayPass)));
        }
        for proposed in [0, FencingToken::MAX.get()] {
            assert!(!fits(&acquire(value(1), proposed, Precedence::MayPass)));
        }
        assert!(!fits(&Command::Inspect));
    }

    #[test]
    fn a_grant_is_a_vote_only_where_the_register_was_lifted_from_below() {
        let command = acquire(value(1), 5, Precedence::MayPass);
        let plain = PlainAcquire::of(&command).unwrap();
        assert_eq!(plain.decide(&FREE), Verdict::Granted);
        let not_lifted = Seen {
            lifted: false,
            ..FREE
        };
        assert_eq!(plain.decide(&not_lifted), Verdict::NotRaised);
    }

    #[test]
    fn whoever_does_not_get_the_lock_has_no_vote_although_it_lifts_the_register() {
        let command = acquire(value(1), 5, Precedence::MayPass);
        let plain = PlainAcquire::of(&command).unwrap();
        let other = value(2);
        let held = |holder| Seen {
            holder: Some(holder),
            ..FREE
        };
        assert_eq!(plain.decide(&held(&other)), Verdict::Held);
        let own = value(1);
        let unusual = Verdict::AskScript { is_taken: false };
        assert_eq!(plain.decide(&held(&own)), unusual);
    }

    #[test]
    fn a_lease_that_was_released_is_no_vote_and_only_ids_that_clients_chose_are_looked_for() {
        use crate::words::lease_id::{LeaseAttempt, LeaseId};
        let of = |attempt| LeaseAttempt {
            lease: LeaseId::new(7),
            attempt,
            max_hold: None,
        };
        let owner = Owner::readable("me");
        for (attempt, looks) in [(0, false), (1, true), (2, true)] {
            let value = AttemptValue::leased(1, of(attempt), &owner);
            let command = acquire(value, 5, Precedence::MayPass);
            let plain = PlainAcquire::of(&command).unwrap();
            assert_eq!(plain.looks_for_tombstone(), looks);
        }
        let command = acquire(
            AttemptValue::leased(1, of(1), &owner),
            5,
            Precedence::MayPass,
        );
        let plain = PlainAcquire::of(&command).unwrap();
        let (other, tombstoned) = (
            value(2),
            Seen {
                is_tombstoned: true,
                ..FREE
            },
        );
        assert_eq!(plain.decide(&tombstoned), Verdict::Tombstoned);
        let held = Seen {
            holder: Some(&other),
            ..tombstoned
        };
        assert_eq!(plain.decide(&held), Verdict::Held);
    }

    #[test]
    fn a_newcomer_passes_nobody_who_may_not_be_passed() {
        let passes = acquire(value(1), 5, Precedence::MayPass);
        let passes_nobody = acquire(value(1), 5, Precedence::PassNobody);
        for (command, mode, verdict) in [
            (&passes, TicketMode::Default, Verdict::Granted),
            (
                &passes,
                TicketMode::Fair,
                Verdict::AskScript { is_taken: true },
            ),
            (
                &passes,
                TicketMode::Reader,
                Verdict::AskScript { is_taken: true },
            ),
            (
                &passes_nobody,
                TicketMode::Default,
                Verdict::AskScript { is_taken: true },
            ),
        ] {
            let head = ticket(mode);
            let seen = Seen {
                head: Some(&head),
                ..FREE
            };
            let plain = PlainAcquire::of(command).unwrap();
            assert_eq!(plain.decide(&seen), verdict, "{command:?} behind {mode:?}");
        }
    }
}
