//! [`TraceParent`]: the trace that a client began, by its header `traceparent`.

use axum::http::HeaderMap;

/// What the W3C's `traceparent` says of the caller: `00-trace-parent-flags`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TraceParent {
    pub(crate) trace: String,
    /// Of the caller.
    pub(crate) span: String,
    /// Whether the caller keeps its own spans.
    pub(crate) sampled: bool,
}

/// The trace and the span of the caller.
pub(crate) fn traceparent(headers: &HeaderMap) -> Option<TraceParent> {
    let mut all = headers.get_all("traceparent").iter();
    // Of two nobody knows which one is the caller's.
    let (Some(one), None) = (all.next(), all.next()) else {
        return None;
    };
    let text = one.to_str().ok()?;
    let parts: Vec<&str> = text.split('-').collect();
    let [version, trace, parent, flags] = parts.get(..4)?.try_into().ok()?;
    let is_hex = |text: &str, length: usize| {
        let lower = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        text.len() == length && text.bytes().all(lower)
    };
    // Later versions may have more parts, and begin with these.
    let fits = is_hex(version, 2) && version != "ff" && (version != "00" || parts.len() == 4);
    let fits = fits && is_hex(trace, 32) && is_hex(parent, 16) && is_hex(flags, 2);
    let is_zero = |text: &str| text.bytes().all(|byte| byte == b'0');
    let fits = fits && !is_zero(trace) && !is_zero(parent);
    let flags = u8::from_str_radix(flags, 16).ok()?;
    fits.then(|| TraceParent {
        trace: trace.to_owned(),
        span: parent.to_owned(),
        sampled: flags & 1 == 1,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    fn headers(name: &'static str, value: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(name, HeaderValue::from_str(value).expect("fits"));
        headers
    }

    #[test]
    fn a_trace_goes_on_if_its_header_is_one() {
        let good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let parent = traceparent(&headers("traceparent", good)).expect("good");
        assert_eq!(parent.trace, "0af7651916cd43dd8448eb211c80319c");
        assert_eq!(parent.span, "b7ad6b7169203331");
        assert!(parent.sampled);
        let not = good.replace("-01", "-02");
        let not = traceparent(&headers("traceparent", &not)).expect("good");
        assert!(!not.sampled);
        for bad in [
            "",
            "00",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-x",
        ] {
            assert_eq!(traceparent(&headers("traceparent", bad)), None, "{bad}");
        }
        let mut twice = headers("traceparent", good);
        twice.append("traceparent", HeaderValue::from_static(good));
        assert_eq!(traceparent(&twice), None, "twice");
    }
}
