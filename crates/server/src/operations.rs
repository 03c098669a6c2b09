//! The table of operations: the router and the OpenAPI document come from it, so that neither can have
//! what the other has not.

/// One operation.
pub(crate) struct Route {
    pub(crate) method: &'static str,
    pub(crate) path: &'static str,
    pub(crate) summary: &'static str,
    /// The name of its request's schema.
    pub(crate) request: Option<&'static str>,
    /// What it may answer beside what every operation may.
    pub(crate) answers: &'static [(u16, &'static str)],
    pub(crate) query: &'static [&'static str],
}

const fn route(method: &'static str, path: &'static str, summary: &'static str) -> Route {
    Route {
        method,
        path,
        summary,
        request: None,
        answers: &[(200, "as asked")],
        query: &[],
    }
}

/// All of them.
pub(crate) const ROUTES: [Route; 13] = [
    Route {
        request: Some("Acquire"),
        answers: &[
            (200, "acquired"),
            (409, "held by another, or this attempt is under way"),
            (410, "this lease id was released"),
            (503, "no quorum, or draining"),
        ],
        ..route(
            "post",
            "/v1/acquire",
            "Acquire a lock; with `wait`, wait for it",
        )
    },
    Route {
        request: Some("Extend"),
        answers: &[(200, "an outcome for each lease")],
        ..route("post", "/v1/extend", "Extend leases")
    },
    Route {
        request: Some("Release"),
        answers: &[
            (200, "released"),
            (410, "the lease is over"),
            (503, "no quorum"),
        ],
        ..route("post", "/v1/release", "Release a lease")
    },
    Route {
        request: Some("Steal"),
        answers: &[
            (200, "stolen"),
            (409, "another was faster"),
            (503, "no quorum, or draining"),
        ],
        ..route(
            "post",
            "/v1/steal",
            "Take a lock from its holder, with a reason",
        )
    },
    Route {
        answers: &[(200, "what the nodes say"), (503, "no quorum")],
        query: &["name", "prefix", "cursor"],
        ..route(
            "get",
            "/v1/locks",
            "One lock by `name`, or those with a `prefix`",
        )
    },
    Route {
        answers: &[
            (200, "a stream, or with `after` one answer"),
            (503, "no quorum, or draining"),
        ],
        query: &["name", "prefix", "after", "wait"],
        ..route(
            "get",
            "/v1/events",
            "What happens to locks, as server-sent events; with `after` what happened since then",
        )
    },
    Route {
        answers: &[(200, "as `fencepost doctor --json`")],
        ..route(
            "get",
            "/v1/nodes",
            "What the nodes are like, and what is unsafe about them",
        )
    },
    route(
        "get",
        "/v1/contention",
        "Which names are waited for, and how long holds and waits last",
    ),
    Route {
        query: &["since_ms", "name", "owner", "node", "only"],
        ..route(
            "get",
            "/v1/timeline",
            "Losses, near misses, steals, nodes; and when nobody watched",
        )
    },
    route("get", "/livez", "Whether the process runs"),
    Route {
        answers: &[(200, "it does"), (503, "it does not")],
        ..route("get", "/readyz", "Whether this replica sees a quorum")
    },
    route("get", "/metrics", "Prometheus metrics"),
    route("get", "/openapi.json", "This description"),
];
