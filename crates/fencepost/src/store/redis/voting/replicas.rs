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

use tokio::sync::Mutex;

use crate::error::NodeError;
use crate::store::redis::connection::link::Connection;
use crate::store::redis::fault;
use crate::store::redis::fault::RedisError;
use crate::store::redis::protocol::command::Cmd;
use crate::store::redis::protocol::reader::Driver;
use crate::store::redis::protocol::value::Value;

/// The TTL of the key that is written before each `WAIT`.
const KEY_MS: u64 = 1000;

/// Waits for replicas on a separate connection.
pub(crate) struct Replicas {
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
    /// `needed` replicas, within `limit`, if this user may wait for them.
    pub(crate) async fn open(
        connection: Connection,
        driver: Driver,
        needed: u32,
        limit: Duration,
    ) -> Result<Self, NodeError> {
        let mut probe = Cmd::new("WAIT");
        let probed = connection.send(probe.arg(0).arg(1)).await;
        probed.map_err(|error| fault::node_error(&error))?;
        Ok(Self::new(connection, driver, needed, limit))
    }

    fn new(connection: Connection, driver: Driver, needed: u32, limit: Duration) -> Self {
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
    pub(crate) async fn confirm(&self, key: &str) -> Result<(), NodeError> {
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
        let mut write = Cmd::new("SET");
        write.arg(key).arg("").arg("PX").arg(KEY_MS);
        let mut wait = Cmd::new("WAIT");
        let limit = u64::try_from(self.limit.as_millis()).unwrap_or(u64::MAX);
        wait.arg(self.needed).arg(limit.max(1));
        let answers =
            futures_util::future::join(self.connection.send(&write), self.connection.send(&wait));
        let (written, waited) = answers.await;
        // Without the write it would wait for an older one.
        written.map_err(|error| unconfirmed(&error))?;
        let waited: Value = waited.map_err(|error| unconfirmed(&error))?;
        let have: u32 = waited
            .read()
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

/// Whatever this was refused for, the vote was not: it has been carried out.
fn unconfirmed(error: &RedisError) -> NodeError {
    let why = match fault::node_error(error) {
        error @ NodeError::Disconnected(_) => return error,
        NodeError::Unsuitable(text) | NodeError::ReadOnly(text) | NodeError::Other(text) => text,
        error => error.to_string(),
    };
    NodeError::Other(format!("cannot wait for replicas: {why}"))
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;
    use crate::store::redis::address::stream::Stream;
    use crate::store::redis::protocol::reader::Reader;
    use crate::store::redis::protocol::wire::Wire;

    /// The vote is granted: whoever took the refusal for the vote's would leave the lock to nobody.
    #[tokio::test]
    async fn what_its_own_write_is_refused_for_does_not_say_that_the_vote_was_refused() {
        for refusal in [
            "MOVED 7 127.0.0.1:7001",
            "ASK 7 127.0.0.1:7001",
            "CLUSTERDOWN The cluster is down",
            "NOREPLICAS Not enough good replicas to write.",
            "NOPERM User app has no permissions to run the 'wait' command",
        ] {
            let (ours, mut server) = duplex(1 << 16);
            let (wire, task) = Wire::over(Stream::over(ours), None);
            let driver = Reader::default().run(task);
            let limit = Duration::from_secs(10);
            let replicas = Replicas::new(Connection::new(wire), driver, 1, limit);
            let answering = async {
                let mut asked = vec![0; 1024];
                let _ = server.read(&mut asked).await.unwrap();
                let answers = format!("-{refusal}\r\n:0\r\n");
                server.write_all(answers.as_bytes()).await.unwrap();
            };
            let (outcome, ()) = tokio::join!(replicas.confirm("fencepost:wait"), answering);
            let error = outcome.unwrap_err();
            assert!(error.is_uncertain(), "{error:?}");
            let text = error.to_string();
            assert!(
                text.contains(refusal) && !text.starts_with(refusal),
                "{text}"
            );
        }
    }
}
