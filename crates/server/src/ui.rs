//! The dashboard at `/ui`: plain files in the binary, which may load nothing from anywhere else.

use axum::Router;
use axum::extract::Path;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;

use crate::problem::Problem;
use crate::service::Service;

const SCRIPT: &str = "text/javascript; charset=utf-8";

/// What there is, of which kind.
const FILES: [(&str, &str, &str); 13] = [
    (
        "",
        "text/html; charset=utf-8",
        include_str!("../ui/index.html"),
    ),
    (
        "style.css",
        "text/css; charset=utf-8",
        include_str!("../ui/style.css"),
    ),
    ("icon.svg", "image/svg+xml", include_str!("../ui/icon.svg")),
    ("app.js", SCRIPT, include_str!("../ui/app.js")),
    ("dom.js", SCRIPT, include_str!("../ui/dom.js")),
    ("format.js", SCRIPT, include_str!("../ui/format.js")),
    ("live.js", SCRIPT, include_str!("../ui/live.js")),
    ("locks.js", SCRIPT, include_str!("../ui/locks.js")),
    ("lock.js", SCRIPT, include_str!("../ui/lock.js")),
    ("nodes.js", SCRIPT, include_str!("../ui/nodes.js")),
    ("waits.js", SCRIPT, include_str!("../ui/waits.js")),
    ("contention.js", SCRIPT, include_str!("../ui/contention.js")),
    ("timeline.js", SCRIPT, include_str!("../ui/timeline.js")),
];

/// Nothing inline, nothing from elsewhere, in nobody's frame, and no form that goes anywhere.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'";

pub(crate) fn routes() -> Router<Service> {
    Router::new()
        .route("/ui", get(async || Redirect::permanent("/ui/")))
        .route("/ui/", get(async || file("")))
        .route(
            "/ui/{file}",
            get(async |Path(name): Path<String>| file(&name)),
        )
}

fn file(name: &str) -> Response {
    let Some((_, kind, text)) = FILES.iter().find(|(file, _, _)| *file == name) else {
        return Problem::new(StatusCode::NOT_FOUND, "not_found", "see /ui/").into_response();
    };
    let mut response = text.into_response();
    let headers = response.headers_mut();
    let mut set = |name: HeaderName, value: &'static str| {
        headers.insert(name, HeaderValue::from_static(value));
    };
    set(header::CONTENT_TYPE, kind);
    set(header::CONTENT_SECURITY_POLICY, POLICY);
    set(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    set(header::REFERRER_POLICY, "no-referrer");
    set(header::CACHE_CONTROL, "no-cache");
    response
}
