//! Polls whether all k slots are taken.
//!
//! It polls and does not enqueue: a waiter in the queue is woken to take a slot. It must not ask
//! for k locks each time: while one slot is known to be free, it polls that one.

use std::sync::Arc;
use std::time::Duration;

use super::view;
use super::{AGAIN, PACE};
use crate::driver::shared::Shared;
use crate::driver::waiters::RetryBudget;
use crate::error::Error;
use crate::inspect::look::{Answers, look, too_few};
use fencepost_core::name::LockName;
use fencepost_core::value::AttemptValue;

/// Polls the same slots repeatedly.
pub(super) struct Watch<'a> {
    shared: &'a Arc<Shared>,
    slots: &'a [LockName],
    /// The slot that was free when last seen.
    free: Option<usize>,
}

/// How a pause ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waited {
    /// Time to look again.
    ForANextLook,
    /// The timeout is over.
    ToTheEnd,
}

impl<'a> Watch<'a> {
    pub(super) fn new(shared: &'a Arc<Shared>, slots: &'a [LockName]) -> Self {
        Self {
            shared,
            slots,
            free: None,
        }
    }

    /// Whether all slots are taken at the same time.
    pub(super) async fn is_full(&mut self) -> Result<bool, Error> {
        if let Some(free) = self.free {
            let one = holders(self.shared, &self.slots[free..=free]).await?;
            if one[0].is_none() {
                return Ok(false);
            }
        }
        Ok(self.missing().await? == 0)
    }

    /// How many slots are free.
    ///
    /// None, if two looks have seen the same in all of them. Between the two, all were taken at the
    /// same time: a released value never returns. A single look may see a party twice, in a slot
    /// that it could not get and in the one that it got next.
    pub(super) async fn missing(&mut self) -> Result<usize, Error> {
        let first = holders(self.shared, self.slots).await?;
        let free: Vec<_> = places(&first, Option::is_none);
        if !free.is_empty() {
            return Ok(self.note(&free));
        }
        let second = holders(self.shared, self.slots).await?;
        let mut before = first.iter();
        let changed = places(&second, |now| before.next() != Some(now));
        Ok(self.note(&changed))
    }

    /// Remembers a random free one: parties that wait for the same slots look at different ones,
    /// and the slot that is taken last is found after few full looks.
    fn note(&mut self, free: &[usize]) -> usize {
        let share = self.shared.coordinator.randomness.share();
        let any = (share * free.len() as f64) as usize;
        self.free = free.get(any).or(free.last()).copied();
        free.len()
    }
}

fn places(
    seen: &[Option<AttemptValue>],
    mut which: impl FnMut(&Option<AttemptValue>) -> bool,
) -> Vec<usize> {
    let places = seen.iter().enumerate();
    let places = places.filter(|(_, holder)| which(holder));
    places.map(|(slot, _)| slot).collect()
}

/// The value for which a majority holds each of these locks.
async fn holders(shared: &Shared, names: &[LockName]) -> Result<Vec<Option<AttemptValue>>, Error> {
    let seen = answers(shared, names).await?;
    let quorum = shared.coordinator.quorum;
    let holder = |answers| view::holder(quorum, answers).cloned();
    Ok(seen.iter().map(holder).collect())
}

/// The nodes' replies about these locks, if there are enough.
pub(super) async fn answers(shared: &Shared, names: &[LockName]) -> Result<Vec<Answers>, Error> {
    let quorum = shared.coordinator.quorum;
    let seen = look(shared, names, |answers| view::is_clear(quorum, answers)).await;
    let unheard = seen.iter().position(|seen| !view::is_heard(quorum, seen));
    match unheard {
        Some(lock) => Err(too_few(shared, &names[lock], &seen[lock])),
        None => Ok(seen),
    }
}

/// Waits until it is time to look again.
pub(super) async fn pause(shared: &Shared, patience: &RetryBudget) -> Waited {
    wait(shared.coordinator.spread(PACE), patience).await
}

/// Waits until concurrent parties have acquired what they requested, or have released it.
pub(super) async fn step_aside(shared: &Shared, patience: &RetryBudget) -> Waited {
    let share = shared.coordinator.randomness.share();
    wait(AGAIN.mul_f64(0.1 + share * 0.9), patience).await
}

async fn wait(time: Duration, patience: &RetryBudget) -> Waited {
    tokio::select! {
        biased;
        () = patience.ends() => Waited::ToTheEnd,
        () = tokio::time::sleep(time) => Waited::ForANextLook,
    }
}
