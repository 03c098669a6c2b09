//! A Redis Cluster is one voter of many servers. A failover loses locks, and a slot moves with its locks: on real
//! servers, what a client that only follows the owner does has two holders, and ours has none.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fencepost::{Client, Error, InitOptions, LossReason, NamePattern, NodeError, NodeOutcome};
use fencepost_tests::{
    Authority, RedisCluster, RedisServer, Turn, check, until, until_somebody_waits, wait_until,
};
use tokio::time::sleep;

const MAX_TTL: Duration = Duration::from_secs(2);
/// How long a promoted master does not vote.
const QUARANTINE: Duration = Duration::from_secs(4);
const LATE: Duration = Duration::from_secs(60);
const NODE_TIMEOUT: Duration = Duration::from_millis(500);

async fn client(cluster: &RedisCluster) -> Client {
    let builder = cluster.builder(MAX_TTL).node_timeout(NODE_TIMEOUT);
    builder.connect().await.unwrap()
}

/// A name whose slot that server owns.
fn name_at(cluster: &RedisCluster, server: usize) -> String {
    let mut names = (0..).map(|n| format!("job-{n}"));
    let found = names.find(|name| cluster.owner(cluster.slot(name)) == server);
    found.expect("some name")
}

/// Why each node that failed did.
fn reasons(error: &Error) -> Vec<NodeError> {
    let failed = error.nodes().iter();
    let failed = failed.filter_map(|report| match &report.outcome {
        NodeOutcome::Failed(error) => Some(error.clone()),
        _ => None,
    });
    failed.collect()
}

async fn locks(client: &Client, name: &str) -> Result<(), Error> {
    let lease = client.try_lock(name).renew(false).await?;
    lease.release().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_is_one_voter_and_everything_works_there() {
    let cluster = RedisCluster::start(3, 0);
    // Nobody has made the markers: the first client does, and says for how long it waits.
    let early = client(&cluster).await;
    let refusal = early.try_lock("job").await.unwrap_err();
    let waits = match reasons(&refusal).as_slice() {
        [NodeError::Quarantined(left)] => *left,
        other => panic!("{other:?}"),
    };
    assert!(waits > MAX_TTL && waits <= QUARANTINE, "{waits:?}");
    until("it votes", LATE, async || {
        locks(&early, "job").await.is_ok()
    })
    .await;
    drop(early);

    let (one, two) = (client(&cluster).await, client(&cluster).await);
    let names: Vec<_> = (0..3).map(|server| name_at(&cluster, server)).collect();
    for name in &names {
        let lease = one.lock(name).await.unwrap();
        assert!(two.try_lock(name).await.unwrap_err().is_held());
        let waiting = tokio::spawn({
            let (two, name) = (two.clone(), name.clone());
            async move { two.lock(&name).await.unwrap() }
        });
        until_somebody_waits(&one, name).await;
        let first = lease.token();
        lease.release().await.unwrap();
        let second = waiting.await.unwrap();
        assert!(second.token() > first);
        second.release().await.unwrap();
    }
    // Over several shards.
    let all = one.lock_all(&names).await.unwrap();
    assert!(two.try_lock(&names[1]).await.unwrap_err().is_held());
    let listed = two.list(&NamePattern::all()).await.unwrap();
    for name in &names {
        assert!(
            listed
                .locks
                .iter()
                .any(|listed| listed.name.as_str() == name),
            "{listed:?}"
        );
    }
    drop(all);
    // It renews itself.
    let held = one.lock("held").await.unwrap();
    sleep(2 * MAX_TTL).await;
    assert!(held.is_valid(), "{:?}", held.loss());
    let permit = one.semaphore("seats", 2).acquire().await.unwrap();
    let reader = one.read_write("doc").read().await.unwrap();
    let done = two.lock("body").run(async |_| 7).await.unwrap();
    assert_eq!(done, 7);
    drop((permit, reader, held));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_vote_is_refused_and_named() {
    let cluster = RedisCluster::start(3, 0);
    cluster.init(MAX_TTL).await;
    locks(&client(&cluster).await, "job").await.unwrap();
    // All clients have to agree on the listed nodes, on the failover time and on max_ttl.
    let url = cluster.url();
    let fewer = url.split_once(',').unwrap().0.to_owned() + "?failover=1s";
    for (url, max_ttl) in [
        (fewer, MAX_TTL),
        (url.replace("=1s", "=2s"), MAX_TTL),
        (url.clone(), 2 * MAX_TTL),
    ] {
        let other = Client::builder()
            .url(&url)
            .max_ttl(max_ttl)
            .build()
            .unwrap();
        until("it is refused", LATE, async || {
            let error = locks(&other, "job").await.unwrap_err();
            let differs = |why: &NodeError| matches!(why, NodeError::Differs(_));
            reasons(&error).iter().any(differs)
        })
        .await;
    }
    let alone = RedisServer::start();
    for (url, expected) in [
        (
            alone.url().replace("redis:", "redis+cluster:"),
            "not a node of a Redis Cluster",
        ),
        (
            format!("{url},redis://127.0.0.1:1"),
            "one voter; use it alone",
        ),
    ] {
        let error = Client::connect(&url).await.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    // A majority of the listed nodes, also where one is left that answers and owns the slot.
    let name = name_at(&cluster, 0);
    let locking = client(&cluster).await;
    cluster.servers[1..].iter().for_each(RedisServer::freeze);
    until("it is not named", LATE, async || {
        let refused = locks(&locking, &name)
            .await
            .map_err(|error| error.to_string());
        refused.is_err_and(|why| why.contains("not named by a majority of its listed nodes"))
    })
    .await;
    cluster.servers[1..].iter().for_each(RedisServer::thaw);
    until("it votes", LATE, async || {
        locks(&locking, &name).await.is_ok()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slot_that_moves_takes_its_held_lock_along() {
    let cluster = RedisCluster::start(3, 0);
    // Long enough for the few programs that move a slot on a busy machine.
    let max_ttl = 3 * MAX_TTL;
    cluster.init(max_ttl).await;
    let connect = async || {
        let builder = cluster.builder(max_ttl).node_timeout(NODE_TIMEOUT);
        builder.connect().await.unwrap()
    };
    let (holder, other) = (connect().await, connect().await);
    let slot = cluster.slot("job");
    let first = holder.lock("job").await.unwrap();
    let waiting = tokio::spawn({
        let other = other.clone();
        async move { other.lock("job").timeout(LATE).await.unwrap() }
    });
    until_somebody_waits(&other, "job").await;
    let begin = Instant::now();
    let mut moves = 0;
    while begin.elapsed() < 2 * max_ttl {
        cluster.migrate(slot, (cluster.owner(slot) + 1) % 3);
        moves += 1;
        assert!(first.is_valid(), "{:?} after {moves} moves", first.loss());
        let refused = other.try_lock("job").await.unwrap_err();
        assert!(refused.is_held(), "{refused}");
        sleep(Duration::from_millis(300)).await;
    }
    assert!(first.is_valid() && !waiting.is_finished(), "{moves} moves");
    let token = first.token();
    first.release().await.unwrap();
    let second = waiting.await.unwrap();
    assert!(second.token() > token);
    cluster.migrate(slot, (cluster.owner(slot) + 1) % 3);
    let status = other.status("job").await.unwrap();
    assert_eq!(
        status.holder.and_then(|holder| holder.token),
        Some(second.token())
    );
    second.release().await.unwrap();
    // One who knows nothing of all that.
    let third = connect().await.lock("job").await.unwrap();
    assert!(third.token() > token);
}

/// Somebody has stopped in the middle of moving a slot: the lock itself has arrived, what belongs to it has
/// not. The new owner refuses every command for it (`TRYAGAIN`), also where `ASK` is followed, because
/// some of the keys are not there.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_whose_slot_is_stuck_halfway_is_lost_and_nobodys_until_it_has_arrived() {
    let cluster = RedisCluster::start(3, 0);
    cluster.init(MAX_TTL).await;
    let (a, b) = (client(&cluster).await, client(&cluster).await);
    let slot = cluster.slot("job");
    let held = a.lock("job").await.unwrap();
    let from = cluster.owner(slot);
    let to = (from + 1) % 3;
    cluster.begin_to_migrate(slot, from, to);
    cluster.migrate_keys(from, to, &["job"]);

    let reason = tokio::time::timeout(LATE, held.lost()).await.unwrap();
    assert_eq!(reason, LossReason::NoQuorum);
    let refused = b.try_lock("job").await.unwrap_err();
    let expected = [NodeError::Migrating(slot)];
    assert_eq!(reasons(&refused), expected, "{refused}");
    // It says so in words, and other slots go on.
    assert!(
        refused.to_string().contains("is being migrated"),
        "{refused}"
    );
    locks(&b, &name_at(&cluster, (to + 1) % 3)).await.unwrap();

    cluster.migrate(slot, to);
    let next = b.lock("job").timeout(LATE).await.unwrap();
    assert!(next.token() > held.token());
}

/// The master of another shard has a replica as well: it is the lock's own that counts.
#[tokio::test(flavor = "multi_thread")]
async fn a_vote_counts_only_once_a_replica_of_its_shard_has_it() {
    let cluster = RedisCluster::start(3, 1);
    cluster.init(MAX_TTL).await;
    let names: Vec<_> = (0..3).map(|server| name_at(&cluster, server)).collect();
    // Long enough to tell a replica that is missing from one that is late.
    let connect = async |replicas: u32| {
        let url = format!("{}&replicas={replicas}", cluster.url());
        let builder = Client::builder().url(url).max_ttl(MAX_TTL);
        let builder = builder.node_timeout(Duration::from_secs(1));
        builder.connect().await.unwrap()
    };
    let one = connect(1).await;
    for (shard, name) in names.iter().enumerate() {
        let lease = one.lock(name).await.unwrap();
        // A replica refuses to answer for what is its master's unless it is told that it may be stale.
        let keys = cluster.servers[3 + shard].cli(&["KEYS", name]);
        assert_eq!(keys, *name, "the replica has it already");
        lease.extend().await.unwrap();
        lease.release().await.unwrap();
    }
    let too_few = |have, needed| vec![NodeError::TooFewReplicas { have, needed }];
    let error = connect(2).await.try_lock(&names[0]).await.unwrap_err();
    assert_eq!(reasons(&error), too_few(1, 2), "{error}");

    // A replica that hangs is none, and what was granted to nobody is given back.
    cluster.servers[3].freeze();
    let error = one.try_lock(&names[0]).await.unwrap_err();
    assert_eq!(reasons(&error), too_few(0, 1), "{error}");
    locks(&one, &names[1]).await.unwrap();
    wait_until("it is given back", LATE, || {
        cluster.servers[0].cli(&["EXISTS", &names[0]]) == "0"
    })
    .await;
    cluster.servers[3].thaw();
    until("it counts again", LATE, async || {
        locks(&one, &names[0]).await.is_ok()
    })
    .await;
}

/// The shard was silent until the connection of its commands was replaced for another reason.
#[tokio::test(flavor = "multi_thread")]
async fn a_shard_whose_wait_connection_breaks_votes_again_at_once() {
    let cluster = RedisCluster::start(1, 1);
    cluster.init(MAX_TTL).await;
    let url = format!("{}&replicas=1", cluster.url());
    let builder = Client::builder().url(url).max_ttl(MAX_TTL);
    let locking = builder.node_timeout(NODE_TIMEOUT).connect().await.unwrap();
    locks(&locking, "job").await.unwrap();
    let clients = cluster.servers[0].cli(&["CLIENT", "LIST"]);
    let mut waiting = clients.lines().filter(|line| line.contains(" cmd=wait "));
    let id = waiting.next().and_then(|line| line.strip_prefix("id="));
    let id = id.and_then(|line| line.split(' ').next()).unwrap();
    assert_eq!(cluster.servers[0].cli(&["CLIENT", "KILL", "ID", id]), "1");
    until("it votes again", Duration::from_secs(1), async || {
        locks(&locking, "job").await.is_ok()
    })
    .await;
}

/// The owner has given the slot to a node that has not heard of it, nor has anybody else.
#[tokio::test(flavor = "multi_thread")]
async fn a_slot_whose_new_owner_nobody_names_is_not_called_one_that_is_being_migrated() {
    let cluster = RedisCluster::start(3, 0);
    cluster.init(MAX_TTL).await;
    let locking = client(&cluster).await;
    let slot = cluster.slot("job");
    let from = cluster.owner(slot);
    locks(&locking, "job").await.unwrap();
    let (number, to) = (slot.to_string(), cluster.id((from + 1) % 3));
    let owner = &cluster.servers[from];
    for key in owner
        .cli(&["CLUSTER", "GETKEYSINSLOT", &number, "9"])
        .lines()
    {
        owner.cli(&["DEL", key]);
    }
    let given = owner.cli(&["CLUSTER", "SETSLOT", &number, "NODE", &to]);
    assert_eq!(given, "OK");
    let error = locks(&locking, "job").await.unwrap_err();
    let is_told = |why: &NodeError| match why {
        NodeError::ClusterDown(why) => why.contains("no majority of the listed nodes names"),
        _ => false,
    };
    assert!(reasons(&error).iter().all(is_told), "{error}");
}

/// The longest time-out that a client had been told counted, also for those that had not been told.
#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_differ_in_their_time_out_count_for_the_shortest_and_wait_for_the_longest() {
    let cluster = RedisCluster::start(3, 0);
    // The one that goes on: it would find the Cluster down by itself.
    let longest = Duration::from_secs(60);
    let millis = longest.as_millis().to_string();
    let set = ["CONFIG", "SET", "cluster-node-timeout", &millis];
    assert_eq!(cluster.servers[0].cli(&set), "OK");
    let url = cluster.url().replace("?failover=1s", "");
    let builder = Client::builder().url(url).max_ttl(MAX_TTL);
    let locking = builder.node_timeout(NODE_TIMEOUT).connect().await.unwrap();
    let name = name_at(&cluster, 0);
    let refusal = async || reasons(&locks(&locking, &name).await.unwrap_err());
    until("it waits for the longest", LATE, async || {
        matches!(refusal().await.as_slice(), [NodeError::Quarantined(left)] if *left > longest)
    })
    .await;
    cluster.servers[1..].iter().for_each(RedisServer::freeze);
    // One second, and what it takes to be asked.
    until("it is not named", Duration::from_secs(10), async || {
        matches!(refusal().await.as_slice(), [NodeError::Unnamed(_)])
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_hides_its_time_out_is_not_said_to_accept_writes_while_partitioned() {
    let cluster = RedisCluster::start(1, 0);
    let poor = ["on", ">x", "~*", "&*", "+@all", "-config"];
    cluster.servers[0].cli(&[&["ACL", "SETUSER", "poor"], &poor[..]].concat());
    let told = cluster.url().replace("://", "://poor:x@");
    let hidden = told.replace("?failover=1s", "");
    let client = async |url: &str| {
        let builder = Client::builder().url(url).max_ttl(MAX_TTL);
        builder.node_timeout(NODE_TIMEOUT).build().unwrap()
    };
    let error = locks(&client(&hidden).await, "job").await.unwrap_err();
    let is_hidden = |why: &NodeError| match why {
        NodeError::HidesFencing(why) => why.contains("+config|get") && why.contains("?failover="),
        _ => false,
    };
    assert!(reasons(&error).iter().all(is_hidden), "{error}");
    assert!(reasons(&error).iter().all(NodeError::is_permanent));
    let error = locks(&client(&told).await, "job").await.unwrap_err();
    let is_young = |why: &NodeError| matches!(why, NodeError::Quarantined(_));
    assert!(reasons(&error).iter().all(is_young), "{error}");
}

/// Nobody can tell a shard with its first slot from one that has forgotten: it does not vote for a while, and
/// whoever held a lock in that slot loses it before another gets it.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_whose_slot_moves_to_a_shard_without_slots_is_lost_and_nobodys_for_a_while() {
    let cluster = RedisCluster::start_with_empty_shard();
    cluster.init(MAX_TTL).await;
    let (a, b) = (client(&cluster).await, client(&cluster).await);
    let slot = cluster.slot("job");
    let elsewhere = name_at(&cluster, (cluster.owner(slot) + 1) % 3);
    let held = a.lock("job").await.unwrap();
    cluster.migrate(slot, 3);
    let moved = Instant::now();
    let lost = async { (held.lost().await, Instant::now()) };
    let granted = async {
        let lease = b.lock("job").timeout(LATE).await.unwrap();
        (lease, Instant::now())
    };
    let ((reason, lost_at), (lease, granted_at)) = tokio::join!(lost, granted);
    assert_eq!(reason, LossReason::NoQuorum);
    assert!(lost_at < granted_at && lost_at.duration_since(moved) <= MAX_TTL + NODE_TIMEOUT);
    assert!(granted_at.duration_since(moved) > MAX_TTL);
    assert!(lease.token() > held.token());
    // The other shards' names are used as before, also when their slots move there now.
    let held = a.lock(&elsewhere).await.unwrap();
    cluster.migrate(cluster.slot(&elsewhere), 3);
    sleep(2 * MAX_TTL).await;
    assert!(held.is_valid() && lease.is_valid(), "{:?}", held.loss());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_speaks_tls_is_trusted_by_its_authority() {
    let authority = Authority::new();
    let cluster = RedisCluster::start_tls(3, &authority);
    let builder = |authority: &Authority| {
        let builder = cluster.builder(MAX_TTL).node_timeout(NODE_TIMEOUT);
        builder.tls_ca(authority.pem())
    };
    let fresh = InitOptions::new().fresh(true);
    builder(&authority).init(fresh).await.unwrap();
    let (one, two) = (
        builder(&authority).connect().await.unwrap(),
        builder(&authority).connect().await.unwrap(),
    );
    for server in 0..3 {
        let name = name_at(&cluster, server);
        let lease = one.lock(&name).await.unwrap();
        let waiting = tokio::spawn({
            let (two, name) = (two.clone(), name.clone());
            async move { two.lock(&name).await.unwrap() }
        });
        until_somebody_waits(&one, &name).await;
        let first = lease.token();
        lease.release().await.unwrap();
        assert!(waiting.await.unwrap().token() > first);
    }
    let error = builder(&Authority::new()).connect().await.unwrap_err();
    assert!(error.to_string().contains("certificate"), "{error}");
}

/// What a client does that only follows the owner.
async fn follow_and_set(cluster: &RedisCluster, key: &str, value: &str) {
    let slot = cluster.slot(key);
    let set = || {
        let master = &cluster.servers[cluster.owner(slot)];
        master.is_running() && master.cli(&["SET", key, value, "NX", "PX", "60000"]) == "OK"
    };
    wait_until("the naive client has its lock", LATE, set).await;
}

/// A master with a lock that its replica has not is killed. Then, perhaps, the slot moves on to another shard,
/// which has never forgotten anything itself.
async fn lose_a_lock(moves_on: bool) {
    let mut cluster = RedisCluster::start(3, 1);
    cluster.init(MAX_TTL).await;
    let (a, b) = (client(&cluster).await, client(&cluster).await);
    let name = name_at(&cluster, 0);
    let slot = cluster.slot(&name);
    let naive = format!("{{{name}}}naive");
    let elsewhere = name_at(&cluster, 2);
    locks(&a, &elsewhere).await.unwrap();
    cluster.detach_replicas(0);
    let held = a.lock(&name).await.unwrap();
    follow_and_set(&cluster, &naive, "first").await;

    let begin = Instant::now();
    cluster.servers[0].kill();
    assert_eq!(cluster.failed_over(slot, 0).await, 3);
    if moves_on {
        cluster.migrate(slot, 1);
    }
    // Who only follows the owner has the lock twice: the first was granted for a minute.
    follow_and_set(&cluster, &naive, "second").await;
    assert!(begin.elapsed() < Duration::from_secs(50));
    // The other shards' names are used as before.
    locks(&b, &elsewhere).await.unwrap();

    let lost = async {
        let reason = held.lost().await;
        (reason, Instant::now())
    };
    let granted = async {
        let lease = b.lock(&name).timeout(LATE).await.unwrap();
        (lease, Instant::now())
    };
    let ((reason, lost_at), (lease, granted_at)) = tokio::join!(lost, granted);
    assert_eq!(reason, LossReason::NoQuorum);
    assert!(lost_at < granted_at);
    assert!(lease.token() > held.token());
    assert!(granted_at.duration_since(begin) > QUARANTINE);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_a_failover_lost_is_not_granted_to_another_while_it_may_be_held() {
    lose_a_lock(false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slot_that_leaves_a_shard_in_quarantine_is_in_quarantine_where_it_arrives() {
    lose_a_lock(true).await;
}

/// A name, and its slot.
const SMALL: (&str, u16) = ("job", 2906);

/// A shard that may have forgotten a lock has no slots any more, and nobody has its markers. The lock is held for
/// much longer than it takes to empty it; who asks next is a program that has just started.
async fn lose_a_shard(replicas: usize, empty: impl AsyncFnOnce(&mut RedisCluster)) {
    const TTL: Duration = Duration::from_secs(20);
    let (name, slot) = SMALL;
    let mut cluster = RedisCluster::start_with_small_shard(slot, replicas);
    assert_eq!(cluster.owner(cluster.slot(name)), 0);
    cluster.init(TTL).await;
    let connect = async || {
        let builder = cluster.builder(TTL).node_timeout(NODE_TIMEOUT);
        builder.connect().await.unwrap()
    };
    let holder = connect().await;
    // At the one that gets no slots.
    let elsewhere = name_at(&cluster, 2);
    locks(&holder, &elsewhere).await.unwrap();
    cluster.detach_replicas(0);
    let begin = Instant::now();
    let held = holder.try_lock(name).ttl(TTL).renew(false).await.unwrap();
    cluster.servers[0].kill();
    empty(&mut cluster).await;
    assert_eq!(cluster.owner(slot), 1);

    // Until the one who holds it cannot believe in it any more.
    let mut refusals = 0;
    let next = loop {
        let client = {
            let builder = cluster.builder(TTL).node_timeout(NODE_TIMEOUT);
            builder.connect().await.unwrap()
        };
        match client.try_lock(name).renew(false).await {
            Ok(lease) => break lease,
            Err(_) if begin.elapsed() < TTL => {
                // The names of others are used as before.
                locks(&client, &elsewhere).await.unwrap();
                refusals += 1;
            }
            Err(error) => assert!(begin.elapsed() < LATE, "{error}"),
        }
        sleep(Duration::from_millis(300)).await;
    };
    assert!(
        begin.elapsed() > TTL,
        "granted again after {:?}",
        begin.elapsed()
    );
    assert!(refusals > 0 && next.token() > held.token());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shard_in_quarantine_that_is_emptied_keeps_its_names_in_quarantine() {
    lose_a_shard(1, async |cluster| {
        let slot = SMALL.1;
        assert_eq!(cluster.failed_over(slot, 0).await, 3);
        for slot in slot - 1..=slot + 1 {
            cluster.migrate(slot, 1);
        }
    })
    .await;
}

/// What `redis-cli --cluster fix` does.
#[tokio::test(flavor = "multi_thread")]
async fn slots_of_a_shard_that_is_forgotten_come_back_empty_and_in_quarantine() {
    lose_a_shard(0, async |cluster| {
        let slot = SMALL.1;
        let id = cluster.owner_id(slot);
        for other in &cluster.servers[1..] {
            assert_eq!(other.cli(&["CLUSTER", "FORGET", &id]), "OK");
        }
        let (first, last) = ((slot - 1).to_string(), (slot + 1).to_string());
        let add = ["CLUSTER", "ADDSLOTSRANGE", &first, &last];
        assert_eq!(cluster.servers[1].cli(&add), "OK");
        cluster.servers[1].cli(&["CLUSTER", "BUMPEPOCH"]);
        wait_until("everybody knows", LATE, || {
            let others = &cluster.servers[1..];
            others
                .iter()
                .all(|server| cluster.owner_by(server, slot) == Some(1))
        })
        .await;
    })
    .await;
}

/// Said within the time that a node has, though other nodes would have to answer for it.
#[tokio::test(flavor = "multi_thread")]
async fn a_slot_that_nobody_owns_is_told_at_once() {
    let cluster = RedisCluster::start(3, 0);
    cluster.init(MAX_TTL).await;
    let locking = client(&cluster).await;
    let slot = cluster.slot("job");
    locks(&locking, "job").await.unwrap();
    for server in &cluster.servers {
        server.cli(&["CLUSTER", "DELSLOTS", &slot.to_string()]);
    }
    until("it is known", LATE, async || {
        let error = locks(&locking, "job").await.unwrap_err();
        let is_told = |why: &NodeError| match why {
            NodeError::ClusterDown(why) => why.contains("name no owner of slot"),
            _ => false,
        };
        reasons(&error).iter().all(is_told)
    })
    .await;
    let begin = Instant::now();
    let error = locks(&locking, "job").await.unwrap_err();
    assert!(begin.elapsed() < NODE_TIMEOUT, "{error}");
    // And to one who has not asked before.
    let error = locks(&client(&cluster).await, "job").await.unwrap_err();
    assert!(
        error.to_string().contains("name no owner of slot"),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_serves_nothing_without_all_its_slots_says_so() {
    let mut cluster = RedisCluster::start(3, 0);
    cluster.init(MAX_TTL).await;
    for server in &cluster.servers {
        server.cli(&["CONFIG", "SET", "cluster-require-full-coverage", "yes"]);
    }
    let locking = client(&cluster).await;
    let names: Vec<_> = (0..3).map(|server| name_at(&cluster, server)).collect();
    for name in &names {
        locks(&locking, name).await.unwrap();
    }
    cluster.servers[2].kill();
    for name in &names {
        until("it says so", LATE, async || {
            let error = locks(&locking, name).await.err();
            let reasons = error.map(|error| reasons(&error)).unwrap_or_default();
            let says = |why: &NodeError| match why {
                NodeError::ClusterDown(why) => why.contains("CLUSTERDOWN"),
                _ => false,
            };
            !reasons.is_empty() && reasons.iter().all(says)
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shard_that_is_lost_for_good_costs_its_own_names_only() {
    let mut cluster = RedisCluster::start(3, 0);
    cluster.init(MAX_TTL).await;
    let locking = client(&cluster).await;
    let names: Vec<_> = (0..3).map(|server| name_at(&cluster, server)).collect();
    let mut held = Vec::new();
    for name in &names {
        held.push(locking.lock(name).await.unwrap());
    }
    cluster.servers[2].kill();
    let begin = Instant::now();
    let lost = tokio::time::timeout(LATE, held[2].lost()).await.unwrap();
    assert_eq!(lost, LossReason::NoQuorum);
    while begin.elapsed() < 3 * MAX_TTL {
        assert!(
            held[0].is_valid() && held[1].is_valid(),
            "{:?}",
            held[0].loss()
        );
        sleep(Duration::from_millis(100)).await;
    }
    let refusal = locking.try_lock(&names[2]).await.unwrap_err();
    let is_named = |why: &NodeError| match why {
        NodeError::Unreachable(why) => why.contains(&cluster.servers[2].port().to_string()),
        NodeError::ClusterDown(_) => true,
        _ => false,
    };
    assert!(reasons(&refusal).iter().all(is_named), "{refusal}");
    for lease in held.drain(..2) {
        lease.release().await.unwrap();
    }
    for name in &names[..2] {
        locks(&client(&cluster).await, name).await.unwrap();
    }
}

/// Whoever gets the lock, one after the other, until the end.
async fn work(client: Client, name: String, since: Instant, end: Arc<AtomicBool>) -> Vec<Turn> {
    let nanos = || u64::try_from(since.elapsed().as_nanos()).unwrap();
    let mut turns = Vec::new();
    while !end.load(Ordering::SeqCst) {
        let asked = nanos();
        let Ok(lease) = client.lock(&name).timeout(Duration::from_secs(1)).await else {
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
fn longer() -> Option<Duration> {
    let seconds = std::env::var("FENCEPOST_FAILOVER_SECONDS").ok()?;
    seconds.parse().ok().map(Duration::from_secs)
}

#[tokio::test(flavor = "multi_thread")]
async fn forced_failovers_and_moving_slots_under_load_make_no_two_holders() {
    let cluster = RedisCluster::start(3, 1);
    cluster.init(MAX_TTL).await;
    let (name, elsewhere) = (name_at(&cluster, 0), name_at(&cluster, 1));
    let slot = cluster.slot(&name);
    let since = Instant::now();
    let end = Arc::new(AtomicBool::new(false));
    let histories = [&name, &elsewhere].map(|_| Arc::new(Mutex::new(Vec::new())));
    let mut workers = Vec::new();
    for (name, turns) in [&name, &elsewhere].into_iter().zip(&histories) {
        for _ in 0..2 {
            let client = client(&cluster).await;
            let (name, end, turns) = (name.clone(), Arc::clone(&end), Arc::clone(turns));
            workers.push(tokio::spawn(async move {
                let done = work(client, name, since, end).await;
                turns.lock().unwrap().extend(done);
            }));
        }
    }
    let mut failovers = 0;
    let (mut round, long) = (0, longer());
    while round < 3 || long.is_some_and(|long| since.elapsed() < long) {
        sleep(Duration::from_secs(1)).await;
        let from = cluster.owner(slot);
        let replica = (from + 3) % 6;
        // It refuses while the last one is still under way.
        let answer = cluster.servers[replica].cli(&["CLUSTER", "FAILOVER"]);
        if answer == "OK" {
            cluster.failed_over(slot, from).await;
            failovers += 1;
        }
        if round == 1 {
            let to = cluster.owner(cluster.slot(&elsewhere));
            cluster.migrate(slot, to);
        }
        sleep(QUARANTINE + Duration::from_secs(1)).await;
        round += 1;
    }
    end.store(true, Ordering::SeqCst);
    for worker in workers {
        worker.await.unwrap();
    }
    assert!(failovers > 0);
    let last = client(&cluster).await;
    for (name, turns) in [&name, &elsewhere].into_iter().zip(&histories) {
        let turns = std::mem::take(&mut *turns.lock().unwrap());
        println!("{name}: {failovers} failovers, {} turns", turns.len());
        assert_eq!(check(&turns), Ok(()));
        let largest = turns.iter().map(|turn| turn.token).max().unwrap();
        let lease = last.lock(name).timeout(LATE).await.unwrap();
        assert!(lease.token().get() > largest);
    }
}
