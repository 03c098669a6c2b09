//! Many who read, or one who writes: on every engine, over several nodes, and among many processes
//! while nodes are stopped and continued at random.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use fencepost::internals::Node;
use fencepost::{Client, Error, LossReason, RwLock};
use fencepost_core::ticket::TICKET_LEASE;
use fencepost_tests::{
    Cluster, Visit, check_visits, eventually, is_prompt, run_in_chaos, until, wait_until,
};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::engines::every_node_shows_that;

/// How late something may happen on a busy machine.
const LATE: Duration = Duration::from_secs(20);
/// So short that nobody can have looked by itself, which it does 750 ms after its last look at the
/// earliest.
const WOKEN: Duration = Duration::from_millis(400);
/// How long it is waited for something that must not happen.
const QUIET: Duration = Duration::from_millis(150);

every_node_shows_that! {
    many_read_or_one_writes,
    the_writer_and_the_lock_of_that_name_are_one,
    a_writer_that_waits_keeps_new_readers_out,
    the_last_reader_wakes_the_writer,
    readers_that_wait_are_let_in_together,
    readers_behind_a_writer_that_gives_up_are_let_in,
    a_writer_becomes_a_reader_without_a_gap_and_lets_readers_in,
    a_reader_that_wants_to_write_waits_for_itself,
    a_readers_token_is_at_least_the_last_writers,
    a_reader_that_is_silent_keeps_writers_out_for_its_own_ttl_only,
    readers_renew_and_are_told_when_they_are_stolen_from,
    a_reader_that_is_dropped_leaves_nothing_behind,
    a_readers_receipt_is_as_good_as_its_lease,
    a_look_shows_who_reads,
}

fn client(node: &Arc<dyn Node>) -> Client {
    let builder = Client::builder().shared_node(Arc::clone(node));
    builder.build().unwrap()
}

fn shelf(node: &Arc<dyn Node>) -> RwLock {
    client(node).read_write("shelf")
}

/// Whether the lock cannot be had now.
async fn is_refused<T>(attempt: impl IntoFuture<Output = Result<T, Error>>) -> bool {
    match attempt.await {
        Ok(_) => false,
        Err(error) if error.is_held() => true,
        Err(error) => panic!("{error}"),
    }
}

/// Gets in line, for as long as it takes.
fn wait_for<T: Send + 'static>(
    request: impl IntoFuture<Output = Result<T, Error>, IntoFuture: Send + 'static>,
) -> JoinHandle<T> {
    let request = request.into_future();
    tokio::spawn(async move { request.await.unwrap() })
}

async fn served<T>(waiting: JoinHandle<T>) -> T {
    timeout(LATE, waiting).await.unwrap().unwrap()
}

async fn until_in_line(locks: &Client, how_many: usize) {
    let so_many = async || locks.status("shelf").await.unwrap().waiting == how_many;
    until(&format!("{how_many} are in line"), LATE, so_many).await;
}

async fn many_read_or_one_writes(node: &Arc<dyn Node>) {
    let (here, there) = (shelf(node), shelf(node));
    let one = here.read().await.unwrap();
    let other = there.read().await.unwrap();
    assert!(one.is_valid() && other.is_valid());
    let error = there.write().timeout(Duration::ZERO).await.unwrap_err();
    assert!(error.to_string().contains("held by readers"), "{error}");
    one.release().await.unwrap();
    assert!(is_refused(here.try_write()).await, "one of them is left");
    other.release().await.unwrap();

    let writer = here.write().await.unwrap();
    assert!(is_refused(there.try_read()).await);
    assert!(is_refused(there.try_write()).await);
    writer.release().await.unwrap();
    assert!(!is_refused(there.try_read()).await);
}

async fn the_writer_and_the_lock_of_that_name_are_one(node: &Arc<dyn Node>) {
    let locks = client(node);
    let shelf = locks.read_write("shelf");
    let lock = locks.lock("shelf").await.unwrap();
    assert!(is_refused(shelf.try_read()).await);
    assert!(is_refused(shelf.try_write()).await);
    lock.release().await.unwrap();
    let reader = shelf.read().await.unwrap();
    assert!(is_refused(locks.try_lock("shelf")).await);
    reader.release().await.unwrap();
    let _writer = shelf.write().await.unwrap();
    assert!(is_refused(locks.try_lock("shelf")).await);
}

async fn a_writer_that_waits_keeps_new_readers_out(node: &Arc<dyn Node>) {
    let (locks, other) = (client(node), shelf(node));
    let reader = other.read().await.unwrap();
    let writer = wait_for(locks.read_write("shelf").write());
    until_in_line(&locks, 1).await;
    assert!(
        is_refused(other.try_read()).await,
        "the writer was there before"
    );
    // It does not cost the one who reads its renewals.
    reader.extend().await.unwrap();
    reader.release().await.unwrap();
    served(writer).await.release().await.unwrap();
    assert!(!is_refused(other.try_read()).await);
}

async fn the_last_reader_wakes_the_writer(node: &Arc<dyn Node>) {
    let (locks, other) = (client(node), shelf(node));
    is_prompt(WOKEN, async || {
        let (one, two) = (other.read().await.unwrap(), other.read().await.unwrap());
        let writer = wait_for(locks.read_write("shelf").write());
        until_in_line(&locks, 1).await;
        one.release().await.unwrap();
        sleep(QUIET).await;
        assert!(!writer.is_finished(), "one reads still");
        let begin = Instant::now();
        two.release().await.unwrap();
        let writer = served(writer).await;
        let took = begin.elapsed();
        assert!(writer.is_valid());
        took
    })
    .await;
}

async fn readers_that_wait_are_let_in_together(node: &Arc<dyn Node>) {
    is_prompt(WOKEN, async || {
        nine_readers_wait_between_two_writers(node).await
    })
    .await;
}

/// How long it takes until all nine read.
async fn nine_readers_wait_between_two_writers(node: &Arc<dyn Node>) -> Duration {
    let locks = client(node);
    let shelf = locks.read_write("shelf");
    let writer = shelf.write().await.unwrap();
    let clients = [shelf.clone(), self::shelf(node), self::shelf(node)];
    let mut readers = Vec::new();
    for n in 0..9 {
        readers.push(wait_for(clients[n % 3].read()));
        until_in_line(&locks, n + 1).await;
    }
    let next = wait_for(shelf.write());
    until_in_line(&locks, 10).await;
    let last = wait_for(shelf.read());
    until_in_line(&locks, 11).await;

    let begin = Instant::now();
    writer.release().await.unwrap();
    let mut held = Vec::new();
    for reader in readers {
        held.push(served(reader).await);
    }
    let took = begin.elapsed();
    assert!(
        held.iter().all(|lease| lease.is_valid()),
        "all at the same time"
    );
    assert!(!next.is_finished() && !last.is_finished());
    drop(held);
    let next = served(next).await;
    assert!(!last.is_finished(), "it came after the writer");
    next.release().await.unwrap();
    drop(served(last).await);
    took
}

async fn readers_behind_a_writer_that_gives_up_are_let_in(node: &Arc<dyn Node>) {
    let (locks, other) = (client(node), shelf(node));
    is_prompt(WOKEN, async || {
        let _reader = other.read().await.unwrap();
        let writer = wait_for(other.write());
        until_in_line(&locks, 1).await;
        let readers = [
            wait_for(locks.read_write("shelf").read()),
            wait_for(other.read()),
        ];
        until_in_line(&locks, 3).await;
        let begin = Instant::now();
        writer.abort();
        for reader in readers {
            drop(served(reader).await);
        }
        begin.elapsed()
    })
    .await;
}

async fn a_writer_becomes_a_reader_without_a_gap_and_lets_readers_in(node: &Arc<dyn Node>) {
    is_prompt(WOKEN, async || a_writer_lets_two_readers_in(node).await).await;
}

/// How long it takes until they read.
async fn a_writer_lets_two_readers_in(node: &Arc<dyn Node>) -> Duration {
    let (locks, other) = (client(node), shelf(node));
    let writer = locks.read_write("shelf").write().await.unwrap();
    let (token, value) = (writer.token(), writer.value().to_owned());
    let readers = [
        wait_for(locks.read_write("shelf").read()),
        wait_for(other.read()),
    ];
    until_in_line(&locks, 2).await;
    let next = wait_for(other.write());
    until_in_line(&locks, 3).await;
    let stopped = writer.watch();

    let begin = Instant::now();
    let reader = writer.downgrade().await.unwrap();
    assert!(!stopped.is_valid(), "it is no writer any more");
    assert_eq!((reader.token(), reader.value()), (token, &*value));
    assert!(reader.is_valid());
    for other in readers {
        let other = served(other).await;
        assert!(other.token() >= token);
    }
    let took = begin.elapsed();
    reader.extend().await.unwrap();
    assert!(!next.is_finished(), "no writer came in between");
    reader.release().await.unwrap();
    assert!(served(next).await.token() > token);
    took
}

async fn a_reader_that_wants_to_write_waits_for_itself(node: &Arc<dyn Node>) {
    let shelf = shelf(node);
    let reader = shelf.read().await.unwrap();
    assert!(is_refused(shelf.try_write()).await, "it waits for itself");
    assert!(reader.is_valid());
    reader.release().await.unwrap();
}

async fn a_readers_token_is_at_least_the_last_writers(node: &Arc<dyn Node>) {
    let (here, there) = (shelf(node), shelf(node));
    let mut last = here.read().await.unwrap().token();
    for _ in 0..5 {
        let writer = there.write().timeout(LATE).await.unwrap();
        assert!(writer.token() > last, "larger than those of all before");
        let written = writer.token();
        writer.release().await.unwrap();
        let one = here.read().await.unwrap();
        let other = there.read().await.unwrap();
        assert!(one.token() >= written && other.token() >= written);
        last = one.token().max(other.token());
    }
}

async fn a_reader_that_is_silent_keeps_writers_out_for_its_own_ttl_only(node: &Arc<dyn Node>) {
    let (here, there) = (shelf(node), shelf(node));
    let ttl = Duration::from_millis(1500);
    let begin = Instant::now();
    let silent = here.read().ttl(ttl).renew(false).await.unwrap();
    // One with a longer TTL that goes before keeps nobody.
    let long = there.read().ttl(3 * LATE).await.unwrap();
    long.release().await.unwrap();
    let writer = there.write().timeout(LATE).await.unwrap();
    assert!(begin.elapsed() >= ttl * 9 / 10, "{:?}", begin.elapsed());
    assert!(begin.elapsed() < LATE, "{:?}", begin.elapsed());
    assert!(!silent.is_valid(), "and it knows");
    assert_eq!(silent.loss(), Some(LossReason::Expired));
    assert!(writer.is_valid());
    assert!(silent.release().await.unwrap_err().is_lost());
    assert!(writer.is_valid());
    writer.extend().await.unwrap();
}

async fn readers_renew_and_are_told_when_they_are_stolen_from(node: &Arc<dyn Node>) {
    let (locks, shelf) = (client(node), shelf(node));
    let ttl = Duration::from_millis(1500);
    let one = shelf.read().ttl(ttl).await.unwrap();
    let other = shelf.read().ttl(ttl).await.unwrap();
    // That they are kept past their TTL, only time can tell.
    sleep(ttl * 4 / 3).await;
    assert!(one.is_valid() && other.is_valid(), "renewed");
    let stolen = locks.steal("shelf", Duration::from_secs(30)).await.unwrap();
    assert_eq!(stolen.from.unwrap().as_str(), "readers");
    for reader in [&one, &other] {
        let why = timeout(LATE, reader.lost()).await.unwrap();
        assert!(matches!(why, LossReason::Stolen { .. }), "{why}");
    }
    assert!(stolen.lease.is_valid());
}

async fn a_reader_that_is_dropped_leaves_nothing_behind(node: &Arc<dyn Node>) {
    let (locks, other) = (client(node), shelf(node));
    let shelf = locks.read_write("shelf");
    drop(shelf.read().await.unwrap());
    drop(shelf.write().timeout(LATE).await.unwrap());
    // Dropped at any moment, also while a writer becomes a reader.
    for micros in (0..3000).step_by(100) {
        let some_time = Duration::from_micros(micros);
        let _ = timeout(some_time, shelf.read().into_future()).await;
        let change = async { other.write().timeout(LATE).await.unwrap().downgrade().await };
        let _ = timeout(some_time, change).await;
    }
    until("nothing is left", LATE, async || {
        let status = locks.status("shelf").await.unwrap();
        status.holder.is_none() && status.waiting == 0
    })
    .await;
    assert!(!is_refused(shelf.try_write()).await);
}

async fn a_readers_receipt_is_as_good_as_its_lease(node: &Arc<dyn Node>) {
    let locks = client(node);
    let shelf = locks.read_write("shelf");
    let receipt = shelf.read().await.unwrap().detach().await.unwrap();
    let other = shelf.read().await.unwrap();
    let ttl = Duration::from_secs(20);
    assert!(locks.extend_detached(&receipt, ttl).await.unwrap() <= ttl);
    assert!(is_refused(shelf.try_write()).await);
    other.release().await.unwrap();
    locks.release_detached(&receipt).await.unwrap();
    assert!(!is_refused(shelf.try_write()).await);
    assert!(
        locks
            .extend_detached(&receipt, ttl)
            .await
            .unwrap_err()
            .is_lost()
    );
}

async fn a_look_shows_who_reads(node: &Arc<dyn Node>) {
    let reading = |label: &str| {
        let builder = Client::builder().shared_node(Arc::clone(node)).owner(label);
        builder.build().unwrap().read_write("shelf").read()
    };
    let _long = reading("long").ttl(Duration::from_secs(40)).await.unwrap();
    let _short = reading("short").ttl(Duration::from_secs(20)).await.unwrap();
    let status = client(node).status("shelf").await.unwrap();
    let readers: Vec<_> = status.readers.iter().map(|r| r.owner.as_str()).collect();
    assert_eq!(readers, ["short", "long"]);
    let holder = status.holder.unwrap();
    assert_eq!(holder.owner.as_str(), "readers");
    let left = holder.remaining.unwrap();
    assert!(
        left > Duration::from_secs(20),
        "as long as the last: {left:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_three_nodes_with_one_away_it_is_the_same_and_no_key_is_left() {
    let cluster = Cluster::start(3);
    // A node refuses for one TTL what may have been on its way while it was away.
    let connect = || cluster.connect(cluster.builder().ttl(Duration::from_secs(5)));
    let (here, there) = (connect().await, connect().await);
    let (one, other) = (here.read_write("shelf"), there.read_write("shelf"));
    cluster.servers[2].freeze();
    let reader = one.read().await.unwrap();
    let second = other.read().await.unwrap();
    assert!(is_refused(other.try_write()).await);
    let writer = wait_for(other.write());
    until_in_line(&there, 1).await;
    let third = wait_for(one.read());
    until_in_line(&there, 2).await;
    reader.release().await.unwrap();
    second.release().await.unwrap();
    let writer = served(writer).await;
    let reader = writer.downgrade().await.unwrap();
    let third = served(third).await;
    assert!(reader.is_valid() && third.is_valid());
    cluster.servers[2].thaw();
    third.release().await.unwrap();
    reader.release().await.unwrap();
    here.shutdown().await;
    there.shutdown().await;
    let is_empty = || cluster.leftovers().is_empty();
    wait_until("only counters are left", LATE, is_empty).await;
}

/// Readers come and go all the time, so that there is never a moment without one. The writer gets in
/// within the rest of the present reads, one ticket lease and one second.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_gets_in_though_readers_arrive_all_the_time() {
    const HOLD: Duration = Duration::from_millis(40);
    let bound = HOLD + TICKET_LEASE + Duration::from_secs(1);
    let cluster = Cluster::start(3);
    let is_over = Arc::new(AtomicBool::new(false));
    let reading = Arc::new(AtomicUsize::new(0));
    let reads = Arc::new(AtomicUsize::new(0));
    let mut readers = Vec::new();
    for n in 0..8 {
        let shelf = cluster.client().await.read_write("shelf");
        let (is_over, reading, reads) = (is_over.clone(), reading.clone(), reads.clone());
        readers.push(tokio::spawn(async move {
            // They do not keep step, and each is there again before the others have gone.
            sleep(HOLD * n / 8).await;
            while !is_over.load(Ordering::SeqCst) {
                let lease = shelf.read().await.unwrap();
                reading.fetch_add(1, Ordering::SeqCst);
                sleep(HOLD).await;
                reading.fetch_sub(1, Ordering::SeqCst);
                lease.release().await.unwrap();
                reads.fetch_add(1, Ordering::SeqCst);
            }
        }));
    }
    let shelf = cluster.client().await.read_write("shelf");
    let mut longest = Duration::ZERO;
    for _ in 0..20 {
        let some = || reading.load(Ordering::SeqCst) >= 4;
        wait_until("many read", LATE, some).await;
        let begin = Instant::now();
        let writer = shelf.write().timeout(bound).await.unwrap();
        assert_eq!(reading.load(Ordering::SeqCst), 0, "nobody reads meanwhile");
        longest = longest.max(begin.elapsed());
        writer.release().await.unwrap();
    }
    is_over.store(true, Ordering::SeqCst);
    for reader in readers {
        timeout(LATE, reader).await.unwrap().unwrap();
    }
    let reads = reads.load(Ordering::SeqCst);
    println!("the writer waited {longest:?} at the most, beside {reads} reads of {HOLD:?}");
    assert!(longest <= bound, "{longest:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_reader_delays_a_writer_by_its_ttl_at_the_most() {
    let cluster = Cluster::start(3);
    let locks = cluster.client().await;
    let shelf = locks.read_write("shelf");
    let ttl = Duration::from_secs(3);
    let mut process = Command::new(env!("CARGO_BIN_EXE_visitors"))
        .args([&cluster.urls(), "shelf", "hold", "3000"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let out = process.stdout.take().unwrap();
    BufReader::new(out).read_line(&mut line).unwrap();
    assert_eq!(line, "reading\n");
    // Another one that reads on, and goes in good order, makes no difference.
    let other = shelf.read().await.unwrap();
    let writer = wait_for(shelf.write());
    until_in_line(&locks, 1).await;
    let killed = Instant::now();
    process.kill().unwrap();
    process.wait().unwrap();
    other.release().await.unwrap();
    drop(served(writer).await);
    let delay = killed.elapsed();
    println!("the writer had it {delay:?} after a reader with a TTL of {ttl:?} was killed");
    // Its last renewal was a third of its TTL ago at the most, and the rest is the machine's.
    assert!(delay > ttl / 3, "{delay:?}");
    assert!(delay < ttl * 5 / 3, "{delay:?}");
}

// ---- many processes -----------------------------------------------------------------------------

const PROCESSES: usize = 4;
const CLIENTS: usize = 10;
/// How many turns there are in all where `FENCEPOST_ACQUISITIONS` does not say.
const TURNS: usize = 2000;
/// How long they may take.
const LIMIT: Duration = Duration::from_secs(300);

fn visitors(cluster: &Cluster, turns: usize, how: &str) -> (Vec<Visit>, usize) {
    let turns = turns.div_ceil(PROCESSES * CLIENTS);
    let program = || {
        let mut program = Command::new(env!("CARGO_BIN_EXE_visitors"));
        let numbers = [CLIENTS, turns].map(|number| number.to_string());
        program.args([&cluster.urls(), "shelf"]);
        program.args(numbers).arg(how);
        program
    };
    let programs = (0..PROCESSES).map(|_| program()).collect();
    let (visits, stops) = run_in_chaos::<Visit>(cluster, programs, LIMIT);
    assert!(
        visits.len() >= turns * PROCESSES * CLIENTS,
        "all had their turns"
    );
    (visits, stops)
}

#[test]
fn forty_clients_in_four_processes_never_write_beside_anybody() {
    let turns = std::env::var("FENCEPOST_ACQUISITIONS").ok();
    let turns = turns.map_or(TURNS, |text| text.parse().unwrap());
    let cluster = Cluster::start(5);
    let start = Instant::now();
    let (visits, stops) = visitors(&cluster, turns, "majority");
    let took = start.elapsed();
    let most = check_visits(&visits).unwrap();
    let writes = visits.iter().filter(|visit| visit.writes).count();
    println!(
        "{} leases, {writes} of them to write, in {took:?} with {stops} stops of nodes, \
         at most {most} who read at a time",
        visits.len()
    );
    assert!(most >= 3, "they read together: {most}");
    assert!(stops > 20, "only {stops} stops");
    eventually("nothing is left but counters", LATE, || {
        cluster.leftovers().is_empty()
    });
}

/// Who asks one node only meets writers that have a majority without it.
#[test]
fn the_same_check_catches_readers_that_ask_one_node_only() {
    let cluster = Cluster::start(5);
    let (visits, _) = visitors(&cluster, 400, "one");
    let fault = check_visits(&visits).unwrap_err();
    println!("caught: {fault}");
}
