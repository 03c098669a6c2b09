//! Finding a slot: the one that is believed to be free, else by a look at all of them, else by
//! waiting in the lines of all of them at once.
//!
//! Only one attempt is under way at any time, so that nobody ever holds two slots where one was
//! asked for. Whatever is dropped half-way gives back its attempt and its places in line.

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::time::Instant;

use super::free;
use super::outlook::QueueView;
use super::slots::Slots;
use crate::client::Client;
use crate::driver::waiters::{Call, News, WaiterGuard};
use crate::error::Error;
use crate::lease::Lease;
use crate::lock::{Plan, Watcher};
use crate::look::{look, too_few};
use fencepost_core::lock::Precedence;

/// Somebody who wants any of the slots.
pub(crate) struct Seeker<'a> {
    pub(crate) locks: &'a Client,
    pub(crate) slots: &'a Slots,
    pub(crate) plan: Plan,
}

/// A slot, and the lease on it.
pub(crate) type Found = (usize, Lease);

impl Seeker<'_> {
    /// Tells the watcher how the wait goes on, if there is one.
    pub(super) async fn find(mut self, watcher: Option<&Watcher>) -> Result<Found, Error> {
        match self.at_once().await {
            Err(error) if self.plan.patience.goes_on_after(&error) => self.in_line(watcher).await,
            outcome => outcome,
        }
    }

    /// Without waiting. [`Error::Held`] also when others were faster everywhere.
    pub(crate) async fn at_once(&self) -> Result<Found, Error> {
        if let Some(slot) = self.slots.take_free() {
            match self.attempt(slot, None).await {
                Err(Error::Held { .. }) => {}
                outcome => return outcome,
            }
        }
        self.look_around(&[]).await
    }

    /// Looks at all slots, and tries those that look free.
    async fn look_around(&self, seats: &[WaiterGuard]) -> Result<Found, Error> {
        let (core, names) = (&self.locks.core, &self.slots.names);
        let quorum = core.coordinator.quorum;
        let seen = look(core, names, |answers| free::is_enough(quorum, answers)).await;
        if let Some(lock) = seen.iter().position(|seen| !free::is_enough(quorum, seen)) {
            return Err(too_few(core, &names[lock], &seen[lock]));
        }
        // Clients that come at the same time shall not all try the same slot.
        let begin = (core.coordinator.randomness.share() * names.len() as f64) as usize;
        let passes_nobody = self.plan.fair && seats.is_empty();
        let mut promising = free::promising(quorum, &seen, begin, passes_nobody).into_iter();
        let mut refusal = None;
        while let Some(slot) = promising.next() {
            let seat = seats.get(slot);
            seat.inspect(|seat| seat.stand_up());
            match self.attempt(slot, seat).await {
                Err(held @ Error::Held { .. }) => refusal = Some(held),
                Ok(found) => {
                    promising.for_each(|slot| self.slots.seen_free(slot));
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

    /// Waits for whichever slot comes first.
    async fn in_line(mut self, watcher: Option<&Watcher>) -> Result<Found, Error> {
        let (room, mode) = (&self.locks.core.room, self.plan.ticket_mode());
        let names = self.slots.names.iter();
        let is_watched = watcher.is_some();
        let mut seats: Vec<_> = names
            .map(|name| room.join(name, mode, is_watched))
            .collect();
        let outcome = match self.until_called(&seats, watcher).await {
            Ok(None) => self.look_around(&seats).await,
            Ok(Some(found)) => Ok(found),
            Err(error) => Err(error),
        };
        if let Ok((slot, _)) = outcome {
            seats.swap_remove(slot).served();
        }
        outcome
    }

    /// Makes an attempt whenever a slot calls, until one succeeds. `None` when the wait is over.
    async fn until_called(
        &mut self,
        seats: &[WaiterGuard],
        watcher: Option<&Watcher>,
    ) -> Result<Option<Found>, Error> {
        let mut outlook = QueueView::of(seats.len());
        let call = |slot: usize| async move { (slot, seats[slot].call().await) };
        let mut calls: FuturesUnordered<_> = (0..seats.len()).map(call).collect();
        loop {
            let (slot, what) = tokio::select! {
                biased;
                Some(called) = calls.next() => called,
                () = self.plan.patience.ends() => return Ok(None),
            };
            match what {
                Call::Go => match self.attempt(slot, Some(&seats[slot])).await {
                    Ok(found) => return Ok(Some(found)),
                    Err(error) if !self.plan.patience.goes_on_after(&error) => return Err(error),
                    Err(_) => seats[slot].sit_down(),
                },
                Call::News(News::Progress(news)) => {
                    self.plan.patience.take_heart();
                    if let Some(watcher) = watcher {
                        watcher.tell(outlook.after(slot, news, Instant::now()));
                    }
                }
                Call::News(News::NoQuorum(error)) => {
                    if !self.plan.patience.goes_on_after(&error) {
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
            (None, None) => self.plan.first_turn(),
        };
        let Plan { ttl, limits, .. } = self.plan;
        let name = self.slots.names[slot].clone();
        let attempt = self.locks.attempt(name, ttl, limits, turn, ticket);
        let lease = attempt.await?;
        Ok((slot, lease))
    }
}
