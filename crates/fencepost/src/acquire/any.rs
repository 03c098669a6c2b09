//! Any of several names: by an attempt at once, else by waiting in one queue for all of them.
//!
//! Only one attempt is under way at any time, so that a request for one slot never holds two.
//! Whatever is dropped half-way releases its attempt and leaves its queue.

use std::sync::Arc;

use tokio::time::Instant;

use super::free;
use super::outlook::SoonestHolder;
use super::slots::Slots;
use super::{Spec, attempt};
use crate::driver::identity::ValueForm;
use crate::driver::shared::Shared;
use crate::driver::waiters::{Next, Progress, Update, WaiterGuard};
use crate::error::{Error, HolderStatus, not_offered};
use crate::events;
use crate::inspect::look::{Answers, held, look, too_few};
use crate::lease::Lease;
use fencepost_core::lock::Precedence;
use fencepost_core::name::LockName;

/// One of these names is wanted, whichever it is.
pub(crate) struct AnyOf<'a> {
    pub(crate) shared: &'a Arc<Shared>,
    pub(crate) names: &'a [LockName],
    /// What is known of the names, if they are slots.
    pub(crate) slots: Option<&'a Slots>,
    pub(crate) spec: Spec,
}

/// Which of the names, and the lease on it.
pub(crate) type Found = (usize, Lease);

impl AnyOf<'_> {
    /// Waits for it as long as the spec says.
    ///
    /// What the first attempt at one name does not need is boxed, so that a request stays small.
    pub(crate) async fn acquire(mut self) -> Result<Found, Error> {
        let shared = self.shared;
        if let Some(service) = shared.service() {
            return Box::pin(self.served_by(service)).await;
        }
        let limit = self.spec.budget.limit();
        let was_over = self.spec.budget.is_over();
        let outcome = match self.expects_to_wait() {
            true => Box::pin(self.wait()).await,
            false => match self.first_try().await {
                Ok(Some(found)) => {
                    shared.waiters.found_free(&self.names[0]);
                    Ok(found)
                }
                // It had no time left to wait in: who holds it, and for how long?
                Err(error) if error.is_refusal() && self.spec.budget.is_over() && !was_over => {
                    Box::pin(self.at_once()).await
                }
                Err(error) if !self.spec.budget.goes_on_after(&error) => Err(error),
                Ok(None) | Err(_) => Box::pin(self.wait()).await,
            },
        };
        outcome.map_err(|error| error.after_wait(limit))
    }

    /// The queue for all of them.
    fn queue(&self) -> LockName {
        match self.slots {
            Some(_) => self.names[0].queue(),
            None => self.names[0].clone(),
        }
    }

    /// Whether an attempt would be one for nothing: others of this client are in the queue already, or
    /// requests for this lock have had to wait.
    fn expects_to_wait(&self) -> bool {
        let (waiters, queue) = (&self.shared.waiters, self.queue());
        (waiters.is_waited_for(&queue) || waiters.expects_to_wait(&queue))
            && !self.spec.budget.is_over()
    }

    /// Before it waits. `None` when all are taken.
    async fn first_try(&self) -> Result<Option<Found>, Error> {
        match self.slots {
            // Who has them matters only to one who does not wait.
            Some(slots) if !self.spec.budget.is_over() => Box::pin(self.try_slots(slots)).await,
            _ => self.at_once().await.map(Some),
        }
    }

    /// Without waiting. Refused also when others were faster everywhere.
    pub(crate) async fn at_once(&self) -> Result<Found, Error> {
        if self.shared.service().is_some() {
            return Err(not_offered("latches and barriers"));
        }
        let Some(slots) = self.slots else {
            return self.attempt(0, None).await;
        };
        match Box::pin(self.try_slots(slots)).await? {
            Some(found) => Ok(found),
            None => Box::pin(self.all_taken(None)).await,
        }
    }

    async fn try_slots(&self, slots: &Slots) -> Result<Option<Found>, Error> {
        if let Some(slot) = slots.take_free() {
            match self.attempt(slot, None).await {
                Err(error) if error.is_refusal() => {}
                outcome => return outcome.map(Some),
            }
        }
        self.look_around(slots, None).await
    }

    /// Looks which slots are free, and tries them. `None` when all are taken.
    async fn look_around(
        &self,
        slots: &Slots,
        waiter: Option<&WaiterGuard>,
    ) -> Result<Option<Found>, Error> {
        let (shared, names) = (self.shared, self.names);
        let quorum = shared.coordinator.quorum;
        let seen = held(shared, names).await;
        if !free::is_enough(quorum, &seen) {
            return Err(too_few(shared, &names[0], &seen));
        }
        // Clients that come at the same time shall not all try the same slot.
        let begin = (shared.coordinator.randomness.share() * names.len() as f64) as usize;
        let mut promising = free::promising(quorum, &seen, names.len(), begin).into_iter();
        let mut refusal = None;
        while let Some(slot) = promising.next() {
            match self.attempt(slot, waiter).await {
                // Others wait, and they are before it at every slot.
                Err(error) if error.is_refusal() && self.spec.fair && waiter.is_none() => {
                    return Err(error);
                }
                Err(error) if error.is_refusal() => refusal = Some(error),
                Ok(found) => {
                    promising.for_each(|slot| slots.seen_free(slot));
                    return Ok(Some(found));
                }
                Err(error) => return Err(error),
            }
        }
        refusal.map_or(Ok(None), Err)
    }

    /// Says by whom all are taken, unless one is free after all.
    async fn all_taken(&self, waiter: Option<&WaiterGuard>) -> Result<Found, Error> {
        match self.soonest_holder().await {
            Some((name, holder)) => Err(Error::held(name, holder)),
            None => self.attempt(0, waiter).await,
        }
    }

    /// Of all that are taken, the one whose holder's time ends first.
    async fn soonest_holder(&self) -> Option<(LockName, HolderStatus)> {
        let quorum = self.shared.coordinator.quorum;
        let is_enough = |answers: &Answers| free::is_enough(quorum, answers);
        let seen = look(self.shared, self.names, is_enough).await;
        free::soonest(quorum, self.names, &seen)
    }

    /// Waits for whichever comes first; when the wait is over, tries once more.
    async fn wait(mut self) -> Result<Found, Error> {
        let shared = self.shared;
        let clock = &shared.coordinator.clock;
        let (waiting, began) = (events::Waiting::begin(), clock.now());
        let mode = self.spec.ticket_mode();
        let is_watched = self.spec.watcher.is_some();
        let on_behalf = self.spec.on_behalf.as_ref();
        let queue = self.queue();
        let waiter = shared.waiters.join(&queue, mode, is_watched, on_behalf);
        if matches!(self.spec.form, ValueForm::Reentrant) {
            waiter.hear_foreign_releases();
        }
        let outcome = match self.until_granted(&waiter).await {
            Ok(Some(found)) => Ok(found),
            Ok(None) => {
                waiter.attempt_started();
                match self.turn(&waiter).await {
                    Ok(Some(found)) => Ok(found),
                    Ok(None) => self.all_taken(Some(&waiter)).await,
                    Err(error) => Err(error),
                }
            }
            Err(error) => Err(error),
        };
        if outcome.is_ok() {
            match waiter.is_held_up() {
                true => shared.waiters.had_to_wait(&queue),
                false => shared.waiters.found_free(&queue),
            }
            waiter.served();
            waiting.served(clock.now().since(began));
        }
        outcome
    }

    /// Makes an attempt whenever the queue calls, until one succeeds. `None` when the wait is over.
    async fn until_granted(&mut self, waiter: &WaiterGuard) -> Result<Option<Found>, Error> {
        let mut soonest = SoonestHolder::default();
        loop {
            let what = tokio::select! {
                biased;
                what = waiter.next() => what,
                () = self.spec.budget.ends() => return Ok(None),
            };
            match what {
                Next::Attempt => match self.turn(waiter).await {
                    Ok(Some(found)) => return Ok(Some(found)),
                    Ok(None) => waiter.all_taken(),
                    Err(error) if !self.spec.budget.goes_on_after(&error) => return Err(error),
                    Err(_) => waiter.attempt_failed(),
                },
                Next::Update(Update::Progress(progress)) => {
                    self.spec.budget.saw_quorum();
                    if let Some(watcher) = &self.spec.watcher {
                        let progress = self.of_all(progress, &mut soonest).await;
                        watcher.tell(progress);
                    }
                }
                Next::Update(Update::NoQuorum(error)) => {
                    if !self.spec.budget.goes_on_after(&error) {
                        return Err(error);
                    }
                }
            }
        }
    }

    /// It is this waiter's turn. `None` when all slots are taken.
    async fn turn(&self, waiter: &WaiterGuard) -> Result<Option<Found>, Error> {
        let Some(slots) = self.slots else {
            return self.attempt(0, Some(waiter)).await.map(Some);
        };
        let told = waiter.take_freed().into_iter();
        // Others may have more of them than this one asks for.
        for slot in told.filter(|slot| *slot < self.names.len()) {
            match self.attempt(slot, Some(waiter)).await {
                Err(error) if error.is_refusal() => {}
                outcome => return outcome.map(Some),
            }
        }
        self.look_around(slots, Some(waiter)).await
    }

    /// The progress of a waiter for any slot: the queue knows its place, and not who holds the slots.
    async fn of_all(&self, news: Progress, soonest: &mut SoonestHolder) -> Progress {
        if self.slots.is_none() {
            return news;
        }
        if soonest.is_due(Instant::now()) {
            let holder = self.soonest_holder().await.map(|(_, holder)| holder);
            soonest.seen(holder, Instant::now());
        }
        soonest.tell(news, Instant::now())
    }

    async fn attempt(&self, slot: usize, waiter: Option<&WaiterGuard>) -> Result<Found, Error> {
        let ticket = waiter.and_then(WaiterGuard::ticket);
        let turn = match (&ticket, waiter) {
            (Some(ticket), _) => Precedence::Ticket(ticket.id.clone()),
            (None, Some(_)) => Precedence::PassNobody,
            (None, None) => self.spec.first_turn(),
        };
        let name = self.names[slot].clone();
        let lease = attempt(self.shared, &self.spec, name, turn, ticket).await?;
        Ok((slot, lease))
    }
}
