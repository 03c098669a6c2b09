//! [`Held`]: what a lease, its renewal and its loss share.
//!
//! A lease that is over never comes back: whatever is learnt later, by whomever, changes nothing.

use std::num::NonZeroU32;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::sync::Notify;

use crate::driver::coordinator::{Access, Claim, Coordinator, Grant, NotExtended};
use crate::driver::in_flight::InFlight;
use crate::error::LossReason;
use crate::events;
use crate::runtime::clock::Moment;
use fencepost_core::quorum::NodeSet;
use fencepost_core::token::FencingToken;

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
/// How long commands that nobody waits for are kept before those that were answered are let go:
/// each takes two kilobytes. No sooner than the scheduler looks anyway, so that a lock that is given
/// back by then never wakes it.
const TIDY_AFTER: Duration = super::renewer::LONGEST_NAP;

/// How long and how often a lease may be renewed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Not at all, unless this is set.
    pub(crate) renew: bool,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) max_renewals: Option<u32>,
}

/// A lock that is or was held.
pub(crate) struct Held {
    pub(crate) coordinator: Arc<Coordinator>,
    pub(crate) claim: Claim,
    pub(crate) token: FencingToken,
    /// How often its holder has entered: more than once where the lock is reentrant.
    pub(crate) entries: AtomicU32,
    /// Its place on the agenda; see there.
    pub(crate) id: u64,
    pub(crate) due: AtomicU64,
    terms: Mutex<Terms>,
    /// Commands that were not answered when they no longer mattered; `None` once they are the
    /// releaser's. Its own lock, because an extension hands over while `terms` is locked.
    late: Mutex<Option<InFlight>>,
    /// What it has become, if its writer has become a reader: the value lives on in it.
    heir: OnceLock<Arc<Self>>,
    over: Notify,
}

#[derive(Clone)]
pub(crate) struct Terms {
    deadline: Moment,
    /// When it ends however often it is renewed.
    last_end: Option<Moment>,
    renews: bool,
    renewals_left: Option<u32>,
    /// `None` while a renewal is under way.
    next_renewal: Option<Moment>,
    /// When to let go of late commands that have been answered.
    tidy: Option<Moment>,
    /// The last renewal found too few nodes.
    without_quorum: bool,
    end: Option<End>,
}

#[derive(Clone)]
enum End {
    Released,
    Lost(LossReason),
}

/// Who wants a lease to be extended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asker {
    /// Its holder, who waits for as long as there is hope.
    Holder,
    /// The schedule, which tries again: so it gives up on silent nodes while there is time for that.
    Renewer,
}

/// What the scheduler has to do for a lease.
pub(crate) enum Due {
    /// Nothing, ever again.
    Over,
    /// Renew it, and look again at that moment.
    Renew(Moment),
    /// Look again at that moment.
    Later(Moment),
}

impl Held {
    pub(crate) fn new(
        coordinator: Arc<Coordinator>,
        grant: Grant,
        limits: Limits,
        id: u64,
    ) -> Self {
        let now = coordinator.clock.now();
        let last_end = limits.max_hold.map(|time| now + time);
        // A lock that was slow to get has less than its TTL left.
        let left = grant.deadline.since(now);
        let first = (grant.claim.ttl.get() / RENEWALS_PER_TTL).min(left / 2);
        let mut terms = Terms {
            deadline: grant.deadline,
            last_end,
            renews: limits.renew,
            renewals_left: limits.max_renewals,
            next_renewal: Some(now + first),
            tidy: grant.late.is_open().then(|| now + TIDY_AFTER),
            without_quorum: false,
            end: None,
        };
        terms.prolong(grant.deadline);
        Self::under(coordinator, grant.claim, grant.token, id, terms, grant.late)
    }

    fn under(
        coordinator: Arc<Coordinator>,
        claim: Claim,
        token: FencingToken,
        id: u64,
        terms: Terms,
        late: InFlight,
    ) -> Self {
        Self {
            coordinator,
            claim,
            token,
            entries: AtomicU32::new(1),
            id,
            due: AtomicU64::new(0),
            terms: Mutex::new(terms),
            late: Mutex::new(Some(late)),
            heir: OnceLock::new(),
            over: Notify::new(),
        }
    }

    /// Ends it, and goes on with the same value and token as a reader, for as long as it would have
    /// lasted. Nothing is sent for the writer from here on, and what is on its way belongs to the
    /// reader: a release of its own would take the reader's lock. `None` if it was over.
    pub(crate) fn turn_into_reader(&self, id: u64) -> Option<Arc<Self>> {
        let mut terms = self.terms();
        if terms.end.is_some() {
            return None;
        }
        let claim = Claim {
            access: Access::Shared,
            ..self.claim.clone()
        };
        let reader = Self::under(
            Arc::clone(&self.coordinator),
            claim,
            self.token,
            id,
            terms.clone(),
            InFlight::default(),
        );
        let reader = self.heir.get_or_init(|| Arc::new(reader));
        terms.end = Some(End::Released);
        let late = self.late().take();
        drop(terms);
        reader.take_over(late.unwrap_or_default());
        self.tell();
        Some(Arc::clone(reader))
    }

    /// How long the lock is still ours: zero when it is not.
    pub(crate) fn remaining(&self) -> Duration {
        let terms = self.terms();
        match terms.end {
            Some(_) => Duration::ZERO,
            None => terms.deadline.since(self.coordinator.clock.now()),
        }
    }

    /// How it was lost, if it was. Looks at the clock.
    pub(crate) fn loss(&self) -> Option<LossReason> {
        let mut terms = self.terms();
        let now = self.coordinator.clock.now();
        if terms.end.is_none() && now >= terms.deadline {
            let why = terms.why_it_ends(now);
            self.lose_by(&mut terms, why);
        }
        match &terms.end {
            Some(End::Lost(why)) => Some(why.clone()),
            _ => None,
        }
    }

    /// Resolves when the lease is lost.
    pub(crate) async fn lost(&self) -> LossReason {
        loop {
            let mut over = std::pin::pin!(self.over.notified());
            // Before looking, so that a loss in between is not missed.
            over.as_mut().enable();
            if let Some(why) = self.loss() {
                return why;
            }
            over.await;
        }
    }

    /// Resolves when the lease is over: lost, and how, or released.
    pub(crate) async fn ended(&self) -> Option<LossReason> {
        loop {
            let mut over = std::pin::pin!(self.over.notified());
            over.as_mut().enable();
            let why = self.loss();
            if why.is_some() || self.is_over() {
                return why;
            }
            over.await;
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.terms().end.is_some()
    }

    pub(crate) fn lose(&self, why: LossReason) {
        self.lose_by(&mut self.terms(), why);
    }

    fn lose_by(&self, terms: &mut Terms, why: LossReason) {
        if terms.end.is_some() {
            return;
        }
        events::lost(&self.claim.name, self.token, &why);
        terms.end = Some(End::Lost(why));
        self.tell();
    }

    /// Ends it because its holder gives it back. What may still be on its way to the nodes is the
    /// releaser's now. `None` if it was released before.
    pub(crate) fn give_back(&self) -> Option<InFlight> {
        self.terms().end.get_or_insert(End::Released);
        self.tell();
        self.late().take()
    }

    fn tell(&self) {
        self.over.notify_waiters();
    }

    /// When there is something to do for it, if it is not over.
    pub(crate) fn first_look(&self) -> Option<Moment> {
        let terms = self.terms();
        match terms.end {
            Some(_) => None,
            None => Some(self.next_look(&terms)),
        }
    }

    fn next_look(&self, terms: &Terms) -> Moment {
        let renewal = terms.next_renewal.filter(|_| terms.may_renew());
        let first = renewal.into_iter().chain(terms.tidy).min();
        let notice = self.notice(terms);
        first.map_or(notice, |first| first.min(notice))
    }

    /// When to tell that it is lost, if it is not renewed before.
    fn notice(&self, terms: &Terms) -> Moment {
        let share = self.claim.ttl.get() / NOTICE_SHARE;
        terms.deadline - share.clamp(SHORTEST_NOTICE, LONGEST_NOTICE)
    }

    /// What is due now. The caller has to carry it out.
    pub(crate) fn due_now(&self) -> Due {
        let mut terms = self.terms();
        let now = self.coordinator.clock.now();
        if terms.end.is_some() {
            return Due::Over;
        }
        let notice = self.notice(&terms);
        if now >= notice {
            let why = terms.why_it_ends(now);
            self.lose_by(&mut terms, why);
            return Due::Over;
        }
        if terms.tidy.is_some_and(|when| when <= now) {
            // Once only: what is not answered by now waits for the next extension or the release.
            terms.tidy = None;
            if let Some(late) = &mut *self.late() {
                late.settle();
            }
        }
        let due = terms.next_renewal.is_some_and(|when| when <= now);
        if due && terms.may_renew() {
            terms.next_renewal = None;
            return Due::Renew(self.next_look(&terms));
        }
        Due::Later(self.next_look(&terms))
    }

    /// One round of extending, which sends nothing any more once the lease is over.
    pub(crate) fn extend(self: &Arc<Self>, asker: Asker) -> Extending {
        let until = self.terms().deadline;
        let left = until.since(self.coordinator.clock.now());
        let limit = match asker {
            Asker::Holder => left,
            Asker::Renewer => left / 2,
        };
        let held = Arc::clone(self);
        let round = async move {
            let late = |late| held.take_over(late);
            let coordinator = &held.coordinator;
            let (claim, token) = (&held.claim, held.token);
            // The number and not its change: a node that has missed one learns it with the next.
            let entries = NonZeroU32::new(held.entries.load(Ordering::Relaxed));
            let entries = entries.unwrap_or(NonZeroU32::MIN);
            coordinator
                .extend(claim, token, entries, until, limit, late)
                .await
        };
        Extending {
            held: Arc::clone(self),
            asker,
            round: Box::pin(round),
        }
    }

    /// Takes note of how an extension went.
    fn extended(&self, terms: &mut Terms, asker: Asker, outcome: &Result<Moment, NotExtended>) {
        let now = self.coordinator.clock.now();
        let ttl = self.claim.ttl.get();
        match outcome {
            Ok(deadline) => {
                if asker == Asker::Renewer {
                    terms.renewals_left = terms.renewals_left.map(|left| left.saturating_sub(1));
                }
                terms.prolong(*deadline);
                terms.without_quorum = false;
                terms.next_renewal = Some(now + ttl / RENEWALS_PER_TTL);
                let open = self.late().as_ref().is_some_and(InFlight::is_open);
                terms.tidy = open.then(|| now + TIDY_AFTER);
            }
            Err(NotExtended::NoQuorum(_)) => {
                terms.without_quorum = true;
                terms.next_renewal = Some(now + ttl / RETRIES_PER_TTL);
            }
            Err(NotExtended::Lost(why)) => self.lose_by(terms, why.clone()),
            Err(NotExtended::TooLate) => self.lose_by(terms, terms.why_it_ends(now)),
        }
    }

    /// Keeps commands that nobody waits for any more, or sees to them at once if the lease has been
    /// given back meanwhile.
    fn take_over(&self, late: InFlight) {
        match (&mut *self.late(), self.heir.get()) {
            (Some(kept), _) => kept.join(late),
            (None, Some(reader)) => reader.take_over(late),
            (None, None) => self
                .coordinator
                .let_go(self.claim.clone(), NodeSet::NONE, late),
        }
    }

    pub(crate) fn terms(&self) -> MutexGuard<'_, Terms> {
        // A panic while it was locked cannot have left it half changed.
        self.terms.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn late(&self) -> MutexGuard<'_, Option<InFlight>> {
        self.late.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Terms {
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

/// An extension under way.
///
/// It is polled with the terms locked, and not at all once the lease is over: so that nothing for
/// this lease is sent after somebody has ended it, on whatever thread.
pub(crate) struct Extending {
    held: Arc<Held>,
    asker: Asker,
    round: Pin<Box<dyn Future<Output = Result<Moment, NotExtended>> + Send>>,
}

impl Future for Extending {
    /// How it went, noted already. `None` when the lease was over.
    type Output = Option<Result<Moment, NotExtended>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let held = &*this.held;
        let mut terms = held.terms();
        if terms.end.is_some() {
            return Poll::Ready(None);
        }
        let outcome = match ready!(this.round.as_mut().poll(cx)) {
            // A majority has it for another TTL. Only the end that it had when this began has
            // passed: a renewal has moved that meanwhile.
            Err(NotExtended::TooLate) if held.coordinator.clock.now() < terms.deadline => {
                Ok(terms.deadline)
            }
            outcome => outcome,
        };
        held.extended(&mut terms, this.asker, &outcome);
        Poll::Ready(Some(outcome))
    }
}
