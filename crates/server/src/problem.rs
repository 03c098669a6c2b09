//! [`Problem`]: an error as RFC 9457 `application/problem+json`, with a code that stays the same.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use fencepost::{Error, ErrorKind, NodeOutcome, NodeReport};
use serde_json::{Map, Value, json};

use crate::trace::{self, request_id};

/// After which time it is worth asking again where nothing better is known.
pub(crate) const SOON: std::time::Duration = std::time::Duration::from_secs(1);

/// The type of what is sent.
pub(crate) const KIND: &str = "application/problem+json";

/// What went wrong, for the client of the service.
#[derive(Debug)]
pub(crate) struct Problem {
    pub(crate) status: StatusCode,
    pub(crate) code: &'static str,
    detail: String,
    more: Map<String, Value>,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Self {
        Self {
            status,
            code,
            detail: detail.into(),
            more: Map::new(),
        }
    }

    /// What cannot be used: the request changes nothing, however often it is repeated.
    pub(crate) fn invalid(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", detail)
    }

    pub(crate) fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.more.insert(name.to_owned(), value.into());
        self
    }

    pub(crate) fn retry_after(self, time: std::time::Duration) -> Self {
        self.with("retry_after_ms", crate::answer::millis(time))
    }

    /// What the library said. Nothing is known to be held by the caller after any of these.
    pub(crate) fn of(error: &Error) -> Self {
        let error = &error.clone().naming(crate::shown::named);
        let detail = error.to_string();
        let nodes = |nodes: &[NodeReport]| -> Value {
            let each = nodes.iter().map(
                |report| json!({ "node": report.node, "outcome": report.outcome.to_string() }),
            );
            each.collect()
        };
        match error.kind() {
            ErrorKind::Held | ErrorKind::Timeout => {
                let problem = Self::new(StatusCode::CONFLICT, "held", detail);
                let Some(holder) = error.holder() else {
                    return problem.retry_after(SOON);
                };
                let since = holder.since().map(crate::answer::unix_millis);
                let token = holder.token.map(fencepost::FencingToken::get);
                let problem = problem
                    .with("holder", holder.owner.to_string())
                    .with("holder_token", token)
                    .with("since_ms", since);
                match holder.remaining {
                    // It may be released before; who wants to know at once says `wait`.
                    Some(left) => problem
                        .with("expires_in_ms", crate::answer::millis(left))
                        .retry_after(left.min(SOON)),
                    None => problem.retry_after(SOON),
                }
            }
            ErrorKind::NoQuorum | ErrorKind::Unreachable => {
                let reports = error.nodes();
                let problem = |code| {
                    Self::new(StatusCode::SERVICE_UNAVAILABLE, code, detail)
                        .with("nodes", nodes(reports))
                };
                match needs_operator(reports) {
                    true => problem("unusable"),
                    false => problem("no_quorum").retry_after(SOON),
                }
            }
            ErrorKind::TooLate => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "too_late", detail).retry_after(SOON)
            }
            ErrorKind::Lost => {
                let why = error.loss().map(fencepost::LossReason::as_str);
                Self::new(StatusCode::GONE, "lost", detail).with("reason", why)
            }
            ErrorKind::InvalidName | ErrorKind::InvalidTtl | ErrorKind::InvalidOption => {
                Self::invalid(detail)
            }
            _ => Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", detail),
        }
    }

    pub(crate) fn without(mut self, name: &str) -> Self {
        self.more.remove(name);
        self
    }

    pub(crate) fn field(&self, name: &str) -> Option<&Value> {
        self.more.get(name)
    }

    /// What may help, behind what is wrong.
    pub(crate) fn hinted(mut self, hint: &str) -> Self {
        self.detail.push_str(hint);
        self
    }

    pub(crate) fn detail(&self) -> &str {
        &self.detail
    }

    fn title(&self) -> &'static str {
        match self.code {
            "held" => "Lock is held",
            "lost" => "Lease expired or lost",
            "released" => "Lease was released",
            "in_progress" => "Attempt in progress or already served",
            "superseded" => "Superseded by a later attempt",
            "not_held" => "Lock is free",
            "not_a_lock" => "Key is not a lock",
            "no_quorum" => "No quorum",
            "unusable" => "Nodes need an operator",
            "too_late" => "Lease ended before the answer",
            "invalid" => "Invalid request",
            "unauthenticated" => "Authentication required",
            "forbidden" => "Permission denied",
            "foreign_host" => "Host not allowed",
            "foreign_origin" => "Cross-site request refused",
            "read_only" => "Read-only service",
            "limit" => "Limit exceeded",
            "not_found" => "Not found",
            "method_not_allowed" => "Method not allowed",
            "unsupported_media_type" => "Unsupported media type",
            "malformed" => "Malformed body",
            "too_large" => "Request too large",
            "draining" => "Replica is shutting down",
            _ => "Internal error",
        }
    }
}

/// Whether so many nodes refuse until somebody acts that asking again does not help.
fn needs_operator(reports: &[NodeReport]) -> bool {
    let refuses = |report: &&NodeReport| matches!(&report.outcome, NodeOutcome::Failed(error) if error.is_permanent());
    let refusing = reports.iter().filter(refuses).count();
    refusing > 0 && reports.len() - refusing <= reports.len() / 2
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        Self::of(&error)
    }
}

impl Problem {
    /// What is sent.
    pub(crate) fn document(self) -> Value {
        let mut body = Map::new();
        body.insert("type".into(), format!("urn:fencepost:{}", self.code).into());
        body.insert("title".into(), self.title().into());
        body.insert("status".into(), self.status.as_u16().into());
        body.insert("code".into(), self.code.into());
        body.insert("detail".into(), self.detail.into());
        body.extend(self.more);
        if let Some(id) = request_id() {
            body.insert("request_id".into(), id.into());
        }
        Value::Object(body)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = self.status;
        trace::outcome(self.code);
        let mut response = (status, self.document().to_string()).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(KIND));
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
