//! Extends a lease by its id, at any replica.

use std::time::{Duration, Instant};

use fencepost::internals::Replica as _;
use fencepost::{Client, DetachedLock, FencingToken};
use fencepost_core::LeaseId;

use crate::held::{DRIFT_SHARE, find, held_for};
use crate::problem::Problem;

/// The shortest TTL.
const SHORTEST: Duration = Duration::from_millis(10);

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
    lease: LeaseId,
    token: FencingToken,
    ttl: Duration,
) -> Result<Extended, Problem> {
    let start = Instant::now();
    let found = find(client, name, lease).await?;
    // Of several attempts the last one is the client's; it voided the others.
    let Some((value, of)) = found.values.into_iter().max_by_key(|(_, of)| of.attempt) else {
        return Err(found.none);
    };
    let ttl = match of.max_hold {
        None => ttl,
        Some(most) => match most.checked_sub(held_for(token)) {
            Some(left) if left >= SHORTEST => ttl.min(left),
            _ => return Err(over(name, most)),
        },
    };
    let lock = DetachedLock::new(name, value.as_str(), token)?;
    let left = client.extend_seen(&lock, ttl, &found.status).await?;
    let valid_for = start.elapsed().mul_f64(1.0 - DRIFT_SHARE) + left;
    Ok(Extended {
        valid_for,
        margin: found.margin,
    })
}

fn over(name: &str, most: Duration) -> Problem {
    let why = format!(
        "lock \"{name}\" was held for its longest time of {} ms (max_hold)",
        most.as_millis()
    );
    Problem::new(axum::http::StatusCode::GONE, "lost", why).with("reason", "max_hold")
}
