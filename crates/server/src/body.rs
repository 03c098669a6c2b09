//! [`Body`]: a request's body, JSON or a form, of known fields only and of bounded size.

use std::error::Error as _;

use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderValue, StatusCode, header};
use http_body_util::LengthLimitError;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use crate::limits::{Limits, sent_too_slowly};
use crate::problem::Problem;
use crate::service::Service;

/// What was sent, read and checked.
pub(crate) struct Body<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<Service> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, service: &Service) -> Result<Self, Problem> {
        let kind = request.headers().get(header::CONTENT_TYPE).cloned();
        let bytes = read(request.into_body(), &service.limits).await?;
        parsed(kind.as_ref(), &bytes).map(Self)
    }
}

/// What a body of that type says.
pub(crate) fn parsed<T: DeserializeOwned>(
    kind: Option<&HeaderValue>,
    bytes: &[u8],
) -> Result<T, Problem> {
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or("");
    let kind = kind.split(';').next().unwrap_or("");
    match kind.trim().to_ascii_lowercase().as_str() {
        "application/json" | "" => from_json(bytes),
        // What curl sends with `-d`; JSON in it is what people mean who forget the header.
        "application/x-www-form-urlencoded" if bytes.starts_with(b"{") => from_json(bytes),
        "application/x-www-form-urlencoded" => from_form(bytes),
        other => Err(Problem::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "unsupported_media_type",
            format!("{other:?}: send application/json or application/x-www-form-urlencoded"),
        )),
    }
}

/// The whole body, within its limits of size and time.
pub(crate) async fn read(body: axum::body::Body, limits: &Limits) -> Result<Bytes, Problem> {
    let most = limits.body_bytes;
    let read = timeout(limits.read_timeout, axum::body::to_bytes(body, most)).await;
    let read = read.map_err(|_| sent_too_slowly("the body", limits))?;
    read.map_err(|error| {
        let is_large = error.source().is_some_and(|it| it.is::<LengthLimitError>());
        if !is_large {
            let why = format!("the body cannot be read: {error}");
            return Problem::new(StatusCode::BAD_REQUEST, "malformed", why);
        }
        let why = format!("the body has more than {most} bytes (limit body_bytes)");
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", why).with("limit", "body_bytes")
    })
}

fn from_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    serde_json::from_slice(bytes).map_err(|error| {
        let (status, code) = match error.is_data() {
            true => (StatusCode::UNPROCESSABLE_ENTITY, "invalid"),
            false => (StatusCode::BAD_REQUEST, "malformed"),
        };
        Problem::new(status, code, error.to_string())
    })
}

fn from_form<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    serde_urlencoded::from_bytes(bytes).map_err(|error| Problem::invalid(error.to_string()))
}

/// Fields as they may come: typed in JSON, as text in a form.
pub(crate) mod field {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, de};

    /// `"30s"`, `"1h30m"`; a duration without a unit is refused, because nobody knows what it means.
    pub(crate) fn duration<'de, D: Deserializer<'de>>(input: D) -> Result<Duration, D::Error> {
        let text = String::deserialize(input)?;
        humantime::parse_duration(&text).map_err(|error| {
            de::Error::custom(format!("{text:?} is no duration like \"30s\": {error}"))
        })
    }

    pub(crate) fn maybe_duration<'de, D: Deserializer<'de>>(
        input: D,
    ) -> Result<Option<Duration>, D::Error> {
        duration(input).map(Some)
    }

    /// `3`, or `"3"` as a form has it.
    pub(crate) fn maybe_number<'de, D: Deserializer<'de>>(
        input: D,
    ) -> Result<Option<u32>, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Either {
            Number(u32),
            Text(String),
        }
        match Either::deserialize(input) {
            Ok(Either::Number(number)) => Ok(Some(number)),
            Ok(Either::Text(text)) if text.bytes().all(|byte| byte.is_ascii_digit()) => {
                text.parse().map(Some).map_err(de::Error::custom)
            }
            _ => Err(de::Error::custom("expected a whole number below 2^32")),
        }
    }

    /// `true`, or `"true"` as a form has it.
    pub(crate) fn flag<'de, D: Deserializer<'de>>(input: D) -> Result<bool, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Either {
            Bool(bool),
            Text(String),
        }
        match Either::deserialize(input)? {
            Either::Bool(flag) => Ok(flag),
            Either::Text(text) => text
                .parse()
                .map_err(|_| de::Error::custom("expected true or false")),
        }
    }
}
