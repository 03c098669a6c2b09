//! [`LeaseState`]: the deadline of a lease, when to renew it, and how it ends. Pure.
//!
//! A lease that might not be held must never say that it is, and one that is over never comes back,
//! whatever is learnt later.

use std::time::Duration;

use crate::outcome::LossReason;
use crate::words::moment::Moment;
use crate::words::ttl::Ttl;

/// How long before the end of its validity a lease that cannot be renewed says that it is lost: a
/// share of the TTL between two bounds. Timers are late by a millisecond, because they count whole
/// ones, and by more on a busy machine.
const NOTICE_SHARE: u32 = 20;
const SHORTEST_NOTICE: Duration = Duration::from_millis(2);
const LONGEST_NOTICE: Duration = Duration::from_millis(25);
/// How often a lease is renewed in one TTL.
const RENEWALS_PER_TTL: u32 = 3;
/// How often a renewal that failed is tried again in one TTL.
const RETRIES_PER_TTL: u32 = 20;
/// How long commands in flight that are no longer awaited are kept before those that were answered are
/// dropped: each takes two kilobytes. A lock that is released by then never wakes the renewer.
pub const TIDY_AFTER: Duration = Duration::from_secs(1);

/// How long and how often a lease may be renewed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Not at all, unless this is set.
    pub renew: bool,
    /// How long it may last, however often it is renewed or extended.
    pub max_hold: Option<Duration>,
    /// How often it may be renewed. Extensions that the holder asks for do not count.
    pub max_renewals: Option<u32>,
}

/// Who wants a lease to be extended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asker {
    /// Its holder, who waits for as long as there is hope.
    Holder,
    /// The renewer, which tries again: so it gives up on silent nodes while there is time for that.
    Renewer,
}

/// How a round of extending ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Extension {
    /// A majority has it until then.
    Extended(Moment),
    /// Too few nodes could be asked.
    NoQuorum,
    /// A majority no longer had it.
    Lost(LossReason),
    /// The deadline that it had when the round began passed before a majority had answered.
    TooLate,
}

/// What happens to a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseEvent {
    /// The moment has come that [`LeaseActions::look_at`] named.
    Due,
    /// A caller wants to know whether it is still held.
    Asked,
    /// A round of extending has ended.
    Extended {
        /// Who asked for it.
        asker: Asker,
        /// How it went.
        outcome: Extension,
        /// Whether commands of this lease are in flight that are no longer awaited.
        in_flight: bool,
    },
    /// Its holder releases it, or goes on under another lease.
    Released,
    /// It cannot be looked after any more.
    Lost(LossReason),
}

/// What to do about a lease.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct LeaseActions {
    /// Tell that it is lost, for this reason.
    pub lost: Option<LossReason>,
    /// Wake the tasks that wait for its end.
    pub ended: bool,
    /// Drop the commands in flight that have been answered.
    pub tidy: bool,
    /// Begin a renewal.
    pub renew: bool,
    /// When there is something to do next. `None`: never again.
    pub look_at: Option<Moment>,
}

/// One lease, as its holder knows it.
#[derive(Clone, Debug)]
pub struct LeaseState {
    ttl: Ttl,
    deadline: Moment,
    /// When it ends however often it is renewed.
    last_end: Option<Moment>,
    renews: bool,
    renewals_left: Option<u32>,
    /// `None` while a renewal is in flight.
    next_renewal: Option<Moment>,
    /// When to drop commands in flight that have been answered.
    tidy: Option<Moment>,
    /// The last renewal found too few nodes.
    without_quorum: bool,
    end: Option<End>,
}

#[derive(Clone, Debug)]
enum End {
    Released,
    Lost(LossReason),
}

impl LeaseState {
    /// A lock that was acquired just now, and is valid until `deadline`. `in_flight` tells whether
    /// commands of its attempt are still unanswered.
    #[must_use]
    pub fn new(ttl: Ttl, deadline: Moment, limits: Limits, in_flight: bool, now: Moment) -> Self {
        // A lock that was slow to get has less than its TTL left.
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

    /// Applies an event, and returns what to do.
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
            // Once only: what is not answered by now waits for the next extension or the release.
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
            // A majority has it for another TTL. Only the deadline that it had when this began has
            // passed: a renewal has moved that meanwhile.
            Extension::TooLate if now < self.deadline => self.deadline,
            Extension::TooLate => return self.lose(self.why_it_ends(now), actions),
            Extension::Lost(why) => return self.lose(why, actions),
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

    /// When there is something to do for it, unless it is over.
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

    /// Until when the lock is ours, if it is not over.
    #[must_use]
    pub fn deadline(&self) -> Moment {
        self.deadline
    }

    /// How long the lock is still ours: zero when it is not.
    #[must_use]
    pub fn remaining(&self, now: Moment) -> Duration {
        match self.end {
            Some(_) => Duration::ZERO,
            None => self.deadline.since(now),
        }
    }

    /// Whether it has been released or lost. Looks at no clock: see [`LeaseEvent::Asked`].
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.end.is_some()
    }

    /// How it was lost, if that is known.
    #[must_use]
    pub fn loss(&self) -> Option<&LossReason> {
        match &self.end {
            Some(End::Lost(why)) => Some(why),
            _ => None,
        }
    }

    /// How long a round of extending that begins now may wait for the nodes.
    #[must_use]
    pub fn time_to_extend(&self, asker: Asker, now: Moment) -> Duration {
        let left = self.deadline.since(now);
        match asker {
            Asker::Holder => left,
            Asker::Renewer => left / 2,
        }
    }

    /// When to tell that it is lost, if it is not renewed before.
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
            // The notice before the deadline was missed.
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
