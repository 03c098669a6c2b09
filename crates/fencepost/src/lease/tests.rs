//! Renewal and loss to the millisecond, on time that stands still unless everybody waits.

mod downgrade;
mod following;
mod seal;

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};

use crate::error::{LossReason, NodeError};
use crate::runtime::clock::{Clock, Moment, Timer};
use crate::store::memory::MemoryNode;
use crate::store::{Call, Node};
use crate::{Client, LockRequest};
use fencepost_core::lock::Command;
use fencepost_core::name::LockName;

const NAME: &str = "job";
const TTL: Duration = ms(900);
const THIRD: Duration = ms(300);
/// What 900 ms are worth: less 1 % and 2 ms.
const VALID: Duration = ms(889);
const NODE_TIMEOUT: Duration = ms(100);
/// Timers of tokio count whole milliseconds.
const TICK: Duration = ms(2);
/// Longer than anything here.
const EVER: Duration = Duration::from_secs(3600);

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// The paused clock of tokio, which a test can make jump as a machine does that was asleep.
#[derive(Clone)]
struct Paused {
    start: Instant,
    asleep_millis: Arc<AtomicU64>,
    resumed: Arc<Notify>,
    /// Whether the machine has timers that a resume wakes.
    has_timers: Arc<AtomicBool>,
}

impl Paused {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            start: Instant::now(),
            asleep_millis: Arc::default(),
            resumed: Arc::default(),
            has_timers: Arc::default(),
        })
    }

    fn elapsed(&self) -> Duration {
        self.now().since_start() - ms(1000)
    }

    /// The machine sleeps: timers stand still, and the clock does not.
    fn suspend(&self, time: Duration) {
        let millis = time.as_millis() as u64;
        self.asleep_millis.fetch_add(millis, Ordering::SeqCst);
        self.resumed.notify_waiters();
    }
}

/// As a `timerfd` on boot time.
impl Timer for Paused {
    fn until<'a>(
        &'a mut self,
        when: Moment,
    ) -> Pin<Box<dyn Future<Output = io::Result<()>> + Send + 'a>> {
        Box::pin(async move {
            loop {
                let resumed = self.resumed.notified();
                let left = when.since(self.now());
                if left.is_zero() {
                    return Ok(());
                }
                let _ = timeout(left, resumed).await;
            }
        })
    }
}

impl Clock for Paused {
    fn now(&self) -> Moment {
        let asleep = ms(self.asleep_millis.load(Ordering::SeqCst));
        Moment::from_start(ms(1000) + self.start.elapsed() + asleep)
    }

    fn wall_micros(&self) -> u64 {
        1 << 40
    }

    fn timer(&self, _has_io: bool) -> Option<Box<dyn Timer>> {
        let has_timers = self.has_timers.load(Ordering::SeqCst);
        has_timers.then(|| Box::new(self.clone()) as _)
    }
}

/// How a node answers.
#[derive(Clone, Copy, Debug)]
enum Manner {
    Well,
    /// It does what it is told at once, and says so later.
    After(Duration),
    /// It does what it is told when that has been sent once more, which is later.
    Again(Duration),
    /// It does nothing and says nothing.
    Never,
    Failing,
}

/// A node that answers as it is told, and remembers what was asked when.
#[derive(Clone)]
struct Scripted {
    memory: MemoryNode,
    clock: Arc<Paused>,
    acquires: Arc<Mutex<Manner>>,
    extends: Arc<Mutex<Manner>>,
    seen: Arc<Mutex<Vec<(Duration, Command)>>>,
}

impl Scripted {
    fn new(clock: &Arc<Paused>) -> Self {
        Self {
            memory: MemoryNode::with_clock(clock.clone()),
            clock: clock.clone(),
            acquires: Arc::new(Mutex::new(Manner::Well)),
            extends: Arc::new(Mutex::new(Manner::Well)),
            seen: Arc::default(),
        }
    }

    fn extends(&self, manner: Manner) {
        *self.extends.lock().unwrap() = manner;
    }

    /// When it was asked to extend.
    fn extended_at(&self) -> Vec<Duration> {
        let seen = self.seen.lock().unwrap();
        let extends = seen
            .iter()
            .filter(|(_, command)| matches!(command, Command::Extend { .. }));
        extends.map(|(when, _)| *when).collect()
    }

    /// What it was asked to refuse with each release.
    fn releases(&self) -> Vec<Option<Duration>> {
        let seen = self.seen.lock().unwrap();
        let refusals = seen.iter().filter_map(|(_, command)| match command {
            Command::Release { tombstone, .. } => Some(*tombstone),
            _ => None,
        });
        refusals.collect()
    }
}

impl Node for Scripted {
    fn call(&self, name: &LockName, command: Command) -> Call {
        let (node, name) = (self.clone(), name.clone());
        Box::pin(async move {
            let when = node.clock.elapsed();
            node.seen.lock().unwrap().push((when, command.clone()));
            let manner = match command {
                Command::Acquire { .. } => *node.acquires.lock().unwrap(),
                Command::Extend { .. } | Command::ExtendShared { .. } => {
                    *node.extends.lock().unwrap()
                }
                _ => Manner::Well,
            };
            match manner {
                Manner::Well => node.memory.call(&name, command).await,
                Manner::After(time) => {
                    let answer = node.memory.call(&name, command).await;
                    sleep(time).await;
                    answer
                }
                Manner::Again(time) => {
                    sleep(time).await;
                    node.memory.call(&name, command).await
                }
                Manner::Never => std::future::pending().await,
                Manner::Failing => Err(NodeError::Loading),
            }
        })
    }

    fn address(&self) -> &str {
        "scripted"
    }
}

/// A client of so many nodes, on paused time.
struct Scene {
    clock: Arc<Paused>,
    nodes: Vec<Scripted>,
    locks: Client,
}

impl Scene {
    fn of(n: usize) -> Self {
        let clock = Paused::new();
        let nodes: Vec<_> = (0..n).map(|_| Scripted::new(&clock)).collect();
        let mut builder = Client::builder()
            .clock(clock.clone())
            .node_timeout(NODE_TIMEOUT);
        for node in &nodes {
            builder = builder.node(node.clone());
        }
        let locks = builder.build().unwrap();
        Self {
            clock,
            nodes,
            locks,
        }
    }

    fn lock(&self) -> LockRequest {
        self.locks.lock(NAME).ttl(TTL)
    }

    fn all_extend(&self, manner: Manner) {
        self.nodes.iter().for_each(|node| node.extends(manner));
    }
}

/// It was first renewed a third of its TTL after it was got, however little was left by then.
#[tokio::test(start_paused = true)]
async fn a_lease_that_was_slow_to_get_is_renewed_before_it_ends() {
    let clock = Paused::new();
    let node = Scripted::new(&clock);
    let builder = Client::builder().clock(clock.clone());
    let locks = builder
        .node_timeout(TTL)
        .node(node.clone())
        .build()
        .unwrap();
    *node.acquires.lock().unwrap() = Manner::After(ms(800));
    let lease = locks.lock(NAME).ttl(TTL).await.unwrap();
    assert!(lease.remaining() < ms(100));
    sleep(TTL * 3).await;
    assert_eq!(lease.loss(), None);
}

fn is_about(time: Duration, expected: Duration) -> bool {
    (expected..=expected + TICK).contains(&time)
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_renewed_every_third_of_its_ttl() {
    let scene = Scene::of(1);
    let lease = scene.lock().await.unwrap();
    sleep(TTL * 10 + THIRD / 2).await;
    let times = scene.nodes[0].extended_at();
    assert_eq!(times.len(), 30, "{times:?}");
    let mut last = Duration::ZERO;
    for time in times {
        assert!(is_about(time - last, THIRD), "{last:?}, then {time:?}");
        last = time;
    }
    assert!(lease.is_valid());
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_finds_no_quorum_is_tried_again_while_the_lease_is_valid() {
    let scene = Scene::of(3);
    let lease = scene.lock().await.unwrap();
    scene.nodes[0].extends(Manner::Failing);
    scene.nodes[1].extends(Manner::Failing);
    sleep(VALID - ms(60)).await;
    assert!(scene.nodes[0].extended_at().len() > 5);
    scene.all_extend(Manner::Well);
    sleep(TTL).await;
    assert!(lease.is_valid(), "saved in the last moment");
    assert_eq!(lease.loss(), None);
}

/// A short TTL and a time-out above it: waiting for the silent node would take all the time that
/// the other one needs to come back.
#[tokio::test(start_paused = true)]
async fn a_silent_node_leaves_time_for_another_try() {
    let clock = Paused::new();
    let nodes: Vec<_> = (0..3).map(|_| Scripted::new(&clock)).collect();
    let mut builder = Client::builder().clock(clock.clone()).node_timeout(TTL);
    for node in &nodes {
        builder = builder.node(node.clone());
    }
    let locks = builder.build().unwrap();
    let lease = locks.lock(NAME).ttl(TTL).await.unwrap();
    nodes[0].extends(Manner::Never);
    nodes[1].extends(Manner::Failing);
    sleep(THIRD + ms(20)).await;
    nodes[1].extends(Manner::Well);
    sleep(TTL).await;
    assert_eq!(lease.loss(), None);
}

#[tokio::test(start_paused = true)]
async fn the_loss_is_told_shortly_before_the_end_and_never_after_it() {
    for (millis, notice) in [(10, 2), (20, 2), (60, 3), (900, 25), (30_000, 25)] {
        let ttl = ms(millis);
        for renews in [true, false] {
            let scene = Scene::of(3);
            let lease = scene.locks.lock(NAME).ttl(ttl).renew(renews).await.unwrap();
            scene.all_extend(Manner::Never);
            let valid = lease.remaining();
            let why = timeout(EVER, lease.lost()).await.unwrap();
            let took = scene.clock.elapsed();
            assert!(took <= valid, "{ttl:?}: told {:?} late", took - valid);
            let early = valid - took;
            assert!(early <= ms(notice), "{ttl:?}: told {early:?} early");
            assert!(!lease.is_valid() && lease.remaining().is_zero());
            let expected = match renews {
                true => LossReason::NoQuorum,
                false => LossReason::Expired,
            };
            assert_eq!(why, expected, "{ttl:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_hangs_costs_nothing() {
    let scene = Scene::of(3);
    let lease = scene.lock().await.unwrap();
    scene.nodes[0].extends(Manner::Never);
    for _ in 0..300 {
        sleep(ms(100)).await;
        assert!(lease.remaining() > VALID - THIRD - TICK);
    }
    let start = scene.clock.elapsed();
    lease.release().await.unwrap();
    assert_eq!(scene.clock.elapsed(), start, "the others decide");
}

#[tokio::test(start_paused = true)]
async fn renewals_that_are_due_together_run_side_by_side() {
    let scene = Scene::of(1);
    let mut leases = Vec::new();
    for i in 0..1000 {
        let name = format!("job-{i}");
        leases.push(scene.locks.lock(name).ttl(TTL).await.unwrap());
    }
    scene.all_extend(Manner::After(ms(80)));
    sleep(THIRD + ms(40)).await;
    let times = scene.nodes[0].extended_at();
    assert_eq!(times.len(), 1000);
    assert!(times.iter().all(|time| is_about(*time, THIRD)));
    sleep(TTL * 3).await;
    assert!(leases.iter().all(super::Lease::is_valid));
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_nobody_answers_for_does_not_delay_another() {
    let scene = Scene::of(1);
    let lost = scene.lock().await.unwrap();
    scene.all_extend(Manner::Never);
    sleep(THIRD + TICK).await;
    // The first one's renewal hangs from now on; the other's are answered.
    scene.all_extend(Manner::Well);
    let kept = scene.locks.lock("other").ttl(TTL).await.unwrap();
    for _ in 0..100 {
        sleep(ms(50)).await;
        assert!(kept.remaining() > VALID - THIRD - TICK);
    }
    drop(lost);
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_slept_past_the_end_finds_the_lease_lost_at_once() {
    let scene = Scene::of(1);
    let lease = scene.lock().await.unwrap();
    sleep(ms(100)).await;
    scene.clock.suspend(TTL);
    assert!(!lease.is_valid());
    assert!(lease.extend().await.unwrap_err().is_lost());
    assert_eq!(lease.loss(), Some(LossReason::Suspended));
    assert!(scene.nodes[0].extended_at().is_empty());
}

/// The machine sleeps past the end of a lease while somebody waits for its loss: how long after the resume
/// that is told.
async fn told_after_a_resume(has_timers: bool) -> Duration {
    let scene = Scene::of(1);
    scene.clock.has_timers.store(has_timers, Ordering::SeqCst);
    let lease = scene.locks.lock(NAME).ttl(ms(30_000)).await.unwrap();
    let watch = lease.watch();
    let told = tokio::spawn(async move { (watch.ended().await, Instant::now()) });
    sleep(ms(100)).await;
    scene.clock.suspend(ms(40_000));
    let resumed = Instant::now();
    let (why, when) = timeout(EVER, told).await.unwrap().unwrap();
    assert_eq!(why, Some(LossReason::Suspended));
    when - resumed
}

/// The renewer's timer was on the monotonic clock: the loss was told up to 0.9 s late, once after a
/// rival had been granted the lock.
#[tokio::test(start_paused = true)]
async fn a_resume_tells_the_loss_at_once() {
    assert_eq!(told_after_a_resume(true).await, Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn without_a_timer_on_boot_time_the_loss_is_told_soon_after_a_resume() {
    let late = told_after_a_resume(false).await;
    assert!(
        late > ms(500) && late <= ms(1_000),
        "the nap goes on: {late:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn an_answer_from_before_the_sleep_does_not_bring_a_lease_back() {
    let scene = Scene::of(1);
    let lease = scene.lock().await.unwrap();
    scene.all_extend(Manner::After(ms(50)));
    sleep(THIRD + ms(10)).await;
    assert_eq!(scene.nodes[0].extended_at().len(), 1, "under way");
    let watch = lease.watch();
    let over = tokio::spawn(async move { watch.ended().await });
    sleep(ms(1)).await;
    scene.clock.suspend(TTL);
    // Nobody looks at the lease: the answer is the first thing that comes.
    let why = timeout(EVER, over).await.unwrap().unwrap();
    assert_eq!(why, Some(LossReason::Suspended));
    assert_eq!(lease.loss(), Some(LossReason::Suspended));
    sleep(TTL).await;
    assert!(!lease.is_valid());
}

#[tokio::test(start_paused = true)]
async fn an_answer_after_the_end_does_not_bring_a_lease_back() {
    let scene = Scene::of(1);
    let lease = scene.lock().await.unwrap();
    scene.all_extend(Manner::After(VALID));
    assert_eq!(timeout(EVER, lease.lost()).await, Ok(LossReason::NoQuorum));
    for _ in 0..20 {
        sleep(ms(100)).await;
        assert!(!lease.is_valid());
    }
    let error = lease.extend().await.unwrap_err();
    assert_eq!(error.loss(), Some(&LossReason::NoQuorum), "{error}");
}

/// An extension that was overtaken by a renewal measured itself by the end that the lease had before
/// the renewal: answered after that end, it declared a valid lease lost.
#[tokio::test(start_paused = true)]
async fn an_extension_that_a_renewal_overtook_takes_nothing_away() {
    let scene = Scene::of(1);
    let lease = scene.lock().await.unwrap();
    sleep(THIRD - ms(20)).await;
    scene.all_extend(Manner::After(ms(60)));
    let mut extension = Box::pin(lease.extend());
    assert!(timeout(ms(10), &mut extension).await.is_err());
    scene.all_extend(Manner::Well);
    sleep(ms(20)).await;
    assert_eq!(scene.nodes[0].extended_at().len(), 2, "renewed meanwhile");
    scene.clock.suspend(VALID - THIRD);
    assert_eq!(extension.await, Ok(()), "the lease is valid, and extended");
    assert_eq!(lease.loss(), None);
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_was_never_answered_is_refused_after_the_release() {
    let scene = Scene::of(1);
    let lease = scene.lock().await.unwrap();
    scene.all_extend(Manner::Never);
    sleep(THIRD + ms(10)).await;
    assert_eq!(scene.nodes[0].extended_at().len(), 1, "under way");
    lease.release().await.unwrap();
    assert_eq!(scene.nodes[0].releases(), [None]);
    sleep(TTL).await;
    assert_eq!(scene.nodes[0].releases(), [None, Some(TTL)]);
    assert_eq!(scene.nodes[0].extended_at().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_is_answered_needs_no_refusal() {
    let scene = Scene::of(3);
    let lease = scene.lock().await.unwrap();
    scene.nodes[0].extends(Manner::After(ms(50)));
    scene.nodes[1].extends(Manner::After(ms(50)));
    sleep(THIRD + ms(10)).await;
    assert_eq!(scene.nodes[0].extended_at().len(), 1, "under way");
    lease.release().await.unwrap();
    sleep(TTL * 3).await;
    for node in &scene.nodes {
        assert_eq!(node.releases(), [None]);
        assert_eq!(node.extended_at().len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_follows_an_earlier_renewal_that_one_node_never_answered() {
    let scene = Scene::of(3);
    let lease = scene.lock().await.unwrap();
    scene.nodes[0].extends(Manner::Never);
    sleep(TTL * 3).await;
    lease.release().await.unwrap();
    sleep(TTL).await;
    let refusals = scene.nodes[0].releases();
    assert!(refusals.contains(&Some(TTL)), "{refusals:?}");
    assert_eq!(scene.nodes[1].releases(), [None]);
}

#[tokio::test(start_paused = true)]
async fn dropping_a_lease_ends_its_renewal_at_once() {
    let scene = Scene::of(1);
    let lease = scene.lock().await.unwrap();
    sleep(TTL).await;
    let renewals = scene.nodes[0].extended_at().len();
    drop(lease);
    sleep(TTL * 3).await;
    assert_eq!(scene.nodes[0].extended_at().len(), renewals);
    assert_eq!(scene.nodes[0].releases(), [None]);
}

#[tokio::test(start_paused = true)]
async fn max_hold_ends_a_lease_on_time_however_it_is_renewed() {
    let scene = Scene::of(1);
    for limit in [ms(200), TTL, TTL * 5 + ms(7)] {
        let start = scene.clock.elapsed();
        let lease = scene.lock().max_hold(limit).await.unwrap();
        lease.extend().await.unwrap();
        let why = timeout(EVER, lease.lost()).await.unwrap();
        let took = scene.clock.elapsed() - start;
        assert_eq!(why, LossReason::MaxHold);
        assert!(
            took <= limit && limit - took <= ms(25),
            "{limit:?}: {took:?}"
        );
        lease.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn only_renewals_that_worked_count_against_max_renewals() {
    let scene = Scene::of(1);
    let lease = scene.lock().max_renewals(2).await.unwrap();
    scene.all_extend(Manner::Failing);
    sleep(THIRD * 2).await;
    assert!(scene.nodes[0].extended_at().len() > 3);
    scene.all_extend(Manner::Well);
    lease.extend().await.unwrap();
    let tries = scene.nodes[0].extended_at().len();
    let why = timeout(EVER, lease.lost()).await.unwrap();
    assert_eq!(why, LossReason::MaxHold);
    assert_eq!(scene.nodes[0].extended_at().len(), tries + 2);
    let took = scene.clock.elapsed();
    let last = *scene.nodes[0].extended_at().last().unwrap();
    assert!(took <= last + VALID && took >= last + VALID - ms(25));
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_could_not_be_renewed_once_more_says_no_quorum() {
    let scene = Scene::of(1);
    let lease = scene.lock().max_renewals(1).await.unwrap();
    scene.all_extend(Manner::Failing);
    assert_eq!(timeout(EVER, lease.lost()).await, Ok(LossReason::NoQuorum));
}

#[tokio::test(start_paused = true)]
async fn somebody_who_steals_it_is_named_within_one_renewal_period() {
    let scene = Scene::of(3);
    let lease = scene.lock().await.unwrap();
    sleep(ms(100)).await;
    let thief = scene.locks.steal(NAME, TTL).await.unwrap();
    let why = timeout(THIRD, lease.lost()).await.unwrap();
    assert!(matches!(why, LossReason::Stolen { .. }), "{why}");
    drop(lease);
    sleep(ms(10)).await;
    assert!(thief.lease.is_valid());
    thief.lease.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn who_watches_a_lease_is_told_of_its_release() {
    let scene = Scene::of(1);
    let lease = scene.lock().await.unwrap();
    let watch = lease.watch();
    assert!(watch.is_valid() && watch.token() == lease.token());
    let ended = tokio::spawn({
        let watch = watch.clone();
        async move { watch.ended().await }
    });
    lease.release().await.unwrap();
    assert_eq!(ended.await.unwrap(), None);
    assert!(!watch.is_valid() && watch.loss().is_none());
}

/// On a busy machine the notice may come late: that is no reason to call it asleep.
#[tokio::test(start_paused = true)]
async fn a_lease_that_was_not_to_be_renewed_expires_however_late_anyone_looks() {
    let scene = Scene::of(1);
    let lease = scene.lock().renew(false).await.unwrap();
    scene.clock.suspend(TTL);
    assert_eq!(lease.loss(), Some(LossReason::Expired));
}

/// It mixed two clocks: a lease of 3 s was valid after 4 s of a paused clock.
#[tokio::test(start_paused = true)]
async fn a_lease_in_memory_expires_by_the_clock_that_a_test_pauses() {
    let locks = Client::memory().unwrap();
    let lease = locks.lock(NAME).ttl(ms(3_000)).renew(false).await.unwrap();
    tokio::time::advance(ms(2_000)).await;
    assert!(lease.is_valid() && lease.remaining() < ms(1_000));
    assert!(locks.try_lock(NAME).await.unwrap_err().is_held());
    tokio::time::advance(ms(2_000)).await;
    assert!(!lease.is_valid());
    assert_eq!(lease.loss(), Some(LossReason::Expired));
    assert!(locks.try_lock(NAME).await.is_ok(), "on the node too");
    // One that is renewed goes on.
    let lease = locks.lock(NAME).ttl(ms(3_000)).await.unwrap();
    sleep(ms(60_000)).await;
    assert!(lease.is_valid());
}
