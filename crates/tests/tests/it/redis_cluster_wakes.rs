//! A wake-up of a Redis Cluster stays in the shard of its lock, where the waiter has subscribed; and it comes all the
//! same where that cannot be. Nobody polls here: what is not heard is missing.

use std::sync::Arc;
use std::time::Duration;

use fencepost::internals::clock::SystemClock;
use fencepost::internals::redis::ClusterNode;
use fencepost::internals::{Listener, Node, Notice, WakeSink};
use fencepost::{AttemptValue, LockName, Owner};
use fencepost_core::lock::{Command, Reply};
use fencepost_core::ticket::{
    ClientId, Standing, Ticket, TicketId, TicketMode, TicketNumber, Wake,
};
use fencepost_tests::{RedisCluster, until_somebody_waits, wait_until};
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use crate::attempt::{Attempt, on};
use crate::on_redis::{for_small_tokens, within};

const MAX_TTL: Duration = Duration::from_secs(60);
const LATE: Duration = Duration::from_secs(60);

fn client() -> ClientId {
    ClientId::of(1)
}

/// A client that listens to a Cluster.
struct Listening {
    node: Arc<dyn Node>,
    _listener: Listener,
    heard: mpsc::UnboundedReceiver<Notice>,
}

struct Recorder(mpsc::UnboundedSender<Notice>);

impl WakeSink for Recorder {
    fn notify(&self, notice: Notice) {
        // Whoever does not look any more does not care.
        let _ = self.0.send(notice);
    }
}

impl Listening {
    async fn to(cluster: &RedisCluster) -> Self {
        Self::by(cluster.url()).await
    }

    async fn by(url: String) -> Self {
        let (options, clock) = (for_small_tokens(), Arc::new(SystemClock));
        let runtime = Handle::current();
        let node = ClusterNode::open_fresh(&url, options, MAX_TTL, clock, &runtime).unwrap();
        let node: Arc<dyn Node> = Arc::new(node);
        fencepost_tests::until("it votes", LATE, async || node.hello().await.is_ok()).await;
        let (said, heard) = mpsc::unbounded_channel();
        let mut listening = Self {
            _listener: node.listen(&client(), Arc::new(Recorder(said))),
            node,
            heard,
        };
        let first = within(LATE, listening.heard.recv()).await.unwrap();
        assert_eq!(first, Notice::Listening);
        listening
    }

    async fn wake(&mut self) -> Wake {
        loop {
            match within(LATE, self.heard.recv()).await.unwrap() {
                Notice::Wake(wake) => return wake,
                // At a shard, where nothing was missed.
                Notice::Listening => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// Stands in the queue for a lock, as that number.
    async fn queue(&self, name: &LockName, number: u64, mode: TicketMode) -> TicketId {
        let id = TicketId::of_mode(&client(), number, mode, &Owner::new("w").unwrap());
        let ticket = Ticket {
            id: id.clone(),
            number: Standing::Proposed(TicketNumber::saturating(number)),
        };
        let tickets = vec![ticket];
        let lease = MAX_TTL;
        let reply = self.node.call(name, Command::Enqueue { tickets, lease });
        assert!(matches!(reply.await, Ok(Reply::Queue(_))));
        id
    }

    fn holder(&self, name: &str) -> Attempt<'_> {
        Attempt {
            value: AttemptValue::labelled(7, &Owner::new("holder").unwrap()),
            ..on(&self.node, name, "")
        }
    }

    /// Somebody else releases the lock, and the next in the queue hears of it.
    async fn is_woken(&mut self, name: &str, number: u64, mode: TicketMode) {
        let queue = LockName::new(name).unwrap().queue();
        let reply = self.holder(name).acquire(1).await;
        assert!(matches!(reply, Reply::Granted { .. }), "{reply:?}");
        let id = self.queue(&queue, number, mode).await;
        assert_eq!(self.holder(name).release().await, Reply::Released);
        let wake = self.wake().await;
        assert_eq!((&wake.ticket, wake.first), (&id, true));
        let tickets = vec![id];
        let left = self.node.call(&queue, Command::Leave { tickets });
        assert_eq!(left.await, Ok(Reply::Left));
    }
}

/// How many clients listen at the owner of that lock, in its shard.
fn listeners(cluster: &RedisCluster, name: &str) -> String {
    let queue = match name.contains('{') {
        true => format!("{name}:queue"),
        false => format!("{{{name}}}:queue"),
    };
    let channel = format!("fencepost:wake:{queue}:{}", client().as_str());
    let owner = cluster.owner(cluster.slot(name));
    let answer = cluster.servers[owner].cli(&["PUBSUB", "SHARDNUMSUB", &channel]);
    answer.lines().last().unwrap_or_default().to_owned()
}

async fn is_subscribed(cluster: &RedisCluster, name: &str) {
    let is_subscribed = || listeners(cluster, name) == "1";
    wait_until("it has subscribed at the owner", LATE, is_subscribed).await;
}

/// How many messages the nodes have sent to each other because something was published for all.
fn broadcasts(cluster: &RedisCluster) -> u64 {
    let sent = cluster.servers.iter().map(|server| {
        let info = server.cli(&["CLUSTER", "INFO"]);
        let mut lines = info.lines();
        let sent = lines.find_map(|line| line.strip_prefix("cluster_stats_messages_publish_sent:"));
        sent.map_or(0, |sent| sent.trim().parse().unwrap())
    });
    sent.sum()
}

fn name_at(cluster: &RedisCluster, server: usize) -> String {
    let mut names = (0..).map(|n| format!("job-{n}"));
    let found = names.find(|name| cluster.owner(cluster.slot(name)) == server);
    found.expect("some name")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_is_woken_in_the_shard_of_its_lock_and_no_other_node_is_told() {
    let cluster = RedisCluster::start(3, 0);
    let mut listening = Listening::to(&cluster).await;
    for server in 0..3 {
        let name = name_at(&cluster, server);
        let lock = LockName::new(&name).unwrap();
        let attending = listening.node.attend(&lock, &client());
        is_subscribed(&cluster, &name).await;
        // Readers are woken by another part of the script.
        for mode in [TicketMode::Fair, TicketMode::Reader] {
            listening.is_woken(&name, 1, mode).await;
        }
        drop(attending);
    }
    // All slots of a semaphore have one queue.
    let pool = LockName::new("{pool}:semaphore").unwrap();
    let _attending = listening.node.attend(&pool, &client());
    is_subscribed(&cluster, pool.as_str()).await;
    listening
        .is_woken("{pool}:semaphore:3", 3, TicketMode::Fair)
        .await;
    assert_eq!(broadcasts(&cluster), 0);

    // Nobody waits there any more.
    let name = name_at(&cluster, 0);
    wait_until("it is given up", LATE, || listeners(&cluster, &name) == "0").await;
    listening.is_woken(&name, 4, TicketMode::Fair).await;
    assert_eq!(broadcasts(&cluster), 2, "to each of the others");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_waits_for_a_lock_is_woken_in_its_shard() {
    let cluster = RedisCluster::start(3, 0);
    cluster.init(MAX_TTL).await;
    let connect = async || cluster.builder(MAX_TTL).connect().await.unwrap();
    let (one, two) = (connect().await, connect().await);
    let held = one.lock("job").await.unwrap();
    let waiting = tokio::spawn(async move { two.lock("job").await.unwrap() });
    until_somebody_waits(&one, "job").await;
    let owner = &cluster.servers[cluster.owner(cluster.slot("job"))];
    wait_until("it has subscribed at the owner", LATE, || {
        let channels = owner.cli(&["PUBSUB", "SHARDCHANNELS", "fencepost:wake:{job}:queue:*"]);
        !channels.is_empty()
    })
    .await;
    held.release().await.unwrap();
    waiting.await.unwrap().release().await.unwrap();
    assert_eq!(broadcasts(&cluster), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_is_woken_while_its_slot_moves_and_subscribes_at_the_new_owner() {
    let cluster = RedisCluster::start(3, 0);
    let mut listening = Listening::to(&cluster).await;
    let slot = cluster.slot("job");
    let _attending = listening
        .node
        .attend(&LockName::new("job").unwrap(), &client());
    is_subscribed(&cluster, "job").await;
    for number in 0..6 {
        cluster.migrate(slot, (cluster.owner(slot) + 1) % 3);
        listening
            .is_woken("job", 2 * number, TicketMode::Fair)
            .await;
        is_subscribed(&cluster, "job").await;
        let before = broadcasts(&cluster);
        listening
            .is_woken("job", 2 * number + 1, TicketMode::Fair)
            .await;
        assert_eq!(broadcasts(&cluster), before);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_is_woken_also_where_the_user_may_not_use_the_channels_of_a_shard() {
    let cluster = RedisCluster::start(3, 0);
    for (n, denied) in ["-ssubscribe", "-spublish", "-spublish -ssubscribe"]
        .iter()
        .enumerate()
    {
        let user = format!("user{n}");
        for server in &cluster.servers {
            let rules = format!("ACL SETUSER {user} on >secret ~* &* +@all {denied}");
            let words: Vec<_> = rules.split(' ').collect();
            assert_eq!(server.cli(&words), "OK");
        }
        let url = cluster.url();
        let mut listening =
            Listening::by(url.replacen("://", &format!("://{user}:secret@"), 1)).await;
        let name = LockName::new("job").unwrap();
        let _attending = listening.node.attend(&name, &client());
        let before = broadcasts(&cluster);
        listening.is_woken("job", 1, TicketMode::Fair).await;
        assert_eq!(broadcasts(&cluster), before + 2, "{denied}");
    }
}
