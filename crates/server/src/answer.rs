//! [`Answer`]: what an operation gives, as JSON or as `KEY=value` lines that a shell can `eval`.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::{Value, json};

/// In which form the caller wants its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Json,
    Shell,
}

impl Form {
    /// By the `Accept` header: JSON, unless plain text is asked for and JSON is not.
    pub(crate) fn wanted(headers: &HeaderMap) -> Self {
        let accept = headers.get(header::ACCEPT);
        let accept = accept.and_then(|value| value.to_str().ok()).unwrap_or("");
        match accept.contains("text/plain") && !accept.contains("json") {
            true => Self::Shell,
            false => Self::Json,
        }
    }

    pub(crate) fn answer(self, body: &impl Serialize) -> Response {
        match self {
            Self::Json => json(StatusCode::OK, body),
            Self::Shell => {
                let mut lines = String::new();
                shell_lines(&mut lines, "", &json!(body));
                let plain = HeaderValue::from_static("text/plain; charset=utf-8");
                ([(header::CONTENT_TYPE, plain)], lines).into_response()
            }
        }
    }
}

impl<S: Sync> FromRequestParts<S> for Form {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self::wanted(&parts.headers))
    }
}

pub(crate) fn json(status: StatusCode, body: &impl Serialize) -> Response {
    let json = HeaderValue::from_static("application/json");
    // What we answer has text for keys, and that is all that could be wrong.
    let body = serde_json::to_string(body).unwrap_or_default();
    (status, [(header::CONTENT_TYPE, json)], body).into_response()
}

/// Whole milliseconds, cut off: a validity must never be rounded up.
pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Milliseconds since 1970.
pub(crate) fn unix_millis(at: SystemTime) -> u64 {
    millis(at.duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// `NAME='job'`, nested names joined by `_`; a list by its place.
fn shell_lines(out: &mut String, name: &str, value: &Value) {
    let join = |part: &str| match name {
        "" => part.to_uppercase(),
        name => format!("{name}_{}", part.to_uppercase()),
    };
    match value {
        Value::Object(fields) => {
            for (field, value) in fields {
                shell_lines(out, &join(field), value);
            }
        }
        Value::Array(items) => {
            for (place, value) in items.iter().enumerate() {
                shell_lines(out, &join(&place.to_string()), value);
            }
        }
        Value::Null => {
            let _ = writeln!(out, "{name}=");
        }
        Value::String(text) => {
            let _ = writeln!(out, "{name}='{}'", text.replace('\'', r"'\''"));
        }
        plain => {
            let _ = writeln!(out, "{name}={plain}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_can_be_evaluated_whatever_a_name_contains() {
        let mut lines = String::new();
        shell_lines(
            &mut lines,
            "",
            &json!({ "name": "it's $(rm)", "token": 7, "a": [{ "b": true }] }),
        );
        assert_eq!(lines, "A_0_B=true\nNAME='it'\\''s $(rm)'\nTOKEN=7\n");
    }

    #[test]
    fn json_is_the_answer_unless_plain_text_alone_is_wanted() {
        let wanted = |accept: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT, HeaderValue::from_static(accept));
            Form::wanted(&headers)
        };
        assert_eq!(wanted("*/*"), Form::Json);
        assert_eq!(wanted("text/plain"), Form::Shell);
        assert_eq!(wanted("application/json, text/plain"), Form::Json);
    }
}
