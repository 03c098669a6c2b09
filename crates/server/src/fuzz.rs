//! What the fuzz target `fuzz/fuzz_targets/request.rs` calls: bytes are read as a request, as the service
//! reads one, up to the point at which a node would be asked.
//!
//! It panics where something is let through that must not be. The tests here call it with a bounded
//! number of inputs, so that it cannot rot.

use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use fencepost_core::AttemptValue;
use serde::de::DeserializeOwned;

use crate::answer::{Form, millis};
use crate::api::{AcquireRequest, ExtendRequest, ReleaseRequest};
use crate::auth::authenticate;
use crate::body::parsed;
use crate::guard::{host, is_foreign, is_local};
use crate::limits::Limits;
use crate::problem::Problem;
use crate::steal::StealRequest;
use crate::trace::given;
use crate::traceparent::{TraceParent, traceparent};

/// The headers that are read, in the order of the lines of an input. The body follows them.
const HEADERS: [&str; 10] = [
    "content-type",
    "accept",
    "authorization",
    "host",
    "origin",
    "sec-fetch-site",
    "x-request-id",
    "traceparent",
    "traceparent",
    "content-encoding",
];

/// Reads an input: ten lines of headers, and a body.
///
/// # Panics
/// When what was read breaks a promise: that is a finding.
pub fn request(data: &[u8]) {
    let mut parts = data.splitn(HEADERS.len() + 1, |byte| *byte == b'\n');
    let mut headers = HeaderMap::new();
    for name in HEADERS {
        let value = parts.next().unwrap_or_default();
        if let (false, Ok(value)) = (value.is_empty(), HeaderValue::from_bytes(value)) {
            headers.append(HeaderName::from_static(name), value);
        }
    }
    let body = parts.next().unwrap_or_default();
    read_headers(&headers);
    acquire(&headers, body);
    body_of::<ExtendRequest>(&headers, body);
    body_of::<ReleaseRequest>(&headers, body);
    body_of::<StealRequest>(&headers, body);
}

fn read_headers(headers: &HeaderMap) {
    if let Some(id) = given(headers) {
        assert!(HeaderValue::from_str(&id).is_ok() && id.len() <= 64, "{id}");
    }
    if let Some(TraceParent { trace, span, .. }) = traceparent(headers) {
        let is_hex = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
        assert!(trace.len() == 32 && is_hex(&trace), "{trace}");
        assert!(span.len() == 16 && is_hex(&span), "{span}");
    }
    // A public name is not this machine, whatever else was sent.
    let (host, _) = (host(headers), is_foreign(headers));
    let is_public = host.ends_with(".example") && !host.contains(':');
    assert!(!(is_local(host) && is_public), "{host}");
    let _ = Form::wanted(headers);
}

fn acquire(headers: &HeaderMap, body: &[u8]) {
    let Some(request) = body_of::<AcquireRequest>(headers, body) else {
        return;
    };
    let limits = Limits::default();
    let Some(principal) = checked(authenticate(None, headers, None)) else {
        return;
    };
    let Some(wish) = checked(request.checked(&limits, &principal)) else {
        return;
    };
    assert!((1..=limits.names).contains(&wish.names.len()), "{wish:?}");
    assert!(wish.names.is_sorted_by(|one, next| one < next), "{wish:?}");
    assert!(wish.wait <= limits.wait, "{wish:?}");
    assert!(
        wish.names.len() == 1 || (!wish.shared && wish.slots.is_none()),
        "{wish:?}"
    );
    assert!(
        !wish.owner.as_str().chars().any(char::is_control),
        "{wish:?}"
    );
    let again = wish.of.lease.to_string().parse();
    assert_eq!(again.ok(), Some(wish.of.lease), "{wish:?}");
    // What a node stores is understood again: otherwise the lease id would be shown as the owner.
    let value = AttemptValue::leased(0, wish.of, &wish.owner);
    let stored = value.lease_attempt();
    let stored = stored.map(|of| (of.lease, of.attempt, of.max_hold.map(millis)));
    let asked = (wish.of.lease, wish.of.attempt, wish.of.max_hold.map(millis));
    assert_eq!(stored, Some(asked), "{wish:?}");
    assert_eq!(value.owner(), wish.owner, "{wish:?}");
}

fn body_of<T: DeserializeOwned>(headers: &HeaderMap, body: &[u8]) -> Option<T> {
    checked(parsed(headers, body))
}

/// Whoever sends what cannot be used is at fault, and is told so.
fn checked<T>(outcome: Result<T, Problem>) -> Option<T> {
    let problem = match outcome {
        Ok(value) => return Some(value),
        Err(problem) => problem,
    };
    assert!(problem.status.is_client_error(), "{problem:?}");
    assert_ne!(problem.status, StatusCode::NOT_FOUND, "{problem:?}");
    let document = problem.document();
    assert!(
        document["code"].is_string() && document["detail"].is_string(),
        "{document}"
    );
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Lines and bodies that come far.
    fn piece() -> impl Strategy<Value = Vec<u8>> {
        let words = [
            "application/json",
            "application/x-www-form-urlencoded; charset=utf-8",
            "text/plain",
            "\n",
            "\n\n\n",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "localhost:7323",
            "evil.example",
            "{",
            "}",
            "\"name\":",
            "\"names\":",
            "\"job\"",
            "[\"a\",\"b\"]",
            ",",
            "\"ttl\":",
            "\"wait\":",
            "\"30s\"",
            "\"61s\"",
            "\"lease\":",
            "\"000102030405060708090a0b0c0d0e0f\"",
            "\"attempt\":",
            "\"max_hold\":",
            "\"600000000years\"",
            "&max_hold=600000000years",
            "\"slots\":",
            "\"shared\":",
            "true",
            "\"leases\":",
            "\"token\":",
            "\"reason\":",
            "18446744073709551616",
            "-1",
            "1e9",
            "name=job",
            "&wait=1s",
            "&lease=AAECAwQFBgcICQoLDA0ODw",
            "%00",
            "%ff",
            "%c3%a9",
            "gzip",
            "&names=a",
            "\"\\u0000\"",
            "\u{1F512}",
        ];
        prop_oneof![
            6 => proptest::sample::select(words.to_vec()).prop_map(|word| word.as_bytes().to_vec()),
            1 => proptest::collection::vec(any::<u8>(), 0..20),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn no_request_is_let_through_that_must_not_be(
            pieces in proptest::collection::vec(piece(), 0..40)
        ) {
            request(&pieces.concat());
        }
    }

    /// The inputs that the fuzzer starts from, and those that once were findings.
    #[test]
    fn every_seed_is_read() {
        let seeds = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/seeds/request");
        let mut read = 0;
        for seed in std::fs::read_dir(seeds).expect("seeds") {
            let path = seed.expect("a seed").path();
            request(&std::fs::read(path).expect("its bytes"));
            read += 1;
        }
        assert!(read > 5, "{read}");
    }
}
