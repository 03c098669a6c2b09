//! The operations. Each reads its request, asks who may, asks the library, and answers.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::State;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use fencepost::internals::Replica as _;
use fencepost::{FencingToken, Owner};
use fencepost_core::{InvalidLeaseId, LeaseAttempt, LeaseId};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::acquire::{self, Granted, Wish};
use crate::answer::{Form, millis};
use crate::auth::{Principal, Verb};
use crate::body::{Asked, Body, field};
use crate::extend;
use crate::held::{held_for, no_quorum};
use crate::leases::{Claim, Counted};
use crate::limits::Limits;
use crate::metrics::Now;
use crate::problem::Problem;
use crate::release::{self, Release};
use crate::service::{Caller, SeesNodes, Service};
use crate::shown::{shown, shown_with_queue};
use crate::slots::{self, SLOTS};
use crate::unread::Unread;

type Answer = Result<Response, Problem>;

/// The default TTL of the service.
pub(crate) const TTL: Duration = Duration::from_secs(30);

/// The longest `max_hold`: 10 years.
pub(crate) const LONGEST_HOLD: Duration = Duration::from_secs(10 * 31_557_600);

/// The longest label of who asks, and of what for.
const LABEL_BYTES: usize = 200;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AcquireRequest {
    name: Option<String>,
    names: Option<Vec<String>>,
    #[serde(default, deserialize_with = "field::maybe_duration")]
    ttl: Option<Duration>,
    lease: Option<String>,
    #[serde(default, deserialize_with = "field::maybe_number")]
    attempt: Option<u32>,
    #[serde(default, deserialize_with = "field::maybe_duration")]
    wait: Option<Duration>,
    #[serde(default, deserialize_with = "field::flag")]
    fair: bool,
    #[serde(default, deserialize_with = "field::flag")]
    shared: bool,
    #[serde(default, deserialize_with = "field::maybe_number")]
    slots: Option<u32>,
    owner: Option<String>,
    meta: Option<String>,
    #[serde(default, deserialize_with = "field::maybe_duration")]
    max_hold: Option<Duration>,
}

impl AcquireRequest {
    pub(crate) fn checked(self, limits: &Limits, principal: &Principal) -> Result<Wish, Problem> {
        let mut names = match (self.name, self.names) {
            (Some(name), None) => vec![name],
            (None, Some(names)) => names,
            _ => return Err(Problem::invalid("give either name or names")),
        };
        let (most, count) = (limits.names, names.len());
        if count == 0 || count > most {
            let why = format!("expected 1 to {most} names, got {count} (limit names)");
            return Err(Problem::invalid(why).with("limit", "names"));
        }
        for name in &names {
            principal.may(Verb::Acquire, name)?;
        }
        names.sort();
        names.dedup();
        let wait = self.wait.unwrap_or_default();
        if wait > limits.wait {
            let most = limits.wait.as_secs();
            let why = format!("one request waits at most {most} s (limit wait)");
            return Err(Problem::invalid(why).with("limit", "wait"));
        }
        if (self.shared || self.slots.is_some()) && names.len() > 1 {
            return Err(Problem::invalid("shared and slots are for one name"));
        }
        if self.shared && self.slots.is_some() {
            return Err(Problem::invalid("give either shared or slots"));
        }
        if self.shared && self.max_hold.is_some() {
            // It is counted from the token, which a reader shares with those that came before it.
            return Err(Problem::invalid("max_hold is not kept for shared locks"));
        }
        let slots = match self.slots.map(|slots| slots as usize) {
            Some(slots) if slots == 0 || slots > SLOTS => {
                let why = format!("expected 1 to {SLOTS} slots, got {slots}");
                return Err(Problem::invalid(why));
            }
            slots => slots,
        };
        let shortest = Duration::from_millis(1);
        if let Some(time) = self.max_hold
            && !(shortest..=LONGEST_HOLD).contains(&time)
        {
            return Err(Problem::invalid("max_hold is 1 ms to 10 years"));
        }
        let (lease, attempt) = match (&self.lease, self.attempt) {
            (None, None) => (draw()?, 0),
            (None, Some(_)) => return Err(Problem::invalid("an attempt needs a lease id")),
            (Some(_), Some(0)) => return Err(Problem::invalid("attempts count from 1")),
            (Some(lease), attempt) => (lease_id(lease)?, attempt.unwrap_or(1)),
        };
        let max_hold = self.max_hold;
        Ok(Wish {
            renew: names.len() > 1,
            names,
            ttl: self.ttl.unwrap_or(TTL),
            wait,
            fair: self.fair,
            shared: self.shared,
            slots,
            of: LeaseAttempt {
                lease,
                attempt,
                max_hold,
            },
            owner: label(principal, self.owner.as_deref(), self.meta.as_deref())?,
        })
    }
}

/// Who holds the lock, for people: what the client calls itself, and what it says of it.
pub(crate) fn label(
    principal: &Principal,
    owner: Option<&str>,
    meta: Option<&str>,
) -> Result<Owner, Problem> {
    for (field, text) in [("owner", owner), ("meta", meta)] {
        let text = text.unwrap_or_default();
        if text.len() > LABEL_BYTES || text.chars().any(char::is_control) {
            let why = format!("{field} has at most {LABEL_BYTES} bytes and no control characters");
            return Err(Problem::invalid(why));
        }
    }
    let owner = owner.unwrap_or(&principal.name);
    Ok(match meta {
        Some(meta) => Owner::shortened(&format!("{owner}; {meta}")),
        None => Owner::shortened(owner),
    })
}

/// A lease id of our own.
pub(crate) fn draw() -> Result<LeaseId, Problem> {
    drawn().map(LeaseId::new).map_err(|error| {
        let why = format!("the operating system has no random numbers: {error}");
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", why)
    })
}

/// Several at once: beside the two reads and the two writes of an acquire and its release, drawing each would be a fifth
/// system call.
fn drawn() -> Result<u128, getrandom::Error> {
    const AT_ONCE: usize = 256;
    const EACH: usize = size_of::<u128>();
    thread_local! {
        static LEFT: RefCell<Vec<u128>> = const { RefCell::new(Vec::new()) };
    }
    LEFT.with_borrow_mut(|left| {
        if let Some(number) = left.pop() {
            return Ok(number);
        }
        let mut bytes = [[0; EACH]; AT_ONCE / EACH];
        getrandom::fill(bytes.as_flattened_mut())?;
        let [first, rest @ ..] = bytes.map(u128::from_ne_bytes);
        left.extend(rest);
        Ok(first)
    })
}

pub(crate) fn lease_id(text: &str) -> Result<LeaseId, Problem> {
    text.parse()
        .map_err(|error: InvalidLeaseId| Problem::invalid(error.to_string()))
}

pub(crate) async fn acquire(
    State(service): State<Service>,
    Caller(principal): Caller,
    unread: Unread,
    form: Form,
    Body(request): Body<AcquireRequest>,
) -> Answer {
    service.refuse_when_draining()?;
    let wish = request.checked(&service.limits, &principal)?;
    let start = Instant::now();
    let waits = !wish.wait.is_zero();
    let outcome = under_way(&service, &principal, &wish).await;
    let word = match &outcome {
        Ok(_) => "acquired",
        Err(problem) => problem.code,
    };
    service.metrics.acquired(word, start.elapsed(), waits);
    let (granted, counted) = outcome?;
    unread.count(counted);
    Ok(grant(form, wish.of.lease, granted, None, &unread))
}

/// The acquire itself, within the limits.
async fn under_way(
    service: &Service,
    principal: &Principal,
    wish: &Wish,
) -> Result<(Granted, Counted), Problem> {
    let limits = &service.limits;
    let claim = Claim {
        principal: &principal.name,
        lease: wish.of.lease,
        shared: wish.shared,
        reach: Some(match wish.of.attempt {
            // Its id is never used again.
            0 => 0,
            _ => wish.slots.unwrap_or(0),
        }),
    };
    // Before the nodes are asked; what is granted meanwhile is counted once it is there.
    let asked_for: Vec<Arc<str>> = wish.names.iter().map(|name| name.as_str().into()).collect();
    service.leases.room(limits, claim, &asked_for)?;
    let granted = attempted(service, principal, wish).await?;
    let names = match wish.slots {
        None => asked_for,
        Some(_) => granted.leases.iter().map(|it| it.name().into()).collect(),
    };
    // Too many: then they are released, by being dropped.
    let counted = service
        .leases
        .granted(limits, claim, names, granted.valid_for)?;
    Ok((granted, counted))
}

/// A wait ends when the replica is told to stop: it would go on for longer than others wait for that.
async fn attempted(
    service: &Service,
    principal: &Principal,
    wish: &Wish,
) -> Result<Granted, Problem> {
    // Here and below, what is not needed by most is boxed: the future of a request is small enough then for the allocator
    // to have at hand.
    match wish.wait.is_zero() {
        true => one_attempt(service, wish).await,
        false => Box::pin(waited(service, principal, wish)).await,
    }
}

async fn waited(service: &Service, principal: &Principal, wish: &Wish) -> Result<Granted, Problem> {
    let waits = &service.waits;
    let _waiting = waits.begin(&service.limits, &principal.name, &wish.names)?;
    let outcome = tokio::select! {
        biased;
        outcome = one_attempt(service, wish) => outcome,
        problem = service.drained() => Err(problem),
    };
    match outcome {
        Err(problem) if problem.code == "held" => Err(with_place(service, wish, problem).await),
        outcome => outcome,
    }
}

/// With the place in the queue, where that is kept for the next attempt and is among those that are known.
async fn with_place(service: &Service, wish: &Wish, problem: Problem) -> Problem {
    match acquire::place(&service.client, wish, &service.queues).await {
        Some(place) => problem.with("place", place),
        None => problem,
    }
}

/// It ends when a later attempt of its lease begins.
async fn one_attempt(service: &Service, wish: &Wish) -> Result<Granted, Problem> {
    match wish.of.attempt {
        0 => acquire::acquire(&service.client, wish, &service.looks).await,
        _ => Box::pin(numbered(service, wish)).await,
    }
}

async fn numbered(service: &Service, wish: &Wish) -> Result<Granted, Problem> {
    let running = service.attempts.begin(wish.of).await?;
    tokio::select! {
        biased;
        outcome = acquire::acquire(&service.client, wish, &service.looks) => outcome,
        problem = running.superseded() => Err(problem),
    }
}

/// What a client is told that was granted one lock, or several.
#[derive(Serialize)]
struct Grant<'a> {
    lease: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<u64>,
    /// If there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    leases: Vec<GrantedLock<'a>>,
    valid_for_ms: u64,
    waited_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    slot: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stolen_from: Option<&'a str>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    repeated: bool,
}

#[derive(Serialize)]
struct GrantedLock<'a> {
    name: &'a str,
    token: u64,
}

pub(crate) fn grant(
    form: Form,
    lease: LeaseId,
    granted: Granted,
    stolen_from: Option<&str>,
    unread: &Unread,
) -> Response {
    let mut locks = granted.leases.iter().map(|held| GrantedLock {
        name: held.name(),
        token: held.token().get(),
    });
    let (one, leases) = match granted.leases.len() {
        1 => (locks.next(), Vec::new()),
        _ => (None, locks.collect()),
    };
    // Tokens of several names are unrelated: no header is right for all of them.
    let token = one.as_ref().map(|lock| lock.token);
    let body = Grant {
        lease: lease.to_string(),
        name: one.as_ref().map(|lock| lock.name),
        token,
        leases,
        valid_for_ms: millis(granted.valid_for),
        waited_ms: millis(granted.waited),
        slot: granted.slot,
        stolen_from,
        repeated: granted.repeated,
    };
    let mut response = form.answer(&body);
    if let Some(token) = token {
        response
            .headers_mut()
            .insert("fencing-token", HeaderValue::from(token));
    }
    unread.put(granted.leases);
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
    /// Which slot of the name, if it is one of several.
    #[serde(default, deserialize_with = "field::maybe_number")]
    slot: Option<u32>,
    lease: String,
    token: u64,
}

pub(crate) async fn extend(
    State(service): State<Service>,
    Caller(principal): Caller,
    form: Form,
    Body(request): Body<ExtendRequest>,
) -> Answer {
    let most = service.limits.batch;
    if request.leases.is_empty() || request.leases.len() > most {
        let why = format!(
            "expected 1 to {most} leases, got {} (limit batch)",
            request.leases.len()
        );
        return Err(Problem::invalid(why).with("limit", "batch"));
    }
    let ttl = request.ttl.unwrap_or(TTL);
    // Side by side: a thousand of them one after the other would take longer than a TTL.
    let each = request
        .leases
        .iter()
        .map(|lease| extend_one(&service, &principal, lease, ttl));
    let outcomes = futures_util::future::join_all(each).await;
    Ok(form.answer(&json!({ "leases": outcomes })))
}

async fn extend_one(
    service: &Service,
    principal: &Principal,
    lease: &LeaseRef,
    ttl: Duration,
) -> Value {
    let outcome = async {
        principal.may(Verb::Acquire, &lease.name)?;
        let id = lease_id(&lease.lease)?;
        let token = FencingToken::new(lease.token);
        let token = token.ok_or_else(|| Problem::invalid("a token is below 2^53"))?;
        let name = slots::slot_name(&service.client, &lease.name, lease.slot)?;
        let outcome = extend::extend(&service.client, &name, id, token, ttl).await;
        let extended = outcome.map_err(|problem| {
            let problem = service.over(&name, id, problem);
            // To look through all slots for each of a thousand leases would cost too much.
            let may_be_slot = name == slots::plain_name(&name);
            match problem.code == "lost" && may_be_slot {
                true => problem.hinted("; for one of several slots, give its slot"),
                false => problem,
            }
        })?;
        let (who, valid_for) = (&principal.name, extended.valid_for);
        service.leases.extended(who, &name, id, valid_for);
        Ok::<_, Problem>(extended)
    };
    let (outcome, seen) = match outcome.await {
        Ok(extended) => {
            let outcome = json!({
                "name": lease.name, "lease": lease.lease, "outcome": "extended",
                "valid_for_ms": millis(extended.valid_for),
            });
            (outcome, ("extended", extended.margin))
        }
        Err(problem) => {
            let mut outcome = json!({
                "name": lease.name, "lease": lease.lease,
                "outcome": problem.code, "detail": problem.detail(),
            });
            for field in ["holder", "reason", "retry_after_ms"] {
                if let Some(value) = problem.field(field) {
                    outcome[field] = value.clone();
                }
            }
            (outcome, (problem.code, None))
        }
    };
    let (word, margin) = seen;
    service.metrics.extended(word, margin);
    outcome
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReleaseRequest {
    name: String,
    /// Which slot of the name; without it, all are looked through.
    #[serde(default, deserialize_with = "field::maybe_number")]
    slot: Option<u32>,
    /// Whichever of so many slots.
    #[serde(default, deserialize_with = "field::maybe_number")]
    slots: Option<u32>,
    lease: String,
}

pub(crate) async fn release(
    State(service): State<Service>,
    Caller(principal): Caller,
    form: Form,
    Body(request): Body<ReleaseRequest>,
) -> Answer {
    principal.may(Verb::Acquire, &request.name)?;
    let lease = lease_id(&request.lease)?;
    let wanted = Release {
        name: &request.name,
        slot: request.slot,
        slots: request.slots,
        lease,
    };
    let client = &service.client;
    let released = wanted.carry_out(client, &service.leases).await;
    let (names, released) =
        released.inspect_err(|problem| service.metrics.released(problem.code, None))?;
    let name = &names[0];
    let outcome = release::said(client, name, lease, released).await;
    let outcome = outcome.map_err(|problem| service.over(name, lease, problem));
    match &outcome {
        Ok(token) => {
            let held = token.map(held_for);
            service.metrics.released("released", held);
            service.leases.ended(&names, lease);
        }
        Err(problem) => service.metrics.released(problem.code, None),
    }
    outcome?;
    Ok(form.answer(&json!({ "name": request.name, "outcome": "released" })))
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
    form: Form,
    Asked(query): Asked<LocksQuery>,
) -> Answer {
    if let Some(name) = &query.name {
        principal.may(Verb::Read, name)?;
        let status = service.client.status(name).await?;
        let queue = service.client.queue(name).await.ok();
        return Ok(form.answer(&shown_with_queue(&status, queue.as_deref())));
    }
    principal.may_at_all(Verb::Read)?;
    let prefix = query.prefix.as_deref().unwrap_or("");
    let prefixes = principal.prefixes_in(prefix);
    let (mut names, is_cut) = slots::list(&service.client, &prefixes).await?;
    names.retain(|name| principal.sees(name.as_str()));
    if let Some(cursor) = &query.cursor {
        names.retain(|name| name.as_str() > cursor.as_str());
    }
    let more = names.len() > PAGE;
    names.truncate(PAGE);
    let cursor = names.last().filter(|_| more).map(ToString::to_string);
    let found = service.client.statuses(&names).await;
    let listed: Vec<Value> = found.iter().map(shown).collect();
    Ok(form.answer(&json!({ "locks": listed, "cursor": cursor, "more": is_cut || more })))
}

pub(crate) async fn livez() -> Response {
    "ok\n".into_response()
}

/// Whether this replica sees a quorum.
pub(crate) async fn readyz(
    State(service): State<Service>,
    SeesNodes(sees_nodes): SeesNodes,
) -> Answer {
    service.refuse_when_draining()?;
    let status = service.probe.status(&service.client).await?;
    match (status.held, sees_nodes) {
        (Some(_), _) => Ok("ok\n".into_response()),
        (None, true) => Err(no_quorum(&status)),
        (None, false) => Err(no_quorum(&status).without("nodes")),
    }
}

/// Prometheus metrics, unless they are offered at an address of their own.
pub(crate) async fn metrics(
    State(service): State<Service>,
    SeesNodes(sees_nodes): SeesNodes,
) -> Response {
    match service.metrics_elsewhere {
        true => not_found().await.into_response(),
        false => metrics_text(&service, sees_nodes).await,
    }
}

/// At their own address, which is for those who look after the service.
pub(crate) async fn metrics_elsewhere(State(service): State<Service>) -> Response {
    metrics_text(&service, true).await
}

async fn metrics_text(service: &Service, sees_nodes: bool) -> Response {
    let text =
        HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
    let up = match service.probe.status(&service.client).await {
        Ok(status) => {
            let nodes = status.nodes.iter();
            let up = nodes.map(|node| (node.node.clone(), node.lock.is_ok()));
            up.collect()
        }
        Err(_) => Vec::new(),
    };
    let body = service.metrics.text(Now {
        waiters: service.waits.all(),
        leases: service.leases.count(),
        up,
        sees_nodes,
    });
    ([(axum::http::header::CONTENT_TYPE, text)], body).into_response()
}

pub(crate) async fn openapi(State(service): State<Service>) -> Response {
    let document = crate::openapi::document(&service.limits);
    crate::answer::json(StatusCode::OK, &document)
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
