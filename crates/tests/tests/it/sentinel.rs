//! A Sentinel group is one voter with a moving address. A failover loses locks: on real Sentinels and servers,
//! what a client that only follows the address does has two holders, and ours has none.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fencepost::{Client, Error, InitOptions, LossReason, NodeError, NodeOutcome, RestartPolicy};
use fencepost_tests::{
    Authority, GroupSetup, RedisServer, SentinelGroup, SentinelGroups, ServerOptions, Stalls,
    TlsFiles, Turn, check, free_port, until, until_somebody_waits, wait_until,
};
use tokio::time::sleep;

const MAX_TTL: Duration = Duration::from_secs(2);
/// How long a promoted master does not vote.
const QUARANTINE: Duration = Duration::from_secs(6);
const LATE: Duration = Duration::from_secs(60);
const NODE_TIMEOUT: Duration = Duration::from_millis(500);
/// For how long a client that only follows the address takes a lock which it renews.
const NAIVE_TTL: Duration = Duration::from_secs(5);

async fn client(groups: &SentinelGroups, user: &str) -> Client {
    let builder = groups.builder(user, MAX_TTL).node_timeout(NODE_TIMEOUT);
    // Not `connect`: after a failover it may take a while until a replica is attached.
    let client = builder.build().unwrap();
    until("it votes", LATE, async || locks(&client).await.is_ok()).await;
    client
}

async fn locks(client: &Client) -> Result<(), Error> {
    let lease = client.try_lock("probe").renew(false).await?;
    lease.release().await
}

/// Why each node that failed did.
fn reasons(error: &Error) -> Vec<NodeError> {
    let failed = error
        .nodes()
        .iter()
        .filter_map(|report| match &report.outcome {
            NodeOutcome::Failed(error) => Some(error.clone()),
            _ => None,
        });
    failed.collect()
}

/// What a client does that only follows the address: takes the lock at the server that a Sentinel names.
async fn follow_and_set(groups: &SentinelGroups, key: &str, value: &str) {
    let set = || {
        let master = &groups.groups[0].servers[groups.named_by(0, 0)];
        master.cli(&["SET", key, value, "NX", "PX", "60000"]) == "OK"
    };
    wait_until("the naive client has its lock", LATE, set).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_is_one_voter_and_everything_works_there() {
    let groups = SentinelGroups::start(1, &GroupSetup::default());
    // Nobody has made the cluster: the first client does, and says for how long it waits.
    let early = groups.builder("a", MAX_TTL).connect().await.unwrap();
    let refusal = early.try_lock("job").await.unwrap_err();
    let waits = match reasons(&refusal).as_slice() {
        [NodeError::Quarantined(left)] => *left,
        other => panic!("{other:?}"),
    };
    assert!(waits > MAX_TTL && waits <= QUARANTINE, "{waits:?}");
    drop(early);

    let one = client(&groups, "a").await;
    let two = client(&groups, "b").await;
    let lease = one.lock("job").await.unwrap();
    assert!(two.try_lock("job").await.unwrap_err().is_held());
    let waiting = tokio::spawn({
        let two = two.clone();
        async move { two.lock("job").await.unwrap() }
    });
    until_somebody_waits(&one, "job").await;
    let first = lease.token();
    lease.release().await.unwrap();
    let second = waiting.await.unwrap();
    assert!(second.token() > first);
    // It renews itself.
    sleep(2 * MAX_TTL).await;
    assert!(second.is_valid(), "{:?}", second.loss());
    let permit = one.semaphore("seats", 2).acquire().await.unwrap();
    let reader = one.read_write("doc").read().await.unwrap();
    drop((permit, reader, second));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_unsafe_is_refused_and_named() {
    let groups = SentinelGroups::start(1, &GroupSetup::default());
    groups.init(MAX_TTL).await;
    let locks_of = client(&groups, "a").await;
    let master = &groups.groups[0].servers[0];
    let refused = async |what: &str| {
        until(what, LATE, async || match locks(&locks_of).await {
            Ok(()) => false,
            Err(error) => error.to_string().contains(what),
        })
        .await;
    };
    let votes = async || until("it votes", LATE, async || locks(&locks_of).await.is_ok()).await;
    for (setting, unsafe_value, safe) in [
        ("min-replicas-to-write", "0", "1"),
        ("min-replicas-max-lag", "3", "2"),
    ] {
        master.cli(&["CONFIG", "SET", setting, unsafe_value]);
        refused(&format!("{setting} is {unsafe_value}")).await;
        master.cli(&["CONFIG", "SET", setting, safe]);
        votes().await;
    }
    // It is not known what the settings are.
    let poor = ["on", ">x", "~*", "&*", "+@all", "-config"];
    master.cli(&[&["ACL", "SETUSER", "poor"], &poor[..]].concat());
    let poor = groups.url_of(0, "a").replace("://:x@", "://poor:x@");
    let poor = Client::builder().url(&poor).max_ttl(MAX_TTL);
    let error = locks(&poor.build().unwrap()).await.unwrap_err();
    let is_hidden = |why: &NodeError| matches!(why, NodeError::HidesFencing(_));
    assert!(reasons(&error).iter().all(is_hidden), "{error}");
    // A majority of the *configured* Sentinels, also where one is left that answers.
    let groups_of_one = groups.sentinels[1..].iter();
    groups_of_one.for_each(RedisServer::freeze);
    refused("not named by a majority of its Sentinels").await;
    groups.sentinels[1].thaw();
    votes().await;
    groups.sentinels[2].thaw();

    // All clients have to agree on the Sentinels and on the failover time.
    let url = groups.url_of(0, "a");
    let fewer = {
        let (begin, rest) = url.split_once(',').unwrap();
        let (_, end) = rest.split_once(',').unwrap();
        format!("{begin},{end}")
    };
    for other in [fewer, url.replace("failover=2s", "failover=3s")] {
        let other = Client::builder()
            .url(&other)
            .max_ttl(MAX_TTL)
            .build()
            .unwrap();
        until("it is refused", LATE, async || {
            let error = locks(&other).await.unwrap_err();
            reasons(&error)
                .iter()
                .any(|why| matches!(why, NodeError::Differs(_)))
        })
        .await;
    }
    let trusting = Client::builder()
        .url(&url)
        .restart_policy(RestartPolicy::Trust);
    let why = trusting.build().unwrap_err();
    assert_eq!(why.option(), Some("restart_policy"));
    let durable = InitOptions::new().durable(true);
    let why = Client::builder().url(&url).init(durable).await.unwrap_err();
    assert_eq!(why.option(), Some("durable"));
    for (url, expected) in [
        (
            url.replace("/m0?", "/other?"),
            "knows no master of the name other",
        ),
        (
            url.replace("password=x", "password=y"),
            "check the user and password",
        ),
        (
            format!(
                "redis+sentinel://127.0.0.1:{}/m0?sentinel_password=x",
                master.port()
            ),
            "it is not a Sentinel",
        ),
    ] {
        let error = Client::connect(&url).await.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

/// Sentinels and servers speak TLS with each other, too.
/// One Sentinel under two names was a majority of three for whoever may not ask it which one it is.
#[tokio::test(flavor = "multi_thread")]
async fn a_sentinel_that_may_not_tell_its_id_does_not_count() {
    let groups = SentinelGroups::start(1, &GroupSetup::default());
    let sentinel = &groups.sentinels[0];
    sentinel.cli(&["ACL", "SETUSER", "b", "-sentinel|myid"]);
    let port = sentinel.port();
    let url = |user: &str| {
        format!(
            "redis+sentinel://:x@127.0.0.1:{port},localhost:{port},127.0.0.1:1/m0\
             ?sentinel_user={user}&sentinel_password=x&failover=2s"
        )
    };
    for (user, expected) in [("a", "the same Sentinel"), ("b", "sentinel|myid")] {
        let error = Client::connect(&url(user)).await.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_that_speaks_tls_is_trusted_by_its_authority() {
    let authority = Authority::new();
    let files = TlsFiles::new(&authority, "127.0.0.1");
    let speaking = |port: u16, words: &str| {
        let mut args: Vec<_> = words.split_whitespace().map(str::to_owned).collect();
        args.extend(files.words(port, "no"));
        args.extend(["--tls-replication", "yes"].map(str::to_owned));
        let password = None;
        RedisServer::start_with(ServerOptions { args, password })
    };
    let fenced = "--repl-diskless-sync-delay 0 --min-replicas-to-write 1 --min-replicas-max-lag 2";
    let [port, second, sentinel] = [(); 3].map(|()| free_port());
    let master = speaking(port, fenced);
    let replica = speaking(second, &format!("{fenced} --replicaof 127.0.0.1 {port}"));
    wait_until("the replica is attached", LATE, || {
        let info = replica.cli(&["INFO", "replication"]);
        info.contains("master_link_status:up")
    })
    .await;
    let config = master.dir().join("sentinel.conf");
    std::fs::write(&config, format!("sentinel monitor m0 127.0.0.1 {port} 1\n")).unwrap();
    let _sentinel = speaking(sentinel, &format!("{} --sentinel", config.display()));

    let url = format!("rediss+sentinel://127.0.0.1:{sentinel}/m0?failover=2s&replicas=1");
    let builder = |authority: &Authority| {
        let builder = Client::builder().url(&url).max_ttl(MAX_TTL);
        builder.node_timeout(NODE_TIMEOUT).tls_ca(authority.pem())
    };
    let fresh = InitOptions::new().fresh(true);
    builder(&authority).init(fresh).await.unwrap();
    let locking = builder(&authority).connect().await.unwrap();
    // Not at once: on a busy machine the replica may take longer than it may.
    until("it votes", LATE, async || locks(&locking).await.is_ok()).await;
    let error = builder(&Authority::new()).connect().await.unwrap_err();
    assert!(error.to_string().contains("certificate"), "{error}");
}

/// The master had the lock, the replica that is promoted has it not.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_a_failover_lost_is_not_granted_to_another_while_it_may_be_held() {
    // The first replica keeps the master writing, and is never promoted.
    let setup = GroupSetup {
        priorities: vec![0, 100],
        ..GroupSetup::default()
    };
    let mut groups = SentinelGroups::start(1, &setup);
    groups.init(MAX_TTL).await;
    let (a, b) = (client(&groups, "a").await, client(&groups, "b").await);
    groups.groups[0].detach(0, 2);
    let held = a.lock("job").await.unwrap();
    follow_and_set(&groups, "naive", "first").await;
    let promoted = &groups.groups[0].servers[2];
    assert_eq!(promoted.cli(&["EXISTS", "job", "naive"]), "0");

    let begin = Instant::now();
    groups.groups[0].servers[0].kill();
    assert_eq!(groups.failed_over(0, 0).await, 2);
    // Who only follows the address has the lock twice: the first was granted for a minute.
    follow_and_set(&groups, "naive", "second").await;
    assert!(begin.elapsed() < Duration::from_secs(50));

    // Ours is not granted before the first holder knows that it lost it.
    let lost = async {
        let reason = held.lost().await;
        (reason, Instant::now())
    };
    let granted = async {
        let lease = b.lock("job").timeout(LATE).await.unwrap();
        (lease, Instant::now())
    };
    let ((reason, lost_at), (lease, granted_at)) = tokio::join!(lost, granted);
    assert_eq!(reason, LossReason::NoQuorum);
    assert!(lost_at < granted_at);
    assert!(lease.token() > held.token());
    assert!(granted_at.duration_since(begin) > QUARANTINE);
}

/// The old masters of some groups are cut off with a holder, and each with a replica, so that it goes on
/// taking writes; nobody tells either of them that another was promoted.
async fn isolate_with_a_holder(groups: usize, isolated: usize) {
    let setup = GroupSetup {
        priorities: vec![0, 100, 0],
        ..GroupSetup::default()
    };
    let groups = SentinelGroups::start(groups, &setup);
    groups.init(MAX_TTL).await;
    let (a, b) = (client(&groups, "a").await, client(&groups, "b").await);
    let held = a.lock("job").await.unwrap();
    assert_eq!(set_in_all(&groups, "first", NAIVE_TTL), groups.groups.len());
    let isolated = &groups.groups[..isolated];

    groups.cut_off_client("a");
    for group in isolated {
        group.isolate(&[0, 1]);
    }
    let cut = Instant::now();
    // The holder that only follows the address renews where it is, and another has its lock.
    let is_granted = AtomicBool::new(false);
    let renewing = async {
        while cut.elapsed() < 3 * MAX_TTL || !is_granted.load(Ordering::SeqCst) {
            for group in isolated {
                let ttl = NAIVE_TTL.as_millis().to_string();
                let renew = ["SET", "naive", "first", "XX", "PX", &ttl];
                let renewed = group.servers[0].cli(&renew);
                assert_eq!(renewed, "OK", "the isolated master takes writes");
            }
            sleep(Duration::from_millis(100)).await;
        }
    };
    // Ours is granted nothing there once it has lost what it held.
    let asking = async {
        while !is_granted.load(Ordering::SeqCst) {
            assert!(held.is_valid() || a.try_lock("other").await.is_err());
            sleep(Duration::from_millis(100)).await;
        }
    };
    let lost = async {
        let reason = held.lost().await;
        (reason, Instant::now())
    };
    let granted = async {
        for group in 0..isolated.len() {
            assert_eq!(groups.failed_over(group, 0).await, 2);
        }
        wait_until("the naive client has its lock", LATE, || {
            set_in_all(&groups, "second", LATE);
            let has = |group: &SentinelGroup| group.servers[2].cli(&["GET", "naive"]) == "second";
            isolated.iter().all(has)
        })
        .await;
        let lease = b.lock("job").timeout(LATE).await.unwrap();
        let granted_at = Instant::now();
        is_granted.store(true, Ordering::SeqCst);
        (lease, granted_at)
    };
    let all = tokio::join!(renewing, asking, lost, granted);
    let ((), (), (reason, lost_at), (lease, granted_at)) = all;
    assert_eq!(reason, LossReason::NoQuorum);
    assert!(lost_at < granted_at);
    assert!(lease.is_valid() && lease.token() > held.token());
    for group in isolated {
        let both = [&group.servers[0], &group.servers[2]].map(|s| s.cli(&["GET", "naive"]));
        assert_eq!(both, ["first", "second"], "two holders without our rules");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_that_renews_at_an_isolated_master_loses_its_lock_before_another_has_it() {
    isolate_with_a_holder(1, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_that_renews_at_most_of_three_masters_loses_its_lock_before_another_has_it() {
    isolate_with_a_holder(3, 2).await;
}

/// Whoever gets the lock, one after the other, until the end.
async fn work(client: Client, name: &str, since: Instant, until: Instant) -> Vec<Turn> {
    let nanos = || u64::try_from(since.elapsed().as_nanos()).unwrap();
    let mut turns = Vec::new();
    while Instant::now() < until {
        let asked = nanos();
        let Ok(lease) = client.lock(name).timeout(Duration::from_secs(1)).await else {
            continue;
        };
        let (begin, token) = (nanos(), lease.token().get());
        let mut end = begin;
        for _ in 0..3 {
            sleep(Duration::from_millis(5)).await;
            let now = nanos();
            if lease.is_valid() {
                end = now;
            }
        }
        turns.push(Turn {
            asked,
            begin,
            end,
            token,
        });
        let _ = lease.release().await;
    }
    turns
}

/// `FENCEPOST_FAILOVER_SECONDS`, for a longer run.
fn work_time() -> Option<Duration> {
    let seconds = std::env::var("FENCEPOST_FAILOVER_SECONDS").ok()?;
    seconds.parse().ok().map(Duration::from_secs)
}

/// Two clients at work for that long, while something is done. What they did, which was allowed.
async fn at_work(
    groups: &SentinelGroups,
    time: Duration,
    meanwhile: impl Future<Output = ()>,
) -> Vec<Turn> {
    let (a, b) = (client(groups, "a").await, client(groups, "b").await);
    let since = Instant::now();
    let end = since + time;
    let turns = Arc::new(Mutex::new(Vec::new()));
    let workers = [a, b].map(|client| {
        let turns = Arc::clone(&turns);
        tokio::spawn(async move {
            let done = work(client, "job", since, end).await;
            turns.lock().unwrap().extend(done);
        })
    });
    meanwhile.await;
    for worker in workers {
        worker.await.unwrap();
    }
    let mut turns = std::mem::take(&mut *turns.lock().unwrap());
    assert_eq!(check(&turns), Ok(()));
    turns.sort_by_key(|turn| turn.begin);
    turns
}

#[tokio::test(flavor = "multi_thread")]
async fn forced_failovers_under_load_make_no_two_holders() {
    // Two, so that a promoted one has one at once.
    let setup = GroupSetup {
        priorities: vec![100, 100],
        ..GroupSetup::default()
    };
    let groups = SentinelGroups::start(1, &setup);
    groups.init(MAX_TTL).await;
    let rest = QUARANTINE + Duration::from_secs(3);
    let time = work_time().unwrap_or(3 * rest);
    let end = Instant::now() + time;
    let mut failovers = 0;
    let turns = at_work(&groups, time, async {
        while Instant::now() + rest < end {
            // Twice in a row, then a rest in which it votes again.
            for _ in 0..2 {
                sleep(Duration::from_secs(1)).await;
                let from = groups.named_by(0, 0);
                let name = &groups.groups[0].name;
                // It refuses while the last one is still under way, or no replica is fit.
                let answer = groups.sentinels[failovers % 3].cli(&["SENTINEL", "FAILOVER", name]);
                if answer == "OK" {
                    groups.failed_over(0, from).await;
                    failovers += 1;
                }
            }
            sleep(rest).await;
        }
    })
    .await;
    assert!(failovers > 0);
    // And in the end somebody has it again.
    let last = turns.last().expect("somebody had it");
    let waited = time.saturating_sub(Duration::from_nanos(last.end));
    println!(
        "{failovers} failovers, {} turns, {waited:?} since the last",
        turns.len()
    );
    let again = client(&groups, "c").await;
    let lease = again.lock("job").timeout(LATE).await.unwrap();
    assert!(lease.token().get() > last.token);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_three_groups_fails_over_and_nobody_waits_longer_than_a_node_may_take() {
    let mut groups = SentinelGroups::start(3, &GroupSetup::default());
    groups.init(MAX_TTL).await;
    let holder = client(&groups, "c").await;
    let held = holder.lock("held throughout").await.unwrap();
    let stalls = Stalls::watch();
    let master = std::mem::replace(
        &mut groups.groups[0].servers[0],
        // In its place, so that the numbers of the servers stay what they are.
        RedisServer::start(),
    );
    let port = master.port();
    let turns = at_work(&groups, Duration::from_secs(14), async {
        sleep(Duration::from_secs(2)).await;
        drop(master);
        let named = || {
            let says = |sentinel| groups.says(sentinel, &groups.groups[0], "port");
            groups
                .sentinels
                .iter()
                .all(|sentinel| says(sentinel) != port.to_string())
        };
        wait_until("a failover", LATE, named).await;
    })
    .await;
    let gaps = turns.windows(2).map(|pair| pair[1].begin - pair[0].begin);
    let longest = Duration::from_nanos(gaps.max().unwrap());
    let allowed = NODE_TIMEOUT + 4 * stalls.allowance() + Duration::from_millis(100);
    println!(
        "{} turns, longest pause {longest:?}, allowed {allowed:?}",
        turns.len()
    );
    assert!(longest <= allowed, "{longest:?} > {allowed:?}");
    assert!(held.is_valid(), "{:?}", held.loss());
}

/// Three groups, of which the master of one is isolated: its holder goes on with the other two.
#[tokio::test(flavor = "multi_thread")]
async fn one_isolated_master_of_three_groups_costs_nobody_a_lock() {
    let groups = SentinelGroups::start(3, &GroupSetup::default());
    groups.init(MAX_TTL).await;
    let (a, b) = (client(&groups, "a").await, client(&groups, "b").await);
    let held = a.lock("job").await.unwrap();
    groups.groups[0].isolate(&[0]);
    let cut = Instant::now();
    groups.failed_over(0, 0).await;
    while cut.elapsed() < 3 * MAX_TTL {
        assert!(held.is_valid(), "{:?}", held.loss());
        assert!(b.try_lock("job").await.is_err());
        sleep(Duration::from_millis(50)).await;
    }
    held.release().await.unwrap();
    drop(b.lock("job").timeout(LATE).await.unwrap());
}

/// The groups fail over one after the other, every few seconds, and none waits for the quarantine of another.
#[tokio::test(flavor = "multi_thread")]
async fn three_groups_that_fail_over_all_the_time_make_no_two_holders() {
    let setup = GroupSetup {
        priorities: vec![100, 100],
        ..GroupSetup::default()
    };
    let groups = SentinelGroups::start(3, &setup);
    groups.init(MAX_TTL).await;
    let time = work_time().unwrap_or(Duration::from_secs(12));
    let end = Instant::now() + time;
    let mut failovers = 0;
    let turns = at_work(&groups, time, async {
        let mut round = 0;
        while Instant::now() + Duration::from_secs(3) < end {
            let group = round % 3;
            round += 1;
            let from = groups.named_by(0, group);
            let name = &groups.groups[group].name;
            // It refuses while the last one is still under way, or no replica is fit.
            let answer = groups.sentinels[round % 3].cli(&["SENTINEL", "FAILOVER", name]);
            if answer == "OK" {
                groups.failed_over(group, from).await;
                failovers += 1;
            }
            sleep(Duration::from_secs(2)).await;
        }
    })
    .await;
    println!("{failovers} failovers, {} turns", turns.len());
    assert!(failovers > 0);
    let again = client(&groups, "c").await;
    let lease = again.lock("job").timeout(LATE).await.unwrap();
    let largest = turns.iter().map(|turn| turn.token).max();
    assert!(lease.token().get() > largest.expect("somebody had it"));
}

/// How many groups give that key to the naive client, each at the server that its Sentinels name.
fn set_in_all(groups: &SentinelGroups, value: &str, ttl: Duration) -> usize {
    let ttl = ttl.as_millis().to_string();
    let set = |group: &usize| {
        let master = &groups.groups[*group].servers[groups.named_by(0, *group)];
        master.is_running() && master.cli(&["SET", "naive", value, "NX", "PX", &ttl]) == "OK"
    };
    (0..groups.groups.len()).filter(set).count()
}

/// Two of three groups fail over to a replica that has not the lock.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_a_majority_of_groups_lost_is_not_granted_while_it_may_be_held() {
    let setup = GroupSetup {
        priorities: vec![0, 100],
        ..GroupSetup::default()
    };
    let mut groups = SentinelGroups::start(3, &setup);
    groups.init(MAX_TTL).await;
    let (a, b) = (client(&groups, "a").await, client(&groups, "b").await);
    for group in &groups.groups[..2] {
        group.detach(0, 2);
    }
    let held = a.lock("job").await.unwrap();
    assert_eq!(set_in_all(&groups, "first", LATE), 3);
    let begin = Instant::now();
    for group in &mut groups.groups[..2] {
        group.servers[0].kill();
    }
    for group in 0..2 {
        assert_eq!(groups.failed_over(group, 0).await, 2);
    }
    // A client that only counts has a majority a second time: the first was granted for a minute.
    wait_until("the naive client has it twice", LATE, || {
        set_in_all(&groups, "second", LATE);
        let has = |group: &usize| {
            let master = &groups.groups[*group].servers[2];
            master.cli(&["GET", "naive"]) == "second"
        };
        (0..2).filter(has).count() == 2
    })
    .await;
    assert!(begin.elapsed() < Duration::from_secs(50));

    let lost = async {
        let reason = held.lost().await;
        (reason, Instant::now())
    };
    let granted = async {
        let lease = b.lock("job").timeout(LATE).await.unwrap();
        (lease, Instant::now())
    };
    let ((reason, lost_at), (lease, granted_at)) = tokio::join!(lost, granted);
    assert_eq!(reason, LossReason::NoQuorum);
    assert!(lost_at < granted_at);
    assert!(lease.token() > held.token());
}
