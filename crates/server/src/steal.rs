//! `POST /v1/steal`: a lock is taken from its holder. What is no lock is not touched, unless it is told
//! so; and what an application keeps is shown to nobody.

use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use fencepost::internals::Replica as _;
use fencepost::leased::OnBehalf;
use fencepost::{Client, Status};
use fencepost_core::lock::Holder;
use fencepost_core::{LeaseAttempt, LeaseId};
use serde::Deserialize;
use serde_json::Value;

use crate::acquire::{Granted, was_released};
use crate::answer::Form;
use crate::api::{TTL, draw, grant, label, lease_id};
use crate::auth::Verb;
use crate::body::{Body, field};
use crate::held::{no_quorum, released};
use crate::leases::Claim;
use crate::problem::Problem;
use crate::service::{Caller, Service};
use crate::shown::named;
use crate::trace::{request_id, trace_id};
use crate::unread::Unread;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StealRequest {
    name: String,
    reason: String,
    #[serde(default, deserialize_with = "field::maybe_duration")]
    ttl: Option<Duration>,
    lease: Option<String>,
    owner: Option<String>,
    /// Also what fencepost did not write.
    #[serde(default, deserialize_with = "field::flag")]
    overwrite_foreign: bool,
}

pub(crate) async fn steal(
    State(service): State<Service>,
    Caller(principal): Caller,
    unread: Unread,
    form: Form,
    Body(request): Body<StealRequest>,
) -> Result<Response, Problem> {
    service.refuse_when_draining()?;
    let name = &request.name;
    principal.may(Verb::Steal, name)?;
    if request.reason.trim().is_empty() || request.reason.len() > 1024 {
        let why = "a steal needs a reason of 1 to 1,024 bytes";
        return Err(Problem::invalid(why));
    }
    let of = LeaseAttempt {
        lease: request.lease.as_deref().map_or_else(draw, lease_id)?,
        // A steal is not repeated: what a second one would throw out is the first.
        attempt: 0,
        max_hold: None,
    };
    let on_behalf = OnBehalf {
        of,
        owner: label(&principal, request.owner.as_deref(), None)?,
        keeps_place: false,
    };
    let ttl = request.ttl.unwrap_or(TTL);
    let seen = service.client.status(name).await?;
    check(&seen, request.overwrite_foreign)?;
    let (granted, from, victim) = take(&service.client, name, ttl, on_behalf).await?;
    if let Some(victim) = victim {
        service.leases.robbed(name, victim);
    }
    service.metrics.stolen();
    let claim = Claim {
        principal: &principal.name,
        lease: of.lease,
        shared: false,
        reach: Some(0),
    };
    unread.count(service.leases.stolen(claim, name, granted.valid_for));
    let (lock, reason, principal) = (name, &request.reason, &*principal.name);
    // The label of somebody's value: of a foreign one that is the value itself.
    let from = from.filter(|from| holders(&seen).any(|held| is_label(held, from)));
    let (from, token) = (from.as_deref(), granted.leases[0].token().get());
    service.watcher.stolen(lock, token, principal, reason);
    let foreign = holders(&seen).any(|held| !held.value.is_ours());
    let (request_id, trace_id) = (request_id(), trace_id());
    tracing::warn!(
        target: "fencepost::audit",
        lock, principal, reason, from, foreign, token, request_id, trace_id, "stolen"
    );
    Ok(grant(form, of.lease, granted, from, &unread))
}

/// The lock, the label of whom it was taken from, and which lease of the service that was.
async fn take(
    client: &Client,
    name: &str,
    ttl: Duration,
    on_behalf: OnBehalf,
) -> Result<(Granted, Option<String>, Option<LeaseId>), Problem> {
    let stolen = client.steal_for(name, ttl, on_behalf).await;
    let (lease, from) = stolen.map_err(|error| match was_released(&error) {
        true => released(),
        false => error.into(),
    })?;
    let granted = Granted {
        valid_for: lease.remaining(),
        waited: Duration::ZERO,
        leases: vec![lease],
        slot: None,
        repeated: false,
    };
    let owner = from.as_ref().map(|value| named(&value.owner()).to_string());
    let its_lease = from.and_then(|value| Some(value.lease_attempt()?.lease));
    Ok((granted, owner, its_lease))
}

fn holders(seen: &Status) -> impl Iterator<Item = &Holder> {
    let nodes = seen.nodes.iter();
    nodes.filter_map(|node| node.lock.as_ref().ok()?.holder.as_ref())
}

fn is_label(held: &Holder, from: &str) -> bool {
    held.value.is_ours() && held.value.owner().as_str() == from
}

/// Refuses what is not there to be stolen, and what is no lock.
fn check(seen: &Status, overwrite_foreign: bool) -> Result<(), Problem> {
    let name = seen.name.as_str();
    if holders(seen).next().is_none() {
        return Err(match seen.held {
            Some(_) => Problem::new(
                StatusCode::CONFLICT,
                "not_held",
                format!("lock \"{name}\" is free; nothing was stolen"),
            ),
            None => no_quorum(seen),
        });
    }
    let foreign = seen.nodes.iter().filter(|node| {
        let held = node.lock.as_ref().ok();
        let held = held.and_then(|lock| lock.holder.as_ref());
        held.is_some_and(|held| !held.value.is_ours())
    });
    let foreign: Vec<Value> = foreign
        .map(|node| serde_json::json!({ "node": node.node, "outcome": "not written by fencepost" }))
        .collect();
    if foreign.is_empty() || overwrite_foreign {
        return Ok(());
    }
    let why = format!(
        "the key of \"{name}\" holds something that fencepost did not write; nothing was stolen. \
         \"overwrite_foreign\": true replaces it all the same: a lock of another client, or data of \
         an application"
    );
    Err(Problem::new(StatusCode::CONFLICT, "not_a_lock", why).with("nodes", foreign))
}
