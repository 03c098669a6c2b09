//! [`Renewer`]: one task that renews all leases of a client and tells those that are lost.
//!
//! There is no task and no timer for a single lease. A renewal that hangs, or a lease that fails,
//! never delays another: renewals run side by side, and the task only ever waits for whatever comes
//! first.
//!
//! Renewals that are due together are sent together, and not more of them than a node can answer in
//! time: sent all at once, the last of many would time out, and be sent again behind the others.
//! Only when a majority of the nodes does not answer does that make one lease wait for another, and
//! then none could be renewed anyway.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::Notify;
use tokio::time::sleep;
use tracing::Instrument;

use super::held::{Asker, Held};
use crate::error::LossReason;
use crate::events;
use crate::runtime::clock::{Clock, Moment, Timer};
use fencepost_core::lease::TIDY_AFTER;

/// The longest that the task sleeps on the runtime's timer while there are leases. That timer stands still
/// while the machine is suspended, so without a timer on boot time this is how late it notices.
const LONGEST_NAP: Duration = Duration::from_secs(1);
/// A lock that is released by the time it would be tidied up never wakes the task.
const _: () = assert!(TIDY_AFTER.as_millis() >= LONGEST_NAP.as_millis());
/// The most renewals in flight. A server that takes 100 us for each answers all of them within the
/// default node time-out. Chosen among 2,048, 4,096, 8,192 and no bound by two noisy runs each: that
/// there is a bound is the point, the number is a guess.
const MOST_UNDER_WAY: usize = 4096;

/// When to look after which lease.
pub(crate) struct Renewer {
    agenda: Mutex<Agenda>,
    next_id: AtomicU64,
    /// Something on the agenda comes before the moment until which the task sleeps.
    earlier: Notify,
}

#[derive(Default)]
struct Agenda {
    /// By moment, in nanoseconds, and by lease. [`Held::due`] is that moment, or zero; it is
    /// changed only while the agenda is locked.
    due: BTreeMap<(u64, u64), Arc<Held>>,
    /// What comes later than this need not wake the task.
    asleep_until: u64,
    /// Something was put here since the task last looked. A lock that is acquired and released all
    /// the time would otherwise wake a task that finds nothing, each time.
    in_use: bool,
    closed: bool,
}

impl Renewer {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            agenda: Mutex::new(Agenda {
                asleep_until: u64::MAX,
                ..Agenda::default()
            }),
            next_id: AtomicU64::new(0),
            earlier: Notify::new(),
        })
    }

    /// A number that no other lease of this client has.
    pub(crate) fn new_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Puts a lease on the agenda, or moves it there.
    pub(crate) fn put(&self, held: &Arc<Held>, when: Moment) {
        let when = nanos(when);
        let wake = {
            let mut agenda = self.agenda();
            agenda.take(held);
            // Released while its renewal was in flight: nothing would remove it again.
            if held.is_over() {
                return;
            }
            if agenda.closed {
                drop(agenda);
                return held.lose(LossReason::ClientGone);
            }
            held.due.store(when, Ordering::Relaxed);
            agenda.due.insert((when, held.id), Arc::clone(held));
            agenda.in_use = true;
            when < agenda.asleep_until
        };
        if wake {
            self.earlier.notify_one();
        }
    }

    /// Takes a lease off the agenda.
    pub(crate) fn remove(&self, held: &Held) {
        self.agenda().take(held);
    }

    /// The leases on that lock: every lease that is not over is on the agenda.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn leases_on(&self, name: &str) -> Vec<Arc<Held>> {
        let agenda = self.agenda();
        let on_it = agenda.due.values();
        let on_it = on_it.filter(|held| held.claim.name.as_str() == name);
        on_it.cloned().collect()
    }

    /// Ends the task. Leases that are still there are told.
    pub(crate) fn close(&self) {
        let left = {
            let mut agenda = self.agenda();
            agenda.closed = true;
            std::mem::take(&mut agenda.due)
        };
        for held in left.into_values() {
            held.lose(LossReason::ClientGone);
        }
        self.earlier.notify_one();
    }

    /// The task.
    pub(crate) fn run(
        self: Arc<Self>,
        clock: Arc<dyn Clock>,
        has_io: bool,
    ) -> impl Future<Output = ()> + Send {
        // Also when the runtime drops this future, even before its first poll: no lease may wait
        // forever.
        let guard = CloseOnDrop(self);
        async move {
            let timer = clock.timer(has_io);
            guard.0.look_after(&*clock, timer).await;
        }
    }

    async fn look_after(&self, clock: &dyn Clock, timer: Option<Box<dyn Timer>>) {
        let mut alarm = Alarm(timer);
        let mut waiting = VecDeque::new();
        let mut renewals = FuturesUnordered::new();
        loop {
            let (now, longest) = (clock.now(), alarm.longest_nap());
            let Some((due, nap)) = self.due_and_nap(now, longest) else {
                return;
            };
            for held in due {
                let actions = held.on_due();
                if let Some(when) = actions.look_at {
                    self.put(&held, when);
                }
                if actions.renew {
                    waiting.push_back(held);
                }
            }
            while renewals.len() < MOST_UNDER_WAY
                && let Some(held) = waiting.pop_front()
            {
                renewals.push(renew(held));
            }
            tokio::select! {
                biased;
                Some(held) = renewals.next() => {
                    if let Some(held) = held && let Some(when) = held.look_at() {
                        self.put(&held, when);
                    }
                }
                () = self.earlier.notified() => {}
                () = alarm.sleep(now, nap) => {}
            }
        }
    }

    /// Takes off the agenda what is due; how long until the next. `None` when it is closed.
    fn due_and_nap(&self, now: Moment, longest: Duration) -> Option<(Vec<Arc<Held>>, Duration)> {
        let now = nanos(now);
        let mut agenda = self.agenda();
        if agenda.closed {
            return None;
        }
        let mut due = Vec::new();
        while let Some(entry) = agenda.due.first_entry()
            && entry.key().0 <= now
        {
            let held = entry.remove();
            held.due.store(0, Ordering::Relaxed);
            due.push(held);
        }
        let next = agenda.due.first_key_value().map(|((when, _), _)| *when);
        let in_use = std::mem::take(&mut agenda.in_use);
        let nap = match next {
            _ if !due.is_empty() => Duration::ZERO,
            Some(when) => Duration::from_nanos(when - now).min(longest),
            None if in_use => LONGEST_NAP,
            None => Duration::MAX,
        };
        let nap_nanos = u64::try_from(nap.as_nanos()).unwrap_or(u64::MAX);
        agenda.asleep_until = now.saturating_add(nap_nanos);
        Some((due, nap))
    }

    fn agenda(&self) -> MutexGuard<'_, Agenda> {
        self.agenda.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Agenda {
    fn take(&mut self, held: &Held) {
        let when = held.due.swap(0, Ordering::Relaxed);
        if when != 0 {
            self.due.remove(&(when, held.id));
        }
    }
}

/// What the task sleeps by: a timer on boot time, or the runtime's.
struct Alarm(Option<Box<dyn Timer>>);

impl Alarm {
    fn longest_nap(&self) -> Duration {
        match self.0 {
            Some(_) => Duration::MAX,
            None => LONGEST_NAP,
        }
    }

    async fn sleep(&mut self, now: Moment, nap: Duration) {
        let Some(timer) = self.0.as_mut().filter(|_| !nap.is_zero()) else {
            return sleep(nap).await;
        };
        if nap == Duration::MAX {
            return std::future::pending().await;
        }
        if timer.until(now + nap).await.is_err() {
            // The caller looks again, and sleeps by the runtime's timer from now on.
            self.0 = None;
        }
    }
}

/// Renews one lease once. Gives it back to be looked at again, unless it is over.
async fn renew(held: Arc<Held>) -> Option<Arc<Held>> {
    let (lock, token) = (&held.claim.name, held.token);
    let span = events::renewing(lock, token);
    let start = held.coordinator.clock.now();
    let renewal = held.extend(Asker::Renewer);
    let outcome = renewal.instrument(span.clone()).await?;
    let _in_span = span.enter();
    let took = held.coordinator.clock.now().since(start);
    let outcome = outcome.map(drop).map_err(|error| error.told());
    events::renewed(lock, token, outcome, took);
    Some(Arc::clone(&held))
}

struct CloseOnDrop(Arc<Renewer>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.close();
    }
}

fn nanos(moment: Moment) -> u64 {
    // Some 584 years after boot it would be too late by a little.
    u64::try_from(moment.since_start().as_nanos()).unwrap_or(u64::MAX)
}
