//! One client process: what it asks for, and what it writes down.
//!
//! What is written down is what the checkers believe, so it must be written at the moment at which
//! it happens: `Asked` before the first call, `Releasing` before the release.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fencepost::{Client, Error, ErrorKind, LockOptions, Progress, Semaphore};
use fencepost_checks::{ClientId, Event, LeaseRef, Step, Time};

use crate::held::{Held, Hold};
use crate::plan::Work;
use crate::sharing::lease_id;
use crate::world::World;

/// One client process.
pub(crate) struct SimClient {
    pub(crate) world: Arc<World>,
    pub(crate) number: usize,
    pub(crate) locks: Client,
    /// The semaphores, each with what it knows of free slots. None where there are only locks.
    pub(crate) semaphores: BTreeMap<String, Semaphore>,
    pub(crate) next_lease: Cell<u64>,
}

/// One request, and what its holder knows of it.
pub(crate) struct Wish {
    /// What it is written down as: one for each lock that is asked for. A permit is one for the
    /// semaphore, and as soon as that is known, one for its slot.
    pub(crate) of: RefCell<Vec<LeaseRef>>,
    /// What is asked for.
    pub(crate) names: Vec<String>,
    asked: Cell<Time>,
    pub(crate) ttl: Duration,
    pub(crate) options: LockOptions,
    pub(crate) max_hold: Option<Duration>,
    /// How long it waits at the most, if there is a limit.
    pub(crate) wait: Option<Duration>,
    /// Whether it is to read only.
    pub(crate) reads: bool,
    /// Whether the lease renews itself: only then can its validity grow without the holder.
    pub(crate) renews: bool,
    /// The end of its validity, as it was last written down.
    pub(crate) known: Cell<Time>,
}

impl SimClient {
    pub(crate) fn wish(
        &self,
        names: Vec<String>,
        ttl: Duration,
        options: LockOptions,
        reads: bool,
    ) -> Wish {
        let number = self.next_lease.replace(self.next_lease.get() + 1);
        let lease = lease_id(number, reads);
        let of = |name: &String| LeaseRef {
            client: ClientId(self.number as u32),
            lock: name.clone(),
            lease,
        };
        Wish {
            of: RefCell::new(names.iter().map(of).collect()),
            names,
            asked: Cell::default(),
            ttl,
            options,
            max_hold: None,
            wait: None,
            reads,
            renews: true,
            known: Cell::default(),
        }
    }

    /// Writes down that a request begins.
    pub(crate) fn asks(&self, wish: &Wish) {
        wish.asked.set(self.world.now());
        self.record(wish, &Step::Asked);
    }

    pub(crate) fn record(&self, wish: &Wish, step: &Step) {
        self.record_at(self.world.now(), wish, step);
    }

    /// Writes down what happened at another time than now.
    pub(crate) fn record_at(&self, at: Time, wish: &Wish, step: &Step) {
        for of in wish.of.borrow().iter() {
            self.record_one(at, of, step.clone());
        }
    }

    fn record_one(&self, at: Time, of: &LeaseRef, step: Step) {
        let event = Event::lease(at, of, step);
        self.world.inside().record(event);
    }

    pub(crate) fn object(&self, wish: &Wish, what: &str) {
        let of = wish.of.borrow();
        let of = of.first().map(ToString::to_string).unwrap_or_default();
        let what = format!("{of}: {what}");
        self.world.inside().object("workload", what, Vec::new());
    }

    /// Asks, and waits for as long as the wish says.
    pub(crate) async fn obtain(&self, wish: &Wish) -> Result<Held, Error> {
        let (locks, options, name) = (&self.locks, wish.options, &wish.names[0]);
        match self.world.plan.work {
            Work::Mutex | Work::ReadWrite => self.ask_for(wish).await,
            Work::Election => {
                let election = locks.election(name);
                let campaign = election.campaign(format!("client-{}", self.number));
                let campaign = campaign.options(options).on_progress(self.watcher(wish));
                campaign.await.map(Held::Leadership)
            }
            Work::Semaphore => {
                let semaphore = &self.semaphores[name];
                semaphore.acquire().options(options).await.map(Held::Permit)
            }
            Work::Multi => {
                let mut request = locks.lock_all(&wish.names).ttl(wish.ttl);
                request = request.fair(self.world.plan.is_fair);
                if let Some(wait) = wish.wait {
                    request = request.timeout(wait);
                }
                if let Some(time) = wish.max_hold {
                    request = request.max_hold(time);
                }
                request.await.map(Held::Several)
            }
        }
    }

    /// Writes down when a waiter has its place in line.
    pub(crate) fn watcher(&self, wish: &Wish) -> impl Fn(Progress) + Send + Sync + 'static {
        let (world, of) = (Arc::clone(&self.world), wish.of.borrow()[0].clone());
        let is_settled = AtomicBool::new(false);
        move |progress: Progress| {
            if progress.is_settled && !is_settled.swap(true, Ordering::Relaxed) {
                let mut inside = world.inside();
                let event = Event::lease(Time(inside.now()), &of, Step::Queued);
                inside.record(event);
            }
        }
    }

    pub(crate) fn note_acquired(&self, wish: &Wish, held: &impl Hold) {
        let valid_until = self.valid_until(held);
        wish.known.set(valid_until);
        let tokens = held.tokens();
        if self.world.plan.work == Work::Semaphore {
            self.note_slot(wish, &tokens);
        }
        for of in wish.of.borrow().iter() {
            let mut tokens = tokens.iter();
            let token = match self.world.plan.work {
                // Of the semaphore as a whole there is none; that of the slot tells them apart.
                Work::Semaphore => tokens.next(),
                _ => tokens.find(|(lock, _)| *lock == of.lock),
            };
            if let Some((_, token)) = token {
                let token = *token;
                let step = Step::Acquired { token, valid_until };
                self.record_one(self.world.now(), of, step);
            }
        }
    }

    /// Writes down that the slot had been asked for, now that it is known which one that was.
    fn note_slot(&self, wish: &Wish, tokens: &[(String, u64)]) {
        let mut of = wish.of.borrow_mut();
        let Some((slot, _)) = tokens.first() else {
            return;
        };
        let slot = LeaseRef {
            lock: slot.clone(),
            ..of[0].clone()
        };
        let event = Event::lease(wish.asked.get(), &slot, Step::Asked);
        self.world.inside().record(event);
        of.push(slot);
    }

    /// Writes down what became of a write under one of the locks.
    pub(crate) fn as_written(&self, wish: &Wish, lock: &str) -> Option<LeaseRef> {
        let of = wish.of.borrow();
        of.iter().find(|of| of.lock == lock).cloned()
    }

    /// Writes down if the lease is valid for longer than was known.
    pub(crate) fn note_validity(&self, wish: &Wish, held: &impl Hold) {
        let valid_until = self.valid_until(held);
        // What is rounded away makes no difference.
        let known = wish.known.get().after(Duration::from_micros(1));
        if held.is_valid() && valid_until > known {
            wish.known.set(valid_until);
            self.record(wish, &Step::Extended { valid_until });
        }
    }

    /// The end of a lease's validity in true time.
    pub(crate) fn valid_until(&self, held: &impl Hold) -> Time {
        let left = self.world.clocks[self.number].in_true_time(held.remaining());
        self.world.now().after(left)
    }
}

/// What the holder was told, in a word.
pub(crate) fn word(error: &Error) -> &'static str {
    match error.kind() {
        ErrorKind::Held | ErrorKind::Timeout => "held",
        ErrorKind::NoQuorum => "no_quorum",
        ErrorKind::TooLate => "too_late",
        ErrorKind::Lost => "lost",
        _ => "other",
    }
}
