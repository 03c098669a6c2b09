//! Latches and barriers: they open when all are there and not before, for no more than there are
//! places, whoever dies, is dropped or comes late.

use std::collections::BTreeSet;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use fencepost::internals::Node;
use fencepost::{Barrier, Client, Counted, Error, ErrorKind, Passage};
use fencepost_tests::{Cluster, RedisServer, stop_and_continue, until, wait_until};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};

use crate::engines::every_node_shows_that;

/// How late something may happen on a busy machine.
const LATE: Duration = Duration::from_secs(20);
/// Longer than anybody takes to look again who may pass: that it does not pass, only time can tell.
const LOOKS: Duration = Duration::from_millis(600);

every_node_shows_that! {
    a_latch_opens_when_all_have_counted_and_not_before,
    a_party_with_a_number_counts_once,
    a_count_is_not_refused_for_one_that_may_come_to_nothing,
    a_count_lapses_when_its_time_is_up,
    a_latch_is_waited_for_no_longer_than_said,
    a_barrier_lets_all_pass_together,
    no_more_pass_than_there_are_places,
    a_dropped_wait_gives_its_place_back,
    a_barrier_is_waited_at_no_longer_than_said,
    whoever_has_a_place_passes_once_it_is_said_that_all_were_there,
    a_place_whose_party_died_after_the_opening_is_good_for_one_who_is_late,
    a_party_that_loses_its_place_takes_another,
    what_cannot_be_is_refused,
}

fn client(node: &Arc<dyn Node>) -> Client {
    let builder = Client::builder().shared_node(Arc::clone(node));
    builder.build().unwrap()
}

async fn in_time<T>(what: impl Future<Output = Result<T, Error>>) -> T {
    timeout(LATE, what).await.unwrap().unwrap()
}

async fn refused<T: std::fmt::Debug>(what: impl Future<Output = Result<T, Error>>) -> Error {
    timeout(LATE, what).await.unwrap().unwrap_err()
}

/// A party that waits.
fn party(barrier: &Barrier) -> JoinHandle<Result<Passage, Error>> {
    let barrier = barrier.clone();
    tokio::spawn(async move { barrier.wait().await })
}

async fn passage(party: JoinHandle<Result<Passage, Error>>) -> Result<Passage, Error> {
    timeout(LATE, party).await.unwrap().unwrap()
}

/// Waits until so many are missing.
async fn until_missing(barrier: &Barrier, missing: usize) {
    let so_many = async || in_time(barrier.missing()).await == missing;
    until(&format!("{missing} are missing"), LATE, so_many).await;
}

async fn a_latch_opens_when_all_have_counted_and_not_before(node: &Arc<dyn Node>) {
    let latch = client(node).latch("ready", 5);
    let waiting = client(node).latch("ready", 5);
    let waiting = tokio::spawn(async move { waiting.wait().await });
    for still in (0..5).rev() {
        sleep(if still == 0 { LOOKS } else { LOOKS / 5 }).await;
        assert!(!waiting.is_finished(), "{} were missing", still + 1);
        let counting = client(node).latch("ready", 5);
        assert_eq!(in_time(counting.count_down()).await, Counted::Now);
        assert_eq!(in_time(latch.remaining()).await, still);
    }
    timeout(LATE, waiting).await.unwrap().unwrap().unwrap();
    in_time(latch.clone().timeout(Duration::ZERO).wait()).await;
    assert_eq!(in_time(latch.count_down()).await, Counted::WasOpen);
}

async fn a_party_with_a_number_counts_once(node: &Arc<dyn Node>) {
    let latch = client(node).latch("ready", 3);
    for _ in 0..4 {
        in_time(latch.count_down_as(1)).await;
        assert_eq!(in_time(latch.remaining()).await, 2);
    }
    in_time(latch.count_down_as(0)).await;
    in_time(client(node).latch("ready", 3).count_down_as(2)).await;
    in_time(latch.wait()).await;
    let error = latch.count_down_as(3).await.unwrap_err();
    assert!(error.to_string().contains("0 to 2"), "{error}");
}

/// Somebody has taken the last slot, and dies before its count is there for good.
async fn a_count_is_not_refused_for_one_that_may_come_to_nothing(node: &Arc<dyn Node>) {
    let locks = client(node);
    let dies = locks.lock("{ready}:latch:0").await.unwrap();
    let latch = locks.latch("ready", 1);
    let counting = tokio::spawn(async move { latch.count_down().await });
    sleep(LOOKS).await;
    assert!(!counting.is_finished());
    drop(dies);
    let counted = timeout(LATE, counting).await.unwrap().unwrap();
    assert_eq!(counted.unwrap(), Counted::Now);
}

async fn a_count_lapses_when_its_time_is_up(node: &Arc<dyn Node>) {
    let keep = Duration::from_millis(700);
    let builder = Client::builder().shared_node(Arc::clone(node));
    let locks = builder.max_ttl(keep / 2).ttl(keep / 2).build().unwrap();
    let latch = locks.latch("ready", 2).retention(keep);
    let begin = Instant::now();
    in_time(latch.count_down()).await;
    let seen = in_time(latch.remaining()).await;
    assert!(seen == 1 || begin.elapsed() > keep);
    let has_lapsed = async || in_time(latch.remaining()).await != 1;
    until("it has lapsed", LATE, has_lapsed).await;
    assert!(begin.elapsed() >= keep, "{:?}", begin.elapsed());
    assert_eq!(in_time(latch.remaining()).await, 2, "as new");
}

async fn a_latch_is_waited_for_no_longer_than_said(node: &Arc<dyn Node>) {
    let latch = client(node).latch("ready", 3);
    in_time(latch.count_down()).await;
    let (begin, time) = (Instant::now(), Duration::from_millis(300));
    let error = latch.timeout(time).wait().await.unwrap_err();
    assert!(begin.elapsed() >= time);
    let said = "\"ready\" did not open in time: 2 of 3 are missing";
    assert_eq!(error.to_string(), said);
    assert!(error.is_timeout());
}

async fn a_barrier_lets_all_pass_together(node: &Arc<dyn Node>) {
    let arrived = Arc::new(AtomicUsize::new(0));
    let mut parties = JoinSet::new();
    for n in 0..6 {
        let (barrier, arrived) = (client(node).barrier("phase", 6), Arc::clone(&arrived));
        parties.spawn(async move {
            sleep(Duration::from_millis(40 * n)).await;
            arrived.fetch_add(1, Ordering::SeqCst);
            let passage = in_time(barrier.wait()).await;
            (passage.place(), arrived.load(Ordering::SeqCst))
        });
    }
    let passed = parties.join_all().await;
    assert!(passed.iter().all(|(_, there)| *there == 6), "{passed:?}");
    let places: BTreeSet<_> = passed.iter().map(|(place, _)| *place).collect();
    assert_eq!(places, (0..6).collect(), "each its own");
    assert_eq!(in_time(client(node).barrier("phase", 6).missing()).await, 0);
}

async fn no_more_pass_than_there_are_places(node: &Arc<dyn Node>) {
    let parties: Vec<_> = (0..7)
        .map(|_| party(&client(node).barrier("phase", 4)))
        .collect();
    let mut passed = Vec::new();
    for party in parties {
        match passage(party).await {
            Ok(passage) => passed.push(passage.place()),
            Err(error) => assert_eq!(error.kind(), ErrorKind::NoPlace, "{error}"),
        }
    }
    passed.sort_unstable();
    assert_eq!(passed, [0, 1, 2, 3]);
    let error = refused(client(node).barrier("phase", 4).wait()).await;
    let text = error.to_string();
    assert!(
        text.contains("all 4 places are taken") && text.contains("each round"),
        "{text}"
    );
}

async fn a_dropped_wait_gives_its_place_back(node: &Arc<dyn Node>) {
    let barrier = client(node).barrier("phase", 2);
    let gone = party(&barrier);
    until_missing(&barrier, 1).await;
    gone.abort();
    until_missing(&barrier, 2).await;
    let one = party(&barrier);
    until_missing(&barrier, 1).await;
    sleep(LOOKS).await;
    assert!(!one.is_finished(), "one who has gone does not count");
    let two = party(&barrier);
    assert_ne!(passage(one).await.unwrap(), passage(two).await.unwrap());
}

async fn a_barrier_is_waited_at_no_longer_than_said(node: &Arc<dyn Node>) {
    let barrier = client(node).barrier("phase", 3);
    let (begin, time) = (Instant::now(), Duration::from_millis(300));
    let error = barrier.clone().timeout(time).wait().await.unwrap_err();
    assert!(begin.elapsed() >= time);
    let said = "\"phase\" did not open in time: 2 of 3 are missing";
    assert_eq!(error.to_string(), said);
    until_missing(&barrier, 3).await;
}

/// Another party saw all places taken, and one that had one has died since.
async fn whoever_has_a_place_passes_once_it_is_said_that_all_were_there(node: &Arc<dyn Node>) {
    let barrier = client(node).barrier("phase", 3);
    let waiting = party(&barrier);
    until_missing(&barrier, 2).await;
    // Somebody is about to say so, and may come to nothing.
    let hand = Client::builder().shared_node(Arc::clone(node));
    let hand = hand.max_ttl(LATE * 10).build().unwrap();
    let about_to = hand.lock("{phase}:barrier:open").await.unwrap();
    sleep(LOOKS).await;
    assert!(!waiting.is_finished());
    about_to.release().await.unwrap();
    let _said = hand.lock("{phase}:barrier:open").ttl(LATE * 10).await;
    assert!(passage(waiting).await.is_ok());
}

async fn a_place_whose_party_died_after_the_opening_is_good_for_one_who_is_late(
    node: &Arc<dyn Node>,
) {
    let locks = client(node);
    let barrier = locks.barrier("phase", 2);
    let dies = locks.lock("{phase}:barrier:1").await.unwrap();
    assert_eq!(in_time(barrier.wait()).await.place(), 0);
    let late = party(&barrier);
    let late = passage(late).await.unwrap_err();
    assert_eq!(late.kind(), ErrorKind::NoPlace, "{late}");
    drop(dies);
    wait_for_free(&locks, "{phase}:barrier:1").await;
    assert_eq!(in_time(barrier.wait()).await.place(), 1);
    refused(barrier.wait()).await;
}

async fn wait_for_free(locks: &Client, name: &str) {
    let is_free = async || locks.status(name).await.unwrap().holder.is_none();
    until(&format!("{name} is free"), LATE, is_free).await;
}

async fn a_party_that_loses_its_place_takes_another(node: &Arc<dyn Node>) {
    let barrier = client(node).barrier("phase", 2);
    let barrier = barrier.ttl(Duration::from_secs(2));
    let robbed = party(&barrier);
    until_missing(&barrier, 1).await;
    let locks = client(node);
    let mut stolen = Vec::new();
    for place in 0..2 {
        let name = format!("{{phase}}:barrier:{place}");
        if locks.status(&name).await.unwrap().holder.is_some() {
            stolen.push(locks.steal(&name, LATE).await.unwrap());
        }
    }
    assert_eq!(stolen.len(), 1);
    // The thief counts for one, and the robbed for the other.
    assert!(passage(robbed).await.is_ok());
}

async fn what_cannot_be_is_refused(node: &Arc<dyn Node>) {
    let locks = client(node);
    for (error, why) in [
        (
            locks.latch("a", 0).count_down().await.err(),
            "1 to 1000 counts",
        ),
        (locks.latch("", 1).wait().await.err(), "empty"),
        (
            locks.barrier("a", 1001).wait().await.err(),
            "1 to 1000 parties",
        ),
        (
            locks.barrier("{a}", 1).missing().await.err(),
            "a plain lock can",
        ),
    ] {
        let error = error.unwrap().to_string();
        assert!(error.contains(why), "{error}");
    }
    let short = Duration::from_secs(119);
    let error = refused(locks.latch("a", 1).retention(short).count_down()).await;
    assert!(error.to_string().contains("2 x max_ttl"), "{error}");
    let error = refused(locks.barrier("a", 1).retention(short).wait()).await;
    let error = error.to_string();
    assert!(error.contains("at least 2 x max_ttl (1m)"), "{error}");
    let long = locks
        .latch("a", 1)
        .retention(Duration::from_secs(25 * 3600));
    let error = long.count_down().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidTtl, "{error}");
}

/// A process that is killed when it is dropped.
struct Process(Child);

impl Process {
    fn party(words: &[&str]) -> Self {
        let mut party = Command::new(env!("CARGO_BIN_EXE_party"));
        Self(party.args(words).stdout(Stdio::null()).spawn().unwrap())
    }

    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    fn ends_well(&mut self) {
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twelve_processes_count_and_end_while_a_node_dies() {
    let mut cluster = Cluster::start(3);
    let locks = cluster.client().await;
    // The servers know the scripts from now on, so that a process leaves nothing to be sent again.
    in_time(locks.latch("known", 1).count_down()).await;
    cluster.all_have("{known}:latch:0").await;
    let latch = locks.latch("ready", 12);
    let waiting: Vec<_> = (0..3)
        .map(|_| {
            let latch = latch.clone();
            tokio::spawn(async move { latch.wait().await })
        })
        .collect();
    let urls = cluster.urls();
    let count = || Process::party(&[&urls, "count", "ready", "12"]);
    // One after the other: where two ask for one slot, a node that had given it to the one that lost may
    // lack the other's count for good, which is lost then with the node that dies.
    (0..6).for_each(|_| count().ends_well());
    assert_eq!(in_time(latch.remaining()).await, 6);
    // A process does not wait long for a node that is slow, which may lack its count then: that one dies.
    let has_all = |server: &&RedisServer| server.keys().len() == 1 + 6;
    let enough = || cluster.servers.iter().filter(has_all).count() >= 2;
    wait_until("two nodes have all counts", LATE, enough).await;
    let slowest = (0..3).min_by_key(|n| cluster.servers[*n].keys().len());
    cluster.servers[slowest.unwrap()].kill();
    let mut others: Vec<_> = (0..5).map(|_| count()).collect();
    others.iter_mut().for_each(Process::ends_well);
    sleep(LOOKS).await;
    assert!(waiting.iter().all(|waiting| !waiting.is_finished()));
    assert_eq!(in_time(latch.remaining()).await, 1);
    count().ends_well();
    for waiting in waiting {
        timeout(LATE, waiting).await.unwrap().unwrap().unwrap();
    }
    assert_eq!(in_time(latch.count_down()).await, Counted::WasOpen);
}

/// In a file a lock ends with the process that holds it. A count does not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_count_in_a_file_outlives_its_process_and_a_place_does_not() {
    let dir = tempfile::tempdir().unwrap();
    let url = format!("file:{}", dir.path().join("locks.db").display());
    let locks = Client::connect(&url).await.unwrap();
    for still in (0..4).rev() {
        Process::party(&[&url, "count", "ready", "4"]).ends_well();
        assert_eq!(in_time(locks.latch("ready", 4).remaining()).await, still);
    }
    in_time(locks.latch("ready", 4).wait()).await;

    let barrier = locks.barrier("phase", 2);
    let wait = || Process::party(&[&url, "wait", "phase", "2", "60000"]);
    let mut killed = wait();
    until_missing(&barrier, 1).await;
    killed.kill();
    until_missing(&barrier, 2).await;
    let mut other = wait();
    in_time(barrier.wait()).await;
    other.ends_well();
    // Who has passed has passed.
    refused(barrier.wait()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_party_frees_its_place_one_ttl_later() {
    let cluster = Cluster::start(3);
    let barrier = cluster.client().await.barrier("phase", 3);
    let ttl = Duration::from_secs(3);
    let millis = ttl.as_millis().to_string();
    let mut killed = Process::party(&[&cluster.urls(), "wait", "phase", "3", &millis]);
    let one = party(&barrier);
    until_missing(&barrier, 1).await;
    killed.kill();
    let begin = Instant::now();
    until_missing(&barrier, 2).await;
    let took = begin.elapsed();
    assert!(took < ttl * 5 / 3, "{took:?}");
    sleep(LOOKS).await;
    assert!(!one.is_finished());
    let others = [party(&barrier), party(&barrier)];
    for party in others.into_iter().chain([one]) {
        passage(party).await.unwrap();
    }
}

/// The same servers under a waiting barrier: one frozen, one killed while all wait, one flushed after.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_minority_of_nodes_may_freeze_die_or_forget() {
    let mut cluster = Cluster::start(5);
    let barrier = cluster.client().await.barrier("phase", 3);
    cluster.servers[0].freeze();
    let mut first = Vec::new();
    // One after the other, and the next when all have it: whoever has its place on a bare majority, because
    // another had asked for it too, has lost it when one of those dies.
    for places in 1..=2 {
        first.push(party(&barrier));
        let is_there = |server: &RedisServer| server.keys().len() == places;
        let everywhere = || cluster.servers[1..].iter().all(is_there);
        wait_until("all that are up have it", LATE, everywhere).await;
    }
    assert_eq!(in_time(barrier.missing()).await, 1);
    cluster.servers[1].kill();
    let last = party(&barrier);
    for party in first.into_iter().chain([last]) {
        passage(party).await.unwrap();
    }
    cluster.servers[0].thaw();

    let mut three = Cluster::start(3);
    let latch = three.client().await.latch("ready", 4);
    for _ in 0..4 {
        in_time(latch.count_down()).await;
    }
    let everywhere = || three.leftovers().len() == 12;
    wait_until("all nodes have all counts", LATE, everywhere).await;
    three.servers[2].cli(&["FLUSHALL"]);
    in_time(latch.wait()).await;
    assert_eq!(in_time(latch.count_down()).await, Counted::WasOpen);
    three.servers[2].kill();
    in_time(latch.wait()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_is_early_in_twelve_rounds_on_nodes_that_stop_and_go_on() {
    const PARTIES: usize = 8;
    const ROUNDS: usize = 12;
    let cluster = Cluster::start(5);
    let clients = [cluster.client().await, cluster.client().await];
    let arrived: Arc<Vec<AtomicUsize>> = Arc::new((0..ROUNDS).map(|_| 0.into()).collect());
    let done = AtomicBool::new(false);
    let stops = std::thread::scope(|scope| {
        let nodes = scope.spawn(|| stop_and_continue(&cluster, || done.load(Ordering::SeqCst)));
        let rounds = async {
            let mut parties = JoinSet::new();
            for n in 0..PARTIES {
                let (locks, arrived) = (clients[n % 2].clone(), Arc::clone(&arrived));
                parties.spawn(async move {
                    for (round, arrived) in arrived.iter().enumerate() {
                        arrived.fetch_add(1, Ordering::SeqCst);
                        let barrier = locks.barrier(format!("phase:{round}"), PARTIES);
                        in_time(barrier.wait()).await;
                        assert_eq!(arrived.load(Ordering::SeqCst), PARTIES, "round {round}");
                    }
                });
            }
            parties.join_all().await;
        };
        tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(rounds));
        done.store(true, Ordering::SeqCst);
        nodes.join().unwrap()
    });
    println!("{ROUNDS} rounds of {PARTIES} parties, {stops} stops of nodes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_left_of_those_who_gave_up_and_of_what_was_kept_long_enough() {
    let cluster = Cluster::start(3);
    let builder = cluster.builder().max_ttl(Duration::from_millis(500));
    let locks = builder.ttl(Duration::from_millis(400));
    let locks = cluster.connect(locks).await;
    let soon = Duration::from_millis(300);
    assert!(locks.barrier("a", 3).timeout(soon).wait().await.is_err());
    assert!(locks.latch("a", 3).timeout(soon).wait().await.is_err());
    for n in 0..100 {
        // Dropped at any moment.
        let barrier = locks.barrier("b", 2);
        let _ = timeout(Duration::from_micros(100 * n), barrier.wait()).await;
    }
    let nothing_left = || cluster.leftovers().is_empty();
    wait_until("nobody left anything", LATE, nothing_left).await;
    let keep = Duration::from_secs(3);
    let barrier = locks.barrier("c", 2).retention(keep);
    let parties = [party(&barrier), party(&barrier)];
    for party in parties {
        passage(party).await.unwrap();
    }
    in_time(locks.latch("c", 1).retention(keep).count_down()).await;
    assert!(!nothing_left());
    wait_until("it was kept long enough", LATE, nothing_left).await;
}
