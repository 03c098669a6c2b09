//! [`Body`]: a request's body, JSON or a form, of known fields only and of bounded size. [`Asked`]: its
//! query, which is a form too.

use std::error::Error as _;

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
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
        let (parts, body) = request.into_parts();
        let bytes = read(body, &service.limits).await?;
        parsed(&parts.headers, &bytes).map(Self)
    }
}

/// What a query asks for.
pub(crate) struct Asked<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequestParts<Service> for Asked<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Service) -> Result<Self, Problem> {
        from_form(parts.uri.query().unwrap_or_default().as_bytes()).map(Self)
    }
}

/// What a body with these headers says.
pub(crate) fn parsed<T: DeserializeOwned>(headers: &HeaderMap, bytes: &[u8]) -> Result<T, Problem> {
    for coding in headers.get_all(header::CONTENT_ENCODING) {
        if !coding.as_bytes().eq_ignore_ascii_case(b"identity") {
            let why = format!("content-encoding {coding:?}: send the body as it is");
            return Err(unsupported(why));
        }
    }
    let kind = headers.get(header::CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or("");
    let kind = kind.split(';').next().unwrap_or("");
    match kind.trim().to_ascii_lowercase().as_str() {
        "application/json" | "" => from_json(bytes),
        // What curl sends with `-d`; JSON in it is what people mean who forget the header.
        "application/x-www-form-urlencoded" if bytes.starts_with(b"{") => from_json(bytes),
        "application/x-www-form-urlencoded" => from_form(bytes),
        other => Err(unsupported(format!(
            "{other:?}: send application/json or application/x-www-form-urlencoded"
        ))),
    }
}

fn unsupported(why: String) -> Problem {
    let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
    Problem::new(status, "unsupported_media_type", why)
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
    // The parser would replace what is no text: then different names would be the same lock.
    if !is_text(bytes) {
        let why =
            "a % in a form or a query stands before two hex digits, and what they encode is UTF-8";
        return Err(Problem::invalid(why));
    }
    serde_urlencoded::from_bytes(bytes).map_err(|error| Problem::invalid(error.to_string()))
}

/// Whether what is percent-encoded is UTF-8. Each part is, if all together is: a part that breaks off is
/// followed by an ASCII character, or by the end.
fn is_text(form: &[u8]) -> bool {
    let mut decoded = Vec::with_capacity(form.len());
    let mut rest = form.iter();
    while let Some(byte) = rest.next() {
        if *byte != b'%' {
            decoded.push(*byte);
            continue;
        }
        let mut digit = || rest.next().and_then(|byte| char::from(*byte).to_digit(16));
        let (Some(high), Some(low)) = (digit(), digit()) else {
            return false;
        };
        // Two hex digits are a byte.
        decoded.extend(u8::try_from(16 * high + low));
    }
    std::str::from_utf8(&decoded).is_ok()
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
