//! A span for every request, which goes on with the trace that its client began, and an id by which
//! both sides find it again.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue};
use axum::response::Response;
use tracing::Instrument as _;

use crate::spans::{Outcome, Spans, UnderWay};
use crate::traceparent::traceparent;

/// The longest id that is taken from a client.
const ID_CHARS: usize = 64;
const REQUEST_ID: &str = "x-request-id";

/// By which both sides find a request again.
#[derive(Clone)]
struct Ids {
    request: String,
    /// Of the trace that its client began.
    trace: Option<String>,
    /// What comes of it, if its span is exported.
    outcome: Option<Outcome>,
}

tokio::task_local! {
    static CURRENT: Ids;
}

/// The id of the request that is being answered.
pub(crate) fn request_id() -> Option<String> {
    CURRENT.try_with(|ids| ids.request.clone()).ok()
}

/// The id of the trace that the request belongs to which is being answered, if its client said so.
pub(crate) fn trace_id() -> Option<String> {
    CURRENT.try_with(|ids| ids.trace.clone()).ok().flatten()
}

/// What comes of the request that is being answered: for its span, if that is exported.
pub(crate) fn outcome(word: &'static str) {
    let _ = CURRENT.try_with(|ids| {
        if let Some(outcome) = &ids.outcome {
            outcome.is(word);
        }
    });
}

/// Answers a request in a span of its own. Called for every request before it is routed: as layers of the
/// router, this and the guard cost four allocations more.
pub(crate) async fn traced<F>(
    request: Request,
    spans: Option<Spans>,
    answer: impl FnOnce(Request) -> F,
) -> Response
where
    F: Future<Output = Response>,
{
    let id = given(request.headers()).unwrap_or_else(drawn);
    let parent = traceparent(request.headers());
    let (trace_id, parent_id) = parent.as_ref().map_or(("", ""), |parent| {
        (parent.trace.as_str(), parent.span.as_str())
    });
    let (method, path) = (request.method(), request.uri().path());
    let span = tracing::info_span!(
        "request", %method, path, request_id = id, trace_id, parent_id,
        status = tracing::field::Empty
    );
    let exported = spans.and_then(|spans| spans.begin(&request, &id));
    let answer = answer(request).instrument(span.clone());
    let value = HeaderValue::from_str(&id);
    let ids = Ids {
        request: id,
        trace: parent.map(|parent| parent.trace),
        outcome: exported.as_ref().map(UnderWay::outcome),
    };
    let mut answer = CURRENT.scope(ids, answer).await;
    span.record("status", answer.status().as_u16());
    if let Some(exported) = exported {
        exported.answered(answer.status());
    }
    if let Ok(value) = value {
        answer.headers_mut().insert(REQUEST_ID, value);
    }
    answer
}

pub(crate) fn given(headers: &HeaderMap) -> Option<String> {
    let id = headers.get(REQUEST_ID)?.to_str().ok()?;
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.:".contains(c);
    (1..=ID_CHARS).contains(&id.len()).then_some(())?;
    id.chars().all(fits).then(|| id.to_owned())
}

/// An id that no other request of this process has, nor of another one, as good as never. It is no secret: drawing one for each
/// request would be a system call more.
fn drawn() -> String {
    static OF_PROCESS: LazyLock<u32> = LazyLock::new(|| {
        let mut bytes = [0; 4];
        // Without random numbers it is no worse than no id.
        let _ = getrandom::fill(&mut bytes);
        u32::from_be_bytes(bytes)
    });
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("{:08x}{number:08x}", *OF_PROCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: &'static str, value: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(name, HeaderValue::from_str(value).expect("fits"));
        headers
    }

    #[test]
    fn an_id_of_the_client_is_taken_if_it_is_harmless() {
        assert_eq!(given(&headers(REQUEST_ID, "a-1")), Some("a-1".to_owned()));
        for bad in ["", "a b", "\"", &"x".repeat(65)] {
            assert_eq!(given(&headers(REQUEST_ID, bad)), None, "{bad}");
        }
        assert_ne!(drawn(), drawn());
    }
}
