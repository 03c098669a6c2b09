//! The harness: real `redis-server` processes on free ports, gone when their handle is dropped.
//!
//! There is no mock of Redis here, and there must never be one.

mod by_count;
mod chaos;
mod cluster;
mod crowd;
mod etcd;
mod history;
mod machine;
mod redis_cluster;
mod sentinel;
mod server;
mod tls;
mod visits;

use fencepost_core::FencingToken;
use fencepost_core::stored::Stored;
use fencepost_core::value::AttemptValue;

pub use by_count::ByCount;
pub use chaos::{Random, run_in_chaos, stop_and_continue};
pub use cluster::Cluster;
pub use crowd::{Stay, check_crowd};
pub use etcd::EtcdServer;
pub use history::{Turn, check};
pub use machine::{Stalls, is_prompt, typical};
pub use redis_cluster::RedisCluster;
pub use sentinel::{GroupSetup, SentinelGroup, SentinelGroups};
pub use server::{RedisServer, ServerOptions, free_port};
pub use tls::{Authority, TlsFiles, TlsServer};
pub use visits::{Visit, check_visits};

use std::time::{Duration, Instant};

use fencepost::Client;

/// The random part of a value that no other attempt has.
pub fn random_number() -> u128 {
    use std::hash::{BuildHasher, RandomState};
    let half = || u128::from(RandomState::new().hash_one(Instant::now()));
    half() << 64 | half()
}

const PAUSE: Duration = Duration::from_millis(5);
/// How late something may happen on a busy machine.
const LATE: Duration = Duration::from_secs(20);

/// What a server has in a plain lock's key while this value holds it with that token.
#[must_use]
pub fn stored(value: &str, token: FencingToken) -> String {
    let (value, token) = (AttemptValue::reported(value), Some(token));
    Stored { value, token }.text()
}

/// Waits until `condition` holds, looking every few milliseconds. Blocks the thread: in async tests
/// whose own tasks have to go on, use [`wait_until`].
///
/// # Panics
/// When it does not hold within `limit`.
pub fn eventually(what: &str, limit: Duration, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + limit;
    while !condition() {
        assert!(Instant::now() < end, "not within {limit:?}: {what}");
        std::thread::sleep(PAUSE);
    }
}

/// As [`eventually`], without blocking the thread in between.
///
/// # Panics
/// When it does not hold within `limit`.
pub async fn wait_until(what: &str, limit: Duration, mut condition: impl FnMut() -> bool) {
    until(what, limit, async || condition()).await;
}

/// As [`wait_until`], where the condition has to be awaited.
///
/// # Panics
/// When it does not hold within `limit`.
pub async fn until(what: &str, limit: Duration, mut condition: impl AsyncFnMut() -> bool) {
    let end = Instant::now() + limit;
    while !condition().await {
        assert!(Instant::now() < end, "not within {limit:?}: {what}");
        tokio::time::sleep(PAUSE).await;
    }
}

/// Waits until somebody waits for that lock, as most of the nodes see it.
///
/// # Panics
/// When nobody does in time, or the name is none.
pub async fn until_somebody_waits(locks: &Client, name: &str) {
    until("somebody waits", LATE, async || {
        locks.status(name).await.expect("a name").waiting > 0
    })
    .await;
}
