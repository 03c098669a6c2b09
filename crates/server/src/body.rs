//! [`Body`]: a request's body, JSON or a form, of known fields only and of bounded size.

use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use axum::http::{StatusCode, header};
use serde::de::DeserializeOwned;

use crate::problem::Problem;
use crate::service::Service;

/// What was sent, read and checked.
pub(crate) struct Body<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<Service> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, service: &Service) -> Result<Self, Problem> {
        let kind = request.headers().get(header::CONTENT_TYPE);
        let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or("");
        let kind = kind
            .split(';')
            .next()
            .unwrap_or("")
            .trim()
            .to_ascii_lowercase();
        let limit = service.limits.body_bytes;
        let bytes = axum::body::to_bytes(request.into_body(), limit).await;
        let bytes = bytes.map_err(|_| {
            let why = format!(
                "the body could not be read, or has more than {limit} bytes (limit body_bytes)"
            );
            Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", why)
        })?;
        match kind.as_str() {
            "application/json" | "" => from_json(&bytes),
            // What curl sends with `-d`; JSON in it is what people mean who forget the header.
            "application/x-www-form-urlencoded" if bytes.starts_with(b"{") => from_json(&bytes),
            "application/x-www-form-urlencoded" => from_form(&bytes),
            other => Err(Problem::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "unsupported_media_type",
                format!("{other:?}: send application/json or application/x-www-form-urlencoded"),
            )),
        }
    }
}

fn from_json<T: DeserializeOwned>(bytes: &Bytes) -> Result<Body<T>, Problem> {
    serde_json::from_slice(bytes).map(Body).map_err(|error| {
        let (status, code) = match error.is_data() {
            true => (StatusCode::UNPROCESSABLE_ENTITY, "invalid"),
            false => (StatusCode::BAD_REQUEST, "malformed"),
        };
        Problem::new(status, code, error.to_string())
    })
}

fn from_form<T: DeserializeOwned>(bytes: &Bytes) -> Result<Body<T>, Problem> {
    let form = serde_urlencoded::from_bytes(bytes);
    form.map(Body)
        .map_err(|error| Problem::invalid(error.to_string()))
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
