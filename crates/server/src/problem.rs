//! [`Problem`]: an error as RFC 9457 `application/problem+json`, with a code that stays the same.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use fencepost::{Error, ErrorKind};
use serde_json::{Map, Value, json};

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
        let detail = error.to_string();
        let nodes = |nodes: &[fencepost::NodeReport]| -> Value {
            let each = nodes.iter().map(
                |report| json!({ "node": report.node, "outcome": report.outcome.to_string() }),
            );
            each.collect()
        };
        match error.kind() {
            ErrorKind::Held | ErrorKind::Timeout => {
                let problem = Self::new(StatusCode::CONFLICT, "held", detail);
                let Some(holder) = error.holder() else {
                    return problem;
                };
                let problem = problem.with("holder", holder.owner.to_string());
                match holder.remaining {
                    Some(left) => problem.with("expires_in_ms", crate::answer::millis(left)),
                    None => problem,
                }
            }
            ErrorKind::NoQuorum | ErrorKind::Unreachable => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "no_quorum", detail)
                    .with("nodes", nodes(error.nodes()))
            }
            ErrorKind::TooLate => Self::new(StatusCode::SERVICE_UNAVAILABLE, "too_late", detail),
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

    pub(crate) fn detail(&self) -> &str {
        &self.detail
    }

    fn title(&self) -> &'static str {
        match self.code {
            "held" => "The lock is held",
            "lost" => "The lease is over",
            "released" => "The lease was released",
            "in_progress" => "The attempt is under way or has been served",
            "superseded" => "A later attempt has begun",
            "no_quorum" => "Too few nodes answered",
            "too_late" => "Granted too late",
            "invalid" => "The request cannot be used",
            "unauthenticated" => "Authentication is required",
            "forbidden" => "Not permitted",
            "limit" => "A limit was reached",
            "not_found" => "No such path",
            "method_not_allowed" => "No such method here",
            "unsupported_media_type" => "The body has an unknown type",
            "malformed" => "The body cannot be read",
            "too_large" => "The request is too large",
            "draining" => "This replica is shutting down",
            _ => "The service failed",
        }
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        Self::of(&error)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut body = Map::new();
        body.insert("type".into(), format!("urn:fencepost:{}", self.code).into());
        body.insert("title".into(), self.title().into());
        body.insert("status".into(), self.status.as_u16().into());
        body.insert("code".into(), self.code.into());
        body.insert("detail".into(), self.detail.into());
        body.extend(self.more);
        let mut response = (self.status, Value::Object(body).to_string()).into_response();
        let headers = response.headers_mut();
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/problem+json"),
        );
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
