//! The operations. Each reads its request, asks who may, asks the library, and answers.

use std::time::{Duration, Instant};

use axum::extract::{Query, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use fencepost::{FencingToken, Status};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::answer::{Form, millis};
use crate::auth::{Principal, Verb};
use crate::body::{Body, field};
use crate::locks::{self, Granted, Wish};
use crate::problem::Problem;
use crate::service::{Caller, Service};

type Answer = Result<Response, Problem>;

/// The default TTL of the service.
const TTL: Duration = Duration::from_secs(30);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AcquireRequest {
    name: String,
    #[serde(default, deserialize_with = "field::maybe_duration")]
    ttl: Option<Duration>,
    #[serde(default, deserialize_with = "field::maybe_duration")]
    wait: Option<Duration>,
    #[serde(default, deserialize_with = "field::flag")]
    fair: bool,
    #[serde(default, deserialize_with = "field::flag")]
    shared: bool,
}

pub(crate) async fn acquire(
    State(service): State<Service>,
    Caller(principal): Caller,
    headers: HeaderMap,
    Body(request): Body<AcquireRequest>,
) -> Answer {
    service.refuse_when_draining()?;
    principal.may(Verb::Acquire, &request.name)?;
    let wait = request.wait.unwrap_or_default();
    if wait > service.limits.wait {
        let most = service.limits.wait.as_secs();
        return Err(Problem::invalid(format!(
            "one request waits at most {most} s (limit wait)"
        )));
    }
    let wish = Wish {
        name: request.name,
        ttl: request.ttl.unwrap_or(TTL),
        wait,
        fair: request.fair,
        shared: request.shared,
    };
    let start = Instant::now();
    let waits = !wait.is_zero();
    let outcome = {
        let _waiting = match waits {
            true => Some(
                service
                    .waits
                    .begin(&service.limits, &principal.name, &wish.name)?,
            ),
            false => None,
        };
        locks::acquire(&service.client, &wish).await
    };
    let word = match &outcome {
        Ok(_) => "acquired",
        Err(error) if error.is_held() => "held",
        Err(error) if error.is_no_quorum() => "no_quorum",
        Err(_) => "failed",
    };
    service.metrics.acquired(word, start.elapsed(), waits);
    let granted = outcome?;
    Ok(grant(&headers, &wish.name, &granted))
}

fn grant(headers: &HeaderMap, name: &str, granted: &Granted) -> Response {
    let token = granted.lock.token();
    let body = json!({
        "name": name,
        "lease": granted.lease_id(),
        "token": token.get(),
        "valid_for_ms": millis(granted.valid_for),
        "waited_ms": millis(granted.waited),
    });
    let mut response = Form::wanted(headers).answer(&body);
    response
        .headers_mut()
        .insert("fencing-token", HeaderValue::from(token.get()));
    response
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExtendRequest {
    leases: Vec<LeaseRef>,
    #[serde(default, deserialize_with = "field::maybe_duration")]
    ttl: Option<Duration>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LeaseRef {
    name: String,
    lease: String,
    token: u64,
}

pub(crate) async fn extend(
    State(service): State<Service>,
    Caller(principal): Caller,
    headers: HeaderMap,
    Body(request): Body<ExtendRequest>,
) -> Answer {
    let most = service.limits.batch;
    if request.leases.is_empty() || request.leases.len() > most {
        let why = format!(
            "expected 1 to {most} leases, got {} (limit batch)",
            request.leases.len()
        );
        return Err(Problem::invalid(why));
    }
    let ttl = request.ttl.unwrap_or(TTL);
    // Side by side: a thousand of them one after the other would take longer than a TTL.
    let each = request
        .leases
        .iter()
        .map(|lease| extend_one(&service, &principal, lease, ttl));
    let outcomes = futures_util::future::join_all(each).await;
    Ok(Form::wanted(&headers).answer(&json!({ "leases": outcomes })))
}

async fn extend_one(
    service: &Service,
    principal: &Principal,
    lease: &LeaseRef,
    ttl: Duration,
) -> Value {
    let outcome = async {
        principal.may(Verb::Acquire, &lease.name)?;
        check_lease(&lease.lease)?;
        let token = FencingToken::new(lease.token);
        let token = token.ok_or_else(|| Problem::invalid("a token is below 2^53"))?;
        locks::extend(&service.client, &lease.name, &lease.lease, token, ttl).await
    };
    let (outcome, margin) = match outcome.await {
        Ok(extended) => {
            let outcome = json!({
                "name": lease.name, "lease": lease.lease, "outcome": "extended",
                "valid_for_ms": millis(extended.valid_for),
            });
            (outcome, Some(extended.margin))
        }
        Err(problem) => {
            let (code, detail) = (problem.code, problem.detail().to_owned());
            let outcome = json!({
                "name": lease.name, "lease": lease.lease, "outcome": code, "detail": detail,
            });
            (outcome, None)
        }
    };
    let word = match &margin {
        Some(_) => "extended",
        None => "refused",
    };
    service.metrics.extended(word, margin.flatten());
    outcome
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReleaseRequest {
    name: String,
    lease: String,
}

pub(crate) async fn release(
    State(service): State<Service>,
    Caller(principal): Caller,
    headers: HeaderMap,
    Body(request): Body<ReleaseRequest>,
) -> Answer {
    principal.may(Verb::Acquire, &request.name)?;
    check_lease(&request.lease)?;
    let outcome = locks::release(&service.client, &request.name, &request.lease).await;
    service.metrics.released(match &outcome {
        Ok(()) => "released",
        Err(problem) => problem.code,
    });
    outcome?;
    Ok(Form::wanted(&headers).answer(&json!({ "name": request.name, "outcome": "released" })))
}

/// A lease id: 128 bits as 32 hex digits.
fn check_lease(lease: &str) -> Result<(), Problem> {
    match lease.len() == 32 && lease.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        true => Ok(()),
        false => Err(Problem::invalid("a lease id has 32 hex digits")),
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StealRequest {
    name: String,
    reason: String,
    #[serde(default, deserialize_with = "field::maybe_duration")]
    ttl: Option<Duration>,
}

pub(crate) async fn steal(
    State(service): State<Service>,
    Caller(principal): Caller,
    headers: HeaderMap,
    Body(request): Body<StealRequest>,
) -> Answer {
    service.refuse_when_draining()?;
    principal.may(Verb::Steal, &request.name)?;
    if request.reason.trim().is_empty() || request.reason.len() > 1024 {
        return Err(Problem::invalid(
            "a steal needs a reason of 1 to 1,024 bytes",
        ));
    }
    let (granted, from) =
        locks::steal(&service.client, &request.name, request.ttl.unwrap_or(TTL)).await?;
    service.metrics.stolen();
    let (lock, reason, token) = (&request.name, &request.reason, granted.lock.token().get());
    let (principal, from) = (&*principal.name, from.unwrap_or_default());
    service.watcher.stolen(lock, token, principal, reason);
    tracing::warn!(target: "fencepost::audit", lock, principal, reason, from, token, "stolen");
    Ok(grant(&headers, &request.name, &granted))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LocksQuery {
    name: Option<String>,
    prefix: Option<String>,
    cursor: Option<String>,
}

/// How many locks one answer lists.
const PAGE: usize = 500;

pub(crate) async fn list(
    State(service): State<Service>,
    Caller(principal): Caller,
    headers: HeaderMap,
    query: Result<Query<LocksQuery>, axum::extract::rejection::QueryRejection>,
) -> Answer {
    let Query(query) = query.map_err(|error| Problem::invalid(error.body_text()))?;
    let form = Form::wanted(&headers);
    if let Some(name) = &query.name {
        principal.may(Verb::Read, name)?;
        let status = locks::status(&service.client, name).await?;
        return Ok(form.answer(&shown(&status)));
    }
    principal.may_at_all(Verb::Read)?;
    let mut found = locks::list(&service.client, query.prefix.as_deref().unwrap_or("")).await?;
    found.retain(|lock| principal.sees(lock.name.as_str()));
    if let Some(cursor) = &query.cursor {
        found.retain(|lock| lock.name.as_str() > cursor.as_str());
    }
    let more = found.len() > PAGE;
    found.truncate(PAGE);
    let cursor = found
        .last()
        .filter(|_| more)
        .map(|lock| lock.name.to_string());
    let listed: Vec<Value> = found.iter().map(shown).collect();
    Ok(form.answer(&json!({ "locks": listed, "cursor": cursor })))
}

/// A lock as the nodes see it. Values never leave: whoever has one can release the lock.
fn shown(status: &Status) -> Value {
    let holder = |holder: &fencepost::HolderStatus| json!({ "owner": holder.owner.to_string(), "expires_in_ms": holder.remaining.map(millis) });
    let nodes = status.nodes.iter().map(|node| match &node.lock {
        Ok(lock) => json!({
            "node": node.node,
            "holder": lock.holder.as_ref().map(|held| held.value.owner().to_string()),
            "expires_in_ms": lock.holder.as_ref().and_then(|held| held.remaining).map(millis),
            "waiting": lock.waiting,
        }),
        Err(error) => json!({ "node": node.node, "error": error.to_string() }),
    });
    json!({
        "name": status.name.as_str(),
        "holder": status.holder.as_ref().map(holder),
        "readers": status.readers.iter().map(holder).collect::<Vec<_>>(),
        "waiting": status.waiting,
        "nodes": nodes.collect::<Vec<_>>(),
    })
}

pub(crate) async fn livez() -> Response {
    "ok\n".into_response()
}

/// Whether this replica sees a quorum.
pub(crate) async fn readyz(State(service): State<Service>) -> Answer {
    service.refuse_when_draining()?;
    let status = locks::status(&service.client, "fencepost-readyz").await?;
    let answered = status.nodes.iter().filter(|node| node.lock.is_ok()).count();
    let (all, needed) = (status.nodes.len(), status.nodes.len() / 2 + 1);
    match answered >= needed {
        true => Ok("ok\n".into_response()),
        false => Err(Problem::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "no_quorum",
            format!("{answered} of {all} nodes answer, {needed} are needed"),
        )),
    }
}

pub(crate) async fn metrics(State(service): State<Service>) -> Response {
    let text =
        HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
    let body = service.metrics.text(service.waits.all());
    ([(axum::http::header::CONTENT_TYPE, text)], body).into_response()
}

pub(crate) async fn openapi() -> Response {
    crate::answer::json(StatusCode::OK, &crate::openapi::document())
}

pub(crate) async fn not_found() -> Problem {
    Problem::new(
        StatusCode::NOT_FOUND,
        "not_found",
        "see /openapi.json for what there is",
    )
}

pub(crate) async fn method_not_allowed() -> Problem {
    let why = "see /openapi.json for what there is";
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", why)
}
