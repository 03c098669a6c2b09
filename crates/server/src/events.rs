//! `GET /v1/events`: what happens to locks, as server-sent events, and the same for those who poll.
//!
//! First a `snapshot`, then each `acquired`, `released`, `expired`, `stolen` and `lost`; `locks` has
//! what else has changed (renewals, waiters); `heartbeat` says when the nodes were last asked;
//! `closing` is the last word of a replica that drains. All streams of a replica share one watcher.
//! A reader that is too slow gets a new snapshot.
//!
//! With `after` it is one answer instead of a stream: `after=0` gives the snapshot and a cursor, and
//! `after=CURSOR` waits for what has happened since.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::extract::{FromRequestParts, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::broadcast;
use tokio::time::timeout_at;

use crate::answer::Form;
use crate::auth::{Principal, Verb, authenticate};
use crate::body::Asked;
use crate::limits::reached;
use crate::peers::together;
use crate::problem::Problem;
use crate::service::{Caller, Certificate, Mode, Service};
use crate::slots::{has_prefix, plain_name};
use crate::timeline::Filter;
use crate::tracker::Event;
use crate::view::LockView;
use crate::watcher::{Delta, Message, Snapshot, Viewer, Watcher};

/// How often a stream without news says when the nodes were last asked.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// How long whoever comes first waits for the first look.
const FIRST_LOOK: Duration = Duration::from_secs(10);
/// How long one poll waits, unless it says otherwise, and at the most.
const POLL: Duration = Duration::from_secs(30);
const LONGEST_POLL: Duration = Duration::from_secs(60);
/// How often it is looked whether a stream's principal may still see it.
const REAUTHENTICATE: Duration = Duration::from_secs(1);

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EventsQuery {
    name: Option<String>,
    prefix: Option<String>,
    after: Option<String>,
    wait: Option<String>,
}

/// Who asked for a stream, and how it can be asked again whether it may.
pub(crate) struct Credentials {
    headers: HeaderMap,
    certificate: Option<[u8; 32]>,
}

impl FromRequestParts<Service> for Credentials {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &Service) -> Result<Self, Infallible> {
        let mut headers = HeaderMap::new();
        if let Some(value) = parts.headers.get(header::AUTHORIZATION) {
            headers.insert(header::AUTHORIZATION, value.clone());
        }
        let shown = parts.extensions.get::<Certificate>();
        Ok(Self {
            headers,
            certificate: shown.and_then(|shown| shown.0),
        })
    }
}

/// Which locks a stream is about, and who may see them.
struct Scope {
    principal: Principal,
    /// One name, or all names with that prefix.
    about: (Option<String>, String),
    mode: Mode,
}

impl Scope {
    fn of(principal: Principal, mode: Mode, query: &EventsQuery) -> Result<Self, Problem> {
        match &query.name {
            Some(name) => principal.may(Verb::Read, name)?,
            None => principal.may_at_all(Verb::Read)?,
        }
        Ok(Self {
            principal,
            about: (query.name.clone(), query.prefix.clone().unwrap_or_default()),
            mode,
        })
    }

    fn has(&self, name: &str) -> bool {
        let fits = match &self.about {
            (Some(wanted), _) => wanted == name || wanted == plain_name(name),
            (None, prefix) => has_prefix(name, prefix),
        };
        fits && self.principal.sees(name)
    }

    /// Of nodes only those learn who may see them.
    fn has_event(&self, event: &Event) -> bool {
        match &event.name {
            Some(name) => self.has(name),
            None => self.name().is_none() && self.principal.has(Verb::Nodes),
        }
    }

    /// The one lock that it is about.
    fn name(&self) -> Option<&str> {
        self.about.0.as_deref()
    }

    fn cycles(&self, all: &[crate::watcher::CycleView]) -> Value {
        let sees = |name: &str| self.principal.sees(name);
        let seen = all
            .iter()
            .filter(|cycle| cycle.steps.iter().all(|step| sees(&step.lock)));
        json!(seen.collect::<Vec<_>>())
    }

    /// One lock for a stream of its own comes with what each node says and who held it before.
    fn lock(&self, lock: &LockView, watcher: &Watcher) -> Value {
        let mut shown = json!(lock);
        if self.name().is_some() {
            shown["nodes"] = json!(lock.cells);
            shown["past"] = json!(watcher.past(&lock.name));
        }
        shown
    }

    fn snapshot(&self, snapshot: &Snapshot, watcher: &Watcher) -> Value {
        let locks = snapshot.locks.values();
        let wanted = |lock: &&Arc<LockView>| {
            self.has(&lock.name) && (self.name().is_some() || lock.is_busy())
        };
        let locks: Vec<_> = locks
            .filter(wanted)
            .map(|lock| self.lock(lock, watcher))
            .collect();
        json!({
            "seq": snapshot.seq, "at_ms": snapshot.at_ms, "took_ms": snapshot.took_ms,
            "cursor": cursor(watcher, snapshot.seq),
            "locks": locks, "nodes": self.nodes(&snapshot.nodes),
            "cycles": self.cycles(&snapshot.cycles), "you": self.you(),
        })
    }

    fn nodes(&self, nodes: &[crate::watcher::NodeState]) -> Value {
        match self.principal.has(Verb::Nodes) {
            true => json!(nodes),
            false => Value::Null,
        }
    }

    fn you(&self) -> Value {
        json!({
            "principal": &*self.principal.name,
            "may_steal": self.mode != Mode::ReadOnly && self.principal.has(Verb::Steal),
            "read_only": self.mode == Mode::ReadOnly,
            "may_see_nodes": self.principal.has(Verb::Nodes),
        })
    }

    /// What of a look is to be sent: the events, and what else has changed, if anything.
    fn news(&self, delta: &Delta, watcher: &Watcher) -> (Vec<Value>, Option<Value>) {
        let events = delta.events.iter().filter(|event| self.has_event(event));
        let events: Vec<Value> = events.map(|event| json!(event)).collect();
        let changed = delta.changed.iter().filter(|lock| self.has(&lock.name));
        let changed: Vec<_> = changed.map(|lock| self.lock(lock, watcher)).collect();
        let removed: Vec<_> = delta.removed.iter().filter(|name| self.has(name)).collect();
        if changed.is_empty() && removed.is_empty() && !(delta.also && self.name().is_none()) {
            return (events, None);
        }
        let mut locks = json!({
            "seq": delta.seq, "at_ms": delta.at_ms, "took_ms": delta.took_ms,
            "changed": changed, "removed": removed,
        });
        if delta.also {
            locks["nodes"] = self.nodes(&delta.nodes);
            locks["cycles"] = self.cycles(&delta.cycles);
        }
        (events, Some(locks))
    }

    /// The same as a stream has it: nothing where there is nothing to say.
    fn text(&self, delta: &Delta, watcher: &Watcher) -> Bytes {
        let mut out = String::new();
        let (events, locks) = self.news(delta, watcher);
        for event in &events {
            let word = event["event"].as_str().unwrap_or("event");
            message(&mut out, word, Some(delta.seq), event);
        }
        if let Some(locks) = locks {
            message(&mut out, "locks", Some(delta.seq), &locks);
        }
        out.into()
    }
}

fn cursor(watcher: &Watcher, seq: u64) -> String {
    format!("{}-{seq}", watcher.epoch())
}

fn message(out: &mut String, event: &str, id: Option<u64>, data: &Value) {
    use std::fmt::Write as _;
    // JSON has no line break in it.
    let _ = match id {
        Some(id) => write!(out, "id: {id}\nevent: {event}\ndata: {data}\n\n"),
        None => write!(out, "event: {event}\ndata: {data}\n\n"),
    };
}

pub(crate) async fn events(
    State(service): State<Service>,
    Caller(principal): Caller,
    credentials: Credentials,
    headers: HeaderMap,
    Asked(query): Asked<EventsQuery>,
) -> Result<Response, Problem> {
    let scope = Scope::of(principal, service.mode, &query)?;
    service.refuse_when_draining()?;
    let watcher = service.watcher.clone();
    let most = service.limits.streams;
    let viewer = watcher.watch(most).ok_or_else(|| {
        let why = format!("{most} event streams are open already");
        reached("streams", &why)
    })?;
    if let Some(after) = &query.after {
        let body = poll(&scope, &watcher, after, query.wait.as_deref()).await?;
        drop(viewer);
        return Ok(Form::wanted(&headers).answer(&body));
    }
    // Before the snapshot, so that nothing is missed in between.
    let messages = watcher.subscribe();
    let snapshot = watcher.snapshot(FIRST_LOOK).await;
    let snapshot = snapshot.ok_or_else(no_look)?;
    let mut first = String::new();
    let body = scope.snapshot(&snapshot, &watcher);
    message(&mut first, "snapshot", Some(snapshot.seq), &body);
    let stream = Stream {
        service,
        watcher,
        scope,
        credentials,
        messages,
        seq: snapshot.seq,
        first: Some(first.into()),
        authenticated: Instant::now(),
        ended: false,
        _viewer: viewer,
    };
    let body = futures_util::stream::unfold(stream, |mut stream| async move {
        let text = stream.next().await?;
        Some((Ok::<_, Infallible>(text), stream))
    });
    let kind = HeaderValue::from_static("text/event-stream");
    let fresh = HeaderValue::from_static("no-store");
    let mut response = Body::from_stream(body).into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response.headers_mut().insert(header::CACHE_CONTROL, fresh);
    // A proxy that collects what it forwards would make the stream useless.
    let unbuffered = HeaderValue::from_static("no");
    response
        .headers_mut()
        .insert("x-accel-buffering", unbuffered);
    Ok(response)
}

fn no_look() -> Problem {
    let why = "the nodes could not be asked in time";
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "no_quorum", why)
        .retry_after(Duration::from_secs(1))
}

struct Stream {
    service: Service,
    watcher: Watcher,
    scope: Scope,
    credentials: Credentials,
    messages: broadcast::Receiver<Message>,
    seq: u64,
    first: Option<Bytes>,
    authenticated: Instant,
    ended: bool,
    _viewer: Viewer,
}

impl Stream {
    async fn next(&mut self) -> Option<Bytes> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        if self.ended {
            return None;
        }
        let quiet = tokio::time::Instant::now() + HEARTBEAT;
        loop {
            let next = timeout_at(quiet, self.messages.recv()).await;
            if let Some(refused) = self.refused() {
                return Some(
                    self.close(&json!({ "code": refused.code, "detail": refused.detail() })),
                );
            }
            let mut out = String::new();
            match next {
                Ok(Ok(Message::Looked(delta, _))) if delta.seq <= self.seq => continue,
                Ok(Ok(Message::Looked(delta, texts))) => {
                    self.seq = delta.seq;
                    let Scope {
                        about, principal, ..
                    } = &self.scope;
                    let write = || self.scope.text(&delta, &self.watcher);
                    let text = texts.shared(about, principal, write);
                    if text.is_empty() {
                        continue;
                    }
                    return Some(text);
                }
                Ok(Ok(Message::Closing)) | Ok(Err(broadcast::error::RecvError::Closed)) => {
                    let why =
                        json!({ "code": "draining", "detail": "this replica is shutting down" });
                    return Some(self.close(&why));
                }
                Ok(Err(broadcast::error::RecvError::Lagged(_))) => {
                    let snapshot = self.watcher.snapshot(FIRST_LOOK).await?;
                    self.seq = snapshot.seq;
                    let body = self.scope.snapshot(&snapshot, &self.watcher);
                    message(&mut out, "snapshot", Some(snapshot.seq), &body);
                }
                Err(_) => {
                    let (at_ms, took_ms) = self
                        .watcher
                        .fresh_at()
                        .map_or((Value::Null, Value::Null), |(at, took)| {
                            (at.into(), took.into())
                        });
                    let body = json!({ "at_ms": at_ms, "took_ms": took_ms });
                    message(&mut out, "heartbeat", None, &body);
                }
            }
            return Some(out.into());
        }
    }

    fn close(&mut self, why: &Value) -> Bytes {
        self.ended = true;
        let mut out = String::new();
        message(&mut out, "closing", None, why);
        out.into()
    }

    /// Whether its principal may not see it any more: its token may be gone, or its rights.
    fn refused(&mut self) -> Option<Problem> {
        if self.authenticated.elapsed() < REAUTHENTICATE {
            return None;
        }
        self.authenticated = Instant::now();
        let Credentials {
            headers,
            certificate,
        } = &self.credentials;
        let who = authenticate(self.service.tokens.as_ref(), headers, certificate.as_ref());
        let allowed = who.and_then(|principal| {
            match self.scope.name() {
                Some(name) => principal.may(Verb::Read, name)?,
                None => principal.may_at_all(Verb::Read)?,
            }
            Ok(principal)
        });
        match allowed {
            Ok(principal) => {
                self.scope.principal = principal;
                None
            }
            Err(problem) => Some(problem),
        }
    }
}

/// One answer: the snapshot, or what has happened since the cursor.
async fn poll(
    scope: &Scope,
    watcher: &Watcher,
    after: &str,
    wait: Option<&str>,
) -> Result<Value, Problem> {
    let wait = match wait {
        None => POLL,
        Some(text) => humantime::parse_duration(text)
            .map_err(|error| Problem::invalid(format!("wait: {text:?}: {error}")))?,
    };
    let end = tokio::time::Instant::now() + wait.min(LONGEST_POLL);
    let seq = match after {
        "0" | "" => None,
        cursor => {
            let parts = cursor.split_once('-');
            let parts =
                parts.and_then(|(epoch, seq)| Some((epoch.parse().ok()?, seq.parse().ok()?)));
            let parts: Option<(u64, u64)> = parts;
            let Some((epoch, seq)) = parts else {
                return Err(Problem::invalid(
                    "after: send 0, or the cursor of the last answer",
                ));
            };
            // Of another replica, or of this one before it was started again: begin anew.
            (epoch == watcher.epoch()).then_some(seq)
        }
    };
    let mut messages = watcher.subscribe();
    while let Some(mut seen) = seq {
        // Looks that are not known any more: begin anew.
        let Some(looks) = watcher.after(seen) else {
            break;
        };
        let (mut events, mut locks) = (Vec::new(), Vec::new());
        for delta in &looks {
            seen = delta.seq;
            let (mut some, changed) = scope.news(delta, watcher);
            events.append(&mut some);
            locks.extend(changed);
        }
        let late = tokio::time::Instant::now() >= end;
        if !events.is_empty() || !locks.is_empty() || late || watcher.is_closed() {
            return Ok(json!({
                "cursor": cursor(watcher, seen), "events": events, "locks": locks,
            }));
        }
        let _ = timeout_at(end, messages.recv()).await;
    }
    let snapshot = watcher.snapshot(FIRST_LOOK).await;
    let snapshot = snapshot.ok_or_else(no_look)?;
    let body = scope.snapshot(&snapshot, watcher);
    Ok(json!({ "cursor": body["cursor"], "snapshot": body }))
}

/// `GET /v1/nodes`: what `fencepost doctor --json` prints.
pub(crate) async fn nodes(
    State(service): State<Service>,
    Caller(principal): Caller,
    form: Form,
) -> Result<Response, Problem> {
    principal.may_at_all(Verb::Nodes)?;
    if let Some(found) = service.watcher.examined().await {
        return Ok(form.answer(&found));
    }
    // Without a doctor it is told who answers, and no more.
    let status = service.client.status("fencepost-nodes").await?;
    let nodes = status.nodes.iter().map(|node| match &node.lock {
        Ok(_) => json!({ "node": node.node }),
        Err(error) => json!({ "node": node.node, "error": error.to_string() }),
    });
    let nodes: Vec<_> = nodes.collect();
    let voters = status.nodes.iter().filter(|node| node.lock.is_ok()).count();
    let needed = nodes.len() / 2 + 1;
    let body = json!({ "nodes": nodes, "findings": [], "voters": voters, "needed": needed });
    Ok(form.answer(&body))
}

/// `GET /v1/contention`.
pub(crate) async fn contention(
    State(service): State<Service>,
    Caller(principal): Caller,
    form: Form,
) -> Result<Response, Problem> {
    principal.may_at_all(Verb::Read)?;
    let body = service.watcher.contention(|name| principal.sees(name));
    Ok(form.answer(&body))
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TimelineQuery {
    since_ms: Option<u64>,
    name: Option<String>,
    owner: Option<String>,
    node: Option<String>,
    only: Option<Only>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Only {
    /// What this replica knows, without asking its peers.
    This,
}

/// `GET /v1/timeline`: of all replicas, unless `only=this`.
pub(crate) async fn timeline(
    State(service): State<Service>,
    Caller(principal): Caller,
    credentials: Credentials,
    form: Form,
    Asked(query): Asked<TimelineQuery>,
) -> Result<Response, Problem> {
    principal.may_at_all(Verb::Read)?;
    let filter = Filter {
        since_ms: query.since_ms.unwrap_or(0),
        name: query.name.filter(|text| !text.is_empty()),
        owner: query.owner.filter(|text| !text.is_empty()),
        node: query.node.filter(|text| !text.is_empty()),
    };
    let known = |filter| {
        let sees = |event: &Event| match &event.name {
            Some(name) => principal.sees(name),
            None => principal.has(Verb::Nodes),
        };
        service.watcher.timeline(filter, sees)
    };
    let others = match query.only {
        Some(Only::This) => Vec::new(),
        None => {
            let token = credentials.headers.get(header::AUTHORIZATION);
            service.peers.timelines(&filter.query(), token).await
        }
    };
    let body = together(known(&filter), others);
    Ok(form.answer(&body))
}
