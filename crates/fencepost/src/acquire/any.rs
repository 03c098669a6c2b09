//! Any of several names: by an attempt at once, else by waiting in the queues of all of them.
//!
//! Only one attempt is under way at any time, so that nobody ever holds two slots where one was
//! asked for. Whatever is dropped half-way releases its attempt and leaves its queues.

use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::time::Instant;

use super::free;
use super::outlook::QueueView;
use super::slots::Slots;
use super::{Spec, attempt};
use crate::driver::identity::ValueForm;
use crate::driver::shared::Shared;
use crate::driver::waiters::{Call, News, WaiterGuard};
use crate::error::{Error, not_offered};
use crate::events;
use crate::inspect::look::{look, too_few};
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
    pub(crate) async fn acquire(mut self) -> Result<Found, Error> {
        let shared = self.shared;
        if let Some(service) = shared.service() {
            return self.served_by(service).await;
        }
        let limit = self.spec.budget.limit();
        let outcome = match self.is_behind_our_own() {
            true => self.wait().await,
            false => match self.at_once().await {
                Err(error) if self.spec.budget.goes_on_after(&error) => self.wait().await,
                outcome => outcome,
            },
        };
        outcome.map_err(|error| error.after_wait(limit))
    }

    /// Whether others of this client are in the queue already: an attempt would be one for nothing.
    fn is_behind_our_own(&self) -> bool {
        let waiters = &self.shared.waiters;
        matches!(self.names, [name] if waiters.is_waited_for(name)) && !self.spec.budget.is_over()
    }

    /// Without waiting. Refused also when others were faster everywhere.
    pub(crate) async fn at_once(&self) -> Result<Found, Error> {
        if self.shared.service().is_some() {
            return Err(not_offered("latches and barriers"));
        }
        let Some(slots) = self.slots else {
            return self.attempt(0, None).await;
        };
        if let Some(slot) = slots.take_free() {
            match self.attempt(slot, None).await {
                Err(error) if error.is_refusal() => {}
                outcome => return outcome,
            }
        }
        self.look_around(slots, &[]).await
    }

    /// Looks at all slots, and tries those that look free.
    async fn look_around(&self, slots: &Slots, seats: &[WaiterGuard]) -> Result<Found, Error> {
        let (shared, names) = (self.shared, self.names);
        let quorum = shared.coordinator.quorum;
        let seen = look(shared, names, |answers| free::is_enough(quorum, answers)).await;
        if let Some(lock) = seen.iter().position(|seen| !free::is_enough(quorum, seen)) {
            return Err(too_few(shared, &names[lock], &seen[lock]));
        }
        // Clients that come at the same time shall not all try the same slot.
        let begin = (shared.coordinator.randomness.share() * names.len() as f64) as usize;
        let passes_nobody = self.spec.fair && seats.is_empty();
        let mut promising = free::promising(quorum, &seen, begin, passes_nobody).into_iter();
        let mut refusal = None;
        while let Some(slot) = promising.next() {
            let seat = seats.get(slot);
            seat.inspect(|seat| seat.stand_up());
            match self.attempt(slot, seat).await {
                Err(error) if error.is_refusal() => refusal = Some(error),
                Ok(found) => {
                    promising.for_each(|slot| slots.seen_free(slot));
                    return Ok(found);
                }
                Err(error) => return Err(error),
            }
        }
        match refusal.or_else(|| free::all_taken(names, &seen)) {
            Some(error) => Err(error),
            // Free, but others wait for all of them: the nodes say who.
            None => {
                let slot = begin % names.len();
                self.attempt(slot, seats.get(slot)).await
            }
        }
    }

    /// Waits for whichever comes first; when the wait is over, tries once more.
    async fn wait(mut self) -> Result<Found, Error> {
        let shared = self.shared;
        let clock = &shared.coordinator.clock;
        let (waiting, began) = (events::Waiting::begin(), clock.now());
        let mode = self.spec.ticket_mode();
        let is_watched = self.spec.watcher.is_some();
        let on_behalf = self.spec.on_behalf.as_ref();
        let join = |name| self.shared.waiters.join(name, mode, is_watched, on_behalf);
        let mut seats: Vec<_> = self.names.iter().map(join).collect();
        if matches!(self.spec.form, ValueForm::Reentrant) {
            seats.iter().for_each(WaiterGuard::overhear);
        }
        let outcome = match self.until_called(&seats).await {
            Ok(Some(found)) => Ok(found),
            Ok(None) => match self.slots {
                Some(slots) => self.look_around(slots, &seats).await,
                None => {
                    seats[0].stand_up();
                    self.attempt(0, Some(&seats[0])).await
                }
            },
            Err(error) => Err(error),
        };
        if let Ok((slot, _)) = outcome {
            seats.swap_remove(slot).served();
            waiting.served(clock.now().since(began));
        }
        outcome
    }

    /// Makes an attempt whenever one of the queues calls, until one succeeds. `None` when the wait is
    /// over.
    async fn until_called(&mut self, seats: &[WaiterGuard]) -> Result<Option<Found>, Error> {
        let mut outlook = QueueView::of(seats.len());
        let call = |slot: usize| async move { (slot, seats[slot].call().await) };
        let mut calls: FuturesUnordered<_> = (0..seats.len()).map(call).collect();
        loop {
            let (slot, what) = tokio::select! {
                biased;
                Some(called) = calls.next() => called,
                () = self.spec.budget.ends() => return Ok(None),
            };
            match what {
                Call::Go => match self.attempt(slot, Some(&seats[slot])).await {
                    Ok(found) => return Ok(Some(found)),
                    Err(error) if !self.spec.budget.goes_on_after(&error) => return Err(error),
                    Err(_) => seats[slot].sit_down(),
                },
                Call::News(News::Progress(news)) => {
                    self.spec.budget.take_heart();
                    if let Some(watcher) = &self.spec.watcher {
                        watcher.tell(outlook.after(slot, news, Instant::now()));
                    }
                }
                Call::News(News::NoQuorum(error)) => {
                    if !self.spec.budget.goes_on_after(&error) {
                        return Err(error);
                    }
                }
            }
            calls.push(call(slot));
        }
    }

    async fn attempt(&self, slot: usize, seat: Option<&WaiterGuard>) -> Result<Found, Error> {
        let ticket = seat.and_then(WaiterGuard::ticket);
        let turn = match (&ticket, seat) {
            (Some(ticket), _) => Precedence::Ticket(ticket.id.clone()),
            (None, Some(_)) => Precedence::PassNobody,
            (None, None) => self.spec.first_turn(),
        };
        let name = self.names[slot].clone();
        let lease = attempt(self.shared, &self.spec, name, turn, ticket).await?;
        Ok((slot, lease))
    }
}
