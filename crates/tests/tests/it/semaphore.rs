//! At most k permits are valid at a time: on every engine, while k changes, and among many processes
//! while nodes are stopped and continued at random.

use std::collections::BTreeSet;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fencepost::internals::Node;
use fencepost::{Client, LockName, LossReason, Owner, Permit, Semaphore};
use fencepost_core::lock::Command as LockCommand;
use fencepost_core::ticket::{ClientId, Standing, TICKET_LEASE, Ticket, TicketId, TicketNumber};
use fencepost_tests::{
    ByCount, Cluster, Stay, Turn, check_crowd, eventually, is_prompt, run_in_chaos, typical, until,
};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::engines::every_node_shows_that;

/// How late something may happen on a busy machine.
const LATE: Duration = Duration::from_secs(20);
/// So short that nobody can have looked by itself, which it does 750 ms after its last look at the
/// earliest.
const WOKEN: Duration = Duration::from_millis(400);

every_node_shows_that! {
    at_most_k_permits_are_out_and_each_has_its_slot_and_token,
    a_wait_ends_when_its_time_is_up_and_leaves_nobody_in_line,
    a_permit_that_is_given_back_wakes_one_who_waits,
    two_permits_given_back_at_once_serve_two_and_nobody_twice,
    a_request_that_is_dropped_leaves_every_line,
    a_permit_that_is_dropped_is_given_back,
    a_permit_that_is_lost_says_so_and_its_slot_goes_on,
    those_who_wait_fairly_are_served_in_their_order,
    a_dead_waiter_at_the_head_holds_the_others_up_for_its_lease_and_no_longer,
    every_slot_that_is_given_back_serves_the_next_in_the_queue,
    k_may_grow_and_shrink_while_permits_are_out,
    fifty_tasks_of_one_client_share_three_permits,
}

fn client(node: &Arc<dyn Node>) -> Client {
    let builder = Client::builder().shared_node(Arc::clone(node));
    builder.build().unwrap()
}

fn slots<'a>(permits: impl IntoIterator<Item = &'a Permit>) -> BTreeSet<usize> {
    permits.into_iter().map(Permit::slot).collect()
}

/// How many wait, as each slot tells it: all slots have one queue.
async fn in_line(locks: &Client, permits: usize) -> Vec<usize> {
    let mut lines = Vec::new();
    for slot in 0..permits {
        let status = locks.status(format!("{{pool}}:semaphore:{slot}")).await;
        lines.push(status.unwrap().waiting);
    }
    lines
}

async fn until_in_line(locks: &Client, lines: &[usize]) {
    let so_many = async || in_line(locks, lines.len()).await == lines;
    until(&format!("{lines:?} are in line"), LATE, so_many).await;
}

/// Gets in line, for as long as it takes.
fn wait_for(semaphore: &Semaphore) -> JoinHandle<Permit> {
    let request = semaphore.acquire();
    tokio::spawn(async move { request.await.unwrap() })
}

async fn served(waiting: JoinHandle<Permit>) -> Permit {
    timeout(LATE, waiting).await.unwrap().unwrap()
}

async fn at_most_k_permits_are_out_and_each_has_its_slot_and_token(node: &Arc<dyn Node>) {
    let (here, there) = (client(node), client(node));
    let mut permits = Vec::new();
    for locks in [&here, &there, &here] {
        permits.push(locks.semaphore("pool", 3).acquire().await.unwrap());
    }
    assert_eq!(slots(&permits), BTreeSet::from([0, 1, 2]));
    let error = there.semaphore("pool", 3).try_acquire().await.unwrap_err();
    assert!(error.is_held(), "{error}");
    assert!(error.to_string().contains("{pool}:semaphore:"), "{error}");
    let holders = there.semaphore("pool", 3).holders().await.unwrap();
    assert_eq!(holders.len(), 3);
    // The lock and the semaphore of one name have nothing to do with each other.
    let lock = there.lock("pool").timeout(Duration::ZERO).await.unwrap();

    let given_back = permits.remove(1);
    let (slot, token) = (given_back.slot(), given_back.token());
    given_back.release().await.unwrap();
    let next = there.semaphore("pool", 3).try_acquire().await.unwrap();
    assert_eq!(next.slot(), slot, "the only one that is free");
    assert!(next.token() > token);
    assert!(permits.iter().all(|permit| permit.is_valid()));
    drop(lock);
}

async fn a_wait_ends_when_its_time_is_up_and_leaves_nobody_in_line(node: &Arc<dyn Node>) {
    let locks = client(node);
    let semaphore = locks.semaphore("pool", 2);
    let _one = semaphore.acquire().await.unwrap();
    let _two = semaphore.acquire().await.unwrap();
    for fair in [false, true] {
        let wait = Duration::from_millis(300);
        let start = Instant::now();
        let error = semaphore
            .acquire()
            .timeout(wait)
            .fair(fair)
            .await
            .unwrap_err();
        assert!(error.is_timeout(), "{error}");
        assert!(start.elapsed() >= wait, "{:?}", start.elapsed());
        assert!(start.elapsed() < wait + LATE, "{:?}", start.elapsed());
        until_in_line(&locks, &[0, 0]).await;
    }
}

async fn a_permit_that_is_given_back_wakes_one_who_waits(node: &Arc<dyn Node>) {
    let locks = client(node);
    let semaphore = locks.semaphore("pool", 3);
    is_prompt(WOKEN, async || {
        let mut permits = Vec::new();
        for _ in 0..3 {
            permits.push(semaphore.acquire().await.unwrap());
        }
        // From another client, which shares nothing with this one but the node.
        let waiting = wait_for(&client(node).semaphore("pool", 3));
        until_in_line(&locks, &[1, 1, 1]).await;
        let given_back = permits.pop().unwrap();
        let slot = given_back.slot();
        let begin = Instant::now();
        given_back.release().await.unwrap();
        let next = served(waiting).await;
        let took = begin.elapsed();
        assert_eq!(next.slot(), slot);
        until_in_line(&locks, &[0, 0, 0]).await;
        took
    })
    .await;
}

async fn two_permits_given_back_at_once_serve_two_and_nobody_twice(node: &Arc<dyn Node>) {
    let semaphore = client(node).semaphore("pool", 2);
    let other = client(node);
    let mut took = Vec::new();
    for _ in 0..10 {
        let one = semaphore.acquire().await.unwrap();
        let two = semaphore.acquire().await.unwrap();
        let waiting = [0, 1].map(|_| wait_for(&other.semaphore("pool", 2)));
        until_in_line(&other, &[2, 2]).await;
        let begin = Instant::now();
        drop((one, two));
        let [one, two] = waiting.map(served);
        let (one, two) = (one.await, two.await);
        took.push(begin.elapsed());
        assert_eq!(slots([&one, &two]).len(), 2);
        one.release().await.unwrap();
        two.release().await.unwrap();
        let holders = semaphore.holders().await.unwrap();
        assert_eq!(holders, [], "nothing was taken beside");
        until_in_line(&other, &[0, 0]).await;
    }
    assert!(typical(&took) < WOKEN, "{took:?}");
}

async fn a_request_that_is_dropped_leaves_every_line(node: &Arc<dyn Node>) {
    let locks = client(node);
    let semaphore = locks.semaphore("pool", 2);
    let one = semaphore.acquire().await.unwrap();
    let two = semaphore.acquire().await.unwrap();
    let waiting = wait_for(&semaphore);
    until_in_line(&locks, &[1, 1]).await;
    waiting.abort();
    until_in_line(&locks, &[0, 0]).await;
    // Dropped at any moment while permits come free: nothing is left behind.
    for micros in (0..2000).step_by(100) {
        let request = semaphore.acquire().into_future();
        let _ = timeout(Duration::from_micros(micros), request).await;
    }
    drop((one, two));
    for micros in (0..2000).step_by(100) {
        let request = semaphore.acquire().into_future();
        let _ = timeout(Duration::from_micros(micros), request).await;
    }
    let is_free = async || semaphore.holders().await.unwrap().is_empty();
    until("all are given back", LATE, is_free).await;
    until_in_line(&locks, &[0, 0]).await;
}

async fn a_permit_that_is_dropped_is_given_back(node: &Arc<dyn Node>) {
    let semaphore = client(node).semaphore("pool", 1);
    let token = semaphore.acquire().await.unwrap().token();
    // The release is on its way, and goes first.
    let next = semaphore.acquire().timeout(LATE).await.unwrap();
    assert!(next.token() > token);
}

async fn a_permit_that_is_lost_says_so_and_its_slot_goes_on(node: &Arc<dyn Node>) {
    let semaphore = client(node).semaphore("pool", 2);
    let request = semaphore.acquire().ttl(Duration::from_secs(2));
    let limited = request.max_hold(Duration::from_millis(200)).await.unwrap();
    let _other = semaphore.acquire().await.unwrap();
    let why = timeout(LATE, limited.lost()).await.unwrap();
    assert_eq!(why, LossReason::MaxHold);
    assert!(!limited.is_valid());
    // The nodes keep it for the rest of its TTL.
    let next = semaphore.acquire().timeout(LATE).await.unwrap();
    assert_eq!(next.slot(), limited.slot());
    assert!(next.token() > limited.token());
    let error = limited.release().await.unwrap_err();
    assert!(error.is_lost(), "{error}");
    assert!(next.is_valid());
}

async fn those_who_wait_fairly_are_served_in_their_order(node: &Arc<dyn Node>) {
    let locks = client(node);
    let semaphore = locks.semaphore("pool", 2);
    let mut held = Vec::new();
    for _ in 0..2 {
        held.push(semaphore.acquire().fair(true).await.unwrap());
    }
    let mut waiting = Vec::new();
    for place in 1..=4 {
        let request = client(node).semaphore("pool", 2).acquire().fair(true);
        waiting.push(tokio::spawn(async move { request.await.unwrap() }));
        until_in_line(&locks, &[place, place]).await;
    }
    for next in waiting {
        // A newcomer passes nobody, also at a slot that is free.
        held.remove(0).release().await.unwrap();
        let newcomer = semaphore.acquire().fair(true).timeout(Duration::ZERO).await;
        assert!(newcomer.unwrap_err().is_held());
        held.push(served(next).await);
    }
}

async fn a_dead_waiter_at_the_head_holds_the_others_up_for_its_lease_and_no_longer(
    node: &Arc<dyn Node>,
) {
    let semaphore = client(node).semaphore("pool", 2);
    let one = semaphore.acquire().await.unwrap();
    let _two = semaphore.acquire().await.unwrap();
    // In the queue for ever, and says nothing any more.
    let owner = Owner::new("dead").unwrap();
    let dead = Ticket {
        id: TicketId::new(&ClientId::of(7), 1, true, &owner),
        number: Standing::Agreed(TicketNumber::saturating(1)),
    };
    let enqueue = LockCommand::Enqueue {
        tickets: vec![dead],
        lease: TICKET_LEASE,
    };
    let queue = LockName::new("{pool}:semaphore").unwrap();
    node.call(&queue, enqueue).await.unwrap();
    let begin = Instant::now();
    let fair = semaphore.acquire().fair(true);
    let waiting = tokio::spawn(async move { fair.await.unwrap() });
    until_in_line(&client(node), &[2, 2]).await;
    let slot = one.slot();
    one.release().await.unwrap();
    let next = served(waiting).await;
    assert_eq!(next.slot(), slot);
    assert!(begin.elapsed() >= TICKET_LEASE / 2, "{:?}", begin.elapsed());
}

async fn every_slot_that_is_given_back_serves_the_next_in_the_queue(node: &Arc<dyn Node>) {
    const K: usize = 5;
    let locks = client(node);
    let semaphore = locks.semaphore("pool", K);
    let mut held = Vec::new();
    for _ in 0..K {
        held.push(semaphore.acquire().await.unwrap());
    }
    let mut waiting = Vec::new();
    for place in 1..=2 * K {
        // Of two clients by turns: one that holds permits, and one that does not.
        let there = client(node).semaphore("pool", K);
        let of = if place % 2 == 0 { &semaphore } else { &there };
        let request = of.acquire().fair(true);
        waiting.push(tokio::spawn(async move { request.await.unwrap() }));
        until_in_line(&locks, &[place; K]).await;
    }
    for next in waiting {
        // The one in the middle, whichever slot it has.
        let given_back = held.remove(held.len() / 2);
        let slot = given_back.slot();
        given_back.release().await.unwrap();
        let next = served(next).await;
        assert_eq!(next.slot(), slot);
        held.push(next);
    }
    until_in_line(&locks, &[0; K]).await;
    assert_eq!(slots(&held).len(), K);
}

async fn k_may_grow_and_shrink_while_permits_are_out(node: &Arc<dyn Node>) {
    let locks = client(node);
    let (small, large) = (locks.semaphore("pool", 2), locks.semaphore("pool", 4));
    let mut low = vec![
        small.acquire().await.unwrap(),
        small.acquire().await.unwrap(),
    ];
    assert!(small.try_acquire().await.unwrap_err().is_held());
    // Growing: the new slots are there at once, for those who know of them.
    let mut high = vec![
        large.try_acquire().await.unwrap(),
        large.try_acquire().await.unwrap(),
    ];
    assert_eq!(slots(&high), BTreeSet::from([2, 3]));
    assert!(large.try_acquire().await.unwrap_err().is_held());
    // Shrinking: those above finish, and free nothing for those who ask with the smaller k.
    let waiting = wait_for(&small);
    until_in_line(&locks, &[1, 1, 1, 1]).await;
    high.pop().unwrap().release().await.unwrap();
    // It must not be served, which only time can tell.
    sleep(Duration::from_millis(100)).await;
    assert!(!waiting.is_finished());
    let above = large.holders().await.unwrap();
    assert_eq!(above.iter().filter(|holder| holder.slot >= 2).count(), 1);
    high.pop().unwrap().release().await.unwrap();
    // From here on nobody has a slot above, and there are at most two.
    low.pop().unwrap().release().await.unwrap();
    let next = served(waiting).await;
    assert!(next.slot() < 2);
    assert!(small.try_acquire().await.unwrap_err().is_held());
    assert_eq!(large.holders().await.unwrap().len(), 2);
}

async fn fifty_tasks_of_one_client_share_three_permits(node: &Arc<dyn Node>) {
    let semaphore = client(node).semaphore("pool", 3);
    let taken = Arc::new([const { AtomicBool::new(false) }; 3]);
    let work = |_| {
        let (semaphore, taken) = (semaphore.clone(), Arc::clone(&taken));
        tokio::spawn(async move {
            for _ in 0..4 {
                let permit = semaphore.acquire().await.unwrap();
                let slot = &taken[permit.slot()];
                assert!(!slot.swap(true, Ordering::SeqCst), "two in one slot");
                sleep(Duration::from_millis(1)).await;
                slot.store(false, Ordering::SeqCst);
                permit.release().await.unwrap();
            }
        })
    };
    for worker in (0..50).map(work).collect::<Vec<_>>() {
        timeout(3 * LATE, worker).await.unwrap().unwrap();
    }
}

// ---- what it costs ------------------------------------------------------------------------------

/// How many scripts the busiest server has run: one that is late is not waited for.
fn scripts_run(cluster: &Cluster) -> u64 {
    cluster.scripts_run().into_iter().max().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_permit_takes_one_round_trip_from_a_free_slot_that_is_known_and_two_else() {
    let cluster = Cluster::start(3);
    let locks = cluster.client().await;
    let semaphore = locks.semaphore("pool", 3);
    // The first time, scripts are sent as text after they were not found.
    semaphore.acquire().await.unwrap().release().await.unwrap();
    let before = scripts_run(&cluster);
    for _ in 0..10 {
        semaphore.acquire().await.unwrap().release().await.unwrap();
    }
    let known = scripts_run(&cluster) - before;
    // Where plain commands are enough to acquire, only the releases are scripts.
    let acquired = match cluster.servers[0].has_plain_commands() {
        true => 0,
        false => 1,
    };
    let cycle = acquired + 1;
    assert_eq!(known, 10 * cycle, "ten times acquired and released");
    let before = scripts_run(&cluster);
    let elsewhere = locks.semaphore("pool", 3);
    elsewhere.acquire().await.unwrap().release().await.unwrap();
    let unknown = scripts_run(&cluster) - before;
    assert_eq!(
        unknown, cycle,
        "acquired and released: the look is no script"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_node_never_delays_a_permit() {
    const NODE_TIMEOUT: Duration = Duration::from_secs(2);
    let cluster = Cluster::start(3);
    let locks = cluster.builder().node_timeout(NODE_TIMEOUT);
    let locks = cluster.connect(locks).await;
    cluster.servers[1].freeze();
    let semaphores = (0..10).map(|_| locks.semaphore("pool", 3));
    for semaphore in semaphores {
        let start = Instant::now();
        let permit = semaphore.acquire().await.unwrap();
        permit.release().await.unwrap();
        let took = start.elapsed();
        assert!(took < NODE_TIMEOUT / 2, "{took:?}");
    }
    cluster.servers[1].thaw();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_costs_one_look_a_second_however_many_slots_there_are() {
    const WAITERS: usize = 50;
    const SLOTS: usize = 100;
    let cluster = Cluster::start(3);
    let locks = cluster.client().await;
    let semaphore = locks.semaphore("pool", SLOTS);
    let mut permits = Vec::new();
    for _ in 0..SLOTS {
        let permit = semaphore.acquire().ttl(Duration::from_secs(60));
        permits.push(permit.renew(false).await.unwrap());
    }
    let other = cluster.client().await.semaphore("pool", SLOTS);
    let waiting: Vec<_> = (0..WAITERS).map(|_| wait_for(&other)).collect();
    until_in_line(&locks, &[WAITERS]).await;
    // Until all have agreed on their places, of which nothing is seen but that they are quiet.
    until("they are quiet", LATE, async || {
        let before = scripts_run(&cluster);
        sleep(Duration::from_millis(300)).await;
        scripts_run(&cluster) - before <= 1
    })
    .await;
    let (before, begin) = (scripts_run(&cluster), Instant::now());
    sleep(Duration::from_secs(3)).await;
    let run = scripts_run(&cluster) - before;
    let quiet = begin.elapsed();
    // One queue, looked at every 0.75 to 1 second.
    let looks = (quiet.as_secs_f64() / 0.75).ceil() as u64;
    println!("{run} scripts a node in {quiet:?} of {WAITERS} waiting for {SLOTS} permits");
    assert!(run <= looks + 2, "{run} scripts in {quiet:?}");
    waiting.iter().for_each(JoinHandle::abort);
}

// ---- many processes -----------------------------------------------------------------------------

const PERMITS: usize = 3;
const PROCESSES: usize = 4;
const CLIENTS: usize = 10;
/// How many acquisitions there are in all where `FENCEPOST_ACQUISITIONS` does not say.
const ACQUISITIONS: usize = 2000;
/// How long they may take.
const LIMIT: Duration = Duration::from_secs(300);

fn crowd(cluster: &Cluster, acquisitions: usize, how: &str) -> (Vec<Stay>, usize) {
    let turns = acquisitions.div_ceil(PROCESSES * CLIENTS);
    let program = || {
        let mut program = Command::new(env!("CARGO_BIN_EXE_permits"));
        let numbers = [PERMITS, CLIENTS, turns].map(|number| number.to_string());
        program
            .args([&cluster.urls(), "pool"])
            .args(numbers)
            .arg(how);
        program
    };
    let programs = (0..PROCESSES).map(|_| program()).collect();
    let (stays, stops) = run_in_chaos::<Stay>(cluster, programs, LIMIT);
    assert_eq!(
        stays.len(),
        turns * PROCESSES * CLIENTS,
        "all had their turns"
    );
    (stays, stops)
}

#[test]
fn forty_clients_in_four_processes_never_hold_more_than_three_permits() {
    let acquisitions = std::env::var("FENCEPOST_ACQUISITIONS").ok();
    let acquisitions = acquisitions.map_or(ACQUISITIONS, |text| text.parse().unwrap());
    let cluster = Cluster::start(5);
    let start = Instant::now();
    let (stays, stops) = crowd(&cluster, acquisitions, "slots");
    let took = start.elapsed();
    let most = check_crowd(&stays, PERMITS).unwrap();
    println!(
        "{} permits in {took:?} with {stops} stops of nodes, at most {most} at a time",
        stays.len()
    );
    assert_eq!(most, PERMITS, "and there were three");
    assert!(stops > 20, "only {stops} stops");
    eventually("nothing is left but counters", LATE, || {
        cluster.leftovers().is_empty()
    });
}

#[test]
fn the_same_check_catches_a_semaphore_that_counts_on_each_node() {
    let cluster = Cluster::start(5);
    let (stays, _) = crowd(&cluster, 160, "count");
    let fault = check_crowd(&stays, PERMITS).unwrap_err();
    println!("caught: {fault}");
    assert!(fault.contains("at a time where 3 may be"), "{fault}");
}

/// Five of three, with every node at peace: each has a majority, and no node has admitted more than
/// three.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counting_on_each_node_lets_five_in_where_three_were_asked_for() {
    let cluster = Cluster::start(5);
    let urls = cluster.urls();
    let mut inside = Vec::new();
    for first in [0, 3, 1, 4, 2] {
        let wrong = ByCount::open(&urls, "pool", PERMITS, LATE).unwrap();
        inside.push(wrong.try_enter(first, LATE).await.unwrap());
    }
    let stays = inside.iter().zip(0..).map(|(places, n)| {
        assert!(places.iter().all(|place| place.is_valid()));
        let token = places[0].token().get();
        let turn = Turn {
            asked: n,
            begin: n + 1,
            end: 100,
            token,
        };
        Stay { slot: 0, turn }
    });
    let fault = check_crowd(&stays.collect::<Vec<_>>(), PERMITS).unwrap_err();
    assert!(fault.contains("4 at a time where 3 may be"), "{fault}");
}
