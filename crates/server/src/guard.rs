//! What a browser may be made to send by a page of somebody else's; and what a service that only shows
//! refuses.
//!
//! There are no cookies, so a foreign page can send nothing in a principal's name. A service without
//! authentication has no principals: there the page's origin has to be its own, and its host a name
//! that no public name server can point here.

use axum::extract::Request;
use axum::http::{HeaderMap, Method, StatusCode, header};

use crate::problem::Problem;
use crate::service::{Mode, Service};

/// Why a request is not answered at all.
pub(crate) fn refusal(service: &Service, request: &Request) -> Option<Problem> {
    let (method, path) = (request.method(), request.uri().path());
    check(service, method, path, request.headers()).err()
}

fn check(
    service: &Service,
    method: &Method,
    path: &str,
    headers: &HeaderMap,
) -> Result<(), Problem> {
    let forbidden = |code, why: &str| Err(Problem::new(StatusCode::FORBIDDEN, code, why));
    if service.tokens.is_none() && service.loopback && !is_local(host(headers)) {
        return forbidden(
            "foreign_host",
            "this service is for this machine: ask it as localhost or by its address",
        );
    }
    if is_foreign(headers) && (method != Method::GET || path.starts_with("/v1/")) {
        return forbidden(
            "foreign_origin",
            "this request comes from a page of another site",
        );
    }
    let changes = method == Method::POST;
    let allowed = match service.mode {
        Mode::Full => true,
        Mode::ReadOnly => !changes,
        Mode::ReadAndSteal => !changes || path == "/v1/steal",
    };
    match allowed {
        true => Ok(()),
        false => forbidden("read_only", "this service only shows: it changes nothing"),
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

pub(crate) fn host(headers: &HeaderMap) -> &str {
    text(headers, header::HOST.as_str()).unwrap_or("")
}

/// Whether a browser says that a page of another origin has sent it.
pub(crate) fn is_foreign(headers: &HeaderMap) -> bool {
    if let Some(site) = text(headers, "sec-fetch-site") {
        return !matches!(site, "same-origin" | "none");
    }
    match headers.get(header::ORIGIN) {
        None => false,
        Some(origin) => {
            let origin = origin.to_str().unwrap_or("null");
            let authority = origin.split_once("://").map_or(origin, |(_, rest)| rest);
            !authority.eq_ignore_ascii_case(host(headers))
        }
    }
}

/// An address, `localhost`, or a name without a dot: none that a public name server answers for.
pub(crate) fn is_local(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => return is_ipv6_in_brackets(rest),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name.parse::<std::net::IpAddr>().is_ok()
        || !name.contains('.')
        || name.to_ascii_lowercase().ends_with(".localhost")
}

/// `::1]` or `::1]:7323`.
fn is_ipv6_in_brackets(rest: &str) -> bool {
    rest.split_once(']').is_some_and(|(address, port)| {
        let is_port = port.is_empty() || port.starts_with(':');
        is_port && address.parse::<std::net::Ipv6Addr>().is_ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    fn headers(all: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in all {
            headers.insert(*name, HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn a_page_of_another_site_is_told_by_what_its_browser_says() {
        let own = ("host", "127.0.0.1:7323");
        for (sent, foreign) in [
            (headers(&[own]), false),
            (headers(&[own, ("origin", "http://127.0.0.1:7323")]), false),
            (headers(&[own, ("origin", "http://evil.example")]), true),
            (headers(&[own, ("origin", "null")]), true),
            (headers(&[own, ("sec-fetch-site", "cross-site")]), true),
            (headers(&[own, ("sec-fetch-site", "same-site")]), true),
            (headers(&[own, ("sec-fetch-site", "same-origin")]), false),
        ] {
            assert_eq!(is_foreign(&sent), foreign, "{sent:?}");
        }
    }

    #[test]
    fn a_public_name_is_not_this_machine() {
        for local in [
            "127.0.0.1:1",
            "[::1]:1",
            "localhost",
            "a.localhost:1",
            "x",
            "10.0.0.7",
        ] {
            assert!(is_local(local), "{local}");
        }
        for public in [
            "evil.example",
            "evil.example:7323",
            "127.0.0.1.evil.example:1",
            "[::1].evil.example",
            "[evil.example]",
        ] {
            assert!(!is_local(public), "{public}");
        }
    }
}
