//! A node that is a lock service: replicas of `fencepost serve`, over HTTP.
//!
//! The service has its own quorum, queue and tombstones. Here it is one node: what it grants is
//! granted. A command without a response is sent again, to another replica: an acquire as the next
//! attempt of the *same* lease id, never under a fresh one. Only a steal is not repeated.
//!
//! | file | what it does |
//! | --- | --- |
//!
//! `address`
//! the address of a replica
//!
//! | `http` | requests and connections |
//!
//! `answer`
//! parses responses; pure
//!

mod address;
mod answer;
mod http;

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hyper::header::HeaderValue;
use serde_json::{Value, json};

use self::address::Address;
use self::http::{Answer, Replica};
use super::lock_service::{LockService, Served, Serving, Wanted};
use super::{Call, Names, Node};
use crate::error::{Cause, Error, NodeError};
use crate::runtime::clock::Clock;
#[cfg(feature = "tls")]
use crate::store::redis::{Tls, TlsOptions};
use fencepost_core::lock::Command;
use fencepost_core::name::LockName;
use fencepost_core::pattern::MOST_NAMES;
use fencepost_core::value::AttemptValue;
use fencepost_core::{Moment, NamePattern};

/// How long one replica may take to respond, in addition to the wait for a lock; then another is
/// tried.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);
/// How long after a failure to check whether the service is back.
const LOOK_AGAIN: Duration = Duration::from_millis(250);
/// The default source of the token.
pub(crate) const TOKEN_VARIABLE: &str = "FENCEPOST_SERVICE_TOKEN";

/// How to reach a service.
#[derive(Clone, Default)]
pub(crate) struct ServiceOptions {
    /// The bearer token.
    pub(crate) token: Option<String>,
    /// Whether requests may go over a network without TLS.
    pub(crate) allow_plaintext: bool,
    pub(crate) steal: StealTerms,
    pub(crate) connect_timeout: Duration,
    #[cfg(feature = "tls")]
    pub(crate) tls: TlsOptions,
}

/// What is said beside a steal.
#[derive(Clone, Debug)]
pub(crate) struct StealTerms {
    /// For the service's audit.
    pub(crate) reason: String,
    /// Whether what fencepost did not write is overwritten.
    pub(crate) overwrite_foreign: bool,
}

impl Default for StealTerms {
    fn default() -> Self {
        Self {
            reason: "asked for by an operator".into(),
            overwrite_foreign: false,
        }
    }
}

/// A node that is a lock service.
pub(crate) struct ServiceNode(Arc<Service>);

struct Service {
    replicas: Vec<Replica>,
    /// The replica to try first: the last that responded.
    current: AtomicUsize,
    clock: Arc<dyn Clock>,
    shown: String,
    steal: StealTerms,
    /// A forked child has the same sockets, and must not use them.
    process: u32,
}

impl ServiceNode {
    /// # Errors
    /// [`ErrorKind::InvalidUrl`](crate::ErrorKind::InvalidUrl) and
    /// [`ErrorKind::InvalidOption`](crate::ErrorKind::InvalidOption).
    pub(crate) fn open(
        urls: &[String],
        options: &ServiceOptions,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, Error> {
        let bearer = options.token.as_deref().map(bearer).transpose()?;
        let mut replicas: Vec<Replica> = Vec::with_capacity(urls.len());
        for url in urls {
            let address = Address::parse(url, options.allow_plaintext)?;
            if replicas.iter().any(|other| other.address == address) {
                return Err(Error::from(Cause::InvalidUrl {
                    url: address.shown(),
                    why: "duplicate replica; list each once".into(),
                }));
            }
            #[cfg(not(feature = "tls"))]
            if address.tls {
                return Err(Error::from(Cause::InvalidUrl {
                    url: address.shown(),
                    why: "fencepost was built without its feature tls".into(),
                }));
            }
            #[cfg(feature = "tls")]
            let tls = match address.tls {
                true => Some(Tls::new(&address.host, &options.tls)?),
                false => None,
            };
            replicas.push(Replica::new(
                address,
                options.connect_timeout,
                bearer.clone(),
                #[cfg(feature = "tls")]
                tls,
            ));
        }
        let shown: Vec<_> = replicas.iter().map(|one| one.address.shown()).collect();
        Ok(Self(Arc::new(Service {
            replicas,
            current: AtomicUsize::new(0),
            clock,
            shown: shown.join(","),
            steal: options.steal.clone(),
            process: std::process::id(),
        })))
    }
}

fn bearer(token: &str) -> Result<HeaderValue, Error> {
    let value = HeaderValue::from_str(&format!("Bearer {}", token.trim()));
    let mut value = value.map_err(|_| {
        Error::from(Cause::InvalidOption {
            option: "service_token",
            why: "expected one line of printable characters".into(),
        })
    })?;
    value.set_sensitive(true);
    Ok(value)
}

/// A response, and what it belongs to.
struct Asked {
    answer: Answer,
    /// A moment before the answered request was sent.
    sent: Moment,
    /// How often it may have been sent before without a response.
    sent_before: usize,
}

/// Whether a request may be repeated without knowing its outcome.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Repeat {
    Always,
    OnlyUnsent,
}

impl Service {
    /// Tries one replica after the other, each once, and a single one twice: its connection may
    /// have been stale. `body` builds the request for each.
    async fn ask(
        &self,
        path: &str,
        body: impl Fn() -> Option<Value>,
        limit: Duration,
        repeat: Repeat,
    ) -> Result<Asked, NodeError> {
        if std::process::id() != self.process {
            return Err(NodeError::Forked);
        }
        let mut sent_before = 0;
        let mut tries = self.replicas.len().max(2);
        loop {
            let current = self.current.load(Ordering::Relaxed);
            let replica = &self.replicas[current % self.replicas.len()];
            let sent = self.clock.now();
            let answer = replica.send(path, body(), limit).await;
            tries -= 1;
            let is_unsent = matches!(answer, Err(NodeError::Unreachable(_)));
            let goes_on = tries > 0 && (is_unsent || repeat == Repeat::Always);
            let error = match answer {
                // Another replica may succeed: this one drains, or sees no quorum.
                Ok(answer) if answer.status >= 500 && goes_on => answer::refusal(&answer),
                Ok(answer) => {
                    return Ok(Asked {
                        answer,
                        sent,
                        sent_before,
                    });
                }
                Err(error) => error,
            };
            sent_before += usize::from(!is_unsent);
            // Only if no other call has noticed before.
            let next = current.wrapping_add(1);
            let moved =
                self.current
                    .compare_exchange(current, next, Ordering::Relaxed, Ordering::Relaxed);
            if !goes_on {
                return Err(error);
            }
            tracing::debug!(
                replica = replica.address.shown(), %error, another = moved.is_ok(),
                "retrying at the lock service"
            );
        }
    }

    async fn post(&self, path: &str, body: &Value) -> Result<Asked, NodeError> {
        let body = || Some(body.clone());
        self.ask(path, body, ANSWER_LIMIT, Repeat::Always).await
    }

    async fn get(&self, path: &str) -> Result<Answer, NodeError> {
        let asked = self.ask(path, || None, ANSWER_LIMIT, Repeat::Always);
        asked.await.map(|asked| asked.answer)
    }

    async fn hello(&self) -> Result<(), NodeError> {
        let answer = self.get("/readyz").await?;
        match answer.status {
            200 => Ok(()),
            _ => Err(answer::refusal(&answer)),
        }
    }

    async fn carry_out(
        &self,
        name: &LockName,
        command: Command,
    ) -> Result<fencepost_core::lock::Reply, NodeError> {
        match command {
            Command::Extend {
                value, ttl, token, ..
            }
            | Command::ExtendShared { value, ttl, token } => {
                let lease = json!({
                    "name": name.as_str(), "lease": lease_id(&value)?, "token": token.get(),
                });
                let body = json!({ "leases": [lease], "ttl": duration(ttl.get()) });
                answer::extended(&self.post("/v1/extend", &body).await?.answer)
            }
            Command::Release { value, .. } => {
                let body = json!({ "name": name.as_str(), "lease": lease_id(&value)? });
                let asked = self.post("/v1/release", &body).await?;
                answer::released(&asked.answer, asked.sent_before > 0)
            }
            Command::Steal {
                value, ttl, from, ..
            } if from.is_empty() => {
                let body = json!({
                    "name": name.as_str(), "lease": lease_id(&value)?,
                    "ttl": duration(ttl.get()), "owner": value.owner().as_str(),
                    "reason": self.steal.reason,
                    "overwrite_foreign": self.steal.overwrite_foreign,
                });
                let body = || Some(body.clone());
                let asked = self.ask("/v1/steal", body, ANSWER_LIMIT, Repeat::OnlyUnsent);
                answer::stolen(&asked.await?.answer)
            }
            Command::Inspect => {
                let path = format!("/v1/locks?name={}", escaped(name.as_str()));
                answer::snapshot(&self.get(&path).await?)
            }
            _ => Err(NodeError::Unsuitable(
                "a lock service keeps its queue itself".into(),
            )),
        }
    }

    async fn names(&self, wanted: &NamePattern) -> Result<Names, NodeError> {
        let mut found = Names::default();
        let mut cursor = String::new();
        loop {
            let path = format!("/v1/locks?cursor={}", escaped(&cursor));
            let page = answer::names(&self.get(&path).await?)?;
            let names = page.names.into_iter();
            let names = names.filter(|name| wanted.matches(name.as_str()));
            found.names.extend(names);
            match page.next {
                Some(next) if found.names.len() < MOST_NAMES && next > cursor => cursor = next,
                next => {
                    found.more = next.is_some() || page.more;
                    return Ok(found);
                }
            }
        }
    }

    async fn acquire(&self, wanted: &Wanted, wait: Duration) -> Result<Served, NodeError> {
        let lease = lease_id(&wanted.value)?;
        let owner = wanted.value.owner();
        let body = || {
            let mut body = json!({
                "name": wanted.name.as_str(), "lease": lease, "attempt": wanted.next_attempt(),
                "ttl": duration(wanted.ttl.get()), "wait": duration(wait),
                "fair": wanted.fair, "shared": wanted.shared, "owner": owner.as_str(),
            });
            if let Some(slots) = wanted.slots {
                body["slots"] = slots.into();
            }
            Some(body)
        };
        let limit = wait + ANSWER_LIMIT;
        let asked = self.ask("/v1/acquire", body, limit, Repeat::Always).await?;
        answer::acquired(&asked.answer, asked.sent)
    }
}

impl Node for ServiceNode {
    fn call(&self, name: &LockName, command: Command) -> Call {
        let (service, name) = (Arc::clone(&self.0), name.clone());
        Box::pin(async move { service.carry_out(&name, command).await })
    }

    fn address(&self) -> &str {
        &self.0.shown
    }

    fn hello(&self) -> Pin<Box<dyn Future<Output = Result<(), NodeError>> + Send + '_>> {
        Box::pin(self.0.hello())
    }

    fn names<'a>(
        &'a self,
        wanted: &'a NamePattern,
    ) -> Pin<Box<dyn Future<Output = Result<Names, NodeError>> + Send + 'a>> {
        Box::pin(self.0.names(wanted))
    }

    fn ready(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async {
            while self.0.hello().await.is_err() {
                tokio::time::sleep(LOOK_AGAIN).await;
            }
        })
    }

    fn service(&self) -> Option<&dyn LockService> {
        Some(self)
    }
}

impl LockService for ServiceNode {
    fn acquire<'a>(&'a self, wanted: &'a Wanted, wait: Duration) -> Serving<'a> {
        Box::pin(self.0.acquire(wanted, wait))
    }
}

/// The random part of a value, unique to its lease.
fn lease_id(value: &AttemptValue) -> Result<&str, NodeError> {
    let id = value.unique_part();
    match id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        true => Ok(id),
        false => Err(NodeError::Refused(
            "this value does not belong to a lease of a lock service".into(),
        )),
    }
}

fn duration(time: Duration) -> String {
    format!("{}ms", time.as_millis())
}

/// Percent-encodes a part of a query.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                escaped.push(char::from(byte));
            }
            byte => {
                use std::fmt::Write as _;
                // Writing to a string cannot fail.
                let _ = write!(escaped, "%{byte:02X}");
            }
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use fencepost_core::Owner;

    #[test]
    fn the_lease_id_is_the_part_of_a_value_that_no_other_has() {
        let value = AttemptValue::labelled(7, &Owner::readable("me"));
        assert_eq!(lease_id(&value), Ok("00000000000000000000000000000007"));
        assert!(lease_id(&AttemptValue::reported("foreign")).is_err());
    }

    #[test]
    fn whatever_a_name_contains_it_stays_one_field_of_the_query() {
        assert_eq!(escaped("a/b c&d=é"), "a%2Fb%20c%26d%3D%C3%A9");
    }
}
