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
    /// The names of the schemas of what is answered as asked.
    pub(crate) answer: &'static [&'static str],
}

const fn route(method: &'static str, path: &'static str, summary: &'static str) -> Route {
    Route {
        method,
        path,
        summary,
        request: None,
        answers: &[(200, "as asked")],
        query: &[],
        answer: &[],
    }
}

/// All of them.
pub(crate) const ROUTES: [Route; 13] = [
    Route {
        request: Some("Acquire"),
        answer: &["Grant"],
        answers: &[
            (
                200,
                "acquired; the token of one lock is in the header `Fencing-Token` too",
            ),
            (409, "held by another, or this attempt is under way"),
            (410, "this lease id was released"),
            (
                503,
                "no quorum, nodes that need an operator, granted too late, or draining",
            ),
        ],
        ..route(
            "post",
            "/v1/acquire",
            "Acquire a lock; with `wait`, wait for it",
        )
    },
    Route {
        request: Some("Extend"),
        answer: &["Extended"],
        answers: &[(200, "an outcome for each lease")],
        ..route("post", "/v1/extend", "Extend leases")
    },
    Route {
        request: Some("Release"),
        answer: &["Released"],
        answers: &[
            (200, "released"),
            (410, "the lease is over"),
            (503, "no quorum, or nodes that need an operator"),
        ],
        ..route("post", "/v1/release", "Release a lease")
    },
    Route {
        request: Some("Steal"),
        answer: &["Grant"],
        answers: &[
            (200, "stolen"),
            (
                409,
                "nothing was stolen: it is free (`not_held`), something else than a lock is there \
                 (`not_a_lock`), or another was faster",
            ),
            (410, "this lease id was released"),
            (503, "no quorum, nodes that need an operator, or draining"),
        ],
        ..route(
            "post",
            "/v1/steal",
            "Take a lock from its holder, with a reason",
        )
    },
    Route {
        answer: &["Lock", "Locks"],
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
            (503, "no quorum, nodes that need an operator, or draining"),
        ],
        answer: &["News"],
        query: &["name", "prefix", "after", "wait"],
        ..route(
            "get",
            "/v1/events",
            "What happens to locks, as server-sent events; with `after` what happened since then",
        )
    },
    Route {
        answer: &["Nodes"],
        answers: &[(200, "as `fencepost doctor --json`")],
        ..route(
            "get",
            "/v1/nodes",
            "What the nodes are like, and what is unsafe about them",
        )
    },
    Route {
        answer: &["Contention"],
        ..route(
            "get",
            "/v1/contention",
            "Which names are waited for, and how long holds and waits last",
        )
    },
    Route {
        answer: &["Timeline"],
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
