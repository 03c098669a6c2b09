//! What the clients do: ask for locks in every way there is, hold them, write under them, and give
//! them back or drop them.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use fencepost::{Error, Lease, LockOptions, Observer};
use fencepost_checks::{Event, Outcome, Step, Time};
use tokio::time::{sleep, timeout};

use crate::client::{SimClient, Wish, word};
use crate::dice::Dice;
use crate::faults::Fault;
use crate::fickle::fickle;
use crate::held::{Held, Hold};
use crate::plan::Work;

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// How long the last requests wait before they ask again after a failure.
const BEFORE_THE_NEXT: Duration = ms(20);
/// How long before its end a lease that cannot be renewed is told at the most: the library's 25 ms,
/// and what its clock and its timers are off.
const LONGEST_NOTICE: Duration = ms(40);
/// How long somebody waits for a new leader at the most, and how often it looks.
const OBSERVES_FOR: Duration = ms(300);
const OBSERVES_EVERY: Duration = ms(50);

/// One task of a client that asks for locks.
pub(crate) struct Session {
    pub(crate) client: Rc<SimClient>,
    pub(crate) dice: Dice,
    /// Who watches the leaders, and the newest token that it was told.
    pub(crate) observer: Option<(Observer, u64)>,
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

    /// What to ask for: one name, or several of them in any order.
    fn names(&mut self) -> Vec<String> {
        let plan = &self.client.world.plan;
        let first = self.dice.index(plan.names);
        if plan.work != Work::Multi {
            return vec![plan.name(first)];
        }
        let how_many = 1 + self.dice.index(plan.names);
        let step = if self.dice.per_mille(500) {
            1
        } else {
            plan.names - 1
        };
        let names = (0..how_many).map(|n| (first + n * step) % plan.names);
        names.map(|name| plan.name(name)).collect()
    }

    pub(crate) fn ttl(&mut self) -> Duration {
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

    /// Locks, a TTL and options.
    pub(crate) fn wish(&mut self, reads: bool) -> Wish {
        let (names, ttl) = (self.names(), self.ttl());
        let mut options = LockOptions::new().ttl(ttl);
        options = options.fair(self.client.world.plan.is_fair);
        let mut renews = self.dice.per_mille(600);
        let wait = self
            .dice
            .per_mille(500)
            .then(|| self.dice.time(Duration::ZERO, ms(1_500)));
        if let Some(wait) = wait {
            options = options.timeout(wait);
        }
        if !renews {
            options = options.renew(false);
        }
        let mut max_hold = None;
        if self.dice.per_mille(150) {
            let time = self.dice.time(ms(20), ttl * 3);
            options = options.max_hold(time);
            max_hold = Some(time);
        }
        if self.dice.per_mille(100) {
            options = options.max_renewals(self.dice.below(4) as u32);
        }
        // Several at once always renew themselves.
        renews |= self.client.world.plan.work == Work::Multi;
        let mut wish = self.client.wish(names, ttl, options, reads);
        (wish.max_hold, wish.wait, wish.renews) = (max_hold, wait, renews);
        wish
    }

    /// What is asked for when all is well.
    fn last(&mut self) -> Wish {
        let client = self.client.clone();
        let reads = self.reads();
        let (names, ttl) = (self.names(), client.world.plan.max_ttl);
        let options = LockOptions::new().ttl(ttl).fair(client.world.plan.is_fair);
        client.wish(names, ttl, options, reads)
    }

    async fn round(&mut self) {
        match (self.client.world.plan.work, self.dice.below(10)) {
            (Work::Mutex | Work::ReadWrite, 0..=2) => self.try_lock().await,
            (Work::Mutex | Work::ReadWrite, 8) => self.scope().await,
            (Work::Mutex, 7) => self.detached().await,
            (Work::ReadWrite, 7) => self.misuse_the_mark().await,
            (Work::Election, 8..) => self.observe().await,
            (_, 9..) => self.look().await,
            _ => self.lock().await,
        }
    }

    async fn try_lock(&mut self) {
        let mut wish = self.wish(false);
        wish.renews = false;
        let client = self.client.clone();
        client.asks(&wish);
        let asking = client.locks.try_lock(&wish.names[0]);
        let asking = asking.ttl(wish.ttl).renew(false).into_future();
        let outcome = fickle(asking, self.patience()).await;
        let outcome = outcome.map(|outcome| outcome.map(Held::Lock));
        self.take(&wish, outcome).await;
    }

    async fn lock(&mut self) {
        let reads = self.reads();
        let wish = self.wish(reads);
        let client = self.client.clone();
        client.asks(&wish);
        self.may_stand_still_between(wish.ttl);
        let (asked, pauses) = (client.world.now(), self.pauses());
        let outcome = fickle(client.obtain(&wish), self.patience()).await;
        if pauses == self.pauses()
            && let Some(wait) = wish.wait
            && let Some(outcome) = &outcome
            // Who is refused for its list of nodes need not wait.
            && client.world.plan.first_list.is_none()
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
        let longest = wait + world.plan.node_timeout * 3 * world.plan.attempts() + ms(10);
        if took > longest {
            let what = format!("waited {took:?} where {wait:?} were allowed");
            self.client.object(wish, &what);
        }
        // Of several, one may have been held for as long as it may be before the others were free.
        let is_worn_out = |error: &Error| world.plan.work == Work::Multi && error.is_lost();
        if error.is_some_and(|error| !is_worn_out(error)) && took < wait {
            let what = format!("gave up after {took:?} of {wait:?}: {error:?}");
            self.client.object(wish, &what);
        }
    }

    async fn look(&mut self) {
        let name = self.names().swap_remove(0);
        let client = self.client.clone();
        match client.world.plan.work {
            Work::Semaphore => {
                let semaphore = &client.semaphores[&name];
                let _ = fickle(semaphore.holders(), self.patience()).await;
            }
            _ => {
                let _ = fickle(client.locks.status(name), self.patience()).await;
            }
        }
    }

    /// Waits for a leader that it does not know yet: tokens only grow.
    async fn observe(&mut self) {
        if self.observer.is_none() {
            let election = self.client.locks.election(self.client.world.plan.name(0));
            let observer = election.observe_every(OBSERVES_EVERY).ok();
            self.observer = observer.map(|observer| (observer, 0));
        }
        let Some((observer, newest)) = &mut self.observer else {
            return;
        };
        let Ok(leader) = timeout(OBSERVES_FOR, observer.next()).await else {
            return;
        };
        let token = leader.token.get();
        if token <= *newest {
            let what = format!("{leader:?} was told after token {newest}");
            let mut inside = self.client.world.inside();
            inside.object("observer", what, Vec::new());
        }
        *newest = token;
    }

    /// What a request came to, and what follows.
    async fn take(&mut self, wish: &Wish, outcome: Option<Result<Held, Error>>) {
        let client = self.client.clone();
        let lease = match outcome {
            Some(Ok(lease)) => lease,
            Some(Err(error)) => {
                let error = word(&error).to_owned();
                return client.record(wish, &Step::Failed { error });
            }
            None => {
                self.note_cancel();
                return client.record(wish, &Step::Dropped);
            }
        };
        client.note_acquired(wish, &lease);
        self.hold(wish, &lease).await;
        if lease.is_valid() && self.dice.per_mille(200) {
            self.extend_blindly(wish, &lease).await;
        }
        match lease {
            Held::Writer(lease) if self.stops_writing(wish) => {
                self.become_reader(wish, lease).await;
            }
            lease => self.end(wish, lease).await,
        }
    }

    /// Gives it back, or drops it.
    pub(crate) async fn end(&mut self, wish: &Wish, lease: Held) {
        if self.dice.per_mille(300) {
            self.client.record(wish, &Step::Dropped);
            return drop(lease);
        }
        self.release(wish, lease).await;
    }

    async fn release(&mut self, wish: &Wish, lease: Held) {
        self.client.record(wish, &Step::Releasing);
        let outcome = match fickle(lease.release(), self.patience()).await {
            Some(Ok(())) => Outcome::Released,
            Some(Err(error)) if error.is_lost() => Outcome::Lost,
            Some(Err(_)) => Outcome::Unknown,
            // It is given back all the same, and nobody knows how that went.
            None => return self.note_cancel(),
        };
        self.client.record(wish, &Step::Released { outcome });
    }

    async fn scope(&mut self) {
        let (wish, patience) = (self.wish(false), self.patience());
        let client = self.client.clone();
        client.asks(&wish);
        let is_over = Cell::new(false);
        let body = async |lease: &Lease| {
            client.note_acquired(&wish, lease);
            self.hold(&wish, lease).await;
            is_over.set(true);
            client.record(&wish, &Step::Releasing);
        };
        let request = client.locks.lock(&wish.names[0]).options(wish.options);
        let scope = request.run(body);
        let outcome = fickle(scope, patience).await;
        let step = match outcome {
            Some(Ok(())) => Step::Released {
                outcome: Outcome::Released,
            },
            Some(Err(error)) if error.is_lost() && !is_over.get() => {
                let why = error.loss().expect("it is lost");
                let reason = why.as_str().to_owned();
                client.record(&wish, &Step::LossTold { reason });
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
        client.record(&wish, &step);
    }

    /// Uses the lock for a while, until it has had enough or is told that the lease is lost.
    pub(crate) async fn hold(&mut self, wish: &Wish, lease: &impl Hold) {
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
                        sleep(self.dice.time(Duration::ZERO, ttl / 10)).await;
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
        // Who holds on for ever keeps those from being served who wait for the end of the run.
        let work = timeout(until_healed.max(ms(50)), work);
        while_held(&client, wish, lease, work).await;
    }

    async fn extend(&mut self, wish: &Wish, lease: &impl Hold) {
        let patience = self.patience();
        let known = self.client.valid_until(lease);
        let outcome = fickle(lease.extend(), patience).await;
        match outcome {
            Some(Ok(())) => {
                if !wish.renews && self.client.world.now() > known {
                    self.client
                        .object(wish, "a lease that was over was extended");
                }
                self.client.note_validity(wish, lease);
            }
            Some(Err(_)) => {}
            None => self.note_cancel(),
        }
    }

    /// Extends without a look at whether the lease is lost: as a holder does that trusts what the
    /// extension says. Its process may stand still meanwhile.
    async fn extend_blindly(&mut self, wish: &Wish, lease: &impl Hold) {
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
        // A renewal may have gone through while the extension found too few nodes.
        client.note_validity(wish, lease);
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
        self.stand_still(after, time);
    }

    /// Lets the client stand still while it asks for several locks: the first may be lost by the time the last
    /// is granted.
    fn may_stand_still_between(&mut self, ttl: Duration) {
        let plan = &self.client.world.plan;
        let may = plan.work == Work::Multi && plan.rate(Fault::ClientPause).is_some();
        if !may || !self.dice.per_mille(250) {
            return;
        }
        let after = self.dice.time(Duration::ZERO, ttl);
        let time = self.dice.time(ttl / 2, ttl);
        self.stand_still(after, time);
    }

    fn stand_still(&mut self, after: Duration, time: Duration) {
        let world = &self.client.world;
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
    async fn write(&mut self, wish: &Wish, lease: &impl Hold) {
        let Some((lock, token)) = self.one_of(lease.tokens()) else {
            return;
        };
        let Some(name) = self.client.world.plan.guards(&lock) else {
            return;
        };
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
        let Some(of) = self.client.as_written(wish, &lock) else {
            return;
        };
        let world = self.client.world.clone();
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

    fn one_of<T>(&mut self, mut from: Vec<T>) -> Option<T> {
        let place = match from.len() {
            0 => return None,
            1 => 0,
            len => self.dice.index(len),
        };
        Some(from.swap_remove(place))
    }

    /// When all is well: whoever wants a lock gets it.
    async fn last_wish(&mut self) {
        let client = self.client.clone();
        loop {
            let wish = self.last();
            client.asks(&wish);
            match client.obtain(&wish).await {
                Ok(lease) => {
                    client.note_acquired(&wish, &lease);
                    if !wish.reads {
                        self.write(&wish, &lease).await;
                    }
                    return self.release(&wish, lease).await;
                }
                Err(error) => {
                    let error = word(&error).to_owned();
                    client.record(&wish, &Step::Failed { error });
                }
            }
            sleep(BEFORE_THE_NEXT).await;
        }
    }

    /// Asks once more and drops it half-way, or drops the lease: nothing may be left of it.
    async fn change_of_mind(&mut self) {
        let client = self.client.clone();
        let wish = self.last();
        let polls = self.dice.below(5) as u32;
        let has_a_try = matches!(client.world.plan.work, Work::Mutex | Work::ReadWrite);
        client.asks(&wish);
        let asking = async {
            match self.dice.per_mille(500) && has_a_try && !wish.reads {
                true => {
                    let request = client.locks.try_lock(&wish.names[0]).ttl(wish.ttl);
                    request.renew(false).await.map(Held::Lock)
                }
                false => client.obtain(&wish).await,
            }
        };
        let step = match fickle(asking, Some(polls)).await {
            Some(Ok(lease)) => {
                client.note_acquired(&wish, &lease);
                Step::Dropped
            }
            Some(Err(error)) => Step::Failed {
                error: word(&error).to_owned(),
            },
            None => Step::Dropped,
        };
        client.record(&wish, &step);
    }
}

/// Does something for as long as the lease is not lost, and writes down what becomes of the lease.
pub(crate) async fn while_held<T>(
    client: &SimClient,
    wish: &Wish,
    lease: &impl Hold,
    work: impl Future<Output = T>,
) {
    tokio::select! {
        biased;
        () = told(client, wish, lease) => {}
        never = watch(client, wish, lease) => match never {},
        _ = work => {}
    }
    client.note_validity(wish, lease);
}

/// Waits for the loss of a lease, and writes it down.
async fn told(client: &SimClient, wish: &Wish, lease: &impl Hold) {
    let reason = lease.lost().await;
    client.record(wish, &Step::LossTold { reason });
    if lease.is_valid() {
        client.object(wish, "a lease that is lost says that it is valid");
    }
    judge_loss(client, wish);
}

/// A lease is not lost long before its end.
pub(crate) fn judge_loss(client: &SimClient, wish: &Wish) {
    // Nodes that keep their data do not forget it before its time.
    if !client.world.plan.loses_data()
        && client.world.now().after(LONGEST_NOTICE) < wish.known.get()
    {
        let what = format!(
            "told of its loss long before its end at {}",
            wish.known.get()
        );
        client.object(wish, &what);
    }
}

/// Writes down when a lease has been renewed. Looks often, and right before and at the end that is
/// known: so that no renewal is missed which a loss could follow.
async fn watch(client: &SimClient, wish: &Wish, lease: &impl Hold) -> std::convert::Infallible {
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
