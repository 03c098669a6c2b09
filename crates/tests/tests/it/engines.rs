//! The three engines, and the macro that runs a behaviour on each of them.

use std::any::Any;
use std::sync::Arc;

use crate::on_redis::for_small_tokens;
use fencepost::internals::Node;
use fencepost::internals::clock::SystemClock;
use fencepost::internals::memory::MemoryNode;
use fencepost::internals::redis::{RedisNode, Roster};
use fencepost::internals::sqlite::SqliteNode;
use fencepost_tests::RedisServer;
use tokio::runtime::Handle;

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

/// Makes one test of each behaviour for each engine: `memory::NAME`, `sqlite::NAME`, `redis::NAME`.
macro_rules! every_node_shows_that {
    ($($behaviour:ident,)*) => {
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
