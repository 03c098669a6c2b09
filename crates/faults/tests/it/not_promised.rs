//! Where the promise of exclusion ends, on both sides of each border: what still holds, and what does
//! not. A test whose name says "makes two holders" shows the checker finding them. That is not a
//! fault of the library: no lock on such nodes can know better. In every one of them the token tells
//! the two apart, and a resource that checks it is safe. One more shows where that ends too.
//!
//! The story is always the same: the holder has the lock, on all nodes or on just a majority;
//! something befalls some nodes; the contender asks for as long as the holder's lease is valid.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fencepost::fence::Gate;
use fencepost::internals::clock::{Clock, Moment, SystemClock};
use fencepost::{Client, InitOptions, Lease, RestartPolicy};
use fencepost_faults::clock::{BentClock, Jump};
use fencepost_faults::cluster::Layout;
use fencepost_faults::node::{Node, NodeOptions, Persistence};

use crate::stage::{LOCK, Stage, TTL, client, newcomer, on_three_and_five};

/// On how many nodes the holder has the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Has {
    All,
    JustAMajority,
}

/// Tells the story; whether two held the lock at a time.
async fn two_hold(layout: Layout, has: Has, befalls: impl FnOnce(&mut Stage)) -> bool {
    let mut stage = Stage::set(layout).await;
    let held = match has {
        Has::All => stage.hold_on_all().await,
        Has::JustAMajority => stage.hold_on_just_a_majority().await,
    };
    befalls(&mut stage);
    let (second, while_valid) = stage.contend(&held).await;
    judge(&stage, &held, &second, while_valid);
    while_valid
}

fn judge(stage: &Stage, held: &Lease, second: &Lease, while_valid: bool) {
    assert_eq!(!stage.overlaps().is_empty(), while_valid, "as the checker");
    assert!(stage.bad_tokens().is_empty());
    let gate = Gate::new();
    gate.admit(held.token()).unwrap();
    gate.admit(second.token()).unwrap();
    assert!(gate.admit(held.token()).is_err(), "the resource is safe");
}

fn plain(nodes: usize) -> Layout {
    Layout {
        nodes,
        ..Layout::default()
    }
}

/// Of clients that watch what nodes may forget.
fn watched(nodes: usize) -> Layout {
    Layout {
        policy: RestartPolicy::Delay,
        ..plain(nodes)
    }
}

fn with_bent_clocks(nodes: usize) -> Layout {
    let mut layout = plain(nodes);
    layout.options.bent = true;
    layout
}

fn flush(stage: &mut Stage, nodes: std::ops::Range<usize>) {
    for node in nodes {
        stage.tell(node, &["FLUSHALL"]);
    }
}

fn jump_ahead(stage: &mut Stage, nodes: std::ops::Range<usize>) {
    for node in nodes {
        let clock = stage.cluster.nodes[node].clock.as_mut().unwrap();
        clock.jump(Jump::Ahead(TTL)).unwrap();
    }
}

fn clocks_can_be_bent() -> bool {
    let possible = BentClock::is_possible();
    if !possible {
        println!("skipped: no clock can be bent here");
    }
    possible
}

#[test]
fn a_flushed_minority_breaks_nothing_while_the_holder_has_all_others() {
    on_three_and_five(async |nodes| {
        let befalls = |stage: &mut Stage| flush(stage, 0..nodes / 2);
        let two = two_hold(plain(nodes), Has::All, befalls).await;
        assert!(!two, "{nodes} nodes");
    });
}

#[test]
fn a_flushed_node_of_just_a_majority_makes_two_holders() {
    on_three_and_five(async |nodes| {
        let befalls = |stage: &mut Stage| {
            let shared = stage.shared_node();
            flush(stage, shared..shared + 1);
        };
        let two = two_hold(plain(nodes), Has::JustAMajority, befalls).await;
        assert!(two, "{nodes} nodes");
    });
}

#[test]
fn a_flushed_majority_makes_two_holders() {
    on_three_and_five(async |nodes| {
        let befalls = |stage: &mut Stage| flush(stage, 0..nodes / 2 + 1);
        let two = two_hold(plain(nodes), Has::All, befalls).await;
        assert!(two, "{nodes} nodes");
    });
}

#[test]
fn a_majority_that_comes_back_empty_breaks_nothing() {
    on_three_and_five(async |nodes| {
        let layout = Layout {
            policy: RestartPolicy::Delay,
            ..plain(nodes)
        };
        let befalls = |stage: &mut Stage| {
            for node in 0..stage.majority() {
                stage.restart(node, |_| Ok(()));
            }
        };
        assert!(!two_hold(layout, Has::All, befalls).await, "{nodes} nodes");
    });
}

#[test]
fn a_lock_evicted_by_a_server_that_was_set_to_evict_meanwhile_makes_two_holders() {
    let fill = "for i = 1, 500 do redis.call('SET', 'filler:' .. math.random(1000000000), \
                string.rep('x', 1000)) end";
    let befalls = |stage: &mut Stage| {
        let shared = stage.shared_node();
        stage.tell(
            shared,
            &["CONFIG", "SET", "maxmemory-policy", "allkeys-random"],
        );
        stage.tell(shared, &["CONFIG", "SET", "maxmemory", "3mb"]);
        let end = Instant::now() + TTL / 2;
        while stage.has_lock(shared) {
            assert!(Instant::now() < end, "never evicted");
            stage.tell(shared, &["EVAL", fill, "0"]);
        }
    };
    on_three_and_five(async |nodes| {
        let two = two_hold(plain(nodes), Has::JustAMajority, befalls).await;
        assert!(two, "{nodes} nodes");
    });
}

/// What a server is set to is looked at every few seconds where data are watched.
#[test]
fn a_server_that_is_set_to_evict_has_no_vote_from_the_next_look_on() {
    on_three_and_five(async |nodes| {
        let stage = Stage::set(watched(nodes)).await;
        let majority = stage.majority();
        for node in 0..majority {
            stage.tell(node, &["CONFIG", "SET", "maxmemory", "100mb"]);
            stage.tell(node, &["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
        }
        let end = Instant::now() + Duration::from_secs(30);
        loop {
            let asked = stage.contender.try_lock(LOCK).ttl(TTL).renew(false).await;
            let evicts = |error: &fencepost::Error| {
                let nodes = error.nodes().iter();
                nodes
                    .filter(|it| it.outcome.to_string().contains("allkeys-lru"))
                    .count()
                    == majority
            };
            if asked.as_ref().is_err_and(evicts) {
                break;
            }
            assert!(Instant::now() < end, "{nodes} nodes: {asked:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
}

/// Of one key nobody is told.
#[test]
fn a_key_that_is_deleted_by_hand_makes_two_holders() {
    on_three_and_five(async |nodes| {
        let befalls = |stage: &mut Stage| {
            let shared = stage.shared_node();
            stage.tell(shared, &["DEL", LOCK]);
        };
        let two = two_hold(watched(nodes), Has::JustAMajority, befalls).await;
        assert!(two, "{nodes} nodes");
    });
}

/// The server tells nobody that another database has taken the place of this one.
#[test]
fn a_database_that_is_swapped_makes_two_holders() {
    on_three_and_five(async |nodes| {
        let befalls = |stage: &mut Stage| {
            let shared = stage.shared_node();
            stage.tell(shared, &["SWAPDB", "0", "1"]);
        };
        let two = two_hold(watched(nodes), Has::JustAMajority, befalls).await;
        assert!(two, "{nodes} nodes");
    });
}

/// Its data are continued from a replica that had lost the lock, and it is a master again before anybody looks.
#[test]
fn a_role_that_changes_back_between_two_looks_makes_two_holders() {
    on_three_and_five(async |nodes| {
        // A look that falls into it sees it.
        for _ in 0..5 {
            let mut layout = watched(nodes);
            let at_once = ["--repl-diskless-sync-delay", "0"];
            layout.options.words = at_once.map(str::to_owned).to_vec();
            let befalls = |stage: &mut Stage| flip_to_a_replica_without_the_lock(stage);
            if two_hold(layout, Has::JustAMajority, befalls).await {
                return;
            }
        }
        panic!("{nodes} nodes: never");
    });
}

fn flip_to_a_replica_without_the_lock(stage: &mut Stage) {
    let shared = stage.shared_node();
    let cluster = &stage.cluster;
    let server = &cluster.nodes[shared];
    let options = NodeOptions {
        words: replica_of(server, &cluster.layout.options.words),
        ..cluster.layout.options.clone()
    };
    let folder = cluster.folder().join("replica");
    let replica = Node::start(&cluster.network, shared, &folder, options).unwrap();
    until_linked(&replica);
    replica.tell(&["REPLICAOF", "NO", "ONE"]).unwrap();
    replica.tell(&["DEL", LOCK]).unwrap();
    let port = replica.address().port().to_string();
    server.tell(&["REPLICAOF", "127.0.0.1", &port]).unwrap();
    until_linked(server);
    let end = Instant::now() + TTL;
    while stage.has_lock(shared) && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(1));
    }
    stage.tell(shared, &["REPLICAOF", "NO", "ONE"]);
}

fn replica_of(master: &Node, words: &[String]) -> Vec<String> {
    let port = master.address().port().to_string();
    let replicaof = ["--replicaof", "127.0.0.1", &port].map(str::to_owned);
    [words, &replicaof].concat()
}

fn until_linked(replica: &Node) {
    let end = Instant::now() + TTL * 10;
    let info = || replica.ask::<String>(&["INFO", "replication"]).unwrap();
    while !info().contains("master_link_status:up") {
        assert!(Instant::now() < end, "not in step");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// As a machine that is put back to a snapshot: the same process, with the marker and without the lock.
#[test]
fn a_server_that_is_put_back_to_an_older_state_while_it_runs_makes_two_holders() {
    let version = std::process::Command::new("redis-server")
        .arg("--version")
        .output();
    let version = String::from_utf8(version.unwrap().stdout).unwrap();
    if version.contains("v=6.") || version.contains("v=5.") {
        println!("skipped: this server has no DEBUG that can be turned on");
        return;
    }
    on_three_and_five(async |nodes| {
        let mut layout = watched(nodes);
        let debug = ["--enable-debug-command", "yes"];
        layout.options.words = debug.map(str::to_owned).to_vec();
        let mut stage = Stage::set(layout).await;
        let shared = stage.shared_node();
        stage.tell(shared, &["SAVE"]);
        let held = stage.hold_on_just_a_majority().await;
        stage.tell(shared, &["DEBUG", "RELOAD", "NOSAVE"]);
        let (second, while_valid) = stage.contend(&held).await;
        judge(&stage, &held, &second, while_valid);
        assert!(while_valid, "{nodes} nodes");
    });
}

/// A clock that stands still from a moment on, as that of a machine does that its hypervisor pauses: the
/// time of the pause is missing on it.
#[derive(Default)]
struct Paused(std::sync::OnceLock<Moment>);

impl Clock for Paused {
    fn now(&self) -> Moment {
        self.0.get().copied().unwrap_or_else(|| SystemClock.now())
    }

    fn wall_micros(&self) -> u64 {
        SystemClock.wall_micros()
    }
}

/// The history has the true end of the lease, so that no checker is asked here: the holder is.
#[test]
fn a_holder_whose_machine_was_paused_with_its_clock_believes_beside_the_next() {
    on_three_and_five(async |nodes| {
        let mut stage = Stage::set(plain(nodes)).await;
        let clock = Arc::new(Paused::default());
        stage.holder = Client::builder()
            .url(stage.cluster.urls())
            .restart_policy(RestartPolicy::Trust)
            .max_ttl(TTL)
            .clock(Arc::clone(&clock) as Arc<dyn Clock>)
            .connect()
            .await
            .unwrap();
        let held = stage.hold_on_all().await;
        clock.0.set(SystemClock.now()).unwrap();
        let (second, while_valid) = stage.contend(&held).await;
        assert!(while_valid && second.is_valid(), "{nodes} nodes");
        assert!(held.token() < second.token(), "the resource is safe");
    });
}

#[test]
fn a_minority_of_clocks_that_jump_ahead_breaks_nothing_while_the_holder_has_all_others() {
    if !clocks_can_be_bent() {
        return;
    }
    on_three_and_five(async |nodes| {
        let befalls = |stage: &mut Stage| jump_ahead(stage, 0..nodes / 2);
        let two = two_hold(with_bent_clocks(nodes), Has::All, befalls).await;
        assert!(!two, "{nodes} nodes");
    });
}

/// On five nodes, this is the story of the critique of Redlock: client 1 has A, B and C; the clock of
/// C jumps ahead; client 2 gets C, D and E.
#[test]
fn a_clock_that_jumps_ahead_on_a_node_of_just_a_majority_makes_two_holders() {
    if !clocks_can_be_bent() {
        return;
    }
    on_three_and_five(async |nodes| {
        let befalls = |stage: &mut Stage| {
            let shared = stage.shared_node();
            jump_ahead(stage, shared..shared + 1);
        };
        let two = two_hold(with_bent_clocks(nodes), Has::JustAMajority, befalls).await;
        assert!(two, "{nodes} nodes");
    });
}

#[test]
fn a_clock_that_jumps_back_breaks_nothing() {
    if !clocks_can_be_bent() {
        return;
    }
    on_three_and_five(async |nodes| {
        let befalls = |stage: &mut Stage| {
            let shared = stage.shared_node();
            let clock = stage.cluster.nodes[shared].clock.as_mut().unwrap();
            clock.jump(Jump::Back(TTL / 3)).unwrap();
        };
        let two = two_hold(with_bent_clocks(nodes), Has::JustAMajority, befalls).await;
        assert!(!two, "{nodes} nodes");
    });
}

#[test]
fn a_clock_that_runs_far_faster_than_the_drift_allows_makes_two_holders() {
    if !clocks_can_be_bent() {
        return;
    }
    on_three_and_five(async |nodes| {
        let befalls = |stage: &mut Stage| {
            let shared = stage.shared_node();
            let clock = stage.cluster.nodes[shared].clock.as_mut().unwrap();
            clock.run_at(20.0).unwrap();
        };
        let two = two_hold(with_bent_clocks(nodes), Has::JustAMajority, befalls).await;
        assert!(two, "{nodes} nodes");
    });
}

/// A server reckons its uptime by its wall clock. Clients that knew the process before it go by what
/// they saw themselves.
#[test]
fn a_restarted_server_whose_clock_jumped_ahead_does_not_fool_who_knew_it_before() {
    if !clocks_can_be_bent() {
        return;
    }
    on_three_and_five(async |nodes| {
        let layout = Layout {
            policy: RestartPolicy::Delay,
            ..with_bent_clocks(nodes)
        };
        let befalls = |stage: &mut Stage| restart_with_a_jump(stage);
        let two = two_hold(layout, Has::JustAMajority, befalls).await;
        assert!(!two, "{nodes} nodes");
    });
}

/// Nor who comes later: how long it has been up proves nothing.
#[test]
fn a_restarted_server_whose_clock_jumped_ahead_does_not_fool_a_newcomer() {
    if !clocks_can_be_bent() {
        return;
    }
    on_three_and_five(async |nodes| {
        let layout = Layout {
            policy: RestartPolicy::Delay,
            ..with_bent_clocks(nodes)
        };
        let mut stage = Stage::set(layout).await;
        let held = stage.hold_on_just_a_majority().await;
        restart_with_a_jump(&mut stage);
        let newcomer = newcomer(&stage.cluster, "newcomer").await;
        let (second, while_valid) = stage.contend_as(&newcomer, &held).await;
        judge(&stage, &held, &second, while_valid);
        assert!(!while_valid, "{nodes} nodes");
    });
}

/// The quarantine that is written on the server is reckoned by its clock, which must not jump meanwhile.
#[test]
fn a_restarted_server_whose_clock_jumped_ahead_fools_a_newcomer_and_makes_two_holders() {
    if !clocks_can_be_bent() {
        return;
    }
    on_three_and_five(async |nodes| {
        let layout = Layout {
            policy: RestartPolicy::Delay,
            ..with_bent_clocks(nodes)
        };
        let mut stage = Stage::set(layout).await;
        let held = stage.hold_on_just_a_majority().await;
        let shared = stage.shared_node();
        stage.restart(shared, |_| Ok(()));
        let end = Instant::now() + TTL;
        let is_seen = |stage: &Stage| {
            let node = &stage.cluster.nodes[shared];
            node.ask::<bool>(&["EXISTS", "fencepost:marker"]).unwrap()
        };
        while !is_seen(&stage) {
            assert!(Instant::now() < end, "nobody has seen the restart");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let clock = stage.cluster.nodes[shared].clock.as_mut().unwrap();
        clock.jump(Jump::Ahead(TTL * 10)).unwrap();
        let newcomer = newcomer(&stage.cluster, "newcomer").await;
        let (second, while_valid) = stage.contend_as(&newcomer, &held).await;
        judge(&stage, &held, &second, while_valid);
        assert!(while_valid, "{nodes} nodes");
    });
}

fn restart_with_a_jump(stage: &mut Stage) {
    let shared = stage.shared_node();
    stage.restart(shared, |_| Ok(()));
    let clock = stage.cluster.nodes[shared].clock.as_mut().unwrap();
    clock.jump(Jump::Ahead(TTL * 10)).unwrap();
    // It looks at its clock ten times a second.
    std::thread::sleep(Duration::from_millis(250));
}

/// A wall clock that is as far ahead as a token may follow it: beyond a minute the nodes' clocks are believed.
struct Ahead;

impl Clock for Ahead {
    fn now(&self) -> Moment {
        SystemClock.now()
    }

    fn wall_micros(&self) -> u64 {
        SystemClock.wall_micros() + 55_000_000
    }
}

/// Nodes that lost their counters know nothing but what the clients propose: their clocks.
#[test]
fn tokens_fall_when_all_nodes_are_flushed_and_the_next_clients_clock_is_behind() {
    on_three_and_five(async |nodes| {
        let mut stage = Stage::set(plain(nodes)).await;
        stage.holder = Client::builder()
            .url(stage.cluster.urls())
            .restart_policy(RestartPolicy::Trust)
            .max_ttl(TTL)
            .clock(Arc::new(Ahead))
            .connect()
            .await
            .unwrap();
        let held = stage.hold_on_all().await;
        flush(&mut stage, 0..nodes);
        let (second, _) = stage.contend(&held).await;
        assert!(second.token() < held.token(), "{nodes} nodes");
        assert!(!stage.bad_tokens().is_empty(), "the checker finds it");
    });
}

/// A cluster of new servers knows nothing of the old one's tokens but what the clients propose.
#[test]
fn tokens_fall_when_all_servers_are_replaced_and_the_next_clients_clock_is_behind() {
    on_three_and_five(async |nodes| {
        let layout = Layout {
            extra: nodes,
            ..watched(nodes)
        };
        let mut stage = Stage::set(layout).await;
        let (old, new) = (stage.cluster.urls(), stage.cluster.extra_urls());
        let of = |urls: &str| Client::builder().url(urls).max_ttl(TTL);
        let ahead = of(&old).clock(Arc::new(Ahead)).connect().await.unwrap();
        stage.holder = ahead;
        let held = stage.hold_on_all().await;
        let replaced = InitOptions::new().replace(&old);
        of(&new).init(replaced).await.unwrap();
        let after = of(&new).connect().await.unwrap();
        let (second, while_valid) = stage.contend_as(&after, &held).await;
        assert!(!while_valid, "{nodes} nodes");
        assert!(second.token() < held.token(), "{nodes} nodes");
        assert!(!stage.bad_tokens().is_empty(), "the checker finds it");
    });
}

/// `init --durable` is the operator's word that every write is kept, and was not true.
#[test]
fn an_older_copy_under_a_server_that_says_it_keeps_every_write_makes_two_holders() {
    on_three_and_five(async |nodes| {
        let two = two_hold_with_an_older_copy(nodes, true).await;
        assert!(two, "{nodes} nodes");
    });
}

/// Without it, nothing that a server says of itself now tells what it kept.
#[test]
fn an_older_copy_under_a_server_that_nobody_promised_to_keep_every_write_breaks_nothing() {
    on_three_and_five(async |nodes| {
        let two = two_hold_with_an_older_copy(nodes, false).await;
        assert!(!two, "{nodes} nodes");
    });
}

async fn two_hold_with_an_older_copy(nodes: usize, is_promised: bool) -> bool {
    let mut layout = Layout {
        policy: RestartPolicy::Delay,
        ..plain(nodes)
    };
    layout.options.persistence = Persistence::EveryWrite;
    let mut stage = Stage::set(layout).await;
    if is_promised {
        let builder = Client::builder().url(stage.cluster.urls()).max_ttl(TTL);
        let promise = InitOptions::new().durable(true);
        builder.init(promise).await.unwrap();
        // Those who saw the marker change connect again.
        stage.holder = client(&stage.cluster, "holder").await;
        stage.contender = client(&stage.cluster, "contender").await;
    }
    let shared = stage.shared_node();
    stage.cluster.nodes[shared].back_up().unwrap();
    let held = stage.hold_on_just_a_majority().await;
    stage.restart(shared, Node::restore_backup);
    let (second, while_valid) = stage.contend(&held).await;
    judge(&stage, &held, &second, while_valid);
    while_valid
}

/// Whoever trusts restarted servers trusts replicas in their place too.
#[test]
fn a_client_that_comes_after_the_promotion_of_a_stale_replica_makes_two_holders() {
    on_three_and_five(async |nodes| {
        let two = two_hold_after_a_promotion(nodes, RestartPolicy::Trust).await;
        assert!(two, "{nodes} nodes");
    });
}

/// Its marker is that of the master's process: also one that comes later sees that it is another's copy.
#[test]
fn a_client_that_comes_after_the_promotion_of_a_stale_replica_is_not_fooled() {
    on_three_and_five(async |nodes| {
        let two = two_hold_after_a_promotion(nodes, RestartPolicy::Delay).await;
        assert!(!two, "{nodes} nodes");
    });
}

async fn two_hold_after_a_promotion(nodes: usize, policy: RestartPolicy) -> bool {
    let mut layout = Layout {
        policy,
        proxied: true,
        ..plain(nodes)
    };
    let at_once = ["--repl-diskless-sync-delay", "0"];
    layout.options.words = at_once.map(str::to_owned).to_vec();
    let mut stage = Stage::set(layout).await;
    let shared = stage.shared_node();
    let replica = lagging_replica_up_for_long(&stage, shared);
    let held = stage.hold_on_just_a_majority().await;
    stage.cluster.nodes[shared].kill().unwrap();
    replica.tell(&["REPLICAOF", "NO", "ONE"]).unwrap();
    stage.cluster.proxies[shared].lead_to(&replica.socket());
    stage.cluster.nodes[shared] = replica;
    let newcomer = newcomer(&stage.cluster, "newcomer").await;
    let (second, while_valid) = stage.contend_as(&newcomer, &held).await;
    judge(&stage, &held, &second, while_valid);
    while_valid
}

fn lagging_replica_up_for_long(stage: &Stage, node: usize) -> Node {
    let cluster = &stage.cluster;
    let master = cluster.nodes[node].address();
    let port = master.port().to_string();
    let replicaof = ["--replicaof", "127.0.0.1", &port].map(str::to_owned);
    let options = NodeOptions {
        words: replicaof.to_vec(),
        ..cluster.layout.options.clone()
    };
    let folder = cluster.folder().join("replica");
    let replica = Node::start(&cluster.network, node, &folder, options).unwrap();
    let info = |section: &str| replica.ask::<String>(&["INFO", section]).unwrap();
    let up_for = |seconds: u64| {
        let info = info("server");
        let mut lines = info.lines();
        let line = lines.find_map(|line| line.strip_prefix("uptime_in_seconds:"));
        line.unwrap().trim_end().parse::<u64>().unwrap() >= seconds
    };
    let long = TTL.as_secs() + 2;
    let end = Instant::now() + TTL * 10;
    while !up_for(long) || !info("replication").contains("master_link_status:up") {
        assert!(Instant::now() < end, "not in step");
        std::thread::sleep(Duration::from_millis(20));
    }
    replica.tell(&["REPLICAOF", "127.0.0.1", "1"]).unwrap();
    assert!(!replica.ask::<bool>(&["EXISTS", LOCK]).unwrap());
    replica
}
