//! Many who want the same lock: how often it changes hands, how long they wait, and what waiting
//! costs. Five nodes, 1 ms of work under the lock, 5 ms of pause.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fencepost::{Client, Lease};
use fencepost_tests::RedisServer;
use hdrhistogram::Histogram;
use rslock::{Lock, LockManager};
use tokio::sync::OwnedMutexGuard;

use crate::floor::hand_off::{Pair, Waiting};
use crate::floor::{self, Kind};
use crate::measure::{Seen, histogram, slice};
use crate::probe::Probe;
use crate::process::Process;
use crate::{Effort, contender::TTL};

const WORK: Duration = Duration::from_millis(1);
const PAUSE: Duration = Duration::from_millis(5);
/// Whoever asked so long before a release is in the queue by then: a refused attempt and a ticket take two round trips.
pub(crate) const IN_QUEUE: Duration = Duration::from_micros(500);
const WORKERS: [usize; 2] = [4, 32];
const WAITERS: usize = 500;

/// One worker's way to the lock.
trait Worker: Send + 'static {
    type Held: Send;
    fn acquire(&self) -> impl Future<Output = Self::Held> + Send;
    fn release(&self, held: Self::Held) -> impl Future<Output = ()> + Send;
}

struct Ours {
    locks: Client,
    name: String,
    fair: bool,
}

impl Worker for Ours {
    type Held = Lease;

    async fn acquire(&self) -> Lease {
        let request = self.locks.lock(&self.name).ttl(TTL).fair(self.fair);
        request.await.expect("it waits as long as it takes")
    }

    async fn release(&self, held: Lease) {
        held.release().await.expect("nobody else took it");
    }
}

struct Theirs(LockManager);

impl Worker for Theirs {
    type Held = Lock;

    async fn acquire(&self) -> Lock {
        let lock = self.0.acquire_no_guard("rslock", TTL).await;
        lock.expect("it waits as long as it takes")
    }

    async fn release(&self, held: Lock) {
        held.release().await;
    }
}

/// What no lock over a network can beat: a mutex of this process, fair, which costs next to nothing.
struct InMemory(Arc<tokio::sync::Mutex<()>>);

impl Worker for InMemory {
    type Held = OwnedMutexGuard<()>;

    async fn acquire(&self) -> OwnedMutexGuard<()> {
        Arc::clone(&self.0).lock_owned().await
    }

    async fn release(&self, held: OwnedMutexGuard<()>) {
        drop(held);
    }
}

/// What was seen of one contender, over all rounds.
pub(crate) struct Waits {
    wait: Histogram<u64>,
    /// From the call of a release to the return of the acquire of one who was waiting then.
    hand_off: Histogram<u64>,
    /// The same of one who was in the queue then, as the taker is by hand.
    hand_off_in_queue: Histogram<u64>,
    cycles: u64,
    time: Duration,
    /// Scripts that one of the nodes has run.
    scripts: u64,
}

impl Waits {
    fn new() -> Self {
        Self {
            wait: histogram(),
            hand_off: histogram(),
            hand_off_in_queue: histogram(),
            cycles: 0,
            time: Duration::ZERO,
            scripts: 0,
        }
    }

    pub(crate) fn per_second(&self) -> f64 {
        self.cycles as f64 / self.time.as_secs_f64()
    }

    pub(crate) fn hand_off_micros(&self) -> f64 {
        self.hand_off.value_at_quantile(0.5) as f64 / 1e3
    }

    pub(crate) fn hand_off_in_queue_micros(&self) -> f64 {
        self.hand_off_in_queue.value_at_quantile(0.5) as f64 / 1e3
    }

    pub(crate) fn wait_ms(&self, quantile: f64) -> f64 {
        self.wait.value_at_quantile(quantile) as f64 / 1e6
    }

    /// Lets all workers work for that long.
    async fn round<W: Worker>(
        &mut self,
        node: &RedisServer,
        workers: Vec<W>,
        time: Duration,
    ) -> Vec<W> {
        let scripts = node.scripts_run();
        let begin = Instant::now();
        let end = begin + time;
        let last_release = Arc::new(Mutex::new(begin));
        let tasks: Vec<_> = workers
            .into_iter()
            .map(|worker| tokio::spawn(work(worker, end, Arc::clone(&last_release))))
            .collect();
        let mut back = Vec::new();
        for task in tasks {
            let (worker, seen) = task.await.expect("a contender failed");
            self.wait.add(&seen.wait).expect("the same bounds");
            for (all, seen) in [
                (&mut self.hand_off, &seen.hand_off),
                (&mut self.hand_off_in_queue, &seen.hand_off_in_queue),
            ] {
                all.add(seen).expect("the same bounds");
            }
            self.cycles += seen.cycles;
            back.push(worker);
        }
        self.time += begin.elapsed();
        self.scripts += node.scripts_run() - scripts;
        back
    }
}

/// Works for that long: on a thread, because the runtime's timer counts whole milliseconds, and
/// one is two at times.
async fn work_for(time: Duration) {
    let work = tokio::task::spawn_blocking(move || std::thread::sleep(time));
    work.await.expect("to sleep is no work");
}

/// What is done under the lock.
async fn hold() {
    work_for(WORK).await;
}

async fn work<W: Worker>(worker: W, end: Instant, last_release: Arc<Mutex<Instant>>) -> (W, Waits) {
    let mut seen = Waits::new();
    while Instant::now() < end {
        let start = Instant::now();
        let held = worker.acquire().await;
        let now = Instant::now();
        seen.wait.saturating_record((now - start).as_nanos() as u64);
        let released = *last_release.lock().expect("no panic");
        if released > start {
            let taken = now.saturating_duration_since(released);
            let taken = taken.as_nanos() as u64;
            seen.hand_off.saturating_record(taken);
            if released >= start + IN_QUEUE {
                seen.hand_off_in_queue.saturating_record(taken);
            }
        }
        hold().await;
        *last_release.lock().expect("no panic") = Instant::now();
        worker.release(held).await;
        seen.cycles += 1;
        work_for(PAUSE).await;
    }
    (worker, seen)
}

/// How the workers reach the nodes.
#[derive(Clone, Copy)]
pub(crate) enum Clients {
    /// As programs of their own do.
    Each,
    /// As the tasks of one program do.
    Shared,
}

/// Whom to measure beside fencepost and rslock.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Controls {
    /// A fair lock, a mutex in memory, and workers that never wait.
    All,
    None,
}

/// What was seen of workers that want one lock.
pub(crate) struct Contended {
    /// A round trip of the floor, in microseconds.
    trip: f64,
    /// Hand-off written by hand.
    by_hand: Histogram<u64>,
    /// The same while a second waits, who is told of each release.
    by_hand_telling: Histogram<u64>,
    /// fencepost, fair, rslock, a mutex in memory, and fencepost without contention.
    seen: [Waits; 5],
}

impl Contended {
    pub(crate) fn ours(&self) -> &Waits {
        &self.seen[0]
    }

    pub(crate) fn rslock(&self) -> &Waits {
        &self.seen[2]
    }

    /// The median, in microseconds.
    pub(crate) fn hand_off_by_hand(&self) -> f64 {
        self.by_hand.value_at_quantile(0.5) as f64 / 1e3
    }

    /// The same while a second waits, who is told of each release.
    pub(crate) fn hand_off_by_hand_telling(&self) -> f64 {
        self.by_hand_telling.value_at_quantile(0.5) as f64 / 1e3
    }

    /// How many cycles there would be a second if each hand-off of ours took as long as one by hand, and all else as
    /// long as it does.
    pub(crate) fn per_second_by_hand(&self) -> f64 {
        let saved = self.ours().hand_off_micros() - self.hand_off_by_hand();
        1e6 / (1e6 / self.ours().per_second() - saved)
    }
}

pub(crate) async fn run(effort: Effort) {
    let servers = RedisServer::start_many(5);
    for clients in [Clients::Each, Clients::Shared] {
        for workers in WORKERS {
            let contended = contend(&servers, workers, clients, effort, Controls::All).await;
            let whose = match clients {
                Clients::Each => "each with a client of its own",
                Clients::Shared => "with one client",
            };
            println!("n = 5, {workers} workers {whose}\n");
            contended.print();
        }
    }
    let urls: Vec<_> = servers.iter().map(RedisServer::url).collect();
    crowd(&urls, effort).await;
}

pub(crate) async fn contend(
    servers: &[RedisServer],
    workers: usize,
    clients: Clients,
    effort: Effort,
    controls: Controls,
) -> Contended {
    let urls: Vec<_> = servers.iter().map(RedisServer::url).collect();
    let ports: Vec<_> = servers.iter().map(RedisServer::port).collect();
    // A round must be long beside the longest wait of whoever polls.
    let time = effort.slice * 8;
    let rounds = effort.rounds.div_ceil(3);
    let mut floor_clients = floor::direct::clients(Kind::Fenced, &ports, 1).await;
    let mut floor = Seen::new();
    let mut probe = Probe::of(&servers[0]);
    let mut pair = Pair::new(&ports, Waiting::Alone).await;
    let mut telling = Pair::new(&ports, Waiting::WithASecond).await;
    let (mut by_hand, mut by_hand_telling) = (histogram(), histogram());
    let mut seen = std::array::from_fn(|_| Waits::new());
    let [plain, fair, theirs, in_memory, alone] = &mut seen;
    let mut ours_plain = ours(&urls, workers, clients, |_| "default".to_owned(), false).await;
    let beside = if controls == Controls::All {
        workers
    } else {
        0
    };
    let mut ours_fair = ours(&urls, beside, clients, |_| "fair".to_owned(), true).await;
    let mut ours_alone = ours(&urls, beside, clients, |n| format!("alone-{n}"), false).await;
    let mutex = Arc::default();
    let mut ideal: Vec<_> = (0..workers).map(|_| InMemory(Arc::clone(&mutex))).collect();
    let mut rslock = rslock(&urls, workers, clients);
    for _ in 0..rounds {
        slice(&mut floor_clients, 1, effort.slice, &mut probe, &mut floor).await;
        pair.slice(effort.slice, hold, &mut by_hand).await;
        telling
            .slice(effort.slice, hold, &mut by_hand_telling)
            .await;
        ours_plain = plain.round(&servers[0], ours_plain, time).await;
        rslock = theirs.round(&servers[0], rslock, time).await;
        if controls == Controls::None {
            continue;
        }
        ours_fair = fair.round(&servers[0], ours_fair, time).await;
        ideal = in_memory.round(&servers[0], ideal, time).await;
        ours_alone = alone.round(&servers[0], ours_alone, effort.slice).await;
    }
    Contended {
        trip: floor.acquire_micros(0.5),
        by_hand,
        by_hand_telling,
        seen,
    }
}

impl Contended {
    fn print(&self) {
        print(self.trip, self.hand_off_by_hand(), &self.seen);
    }
}

fn print(trip: f64, by_hand: f64, seen: &[Waits; 5]) {
    let [plain, fair, theirs, in_memory, alone] = seen;
    println!(
        "{:<20}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}{:>12}{:>8}",
        "", "cycles/s", "mean, ms", "p50", "p99", "longest", "/ mean", "hand-off us", "/ trip"
    );
    for (who, seen) in [
        ("fencepost", plain),
        ("fencepost, fair", fair),
        ("rslock", theirs),
        ("mutex in memory", in_memory),
    ] {
        let mean = seen.wait.mean() / 1e6;
        let longest = seen.wait.max() as f64 / 1e6;
        let hand_off = seen.hand_off_micros();
        println!(
            "{who:<20}{:>10.0}{mean:>10.2}{:>10.2}{:>10.2}{longest:>10.1}{:>10.1}{hand_off:>12.0}{:>8.1}",
            seen.per_second(),
            seen.wait_ms(0.5),
            seen.wait_ms(0.99),
            longest / mean,
            hand_off / trip,
        );
    }
    println!(
        "fencepost over rslock: {:.1} x the cycles, p99 wait {:.1} x lower\n\
         at the most: {:.1} x with a mutex in memory, {:.1} x if nobody ever waited\n\
         one round trip of the floor: {trip:.0} us; hand-off written by hand: {by_hand:.0} us, or {:.1} trips\n\
         scripts a node and cycle: {:.1}, fair {:.1}\n",
        plain.per_second() / theirs.per_second(),
        theirs.wait_ms(0.99) / plain.wait_ms(0.99),
        in_memory.per_second() / theirs.per_second(),
        alone.per_second() / theirs.per_second(),
        by_hand / trip,
        plain.scripts as f64 / plain.cycles as f64,
        fair.scripts as f64 / fair.cycles as f64,
    );
}

async fn ours(
    urls: &[String],
    workers: usize,
    clients: Clients,
    name: impl Fn(usize) -> String,
    fair: bool,
) -> Vec<Ours> {
    let shared = crate::ours::connect(urls).await;
    let mut all = Vec::new();
    for n in 0..workers {
        let locks = match clients {
            Clients::Each => crate::ours::connect(urls).await,
            Clients::Shared => shared.clone(),
        };
        let name = name(n);
        all.push(Ours { locks, name, fair });
    }
    all
}

fn rslock(urls: &[String], workers: usize, clients: Clients) -> Vec<Theirs> {
    let shared = crate::rslock::manager(urls);
    let manager = |_| match clients {
        Clients::Each => Theirs(crate::rslock::manager(urls)),
        Clients::Shared => Theirs(shared.clone()),
    };
    (0..workers).map(manager).collect()
}

/// What it costs that very many wait for a lock that nobody gives back.
async fn crowd(urls: &[String], effort: Effort) {
    let locks = crate::ours::connect(urls).await;
    let lease = locks.lock("crowd").await.expect("it is free");
    let waiting: Vec<_> = (0..WAITERS)
        .map(|_| {
            let request = locks.lock("crowd");
            tokio::spawn(async move { drop(request.await) })
        })
        .collect();
    let time = effort.slice * 20;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = Process::ours().cpu;
    let begin = Instant::now();
    tokio::time::sleep(time).await;
    let share = (Process::ours().cpu - before).as_secs_f64() / begin.elapsed().as_secs_f64();
    println!(
        "{WAITERS} waiters on one name: {:.2} % of a core",
        share * 100.0
    );
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
    drop(lease);
    locks.shutdown().await;
}
