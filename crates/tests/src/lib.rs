//! The harness: real `redis-server` processes on free ports, gone when their handle is dropped.
//!
//! There is no mock of Redis here, and there must never be one.

mod cluster;
mod server;

pub use cluster::Cluster;
pub use server::{RedisServer, ServerOptions, free_port};

use std::time::{Duration, Instant};

/// Waits until `condition` holds, looking every few milliseconds.
///
/// # Panics
/// When it does not hold within `limit`.
pub async fn eventually(what: &str, limit: Duration, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + limit;
    while !condition() {
        assert!(Instant::now() < end, "not within {limit:?}: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
