//! What the clients do: ask for locks in every way there is, hold them, write under them, and give
//! them back or drop them; and write down what they see.
//!
//! What is written down is what the checkers believe, so it must be written at the moment at which
//! it happens: `Asked` before the first call, `Releasing` before the release.

use std::cell::Cell;
use std::future::IntoFuture;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fencepost::{Error, Fencepost, Lease, LockOptions, LockRequest, Progress};
use fencepost_checks::{ClientId, Event, LeaseRef, Outcome, Step, Time};
use tokio::time::sleep;

use crate::dice::Dice;
use crate::faults::Fault;
use crate::fickle::fickle;
use crate::sharing::lease_id;
use crate::world::World;

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// How long the last requests wait before they ask again after a failure.
const BEFORE_THE_NEXT: Duration = ms(20);
/// How long before its end a lease that cannot be renewed is told at the most: the library's 25 ms,
/// and what its clock and its timers are off.
const LONGEST_NOTICE: Duration = ms(40);

/// One client process.
pub(crate) struct Client {
    pub(crate) world: Arc<World>,
    pub(crate) number: usize,
    pub(crate) locks: Fencepost,
    pub(crate) next_lease: Cell<u64>,
}

/// One task of a client that asks for locks.
pub(crate) struct Session {
    pub(crate) client: Rc<Client>,
    pub(crate) dice: Dice,
}

/// One request, and what its holder knows of it.
pub(crate) struct Wish {
    pub(crate) of: LeaseRef,
    pub(crate) name: usize,
    pub(crate) ttl: Duration,
    pub(crate) options: LockOptions,
    /// How long it waits at the most, if there is a limit.
    pub(crate) wait: Option<Duration>,
    /// Whether it is to read only.
    pub(crate) reads: bool,
    /// Whether the lease renews itself: only then can its validity grow without the holder.
    pub(crate) renews: bool,
    /// The end of its validity, as it was last written down.
    pub(crate) known: Cell<Time>,
}

impl Client {
    pub(crate) fn record(&self, of: &LeaseRef, step: Step) {
        let mut inside = self.world.inside();
        let event = Event::lease(Time(inside.now()), of, step);
        inside.record(event);
    }

    pub(crate) fn new_lease(&self, name: usize, reads: bool) -> LeaseRef {
        let number = self.next_lease.replace(self.next_lease.get() + 1);
        let lease = lease_id(number, reads);
        LeaseRef {
            client: ClientId(self.number as u32),
            lock: lock_name(name),
            lease,
        }
    }

    /// A request that waits, and writes down when it has its place in line.
    fn request(&self, wish: &Wish) -> LockRequest {
        let (world, of) = (Arc::clone(&self.world), wish.of.clone());
        let is_settled = AtomicBool::new(false);
        let tell = move |progress: Progress| {
            if progress.is_settled && !is_settled.swap(true, Ordering::Relaxed) {
                let mut inside = world.inside();
                let event = Event::lease(Time(inside.now()), &of, Step::Queued);
                inside.record(event);
            }
        };
        let request = self.ask_for(wish).options(wish.options);
        request.on_progress(tell)
    }

    fn object(&self, of: &LeaseRef, what: &str) {
        let what = format!("{of}: {what}");
        self.world.inside().object("workload", what, Vec::new());
    }

    /// Writes down if the lease is valid for longer than was known.
    pub(crate) fn note_validity(&self, wish: &Wish, lease: &Lease) {
        let valid_until = self.valid_until(lease);
        // What is rounded away makes no difference.
        let known = wish.known.get().after(Duration::from_micros(1));
        if lease.is_valid() && valid_until > known {
            wish.known.set(valid_until);
            self.record(&wish.of, Step::Extended { valid_until });
        }
    }

    /// The end of a lease's validity in true time.
    fn valid_until(&self, lease: &Lease) -> Time {
        let left = self.world.clocks[self.number].in_true_time(lease.remaining());
        self.world.now().after(left)
    }
}

/// The name of a lock.
pub(crate) fn lock_name(number: usize) -> String {
    format!("lock-{number}")
}

/// What the holder was told, in a word.
fn word(error: &Error) -> &'static str {
    match error {
        Error::Held { .. } => "held",
        Error::NoQuorum { .. } => "no_quorum",
        Error::TooLate { .. } => "too_late",
        Error::Lost { .. } => "lost",
        _ => "other",
    }
}

impl Session {
    /// Asks and holds while there are faults; then, when all is well, once more for good.
    pub(crate) async fn run(mut self) {
        let end = Time::default().after(self.client.world.plan.faults_until);
        sleep(self.dice.time(Duration::ZERO, ms(50))).await;
        while self.client.world.now() < end {
            self.round().await;
            let longest = match self.client.world.plan.is_hasty {
                true => self.dice.pick(&[ms(0), ms(3), ms(30)]),
                false => self.dice.pick(&[ms(5), ms(50), ms(300)]),
            };
            sleep(self.dice.time(Duration::ZERO, longest)).await;
        }
        let settled = end.after(self.client.world.plan.settled_after());
        let left = settled.0.saturating_sub(self.client.world.now().0);
        sleep(Duration::from_nanos(left) + self.dice.time(Duration::ZERO, ms(30))).await;
        self.last_wish().await;
        self.change_of_mind().await;
    }

    fn name(&mut self) -> usize {
        self.dice.index(self.client.world.plan.names)
    }

    fn ttl(&mut self) -> Duration {
        let ttls = self.client.world.plan.ttls.clone();
        self.dice.pick(&ttls)
    }

    /// After how many polls a future is dropped, if it is.
    pub(crate) fn patience(&mut self) -> Option<u32> {
        let world = &self.client.world;
        let rate = world.plan.rate(Fault::Cancel)?;
        let is_struck = self.dice.per_mille(rate.per_mille) && !world.inside().is_healed;
        is_struck.then(|| self.dice.below(8) as u32)
    }

    pub(crate) fn note_cancel(&self) {
        self.client.world.inside().counts.note(Fault::Cancel);
    }

    /// A lock, a TTL and options.
    fn wish(&mut self, reads: bool) -> Wish {
        let (name, ttl) = (self.name(), self.ttl());
        let mut options = LockOptions::new().ttl(ttl);
        options = options.fair(self.client.world.plan.is_fair);
        let renews = self.dice.per_mille(600);
        let wait = self
            .dice
            .per_mille(500)
            .then(|| self.dice.time(Duration::ZERO, ms(1_500)));
        if let Some(wait) = wait {
            options = options.wait(wait);
        }
        if !renews {
            options = options.renew(false);
        }
        if self.dice.per_mille(150) {
            options = options.max_hold(self.dice.time(ms(20), ttl * 3));
        }
        if self.dice.per_mille(100) {
            options = options.max_renewals(self.dice.below(4) as u32);
        }
        Wish {
            of: self.client.new_lease(name, reads),
            name,
            ttl,
            options,
            wait,
            reads,
            renews,
            known: Cell::default(),
        }
    }

    /// What is asked for when all is well.
    fn last(&mut self) -> Wish {
        let client = self.client.clone();
        let reads = self.reads();
        let (name, ttl) = (self.name(), client.world.plan.max_ttl);
        Wish {
            of: client.new_lease(name, reads),
            name,
            ttl,
            options: LockOptions::new().ttl(ttl).fair(client.world.plan.is_fair),
            wait: None,
            reads,
            renews: true,
            known: Cell::default(),
        }
    }

    async fn round(&mut self) {
        match self.dice.below(10) {
            0..=2 => self.try_lock().await,
            3..=7 => self.lock().await,
            8 => self.scope().await,
            _ => self.look().await,
        }
    }

    async fn try_lock(&mut self) {
        let wish = Wish {
            renews: false,
            ..self.wish(false)
        };
        let client = self.client.clone();
        client.record(&wish.of, Step::Asked);
        let asking = client.locks.try_lock(&wish.of.lock, wish.ttl);
        let outcome = fickle(asking, self.patience()).await;
        self.take(&wish, outcome).await;
    }

    async fn lock(&mut self) {
        let reads = self.reads();
        let wish = self.wish(reads);
        let client = self.client.clone();
        client.record(&wish.of, Step::Asked);
        let request = client.request(&wish);
        let (asked, pauses) = (client.world.now(), self.pauses());
        let outcome = fickle(request.into_future(), self.patience()).await;
        if pauses == self.pauses()
            && let Some(wait) = wish.wait
            && let Some(outcome) = &outcome
        {
            self.judge_wait(&wish, asked, wait, outcome.as_ref().err());
        }
        self.take(&wish, outcome).await;
    }

    fn pauses(&self) -> u64 {
        self.client.world.gates[self.client.number].closings()
    }

    /// A wait with a limit ends when it is over: not before without the lock, and not much later.
    fn judge_wait(&self, wish: &Wish, asked: Time, wait: Duration, error: Option<&Error>) {
        let world = &self.client.world;
        let took = Duration::from_nanos(world.now().0 - asked.0);
        // The last attempt begins when the wait is over; each of its rounds has its own time-out.
        let longest = wait + world.plan.node_timeout * 3 + ms(10);
        if took > longest {
            let what = format!("waited {took:?} where {wait:?} were allowed");
            self.client.object(&wish.of, &what);
        }
        if error.is_some() && took < wait {
            let what = format!("gave up after {took:?} of {wait:?}: {error:?}");
            self.client.object(&wish.of, &what);
        }
    }

    async fn look(&mut self) {
        let name = lock_name(self.name());
        let locks = self.client.locks.clone();
        let _ = fickle(locks.status(name), self.patience()).await;
    }

    /// What a request came to, and what follows.
    async fn take(&mut self, wish: &Wish, outcome: Option<Result<Lease, Error>>) {
        let of = &wish.of;
        let client = self.client.clone();
        let lease = match outcome {
            Some(Ok(lease)) => lease,
            Some(Err(error)) => {
                let error = word(&error).to_owned();
                return client.record(of, Step::Failed { error });
            }
            None => {
                self.note_cancel();
                return client.record(of, Step::Dropped);
            }
        };
        self.note_acquired(wish, &lease);
        self.hold(wish, &lease).await;
        if lease.is_valid() && self.dice.per_mille(200) {
            self.extend_blindly(wish, &lease).await;
        }
        match self.stops_writing(wish) {
            true => self.become_reader(wish, lease).await,
            false => self.end(of, lease).await,
        }
    }

    /// Gives it back, or drops it.
    pub(crate) async fn end(&mut self, of: &LeaseRef, lease: Lease) {
        if self.dice.per_mille(300) {
            self.client.record(of, Step::Dropped);
            return drop(lease);
        }
        self.release(of, lease).await;
    }

    fn note_acquired(&self, wish: &Wish, lease: &Lease) {
        let of = &wish.of;
        let valid_until = self.client.valid_until(lease);
        wish.known.set(valid_until);
        let token = lease.token().get();
        self.client
            .record(of, Step::Acquired { token, valid_until });
    }

    async fn release(&mut self, of: &LeaseRef, lease: Lease) {
        self.client.record(of, Step::Releasing);
        let outcome = match fickle(lease.release(), self.patience()).await {
            Some(Ok(())) => Outcome::Released,
            Some(Err(Error::Lost { .. })) => Outcome::Lost,
            Some(Err(_)) => Outcome::Unknown,
            // It is given back all the same, and nobody knows how that went.
            None => return self.note_cancel(),
        };
        self.client.record(of, Step::Released { outcome });
    }

    async fn scope(&mut self) {
        let (wish, patience) = (self.wish(false), self.patience());
        let of = &wish.of;
        let client = self.client.clone();
        client.record(of, Step::Asked);
        let is_over = Cell::new(false);
        let body = async |lease: &Lease| {
            self.note_acquired(&wish, lease);
            self.hold(&wish, lease).await;
            is_over.set(true);
            client.record(of, Step::Releasing);
        };
        let scope = client.locks.scope(&of.lock, wish.options, body);
        let outcome = fickle(scope, patience).await;
        let step = match outcome {
            Some(Ok(())) => Step::Released {
                outcome: Outcome::Released,
            },
            Some(Err(Error::Lost { why, .. })) if !is_over.get() => {
                let reason = why.as_str().to_owned();
                client.record(of, Step::LossTold { reason });
                Step::Dropped
            }
            Some(Err(_)) if is_over.get() => Step::Released {
                outcome: Outcome::Lost,
            },
            Some(Err(error)) => Step::Failed {
                error: word(&error).to_owned(),
            },
            None => {
                self.note_cancel();
                Step::Dropped
            }
        };
        client.record(of, step);
    }

    /// Uses the lock for a while, until it has had enough or is told that the lease is lost.
    pub(crate) async fn hold(&mut self, wish: &Wish, lease: &Lease) {
        let ttl = wish.ttl;
        let client = self.client.clone();
        self.may_stand_still(30, lease.remaining());
        let is_hasty = client.world.plan.is_hasty;
        let healed = Time::default().after(client.world.plan.faults_until);
        let until_healed = Duration::from_nanos(healed.0.saturating_sub(client.world.now().0));
        let steps = self.dice.below(if is_hasty { 3 } else { 6 });
        let work = async {
            for _ in 0..steps {
                match self.dice.below(10) {
                    0..=4 if !wish.reads => self.write(wish, lease).await,
                    5 => self.extend(wish, lease).await,
                    0..=4 | 6..=9 if is_hasty => {
                        sleep(self.dice.time(Duration::ZERO, ttl / 10)).await
                    }
                    0..=4 | 6..=8 => sleep(self.dice.time(Duration::ZERO, ttl / 2)).await,
                    _ => sleep(self.dice.time(ttl / 2, ttl * 2)).await,
                }
            }
            if self.dice.per_mille(if is_hasty { 120 } else { 250 }) {
                if self.dice.per_mille(500) {
                    self.extend(wish, lease).await;
                }
                sleep(ttl * 3).await;
            }
        };
        tokio::select! {
            biased;
            () = told(&client, wish, lease) => {}
            never = watch(&client, wish, lease) => match never {},
            () = work => {}
            // Who holds on for ever keeps those from being served who wait for the end of the run.
            () = sleep(until_healed.max(ms(50))) => {}
        }
        client.note_validity(wish, lease);
    }

    async fn extend(&mut self, wish: &Wish, lease: &Lease) {
        let patience = self.patience();
        let known = self.client.valid_until(lease);
        let outcome = fickle(lease.extend(), patience).await;
        match outcome {
            Some(Ok(())) => {
                if !wish.renews && self.client.world.now() > known {
                    self.client
                        .object(&wish.of, "a lease that was over was extended");
                }
                self.client.note_validity(wish, lease);
            }
            Some(Err(_)) => {}
            None => self.note_cancel(),
        }
    }

    /// Extends without a look at whether the lease is lost: as a holder does that trusts what the
    /// extension says. Its process may stand still meanwhile.
    async fn extend_blindly(&mut self, wish: &Wish, lease: &Lease) {
        let left = lease.remaining();
        self.may_stand_still(500, left);
        let client = self.client.clone();
        let loss = async {
            told(&client, wish, lease).await;
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            () = self.extend(wish, lease) => {}
            () = loss => {}
            never = watch(&client, wish, lease) => match never {},
        }
    }

    /// Lets the client stand still in a moment, past the end of what is left of its lease or not.
    fn may_stand_still(&mut self, per_mille: u32, left: Duration) {
        let world = &self.client.world;
        if world.plan.rate(Fault::ClientPause).is_none() || !self.dice.per_mille(per_mille) {
            return;
        }
        // At once as often as not: while a message is on its way.
        let longest = self.dice.pick(&[Duration::ZERO, ms(10)]);
        let after = self.dice.time(Duration::ZERO, longest);
        let time = self.dice.time(left / 2, left * 2);
        let pause = world.clone().pause_for(self.client.number, after, time);
        // Which of the client's tasks are first to run again depends on where it is resumed from:
        // those of the library, or those of its user.
        match self.dice.per_mille(500) {
            true => drop(tokio::spawn(pause)),
            false => drop(tokio::task::spawn_local(pause)),
        }
    }

    /// Reads the guarded set, adds an item, and writes it back: by messages that take their time and
    /// arrive even if nobody waits for them any more.
    async fn write(&mut self, wish: &Wish, lease: &Lease) {
        let name = wish.name;
        let token = lease.token().get();
        let there = self.dice.time(ms(1), ms(8));
        let (thinks, back) = (
            self.dice.time(Duration::ZERO, ms(30)),
            self.dice.time(ms(1), ms(40)),
        );
        let item = self.dice.draw() >> 16;
        sleep(there).await;
        let read = self.client.world.inside().resources[name].read(token);
        let Some(mut items) = read else {
            return;
        };
        sleep(thinks).await;
        items.insert(item);
        let (world, of) = (self.client.world.clone(), wish.of.clone());
        let message = tokio::spawn(async move {
            sleep(back).await;
            let mut inside = world.inside();
            let accepted = inside.resources[name].write(token, items);
            let wrote = Step::Wrote {
                item,
                token,
                accepted,
            };
            let event = Event::lease(Time(inside.now()), &of, wrote);
            inside.record(event);
        });
        // It cannot fail: nothing aborts it, and it does not panic.
        let _ = message.await;
    }

    /// When all is well: whoever wants a lock gets it.
    async fn last_wish(&mut self) {
        let client = self.client.clone();
        loop {
            let wish = self.last();
            let of = &wish.of;
            client.record(of, Step::Asked);
            match client.request(&wish).await {
                Ok(lease) => {
                    self.note_acquired(&wish, &lease);
                    if !wish.reads {
                        self.write(&wish, &lease).await;
                    }
                    return self.release(of, lease).await;
                }
                Err(error) => {
                    let error = word(&error).to_owned();
                    client.record(of, Step::Failed { error });
                }
            }
            sleep(BEFORE_THE_NEXT).await;
        }
    }

    /// Asks once more and drops it half-way, or drops the lease: nothing may be left of it.
    async fn change_of_mind(&mut self) {
        let client = self.client.clone();
        let wish = self.last();
        let of = &wish.of;
        let polls = self.dice.below(5) as u32;
        client.record(of, Step::Asked);
        let asking = async {
            match self.dice.per_mille(500) && !wish.reads {
                true => client.locks.try_lock(&of.lock, wish.ttl).await,
                false => client.request(&wish).await,
            }
        };
        let step = match fickle(asking, Some(polls)).await {
            Some(Ok(lease)) => {
                self.note_acquired(&wish, &lease);
                Step::Dropped
            }
            Some(Err(error)) => Step::Failed {
                error: word(&error).to_owned(),
            },
            None => Step::Dropped,
        };
        client.record(of, step);
    }
}

/// Waits for the loss of a lease, and writes it down.
async fn told(client: &Client, wish: &Wish, lease: &Lease) {
    let reason = lease.lost().await.as_str().to_owned();
    client.record(&wish.of, Step::LossTold { reason });
    if lease.is_valid() {
        client.object(&wish.of, "a lease that is lost says that it is valid");
    }
    // Nodes that keep their data do not forget it before its time.
    let keep_data = client.world.plan.rate(Fault::CrashLosingData).is_none();
    if keep_data && client.world.now().after(LONGEST_NOTICE) < wish.known.get() {
        let what = format!(
            "told of its loss long before its end at {}",
            wish.known.get()
        );
        client.object(&wish.of, &what);
    }
}

/// Writes down when a lease has been renewed. Looks often, and right before and at the end that is
/// known: so that no renewal is missed which a loss could follow.
async fn watch(client: &Client, wish: &Wish, lease: &Lease) -> std::convert::Infallible {
    loop {
        let left = wish.known.get().0.saturating_sub(client.world.now().0);
        let left = Duration::from_nanos(left);
        let before = left.saturating_sub(ms(2));
        let nap = match (before.is_zero(), left.is_zero()) {
            (false, _) => before.min(wish.ttl / 20),
            (true, false) => left,
            (true, true) => wish.ttl / 20,
        };
        sleep(nap.max(ms(1))).await;
        client.note_validity(wish, lease);
    }
}
