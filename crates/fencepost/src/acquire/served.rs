//! A lock that a lock service acquires for us: it waits in the service's queue, and not in ours.
//!
//! One request has one lease id, whatever happens. What is not known to have failed is asked for again
//! under the same id; and if it comes to nothing in the end, the id is released, so that nothing of it
//! can acquire the lock later.

use std::convert::Infallible;
use std::iter::once;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;
use tracing::Instrument;

use super::any::{AnyOf, Found};
use super::slots::Kind;
use crate::driver::claim::{Access, Claim, Grant};
use crate::driver::identity::ValueForm;
use crate::driver::in_flight::InFlight;
use crate::driver::shared::Shared;
use crate::driver::waiters::Progress;
use crate::error::{Cause, Error, HolderStatus, NodeOutcome, not_offered};
use crate::events;
use crate::lease::Lease;
use crate::options::Watcher;
use crate::store::LockService;
use crate::store::lock_service::{Served, Wanted};
use fencepost_core::lock::{Command, Repair, Reply};
use fencepost_core::wait::backoff::Backoff;

/// How long one request to the service waits: a replica that has died without a word is noticed after
/// that. The place in the queue is kept from one to the next.
const SLICE: Duration = Duration::from_secs(15);
/// How often the progress of a wait is reported.
const TELL_EVERY: Duration = Duration::from_secs(1);
/// How often in a row an attempt is sent again because something between us had sent it twice.
const MOST_REPEATS: u32 = 3;
/// The pauses while the service cannot be asked.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(1));

impl AnyOf<'_> {
    pub(super) async fn served_by(mut self, service: &dyn LockService) -> Result<Found, Error> {
        let limit = self.spec.budget.limit();
        let wanted = self.wanted()?;
        let clock = &self.shared.coordinator.clock;
        let (span, start) = (events::acquiring(&wanted.name), clock.now());
        let waiting = (!self.spec.budget.is_over()).then(events::Waiting::begin);
        let outcome = self.ask(service, &wanted).instrument(span.clone()).await;
        let took = clock.now().since(start);
        let _in_span = span.enter();
        match &outcome {
            Ok((_, lease)) => {
                events::acquired(&span, &wanted.name, lease.token(), took);
                if let Some(waiting) = waiting {
                    waiting.served(took);
                }
            }
            Err(error) => events::contended(&wanted.name, error),
        }
        outcome.map_err(|error| error.after_wait(limit))
    }

    /// What the service is asked for.
    fn wanted(&self) -> Result<Wanted, Error> {
        let is_semaphore = |kind| kind == Kind::Semaphore;
        if !self.slots.is_none_or(|slots| is_semaphore(slots.kind)) {
            return Err(not_offered("latches and barriers"));
        }
        if matches!(self.spec.form, ValueForm::Reentrant) {
            return Err(not_offered("reentrant locks"));
        }
        if self.spec.on_behalf.is_some() {
            return Err(not_offered("being the store of another service"));
        }
        let claim = self.spec.claim(self.shared, self.names[0].clone(), None)?;
        let name = self.slots.map_or(claim.name, |slots| slots.whole.clone());
        let mut wanted = Wanted::new(name, claim.value, claim.ttl);
        wanted.fair = self.spec.fair;
        wanted.shared = self.spec.access == Access::Shared;
        wanted.slots = self.slots.map(|slots| slots.names.len());
        Ok(wanted)
    }

    async fn ask(&mut self, service: &dyn LockService, wanted: &Wanted) -> Result<Found, Error> {
        let coordinator = &self.shared.coordinator;
        let mut lease = Unfinished {
            shared: self.shared,
            claims: self
                .names
                .iter()
                .map(|name| self.claim(name, wanted))
                .collect(),
            wanted,
            refused: 0,
        };
        let mut backoff = BACKOFF;
        let mut repeats = 0;
        loop {
            let left = self.spec.budget.left();
            let wait = left.map_or(SLICE, |left| left.min(SLICE));
            let answer = tokio::select! {
                biased;
                answer = service.acquire(wanted, wait) => answer,
                never = tell(self.shared, wanted, self.spec.watcher.as_ref()) => match never {},
            };
            let error = match answer {
                Ok(Served::Granted {
                    token,
                    deadline,
                    slot,
                }) => {
                    let index = slot.unwrap_or(0);
                    let now = coordinator.clock.now();
                    if let Some(claim) = lease.claims.get(index).filter(|_| now < deadline) {
                        let grant = Grant {
                            claim: claim.clone(),
                            token,
                            deadline,
                            late: InFlight::default(),
                            evicted: None,
                        };
                        lease.claims.clear();
                        let lease = Lease::new(self.shared.clone(), grant, self.spec.limits);
                        return Ok((index, lease));
                    }
                    // The next attempt has it for as long again.
                    Error::from(Cause::TooLate {
                        name: wanted.name.clone(),
                        took: wait,
                        ttl: wanted.ttl.get(),
                    })
                }
                Ok(Served::Held(holder)) => {
                    lease.refused += 1;
                    self.spec.budget.saw_quorum();
                    backoff = BACKOFF;
                    Error::held(wanted.name.clone(), HolderStatus::of(&holder))
                }
                Ok(Served::AlreadyServed) if repeats < MOST_REPEATS => {
                    repeats += 1;
                    continue;
                }
                Ok(Served::AlreadyServed) => {
                    let outcome = NodeOutcome::Pending;
                    coordinator.no_quorum(wanted.name.clone(), once(outcome))
                }
                Err(error) => {
                    let outcome = NodeOutcome::Failed(error);
                    coordinator.no_quorum(wanted.name.clone(), once(outcome))
                }
            };
            if !self.spec.budget.goes_on_after(&error) {
                return Err(error);
            }
            if !error.is_refusal() {
                let pause = backoff.next(coordinator.randomness.share());
                tokio::select! {
                    biased;
                    () = self.spec.budget.ends() => {}
                    () = sleep(pause) => {}
                }
            }
        }
    }

    fn claim(&self, name: &fencepost_core::LockName, wanted: &Wanted) -> Claim {
        Claim {
            name: name.clone(),
            value: wanted.value.clone(),
            ttl: wanted.ttl,
            access: self.spec.access,
            ticket: None,
            outlives: false,
            repair: Repair::UnlessOvertaken,
        }
    }
}

/// A lease id that may or may not have got the lock. Dropped, it is released.
struct Unfinished<'a> {
    shared: &'a Arc<Shared>,
    /// One for each name that it may have.
    claims: Vec<Claim>,
    wanted: &'a Wanted,
    /// How many attempts are known to have come to nothing.
    refused: u32,
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if self.refused == self.wanted.attempts() {
            return;
        }
        let coordinator = &self.shared.coordinator;
        for claim in self.claims.drain(..) {
            coordinator.spawn_release(claim, coordinator.all(), InFlight::default());
        }
    }
}

/// Tells a watcher how the wait goes on, for as long as it is polled.
async fn tell(shared: &Shared, wanted: &Wanted, watcher: Option<&Watcher>) -> Infallible {
    let Some(watcher) = watcher else {
        return std::future::pending().await;
    };
    loop {
        sleep(TELL_EVERY).await;
        let seen = shared.coordinator.ask_all(&wanted.name, &Command::Inspect);
        if let Some(Ok(Reply::Snapshot(lock))) = seen.await.into_iter().next() {
            let holder = lock.holder.as_ref().map(HolderStatus::of);
            watcher.tell(Progress {
                token: holder.as_ref().and_then(|holder| holder.token),
                remaining: holder.as_ref().and_then(|holder| holder.remaining),
                holder: holder.map(|holder| holder.owner),
                split: Vec::new(),
                place: None,
                is_settled: false,
            });
        }
    }
}
