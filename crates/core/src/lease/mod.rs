//! [`LeaseState`]: the deadline of a lease, when to renew it, and how it ends. Pure.
//!
//! A lease that might not be held must never report that it is. Once over, it never becomes valid
//! again, whatever is learned later.

use std::time::Duration;

use crate::outcome::LossReason;
use crate::words::moment::Moment;
use crate::words::ttl::Ttl;

/// How long before the end of its validity a lease that cannot be renewed reports its loss: a
/// fraction of the TTL, between two bounds. Timers have millisecond resolution and fire late on a
/// busy machine.
const NOTICE_SHARE: u32 = 20;
const SHORTEST_NOTICE: Duration = Duration::from_millis(2);
const LONGEST_NOTICE: Duration = Duration::from_millis(25);
/// Renewals per TTL.
const RENEWALS_PER_TTL: u32 = 3;
/// Retries of a failed renewal per TTL.
const RETRIES_PER_TTL: u32 = 20;
/// How long to keep unawaited commands in flight before dropping those that were answered: each
/// takes two kilobytes. A lock that is released earlier never wakes the renewer.
pub const TIDY_AFTER: Duration = Duration::from_secs(1);

/// Limits on renewal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Whether the lease is renewed at all.
    pub renew: bool,
    /// Maximum total hold time, including renewals and extensions.
    pub max_hold: Option<Duration>,
    /// Maximum number of renewals. Extensions requested by the holder do not count.
    pub max_renewals: Option<u32>,
}

/// Who requested an extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asker {
    /// The holder, who waits as long as success is possible.
    Holder,
    /// The renewer, which retries, and so gives up on silent nodes while there is time for another
    /// try.
    Renewer,
}

/// The result of one round of extending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Extension {
    /// A majority holds the lease until this moment.
    Extended(Moment),
    /// Too few nodes answered.
    NoQuorum,
    /// A majority no longer held the lease.
    Lost(LossReason),
    /// The deadline at the start of the round passed before a majority had answered.
    TooLate,
}

/// An event in the life of a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseEvent {
    /// The moment named by [`LeaseActions::look_at`] has come.
    Due,
    /// A caller asks whether the lease is still held.
    Asked,
    /// A round of extending has ended.
    Extended {
        /// Who requested it.
        asker: Asker,
        /// Its result.
        outcome: Extension,
        /// Whether unawaited commands of this lease are in flight.
        in_flight: bool,
    },
    /// The holder releases the lease, or continues under another one.
    Released,
    /// The lease can no longer be maintained.
    Lost(LossReason),
}

/// What the driver has to do for a lease.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct LeaseActions {
    /// Report the loss, with this reason.
    pub lost: Option<LossReason>,
    /// Wake the tasks that wait for the end of the lease.
    pub ended: bool,
    /// Drop the commands in flight that were answered.
    pub tidy: bool,
    /// Start a renewal.
    pub renew: bool,
    /// When to look again. `None`: never.
    pub look_at: Option<Moment>,
}

/// One lease, as its holder sees it.
#[derive(Clone, Debug)]
pub struct LeaseState {
    ttl: Ttl,
    deadline: Moment,
    /// When the lease ends regardless of renewals.
    last_end: Option<Moment>,
    renews: bool,
    renewals_left: Option<u32>,
    /// `None` while a renewal is in flight.
    next_renewal: Option<Moment>,
    /// When to drop answered commands.
    tidy: Option<Moment>,
    /// Whether the last renewal found no quorum.
    without_quorum: bool,
    end: Option<End>,
}

#[derive(Clone, Debug)]
enum End {
    Released,
    Lost(LossReason),
}

impl LeaseState {
    /// A lease that was just acquired and is valid until `deadline`. `in_flight`: whether commands
    /// of its attempt are still unanswered.
    #[must_use]
    pub fn new(ttl: Ttl, deadline: Moment, limits: Limits, in_flight: bool, now: Moment) -> Self {
        // A lock that took long to acquire has less than its TTL left.
        let left = deadline.since(now);
        let first = (ttl.get() / RENEWALS_PER_TTL).min(left / 2);
        let mut lease = Self {
            ttl,
            deadline,
            last_end: limits.max_hold.map(|time| now + time),
            renews: limits.renew,
            renewals_left: limits.max_renewals,
            next_renewal: Some(now + first),
            tidy: in_flight.then(|| now + TIDY_AFTER),
            without_quorum: false,
            end: None,
        };
        lease.prolong(deadline);
        lease
    }

    /// Applies an event and returns the resulting actions.
    pub fn on(&mut self, event: LeaseEvent, now: Moment) -> LeaseActions {
        let mut actions = LeaseActions::default();
        match event {
            LeaseEvent::Released => {
                self.end.get_or_insert(End::Released);
                actions.ended = true;
            }
            _ if self.is_over() => {}
            LeaseEvent::Lost(why) => self.lose(why, &mut actions),
            LeaseEvent::Asked => {
                if now >= self.deadline {
                    self.lose(self.why_it_ends(now), &mut actions);
                }
            }
            LeaseEvent::Due => self.due(now, &mut actions),
            LeaseEvent::Extended {
                asker,
                outcome,
                in_flight,
            } => self.extended(asker, outcome, in_flight, now, &mut actions),
        }
        actions.look_at = self.look_at();
        actions
    }

    fn due(&mut self, now: Moment, actions: &mut LeaseActions) {
        if now >= self.notice() {
            return self.lose(self.why_it_ends(now), actions);
        }
        if self.tidy.is_some_and(|when| when <= now) {
            // Only once: what is still unanswered now waits for the next extension or the release.
            self.tidy = None;
            actions.tidy = true;
        }
        if self.may_renew() && self.next_renewal.is_some_and(|when| when <= now) {
            self.next_renewal = None;
            actions.renew = true;
        }
    }

    fn extended(
        &mut self,
        asker: Asker,
        outcome: Extension,
        in_flight: bool,
        now: Moment,
        actions: &mut LeaseActions,
    ) {
        let ttl = self.ttl.get();
        let deadline = match outcome {
            Extension::Extended(deadline) => deadline,
            // A majority holds the lease for another TTL. Only the deadline at the start of the
            // round has passed, and a renewal has moved it since.
            Extension::TooLate if now < self.deadline => self.deadline,
            Extension::TooLate => return self.lose(self.why_it_ends(now), actions),
            // Its time was up, too.
            Extension::Lost(LossReason::Unknown) if now >= self.deadline => {
                return self.lose(self.why_it_ends(now), actions);
            }
            Extension::Lost(why) => return self.lose(why, actions),
            // A round ends well before the deadline, unless the process did not run: then that is why.
            Extension::NoQuorum if now >= self.deadline => {
                return self.lose(self.why_it_ends(now), actions);
            }
            Extension::NoQuorum => {
                self.without_quorum = true;
                self.next_renewal = Some(now + ttl / RETRIES_PER_TTL);
                return;
            }
        };
        if asker == Asker::Renewer {
            self.renewals_left = self.renewals_left.map(|left| left.saturating_sub(1));
        }
        self.prolong(deadline);
        self.without_quorum = false;
        self.next_renewal = Some(now + ttl / RENEWALS_PER_TTL);
        self.tidy = in_flight.then(|| now + TIDY_AFTER);
    }

    fn lose(&mut self, why: LossReason, actions: &mut LeaseActions) {
        self.end = Some(End::Lost(why.clone()));
        actions.lost = Some(why);
        actions.ended = true;
    }

    /// When to look again, unless the lease is over.
    #[must_use]
    pub fn look_at(&self) -> Option<Moment> {
        if self.is_over() {
            return None;
        }
        let renewal = self.next_renewal.filter(|_| self.may_renew());
        let first = renewal.into_iter().chain(self.tidy).min();
        let notice = self.notice();
        Some(first.map_or(notice, |first| first.min(notice)))
    }

    /// The deadline, unless the lease is over.
    #[must_use]
    pub fn deadline(&self) -> Moment {
        self.deadline
    }

    /// Remaining validity; zero if the lease is over.
    #[must_use]
    pub fn remaining(&self, now: Moment) -> Duration {
        match self.end {
            Some(_) => Duration::ZERO,
            None => self.deadline.since(now),
        }
    }

    /// Whether the lease was released or lost. Reads no clock: see [`LeaseEvent::Asked`].
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.end.is_some()
    }

    /// Why the lease was lost, if known.
    #[must_use]
    pub fn loss(&self) -> Option<&LossReason> {
        match &self.end {
            Some(End::Lost(why)) => Some(why),
            _ => None,
        }
    }

    /// How long a round of extending that starts now may wait for the nodes.
    #[must_use]
    pub fn time_to_extend(&self, asker: Asker, now: Moment) -> Duration {
        let left = self.deadline.since(now);
        match asker {
            Asker::Holder => left,
            Asker::Renewer => left / 2,
        }
    }

    /// When to report the loss, unless the lease is renewed first.
    fn notice(&self) -> Moment {
        let share = self.ttl.get() / NOTICE_SHARE;
        self.deadline - share.clamp(SHORTEST_NOTICE, LONGEST_NOTICE)
    }

    fn prolong(&mut self, deadline: Moment) {
        let deadline = self.deadline.max(deadline);
        self.deadline = self.last_end.map_or(deadline, |end| end.min(deadline));
    }

    fn may_renew(&self) -> bool {
        self.renews && self.renewals_left != Some(0) && self.last_end != Some(self.deadline)
    }

    fn why_it_ends(&self, now: Moment) -> LossReason {
        let no_more = self.renewals_left == Some(0) || self.last_end == Some(self.deadline);
        if no_more {
            LossReason::MaxHold
        } else if self.without_quorum {
            LossReason::NoQuorum
        } else if !self.renews {
            LossReason::Expired
        } else if now >= self.deadline {
            // The warning before the deadline was missed.
            LossReason::Suspended
        } else if self.next_renewal.is_none() {
            LossReason::NoQuorum
        } else {
            LossReason::Expired
        }
    }
}

#[cfg(test)]
mod tests;
