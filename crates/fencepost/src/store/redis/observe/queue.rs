//! The waiters of a lock on a server, in order, and which of many locks are held. For observers
//! only, never for decisions.
//!
//! Plain commands. An expired ticket stays in the queue until a command of a waiter removes it;
//! here it is left out by the server's own time.

use crate::error::NodeError;
use crate::runtime::clock::Clock;
use crate::store::redis::connection::link::Link;
use crate::store::redis::encoding::keys::{Keys, Prefix};
use crate::store::redis::fault;
use crate::store::redis::fault::RedisError;
use crate::store::redis::protocol::command::Cmd;
use crate::store::redis::protocol::value::{FromValue, Unexpected, Value};
use crate::store::{MOST_LISTED, Queued};
use fencepost_core::name::LockName;
use fencepost_core::ticket::{TicketId, TicketNumber};

pub(crate) async fn queue(
    link: &Link,
    keys: &Keys,
    clock: &dyn Clock,
) -> Result<Vec<Queued>, NodeError> {
    let mut line = Cmd::new("ZRANGE");
    line.arg(keys.queue()).arg(0).arg(MOST_LISTED - 1);
    line.arg("WITHSCORES");
    let line: Value = read(link.send(&line, clock).await)?;
    let line: Vec<(String, f64)> = line.pairs().map_err(malformed)?;
    if line.is_empty() {
        return Ok(Vec::new());
    }
    let mut leases = Cmd::new("ZMSCORE");
    leases.arg(keys.leases());
    for (id, _) in &line {
        leases.arg(id);
    }
    let time = Cmd::new("TIME");
    let (time, leases) = tokio::join!(link.send(&time, clock), link.send(&leases, clock));
    let time: (u64, u64) = read(time)?;
    let now = time.0.saturating_mul(1_000_000).saturating_add(time.1) as f64;
    let leases: Vec<Option<f64>> = read(leases)?;
    let waits = |until: &Option<f64>| until.is_some_and(|until| until > now);
    let waiting = line
        .into_iter()
        .zip(leases)
        .filter(|(_, until)| waits(until));
    // Numbers are below 2^53: exact.
    let queued = |((id, number), _): ((String, f64), _)| {
        (
            TicketId::reported(id),
            TicketNumber::saturating(number as u64),
        )
    };
    Ok(waiting.map(queued).collect())
}

/// Which of these locks are held: one command for any number of them.
pub(crate) async fn held(
    link: &Link,
    prefix: &Prefix,
    names: &[LockName],
    clock: &dyn Clock,
) -> Result<Vec<bool>, NodeError> {
    let mut get = Cmd::new("MGET");
    for name in names {
        get.arg(&prefix.keys(name)?.lock);
    }
    let values: Vec<Value> = read(link.send(&get, clock).await)?;
    if values.len() != names.len() {
        let why = format!("{} replies for {} locks", values.len(), names.len());
        return Err(NodeError::Other(why));
    }
    Ok(values.iter().map(|value| *value != Value::Nil).collect())
}

fn read<T: FromValue>(answer: Result<Value, RedisError>) -> Result<T, NodeError> {
    let answer = answer.map_err(|error| fault::node_error(&error))?;
    answer.read().map_err(malformed)
}

fn malformed(error: Unexpected) -> NodeError {
    NodeError::Other(format!("malformed reply: {error}"))
}
