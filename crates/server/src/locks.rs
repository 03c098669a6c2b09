//! What the service asks of the library, in one place: acquire and detach, extend, release, look.
//!
//! A replica keeps nothing about a lease: which value the nodes store for a lease id is asked of the
//! nodes each time.

use std::time::{Duration, Instant};

use fencepost::{Client, DetachedLock, Error, FencingToken, LockOptions, NamePattern, Status};
use fencepost_core::lock::{Holder, Snapshot};

use crate::problem::Problem;

/// What is asked for.
#[derive(Clone, Debug)]
pub(crate) struct Wish {
    pub(crate) name: String,
    pub(crate) ttl: Duration,
    pub(crate) wait: Duration,
    pub(crate) fair: bool,
    pub(crate) shared: bool,
}

/// A lock that was acquired.
#[derive(Clone, Debug)]
pub(crate) struct Granted {
    pub(crate) lock: DetachedLock,
    /// From the moment in which the request was read: the client, which sent it before, may count
    /// from then.
    pub(crate) valid_for: Duration,
    pub(crate) waited: Duration,
}

impl Granted {
    pub(crate) fn lease_id(&self) -> &str {
        lease_id(self.lock.value())
    }
}

/// The part of a stored value that names the lease.
fn lease_id(value: &str) -> &str {
    value.split_once(':').map_or(value, |(id, _)| id)
}

/// How far the client's clock may run apart from ours while a request waits: 1 %.
const DRIFT_SHARE: f64 = 0.01;

pub(crate) async fn acquire(client: &Client, wish: &Wish) -> Result<Granted, Error> {
    let start = Instant::now();
    let options = LockOptions::new()
        .ttl(wish.ttl)
        .timeout(wish.wait)
        .fair(wish.fair)
        .renew(false);
    // What is left is read before it is detached: a detached lock has no deadline of its own.
    let (waited, left, lock) = match wish.shared {
        true => {
            let lock = client.read_write(&wish.name);
            let lease = lock.read().options(options).await?;
            (start.elapsed(), lease.remaining(), lease.detach().await?)
        }
        false => {
            let lease = client.lock(&wish.name).options(options).await?;
            (start.elapsed(), lease.remaining(), lease.detach().await?)
        }
    };
    Ok(Granted {
        lock,
        valid_for: waited.mul_f64(1.0 - DRIFT_SHARE) + left,
        waited,
    })
}

/// How one lease was extended.
#[derive(Debug)]
pub(crate) struct Extended {
    pub(crate) valid_for: Duration,
    /// What was left of it before, as far as the nodes said.
    pub(crate) margin: Option<Duration>,
}

pub(crate) async fn extend(
    client: &Client,
    name: &str,
    lease: &str,
    token: FencingToken,
    ttl: Duration,
) -> Result<Extended, Problem> {
    let start = Instant::now();
    let (value, margin) = find(client, name, lease).await?;
    let lock = DetachedLock::new(name, value, token)?;
    let left = client.extend_detached(&lock, ttl).await?;
    let valid_for = start.elapsed().mul_f64(1.0 - DRIFT_SHARE) + left;
    Ok(Extended { valid_for, margin })
}

pub(crate) async fn release(client: &Client, name: &str, lease: &str) -> Result<(), Problem> {
    let (value, _) = find(client, name, lease).await?;
    let lock = DetachedLock::new(name, value, FencingToken::ZERO)?;
    Ok(client.release_detached(&lock).await?)
}

/// The value that the nodes store for a lease id, and what is left of it.
async fn find(
    client: &Client,
    name: &str,
    lease: &str,
) -> Result<(String, Option<Duration>), Problem> {
    let status = client.status(name).await?;
    let seen = || {
        status
            .nodes
            .iter()
            .filter_map(|node| node.lock.as_ref().ok())
    };
    let held = |lock: &Snapshot| -> Vec<Holder> {
        lock.holder.iter().chain(&lock.readers).cloned().collect()
    };
    let mut ours: Vec<Holder> = seen().flat_map(held).collect();
    ours.retain(|holder| lease_id(holder.value.as_str()) == lease);
    let Some(first) = ours.first() else {
        let needed = status.nodes.len() / 2 + 1;
        return Err(match seen().count() >= needed {
            true => gone(&status),
            false => no_quorum(&status, needed),
        });
    };
    let margin = ours.iter().filter_map(|holder| holder.remaining).max();
    Ok((first.value.as_str().to_owned(), margin))
}

fn gone(status: &Status) -> Problem {
    let name = status.name.as_str();
    let why = match &status.holder {
        Some(holder) => format!(
            "lock \"{name}\" is held by {} under another lease",
            holder.owner
        ),
        None => format!("lock \"{name}\" is not held under this lease: it expired or was released"),
    };
    let problem = Problem::new(axum::http::StatusCode::GONE, "lost", why);
    match &status.holder {
        Some(holder) => problem.with("holder", holder.owner.to_string()),
        None => problem,
    }
}

fn no_quorum(status: &Status, needed: usize) -> Problem {
    let all = status.nodes.len();
    let nodes = status.nodes.iter().map(|node| {
        let outcome = match &node.lock {
            Ok(_) => "answered".to_owned(),
            Err(error) => error.to_string(),
        };
        serde_json::json!({ "node": node.node, "outcome": outcome })
    });
    let why = format!("{needed} of {all} nodes have to answer");
    let status = axum::http::StatusCode::SERVICE_UNAVAILABLE;
    Problem::new(status, "no_quorum", why).with("nodes", nodes.collect::<serde_json::Value>())
}

pub(crate) async fn steal(
    client: &Client,
    name: &str,
    ttl: Duration,
) -> Result<(Granted, Option<String>), Error> {
    let stolen = client.steal(name, ttl).await?;
    let left = stolen.lease.remaining();
    let lock = stolen.lease.detach().await?;
    let granted = Granted {
        lock,
        valid_for: left,
        waited: Duration::ZERO,
    };
    Ok((granted, stolen.from.map(|owner| owner.to_string())))
}

pub(crate) async fn status(client: &Client, name: &str) -> Result<Status, Error> {
    client.status(name).await
}

pub(crate) async fn list(client: &Client, prefix: &str) -> Result<Vec<Status>, Error> {
    let listing = client.list(&NamePattern::new("*")).await?;
    let mut locks = listing.locks;
    locks.retain(|lock| lock.name.as_str().starts_with(prefix));
    Ok(locks)
}
