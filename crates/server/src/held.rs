//! What the nodes hold under a lease id, and what is said where they hold nothing.
//!
//! A replica keeps nothing about a lease. The nodes store the lease id and the number of the attempt with
//! the hold, so any replica finds a lease by its id.

use std::time::Duration;

use fencepost::internals::Replica as _;
use fencepost::{AttemptValue, Client, FencingToken, Status};
use fencepost_core::lock::{Holder, Snapshot};
use fencepost_core::{LeaseAttempt, LeaseId};

use crate::problem::{Problem, SOON};
use crate::shown::named;

/// How far the client's clock may run apart from ours while a request waits: 1 %.
pub(crate) const DRIFT_SHARE: f64 = 0.01;

/// What the nodes say of a lease id.
pub(crate) struct FoundLease {
    /// Each once.
    pub(crate) values: Vec<(AttemptValue, LeaseAttempt)>,
    pub(crate) margin: Option<Duration>,
    /// What to say if there is no value.
    pub(crate) none: Problem,
    pub(crate) status: Status,
}

/// Asks for it until a majority holds the lock under one value of the lease, or none can: a node that hangs delays no
/// extension, and no word of a lease that is over.
pub(crate) async fn find(
    client: &Client,
    name: &str,
    lease: LeaseId,
) -> Result<FoundLease, Problem> {
    let all = client.node_count();
    let is_decided = |seen: &[&Snapshot], majority: usize| {
        let values = seen.iter().flat_map(|lock| values_of(lock, lease));
        let holds = values.map(|value| {
            let same = |lock: &&&Snapshot| values_of(lock, lease).any(|held| held == value);
            seen.iter().filter(same).count()
        });
        let most = holds.max().unwrap_or(0);
        let silent = all - seen.len();
        most >= majority || (seen.len() >= majority && most + silent < majority)
    };
    let status = client.status_until(name, is_decided).await?;
    let mut values: Vec<(AttemptValue, LeaseAttempt)> = Vec::new();
    for found in of_lease(&status, lease) {
        if !values.contains(&found) {
            values.push(found);
        }
    }
    let is_its = |holder: &Holder| values.iter().any(|(value, _)| *value == holder.value);
    let holds: Vec<_> = holders(&status).filter(is_its).collect();
    let answered = status.nodes.iter().filter(|node| node.lock.is_ok()).count();
    Ok(FoundLease {
        margin: holds.iter().filter_map(|holder| holder.remaining).max(),
        none: match answered > status.nodes.len() / 2 {
            true => gone(&status),
            false => no_quorum(&status),
        },
        values,
        status,
    })
}

/// The last attempt under which a lease holds the lock, if it does.
pub(crate) async fn held_attempt(
    client: &Client,
    name: &str,
    lease: LeaseId,
) -> Result<Option<u32>, Problem> {
    let found = find(client, name, lease).await?;
    Ok(found.values.iter().map(|(_, of)| of.attempt).max())
}

/// The values under which a node holds the lock for a lease id.
pub(crate) fn values_of(lock: &Snapshot, lease: LeaseId) -> impl Iterator<Item = &AttemptValue> {
    let holders = lock.holder.iter().chain(&lock.readers);
    holders.map(|holder| &holder.value).filter(move |value| {
        let of = value.lease_attempt();
        of.is_some_and(|of| of.lease == lease)
    })
}

/// The values that the nodes store for a lease id, and for which attempt.
pub(crate) fn of_lease(
    status: &Status,
    lease: LeaseId,
) -> impl Iterator<Item = (AttemptValue, LeaseAttempt)> {
    holders(status).filter_map(move |holder| {
        let of = holder.value.lease_attempt()?;
        (of.lease == lease).then_some((holder.value, of))
    })
}

fn holders(status: &Status) -> impl Iterator<Item = Holder> {
    let held = |lock: &Snapshot| -> Vec<Holder> {
        lock.holder.iter().chain(&lock.readers).cloned().collect()
    };
    let seen = status
        .nodes
        .iter()
        .filter_map(|node| node.lock.as_ref().ok());
    seen.flat_map(held)
}

/// How long a lease of that token has been held, about: tokens are microseconds of the wall clock.
pub(crate) fn held_for(token: FencingToken) -> Duration {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.unwrap_or_default()
        .saturating_sub(Duration::from_micros(token.get()))
}

/// What is said of a lease that no node has, and why it is over as far as that is seen: nobody sees
/// whether it expired, or was released elsewhere.
fn gone(status: &Status) -> Problem {
    let name = status.name.as_str();
    let lost = |why| Problem::new(axum::http::StatusCode::GONE, "lost", why);
    let Some(holder) = &status.holder else {
        return lost(format!("lock \"{name}\" is not held under this lease"));
    };
    let owner = named(&holder.owner).to_string();
    let problem = lost(format!(
        "lock \"{name}\" is held by {owner} under another lease"
    ))
    .with("holder", owner);
    // A reader that is over was not displaced by the others.
    let mut holders = holders(status).filter(|other| other.value.owner() == holder.owner);
    match holders.any(|other| !other.value.is_shared()) {
        true => problem.with("reason", "stolen"),
        false => problem,
    }
}

pub(crate) fn released() -> Problem {
    let why = "this lease was released; choose a fresh lease id for another acquisition";
    Problem::new(axum::http::StatusCode::GONE, "released", why)
}

/// Too few nodes said what they hold: node by node, why.
pub(crate) fn no_quorum(status: &Status) -> Problem {
    let all = status.nodes.len();
    let needed = all / 2 + 1;
    let nodes = status.nodes.iter().map(|node| {
        let outcome = match &node.lock {
            Ok(_) => "answered".to_owned(),
            Err(error) => error.to_string(),
        };
        serde_json::json!({ "node": node.node, "outcome": outcome })
    });
    let why = format!("{needed} of {all} nodes have to answer");
    let status = axum::http::StatusCode::SERVICE_UNAVAILABLE;
    Problem::new(status, "no_quorum", why)
        .with("nodes", nodes.collect::<serde_json::Value>())
        .retry_after(SOON)
}
