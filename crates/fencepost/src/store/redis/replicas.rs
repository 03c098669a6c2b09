//! [`Replicas`]: votes that count only once enough replicas have them (`?replicas=K`).
//!
//! It reduces what a failover loses, and keeps a partitioned master from granting locks. It must
//! never shorten a quarantine: a replica's clock may be ahead, and one may have come back empty.
//!
//! `WAIT` blocks its connection, so it has a separate one: nothing is ever stuck behind it. There
//! it waits for a write that was sent after the vote was answered, and therefore for the vote too.
//! One `WAIT` serves all votes that were answered before it began.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redis::{Value, from_redis_value};
use tokio::sync::Mutex;

use super::fault;
use super::link::Connection;
use super::reader::Driver;
use crate::error::NodeError;

/// The TTL of the key that is written before each `WAIT`.
const KEY_MS: u64 = 1000;

/// Waits for replicas on a separate connection.
pub(super) struct Replicas {
    connection: Connection,
    _driver: Driver,
    needed: u32,
    limit: Duration,
    /// The number of votes that have asked.
    asked: AtomicU64,
    last: Mutex<Round>,
}

/// The last `WAIT`.
struct Round {
    /// The number of votes that had asked before it began: it covers those.
    covers: u64,
    outcome: Result<(), NodeError>,
}

impl Replicas {
    /// `needed` replicas, within `limit`.
    pub(super) fn new(
        connection: Connection,
        driver: Driver,
        needed: u32,
        limit: Duration,
    ) -> Self {
        Self {
            connection,
            _driver: driver,
            needed,
            limit,
            asked: AtomicU64::new(0),
            last: Mutex::new(Round {
                covers: 0,
                outcome: Ok(()),
            }),
        }
    }

    /// Whether enough replicas have everything that the server has answered so far. `key` is one of
    /// its keys.
    pub(super) async fn confirm(&self, key: &str) -> Result<(), NodeError> {
        let number = self.asked.fetch_add(1, Ordering::SeqCst);
        let mut last = self.last.lock().await;
        if last.covers <= number {
            let covers = self.asked.load(Ordering::SeqCst);
            // A call that is dropped here leaves the last round as it was: the next one starts
            // over.
            let outcome = self.wait(key).await;
            *last = Round { covers, outcome };
        }
        last.outcome.clone()
    }

    async fn wait(&self, key: &str) -> Result<(), NodeError> {
        let mut write = redis::cmd("SET");
        write.arg(key).arg("").arg("PX").arg(KEY_MS);
        let mut wait = redis::cmd("WAIT");
        let limit = u64::try_from(self.limit.as_millis()).unwrap_or(u64::MAX);
        wait.arg(self.needed).arg(limit.max(1));
        let answers =
            futures_util::future::join(self.connection.send(&write), self.connection.send(&wait));
        let (written, waited) = answers.await;
        // Without the write it would wait for an older one.
        written.map_err(|error| fault::node_error(&error))?;
        let waited: Value = waited.map_err(|error| fault::node_error(&error))?;
        let have: u32 = from_redis_value(waited)
            .map_err(|_| NodeError::Other("malformed reply to WAIT".to_owned()))?;
        match have >= self.needed {
            true => Ok(()),
            false => Err(NodeError::TooFewReplicas {
                have,
                needed: self.needed,
            }),
        }
    }
}
