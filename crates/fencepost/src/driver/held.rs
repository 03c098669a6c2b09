//! [`Held`]: what a lease, its renewal and its loss share. [`LeaseState`] decides.

use std::num::NonZeroU32;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::sync::Notify;

use crate::driver::claim::{Access, Claim, Grant, NotExtended};
use crate::driver::coordinator::Coordinator;
use crate::driver::in_flight::InFlight;
use crate::error::LossReason;
use crate::events;
use crate::runtime::clock::Moment;
pub(crate) use fencepost_core::lease::{Asker, Limits};
use fencepost_core::lease::{Extension, LeaseActions, LeaseEvent, LeaseState};
use fencepost_core::quorum::NodeSet;
use fencepost_core::token::FencingToken;

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
    /// When it was acquired.
    since: Moment,
    state: Mutex<LeaseState>,
    /// Commands that were not answered when they no longer mattered; `None` once they are the
    /// releaser's. Its own lock, because an extension hands over while `state` is locked.
    in_flight: Mutex<Option<InFlight>>,
    /// What it has become, if its writer has become a reader: the value lives on in it.
    reader: OnceLock<Arc<Self>>,
    over: Notify,
}

impl Held {
    pub(crate) fn new(
        coordinator: Arc<Coordinator>,
        grant: Grant,
        limits: Limits,
        id: u64,
    ) -> Self {
        let now = coordinator.clock.now();
        let is_open = grant.late.is_open();
        let state = LeaseState::new(grant.claim.ttl, grant.deadline, limits, is_open, now);
        let Grant {
            claim, token, late, ..
        } = grant;
        Self::under(coordinator, now, claim, token, id, state, late)
    }

    fn under(
        coordinator: Arc<Coordinator>,
        since: Moment,
        claim: Claim,
        token: FencingToken,
        id: u64,
        state: LeaseState,
        in_flight: InFlight,
    ) -> Self {
        Self {
            since,
            coordinator,
            claim,
            token,
            entries: AtomicU32::new(1),
            id,
            due: AtomicU64::new(0),
            state: Mutex::new(state),
            in_flight: Mutex::new(Some(in_flight)),
            reader: OnceLock::new(),
            over: Notify::new(),
        }
    }

    /// Ends it, and goes on with the same value and token as a reader, for as long as it would have
    /// lasted. Nothing is sent for the writer from here on, and what is in flight belongs to the
    /// reader: a release of its own would take the reader's lock. `None` if it was over.
    pub(crate) fn turn_into_reader(&self, id: u64) -> Option<Arc<Self>> {
        let mut state = self.state();
        if state.is_over() {
            return None;
        }
        let claim = Claim {
            access: Access::Shared,
            ..self.claim.clone()
        };
        let reader = Self::under(
            Arc::clone(&self.coordinator),
            self.coordinator.clock.now(),
            claim,
            self.token,
            id,
            state.clone(),
            InFlight::default(),
        );
        let reader = self.reader.get_or_init(|| Arc::new(reader));
        let in_flight = self.in_flight().take();
        reader.take_over(in_flight.unwrap_or_default());
        let _ = self.apply(&mut state, LeaseEvent::Released);
        Some(Arc::clone(reader))
    }

    /// How long the lock is still ours: zero when it is not.
    pub(crate) fn remaining(&self) -> Duration {
        let now = self.coordinator.clock.now();
        self.state().remaining(now)
    }

    /// When its validity ends or ended, unless it is extended.
    pub(crate) fn deadline(&self) -> Moment {
        self.state().deadline()
    }

    /// How it was lost, if it was. Looks at the clock.
    pub(crate) fn loss(&self) -> Option<LossReason> {
        let mut state = self.state();
        let _ = self.apply(&mut state, LeaseEvent::Asked);
        state.loss().cloned()
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
        self.state().is_over()
    }

    pub(crate) fn lose(&self, why: LossReason) {
        let _ = self.apply(&mut self.state(), LeaseEvent::Lost(why));
    }

    /// Ends it because its holder releases it. What may still be in flight to the nodes is the
    /// releaser's now. `None` if it was released before.
    pub(crate) fn begin_release(&self) -> Option<InFlight> {
        let _ = self.apply(&mut self.state(), LeaseEvent::Released);
        self.in_flight().take()
    }

    /// When there is something to do for it, if it is not over.
    pub(crate) fn look_at(&self) -> Option<Moment> {
        self.state().look_at()
    }

    /// The moment has come that it named. The caller begins the renewal that may be due.
    pub(crate) fn on_due(&self) -> LeaseActions {
        let actions = self.apply(&mut self.state(), LeaseEvent::Due);
        if actions.tidy
            && let Some(in_flight) = &mut *self.in_flight()
        {
            in_flight.settle();
        }
        actions
    }

    /// Applies an event to the lease, and publishes what follows from it.
    fn apply(&self, state: &mut LeaseState, event: LeaseEvent) -> LeaseActions {
        let now = self.coordinator.clock.now();
        let was_over = state.is_over();
        let actions = state.on(event, now);
        if !was_over && state.is_over() {
            events::ended(now.since(self.since));
        }
        if let Some(why) = &actions.lost {
            events::lost(&self.claim.name, self.token, why);
        }
        if actions.ended {
            self.over.notify_waiters();
        }
        actions
    }

    /// One round of extending, which sends nothing any more once the lease is over.
    pub(crate) fn extend(self: &Arc<Self>, asker: Asker) -> Extending {
        let (until, limit) = {
            let state = self.state();
            let now = self.coordinator.clock.now();
            (state.deadline(), state.time_to_extend(asker, now))
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

    /// Keeps commands that are no longer awaited, or releases them at once if the lease has been
    /// released meanwhile.
    fn take_over(&self, late: InFlight) {
        match (&mut *self.in_flight(), self.reader.get()) {
            (Some(kept), _) => kept.join(late),
            (None, Some(reader)) => reader.take_over(late),
            (None, None) => self
                .coordinator
                .spawn_release(self.claim.clone(), NodeSet::NONE, late),
        }
    }

    fn state(&self) -> MutexGuard<'_, LeaseState> {
        // A panic while it was locked cannot have left it half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn in_flight(&self) -> MutexGuard<'_, Option<InFlight>> {
        self.in_flight
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// An extension in flight.
///
/// It is polled with the state locked, and not at all once the lease is over: so that nothing for
/// this lease is sent after any thread has ended it.
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
        let mut state = held.state();
        if state.is_over() {
            return Poll::Ready(None);
        }
        let outcome = ready!(this.round.as_mut().poll(cx));
        let in_flight = held.in_flight().as_ref().is_some_and(InFlight::is_open);
        let event = LeaseEvent::Extended {
            asker: this.asker,
            outcome: noted(&outcome),
            in_flight,
        };
        let _ = held.apply(&mut state, event);
        let outcome = match outcome {
            // Too late for the deadline that it had at first, and another extension has moved that.
            Err(NotExtended::TooLate) if !state.is_over() => Ok(state.deadline()),
            outcome => outcome,
        };
        Poll::Ready(Some(outcome))
    }
}

fn noted(outcome: &Result<Moment, NotExtended>) -> Extension {
    match outcome {
        Ok(deadline) => Extension::Extended(*deadline),
        Err(NotExtended::NoQuorum(_)) => Extension::NoQuorum,
        Err(NotExtended::Lost(why)) => Extension::Lost(why.clone()),
        Err(NotExtended::TooLate) => Extension::TooLate,
    }
}
