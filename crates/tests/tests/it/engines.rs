//! The five engines, and the macro that runs a behaviour on each of them.

use std::any::Any;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use crate::on_redis::for_small_tokens;
use fencepost::internals::Node;
use fencepost::internals::clock::SystemClock;
use fencepost::internals::memory::MemoryNode;
use fencepost::internals::redis::{ClusterNode, RedisNode, RedisOptions, Roster};
use fencepost::internals::sqlite::SqliteNode;
use fencepost_tests::{
    GroupSetup, RedisCluster, RedisServer, SentinelGroups, random_number, until,
};
use tokio::runtime::Handle;

const LATE: Duration = Duration::from_secs(30);

/// A node, and what has to live as long.
pub(crate) struct Engine {
    pub(crate) node: Arc<dyn Node>,
    _keep: Box<dyn Any>,
}

pub(crate) async fn memory() -> Engine {
    Engine {
        node: Arc::new(MemoryNode::new()),
        _keep: Box::new(()),
    }
}

pub(crate) async fn sqlite() -> Engine {
    let dir = tempfile::tempdir().unwrap();
    let node = SqliteNode::open(dir.path().join("locks.db"), Arc::new(SystemClock)).unwrap();
    Engine {
        node: Arc::new(node),
        _keep: Box::new(dir),
    }
}

pub(crate) async fn redis() -> Engine {
    let server = RedisServer::start();
    let (options, roster) = (for_small_tokens(), Roster::default());
    let clock = Arc::new(SystemClock);
    let node = RedisNode::open(&server.url(), options, &roster, clock, &Handle::current());
    let node = node.unwrap();
    Engine {
        node: Arc::new(node),
        _keep: Box::new((server, roster)),
    }
}

/// The Cluster of all tests that need one at the same time: each has a prefix of its own.
fn shared_cluster() -> Arc<RedisCluster> {
    static SHARED: Mutex<Weak<RedisCluster>> = Mutex::new(Weak::new());
    let mut shared = SHARED.lock().unwrap();
    match shared.upgrade() {
        Some(cluster) => cluster,
        None => {
            let cluster = Arc::new(RedisCluster::start(3, 0));
            *shared = Arc::downgrade(&cluster);
            cluster
        }
    }
}

pub(crate) async fn cluster() -> Engine {
    cluster_engine(shared_cluster).await
}

/// A Cluster of its own, for tests that have a client of the same id.
pub(crate) async fn own_cluster() -> Engine {
    cluster_engine(|| Arc::new(RedisCluster::start(3, 0))).await
}

async fn cluster_engine(start: impl FnOnce() -> Arc<RedisCluster> + Send + 'static) -> Engine {
    let cluster = tokio::task::spawn_blocking(start).await.unwrap();
    let options = RedisOptions {
        prefix: format!("{}:", random_number()),
        ..for_small_tokens()
    };
    let (max_ttl, clock) = (Duration::from_secs(60), Arc::new(SystemClock));
    let (url, runtime) = (cluster.url(), Handle::current());
    let node = ClusterNode::open_fresh(&url, options, max_ttl, clock, &runtime).unwrap();
    // On a busy machine the first handshakes take longer than they may.
    until("it votes", LATE, async || node.hello().await.is_ok()).await;
    Engine {
        node: Arc::new(node),
        _keep: Box::new(cluster),
    }
}

/// The Sentinel group of all tests that need one at the same time: each has a prefix of its own.
fn shared_group() -> Arc<SentinelGroups> {
    static SHARED: Mutex<Weak<SentinelGroups>> = Mutex::new(Weak::new());
    let mut shared = SHARED.lock().unwrap();
    match shared.upgrade() {
        Some(group) => group,
        None => {
            let group = own_group_now();
            *shared = Arc::downgrade(&group);
            group
        }
    }
}

fn own_group_now() -> Arc<SentinelGroups> {
    Arc::new(SentinelGroups::start(1, &GroupSetup::default()))
}

pub(crate) async fn sentinel() -> Engine {
    group_engine(shared_group).await
}

/// A group of its own, for tests that have a client of the same id.
pub(crate) async fn own_sentinel() -> Engine {
    group_engine(own_group_now).await
}

async fn group_engine(start: impl FnOnce() -> Arc<SentinelGroups> + Send + 'static) -> Engine {
    let groups = tokio::task::spawn_blocking(start).await.unwrap();
    let options = RedisOptions {
        prefix: format!("{}:", random_number()),
        ..for_small_tokens()
    };
    let (max_ttl, clock) = (Duration::from_secs(60), Arc::new(SystemClock));
    let (url, runtime) = (groups.url_of(0, "a"), Handle::current());
    let node = RedisNode::open_fresh(&url, options, max_ttl, clock, &runtime).unwrap();
    // On a busy machine the first handshakes take longer than they may.
    until("it votes", LATE, async || node.hello().await.is_ok()).await;
    Engine {
        node: Arc::new(node),
        _keep: Box::new(groups),
    }
}

/// Makes one test of each behaviour for each engine: `memory::NAME`, `sqlite::NAME`, `redis::NAME`,
/// `sentinel::NAME`, `cluster::NAME`.
macro_rules! every_node_shows_that {
    ($($behaviour:ident,)*) => {
        every_node_shows_that! { @on cluster $($behaviour)* }
        every_node_shows_that! { @on sentinel $($behaviour)* }
        every_node_shows_that! { @simple $($behaviour)* }
    };
    (alone: $($behaviour:ident,)*) => {
        every_node_shows_that! { @on own_cluster $($behaviour)* }
        every_node_shows_that! { @on own_sentinel $($behaviour)* }
        every_node_shows_that! { @simple $($behaviour)* }
    };
    (@simple $($behaviour:ident)*) => {
        every_node_shows_that! { @on memory $($behaviour)* }
        every_node_shows_that! { @on sqlite $($behaviour)* }
        every_node_shows_that! { @on redis $($behaviour)* }
    };
    (@on $engine:ident $($behaviour:ident)*) => {
        mod $engine {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $behaviour() {
                    let engine = crate::engines::$engine().await;
                    super::$behaviour(&engine.node).await;
                }
            )*
        }
    };
}

pub(crate) use every_node_shows_that;
