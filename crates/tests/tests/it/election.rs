//! At most one leads at a time, everybody can see who, and there is a new leader in time when the
//! old one resigns, is killed, is stopped or is cut off.

use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fencepost::internals::clock::{Clock, SystemClock};
use fencepost::internals::memory::MemoryNode;
use fencepost::internals::{Call, Listener, Node, Notice, WakeSink};
use fencepost::{Client, ErrorKind, Leader, Leadership, LockName, LossReason, Observer};
use fencepost_core::lock::Command as Ask;
use fencepost_core::ticket::ClientId;
use fencepost_tests::{Cluster, Turn, check, stop_and_continue, typical, until_somebody_waits};
use futures_util::StreamExt;
use rustix::process::{Pid, Signal, kill_process};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::engines::every_node_shows_that;

/// How late something may happen on a busy machine.
const LATE: Duration = Duration::from_secs(20);
/// How fast the observers of these tests look.
const PACE: Duration = Duration::from_millis(20);
const TTL: Duration = Duration::from_millis(2400);
/// For the machine: less than a second TTL.
const SLACK: Duration = Duration::from_millis(2000);
/// So short that nobody can have looked by itself, which it does 750 ms after its last look at the
/// earliest.
const WOKEN: Duration = Duration::from_millis(400);

every_node_shows_that! {
    one_leads_and_all_see_who_and_with_which_token,
    whoever_resigns_or_is_dropped_is_followed_at_once,
    a_leader_that_is_thrown_out_is_told,
    a_campaign_ends_when_its_time_is_up,
    a_value_is_proclaimed_as_it_is_or_refused,
    the_holder_of_the_lock_is_the_leader,
    observers_see_each_leader_once_in_token_order,
}

fn client(node: &Arc<dyn Node>) -> Client {
    let builder = Client::builder().shared_node(Arc::clone(node));
    builder.build().unwrap()
}

fn nanos() -> u64 {
    SystemClock.now().since_start().as_nanos() as u64
}

async fn next(observer: &mut Observer) -> Leader {
    timeout(LATE, observer.next()).await.unwrap()
}

fn pair(leader: &Leader) -> (String, u64) {
    (leader.value.clone(), leader.token.get())
}

fn seen(leadership: &Leadership) -> (String, u64) {
    (leadership.proclaimed().to_owned(), leadership.token().get())
}

async fn one_leads_and_all_see_who_and_with_which_token(node: &Arc<dyn Node>) {
    let (here, there) = (client(node), client(node).election("chief"));
    assert_eq!(there.leader().await.unwrap(), None);
    let leadership = here.election("chief").campaign("here:1").await.unwrap();
    assert_eq!(leadership.proclaimed(), "here:1");
    let leader = there.leader().await.unwrap().unwrap();
    assert_eq!(pair(&leader), seen(&leadership));
    let error = there.try_campaign("there:1").await.unwrap_err();
    assert!(error.is_held(), "{error}");
    assert!(error.to_string().contains("here:1"), "{error}");
    assert!(leadership.is_valid());
    leadership.resign().await.unwrap();
    assert_eq!(there.leader().await.unwrap(), None);
}

async fn whoever_resigns_or_is_dropped_is_followed_at_once(node: &Arc<dyn Node>) {
    let election = client(node).election("chief");
    let mut leadership = election.campaign("0").await.unwrap();
    let mut took = Vec::new();
    for n in 1..6 {
        let campaign = client(node).election("chief").campaign(n.to_string());
        let waiting = tokio::spawn(campaign.into_future());
        until_somebody_waits(&client(node), "chief").await;
        assert!(!waiting.is_finished());
        let (begin, token) = (Instant::now(), leadership.token());
        match n % 2 {
            0 => leadership.resign().await.unwrap(),
            _ => drop(leadership),
        }
        leadership = timeout(LATE, waiting).await.unwrap().unwrap().unwrap();
        took.push(begin.elapsed());
        assert!(leadership.token() > token);
    }
    assert!(typical(&took) < WOKEN, "{took:?}");
}

async fn a_leader_that_is_thrown_out_is_told(node: &Arc<dyn Node>) {
    let election = client(node).election("chief");
    let campaign = election.campaign("old").ttl(Duration::from_millis(1500));
    let leadership = campaign.await.unwrap();
    let thief = Client::builder().shared_node(Arc::clone(node));
    let thief = thief.owner("operator").build().unwrap();
    let stolen = thief.steal("chief", LATE).await.unwrap();
    assert_eq!(stolen.from.unwrap().as_str(), "old");
    let why = timeout(LATE, leadership.lost()).await.unwrap();
    assert!(matches!(why, LossReason::Stolen { .. }), "{why}");
    let leader = election.leader().await.unwrap().unwrap();
    let theirs = ("operator".to_owned(), stolen.lease.token().get());
    assert_eq!(pair(&leader), theirs);
}

async fn a_campaign_ends_when_its_time_is_up(node: &Arc<dyn Node>) {
    let election = client(node).election("chief");
    let _leadership = election.campaign("a").await.unwrap();
    let (start, wait) = (Instant::now(), Duration::from_millis(200));
    let error = election.campaign("b").timeout(wait).await.unwrap_err();
    assert!(error.is_timeout(), "{error}");
    assert!(start.elapsed() >= wait, "{:?}", start.elapsed());
}

async fn a_value_is_proclaimed_as_it_is_or_refused(node: &Arc<dyn Node>) {
    let election = client(node).election("chief");
    let long = "x".repeat(200);
    for value in ["", "https://[::1]:8080/a b?c=ü", ":", "a:b", &long] {
        let leadership = election.campaign(value).await.unwrap();
        assert_eq!(election.leader().await.unwrap().unwrap().value, value);
        leadership.resign().await.unwrap();
    }
    for value in ["two\nlines", "\u{7f}", &"x".repeat(201)] {
        let error = election.campaign(value).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidOption);
        assert!(error.to_string().contains("at most 200 bytes"), "{error}");
    }
    let nameless = client(node).election("");
    assert!(nameless.campaign("a").await.is_err());
    assert!(nameless.leader().await.is_err());
    assert!(nameless.observe().is_err());
}

async fn the_holder_of_the_lock_is_the_leader(node: &Arc<dyn Node>) {
    let locks = Client::builder().shared_node(Arc::clone(node));
    let locks = locks.owner("web-3").build().unwrap();
    let lease = locks.lock("chief").await.unwrap();
    let leader = locks.election("chief").leader().await.unwrap().unwrap();
    assert_eq!(pair(&leader), ("web-3".to_owned(), lease.token().get()));
}

async fn observers_see_each_leader_once_in_token_order(node: &Arc<dyn Node>) {
    let election = client(node).election("chief");
    let mut slow = election.observe_every(PACE).unwrap();
    let mut fast = election.observe_every(PACE).unwrap();
    let mut leaders = Vec::new();
    for n in 0..6 {
        let leadership = election.campaign(n.to_string()).await.unwrap();
        leaders.push(seen(&leadership));
        assert_eq!(pair(&next(&mut fast).await), leaders[n]);
        let again = timeout(PACE * 3, fast.next()).await;
        assert!(again.is_err(), "told twice");
        if n < 5 {
            leadership.resign().await.unwrap();
        } else {
            // Whoever did not ask has missed all but the latest, and the others never come.
            assert_eq!(pair(&next(&mut slow).await), leaders[5]);
            assert!(timeout(PACE * 3, slow.next()).await.is_err());
            let late = client(node).election("chief").observe().unwrap();
            let seen: Vec<_> = late.take(1).map(|leader| pair(&leader)).collect().await;
            assert_eq!(seen, leaders[5..]);
        }
    }
}

// ---- leaders that fall silent -------------------------------------------------------------------

/// A candidate in a process of its own, which leads when this returns.
struct Candidate {
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
    token: u64,
}

impl Candidate {
    fn lead(cluster: &Cluster, value: &str) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_candidate"))
            .args([&cluster.urls(), "chief", value])
            .arg(TTL.as_millis().to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let line = lines.next().unwrap().unwrap();
        let token = line.strip_prefix("leading ").unwrap().parse().unwrap();
        Self {
            process,
            lines,
            token,
        }
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.process.id()).unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
    }

    /// When it led, as it sees it.
    fn led(&mut self) -> Turn {
        let line = self.lines.next().unwrap().unwrap();
        line.strip_prefix("led ").unwrap().parse().unwrap()
    }
}

impl Drop for Candidate {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Gets in line.
async fn stand_by(locks: &Client, value: &str) -> JoinHandle<(Turn, Leadership)> {
    let campaign = locks.election("chief").campaign(value).ttl(TTL);
    let asked = nanos();
    let waiting = tokio::spawn(async move {
        let leadership = campaign.await.unwrap();
        let turn = Turn {
            asked,
            begin: nanos(),
            end: u64::MAX,
            token: leadership.token().get(),
        };
        (turn, leadership)
    });
    until_somebody_waits(locks, "chief").await;
    waiting
}

async fn followed(waiting: JoinHandle<(Turn, Leadership)>, since: Instant) -> (Turn, Leadership) {
    let follower = timeout(LATE, waiting).await.unwrap().unwrap();
    let took = since.elapsed();
    println!("a new leader after {took:?} with a TTL of {TTL:?}");
    assert!(took < TTL + SLACK, "{took:?}");
    follower
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_leader_is_followed_within_one_ttl() {
    let cluster = Cluster::start(3);
    let locks = cluster.client().await;
    let mut observer = locks.election("chief").observe_every(PACE).unwrap();
    let mut old = Candidate::lead(&cluster, "old");
    assert_eq!(
        pair(&next(&mut observer).await),
        ("old".to_owned(), old.token)
    );
    let waiting = stand_by(&locks, "new").await;
    // Long enough for a renewal, so that the TTL counts from one: nothing else makes it due.
    sleep(TTL / 2).await;
    old.process.kill().unwrap();
    let (_, new) = followed(waiting, Instant::now()).await;
    assert!(new.token().get() > old.token);
    assert_eq!(pair(&next(&mut observer).await), seen(&new));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_leader_is_followed_within_one_ttl_and_knows_when_it_goes_on() {
    let cluster = Cluster::start(3);
    let locks = cluster.client().await;
    let mut observer = locks.election("chief").observe_every(PACE).unwrap();
    let mut old = Candidate::lead(&cluster, "old");
    next(&mut observer).await;
    let waiting = stand_by(&locks, "new").await;
    sleep(TTL / 2).await;
    old.signal(Signal::STOP);
    let (turn, new) = followed(waiting, Instant::now()).await;
    assert_eq!(pair(&next(&mut observer).await), seen(&new));
    old.signal(Signal::CONT);
    let led = tokio::task::spawn_blocking(move || {
        let led = old.led();
        (led, old)
    });
    let (led, _old) = timeout(LATE, led).await.unwrap().unwrap();
    check(&[led, turn]).unwrap();
    // It campaigns again, and changes nothing.
    assert!(timeout(PACE * 5, observer.next()).await.is_err());
    assert!(new.is_valid());
}

/// A node that can be cut off from one client: it hears nothing and says nothing.
struct Cut {
    node: Arc<dyn Node>,
    is_cut: Arc<AtomicBool>,
}

impl Node for Cut {
    fn call(&self, name: &LockName, command: Ask) -> Call {
        let call = self.node.call(name, command);
        let is_cut = Arc::clone(&self.is_cut);
        Box::pin(async move {
            if is_cut.load(Ordering::SeqCst) {
                return std::future::pending().await;
            }
            let answer = call.await;
            match is_cut.load(Ordering::SeqCst) {
                true => std::future::pending().await,
                false => answer,
            }
        })
    }

    fn listen(&self, client: &ClientId, sink: Arc<dyn WakeSink>) -> Listener {
        struct CutSink(Arc<dyn WakeSink>, Arc<AtomicBool>);
        impl WakeSink for CutSink {
            fn notify(&self, notice: Notice) {
                if !self.1.load(Ordering::SeqCst) {
                    self.0.notify(notice);
                }
            }
        }
        let sink = CutSink(sink, Arc::clone(&self.is_cut));
        self.node.listen(client, Arc::new(sink))
    }

    fn address(&self) -> &str {
        self.node.address()
    }
}

/// A client of these nodes, and what cuts it off from each.
fn cuttable(nodes: &[Arc<dyn Node>]) -> (Client, Vec<Arc<AtomicBool>>) {
    let mut builder = Client::builder();
    let mut cuts = Vec::new();
    for node in nodes {
        let (node, is_cut) = (Arc::clone(node), Arc::new(AtomicBool::new(false)));
        cuts.push(Arc::clone(&is_cut));
        builder = builder.node(Cut { node, is_cut });
    }
    (builder.build().unwrap(), cuts)
}

fn cut(nodes: &[Arc<AtomicBool>], is_cut: bool) {
    nodes
        .iter()
        .for_each(|node| node.store(is_cut, Ordering::SeqCst));
}

/// Until when it sees that it leads.
fn watch(leadership: Leadership) -> std::thread::JoinHandle<(u64, Leadership)> {
    std::thread::spawn(move || {
        let mut end = nanos();
        loop {
            let time = nanos();
            if !leadership.is_valid() {
                return (end, leadership);
            }
            end = time;
            std::thread::sleep(Duration::from_millis(1));
        }
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_cut_off_from_a_majority_is_told_before_it_is_followed_within_one_ttl() {
    for cut_off in [2, 3] {
        let nodes: Vec<Arc<dyn Node>> = (0..3)
            .map(|_| Arc::new(MemoryNode::new()) as Arc<dyn Node>)
            .collect();
        let (here, cuts) = cuttable(&nodes);
        let (there, _) = cuttable(&nodes);
        let mut observer = there.election("chief").observe_every(PACE).unwrap();
        let asked = nanos();
        let campaign = here.election("chief").campaign("old").ttl(TTL);
        let old = campaign.await.unwrap();
        let (begin, token) = (nanos(), old.token().get());
        assert_eq!(pair(&next(&mut observer).await), seen(&old));
        let waiting = stand_by(&there, "new").await;
        // A minority may be away for as long as it likes, which only time can tell.
        cut(&cuts[..1], true);
        sleep(TTL * 3 / 2).await;
        assert!(old.is_valid() && !waiting.is_finished());
        cut(&cuts[..cut_off], true);
        let since = Instant::now();
        let watched = watch(old);
        let (turn, new) = followed(waiting, since).await;
        let (end, old) = watched.join().unwrap();
        let led = Turn {
            asked,
            begin,
            end,
            token,
        };
        check(&[led, turn]).unwrap();
        assert_eq!(old.loss(), Some(LossReason::NoQuorum));
        assert_eq!(pair(&next(&mut observer).await), seen(&new));
        // The old one comes back and waits, and leads when the new one resigns.
        cut(&cuts, false);
        drop(old);
        let back = stand_by(&here, "old").await;
        assert!(new.is_valid() && !back.is_finished());
        new.resign().await.unwrap();
        let (_, again) = timeout(LATE, back).await.unwrap().unwrap();
        assert_eq!(pair(&next(&mut observer).await), seen(&again));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_leads_is_seen_with_a_frozen_node_as_fast_as_without() {
    const NODE_TIMEOUT: Duration = Duration::from_secs(2);
    let cluster = Cluster::start(3);
    let locks = cluster.builder().node_timeout(NODE_TIMEOUT);
    let election = cluster.connect(locks).await.election("chief");
    let leadership = election.campaign("a").await.unwrap();
    cluster.all_have("chief").await;
    cluster.servers[1].freeze();
    for _ in 0..10 {
        let start = Instant::now();
        let leader = election.leader().await.unwrap().unwrap();
        assert_eq!(pair(&leader), seen(&leadership));
        assert!(start.elapsed() < NODE_TIMEOUT / 2);
    }
    cluster.servers[2].freeze();
    let error = election.leader().await.unwrap_err();
    assert!(error.is_no_quorum(), "{error}");
    cluster.servers[1].thaw();
    cluster.servers[2].thaw();
}

/// An observer costs as little as it says.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_observer_looks_twice_a_second() {
    let cluster = Cluster::start(1);
    let election = cluster.client().await.election("chief");
    let _leadership = election.campaign("a").renew(false).await.unwrap();
    let mut observer = election.observe().unwrap();
    next(&mut observer).await;
    let (before, begin) = (cluster.servers[0].scripts_run(), Instant::now());
    let quiet = timeout(Duration::from_secs(3), observer.next()).await;
    assert!(quiet.is_err(), "nobody new");
    let looks = cluster.servers[0].scripts_run() - before;
    let time = begin.elapsed();
    let most = (3.0 * time.as_secs_f64()).floor() as u64;
    assert!((2..=most).contains(&looks), "{looks} looks in {time:?}");
}

/// Leaders come and go while nodes are stopped and continued: never two at a time, and whoever
/// watches sees tokens that only grow, and with each the value that belongs to it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leaders_that_come_and_go_among_stopped_nodes_are_seen_in_token_order() {
    const CANDIDATES: usize = 4;
    const LONG: Duration = Duration::from_secs(8);
    let cluster = Arc::new(Cluster::start(5));
    let turns = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    let over = Instant::now() + LONG;
    for candidate in 0..CANDIDATES {
        let builder = cluster.builder().node_timeout(Duration::from_millis(100));
        let election = cluster.connect(builder).await.election("chief");
        let turns = Arc::clone(&turns);
        tasks.push(tokio::spawn(async move {
            while Instant::now() < over {
                let asked = nanos();
                let campaign = election.campaign(candidate.to_string());
                let campaign = campaign.ttl(Duration::from_millis(300));
                let Ok(leadership) = campaign.timeout(LONG).await else {
                    continue;
                };
                let begin = nanos();
                let valid_until = begin + leadership.remaining().as_nanos() as u64;
                sleep(Duration::from_millis(60)).await;
                let time = nanos();
                let end = match leadership.is_valid() {
                    true => time,
                    false => time.min(valid_until),
                };
                let token = leadership.token().get();
                let turn = Turn {
                    asked,
                    begin,
                    end,
                    token,
                };
                turns.lock().unwrap().push((candidate.to_string(), turn));
                // Lost or not: it is over.
                let _ = leadership.resign().await;
            }
        }));
    }
    let mut observers = Vec::new();
    for _ in 0..3 {
        let election = cluster.client().await.election("chief");
        observers.push(tokio::spawn(async move {
            let mut observer = election.observe_every(Duration::from_millis(10)).unwrap();
            let mut seen = Vec::new();
            while let Ok(leader) = timeout(LONG, observer.next()).await {
                seen.push(pair(&leader));
                if Instant::now() > over {
                    break;
                }
            }
            seen
        }));
    }
    let stopping = Arc::clone(&cluster);
    let stop = move || stop_and_continue(&stopping, || Instant::now() > over);
    let stops = tokio::task::spawn_blocking(stop).await.unwrap();
    for task in tasks {
        timeout(LATE, task).await.unwrap().unwrap();
    }
    let led = turns.lock().unwrap().clone();
    let turns: Vec<_> = led.iter().map(|(_, turn)| *turn).collect();
    check(&turns).unwrap();
    for observer in observers {
        let seen = timeout(2 * LATE, observer).await.unwrap().unwrap();
        let grows = |pair: &[(String, u64)]| pair[0].1 < pair[1].1;
        assert!(seen.windows(2).all(grows), "{seen:?}");
        let mut known = 0;
        for (value, token) in &seen {
            let leader = led.iter().find(|(_, turn)| turn.token == *token);
            // One who gave up at the last moment has led nobody.
            if let Some((name, _)) = leader {
                assert_eq!(name, value);
                known += 1;
            }
        }
        println!(
            "{} leaders, {} seen, {known} of them known, {stops} stops",
            led.len(),
            seen.len()
        );
        assert!(known * 2 > led.len(), "{known} of {}", led.len());
    }
}
