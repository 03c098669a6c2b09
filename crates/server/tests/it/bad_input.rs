//! Every malformed request gets its problem document, and nothing else happens.

use fencepost_server::{Limits, Options};
use serde_json::json;

use crate::service::Replica;

const JSON: [(&str, &str); 1] = [("content-type", "application/json")];

type SetLimit = fn(&mut Limits);

#[test]
fn what_cannot_be_read_or_used_is_said_and_locks_nothing() {
    let service = Replica::in_memory(Options::new());
    let long = json!({ "name": "x".repeat(513) }).to_string();
    for (body, status, code) in [
        ("", 400, "malformed"),
        ("{", 400, "malformed"),
        ("[]", 422, "invalid"),
        ("{}", 422, "invalid"),
        (r#"{"name": ""}"#, 422, "invalid"),
        (r#"{"name": "a\nb"}"#, 422, "invalid"),
        (r#"{"name": 7}"#, 422, "invalid"),
        (r#"{"name": "a", "ttl": 30}"#, 422, "invalid"),
        (r#"{"name": "a", "ttl": "30"}"#, 422, "invalid"),
        (r#"{"name": "a", "ttl": "1ms"}"#, 422, "invalid"),
        (r#"{"name": "a", "ttl": "1000years"}"#, 422, "invalid"),
        (r#"{"name": "a", "wait": "61s"}"#, 422, "invalid"),
        (r#"{"name": "a", "fair": "maybe"}"#, 422, "invalid"),
        (r#"{"name": "a", "tll": "30s"}"#, 422, "invalid"),
        (long.as_str(), 422, "invalid"),
    ] {
        service
            .send("POST", "/v1/acquire", &JSON, body)
            .is_problem(status, code);
    }
    for (body, status, code) in [
        (r#"{"name": "a"}"#, 422, "invalid"),
        (r#"{"name": "a", "lease": "xyz"}"#, 422, "invalid"),
        (r#"{"name": "a", "lease": ""}"#, 422, "invalid"),
    ] {
        service
            .send("POST", "/v1/release", &JSON, body)
            .is_problem(status, code);
    }
    service
        .post("/v1/extend", &json!({ "leases": [] }))
        .is_problem(422, "invalid");
    service
        .post("/v1/steal", &json!({ "name": "a", "reason": " " }))
        .is_problem(422, "invalid");
    service.get("/v1/locks?nome=a").is_problem(422, "invalid");
    assert_eq!(
        service.get("/v1/locks").json()["locks"],
        json!([]),
        "nothing happened"
    );
}

#[test]
fn unknown_paths_methods_and_types_are_problems_too() {
    let service = Replica::in_memory(Options::new());
    service.get("/v2/acquire").is_problem(404, "not_found");
    service
        .get("/v1/acquire")
        .is_problem(405, "method_not_allowed");
    let xml = [("content-type", "text/xml")];
    service
        .send("POST", "/v1/acquire", &xml, "<name/>")
        .is_problem(415, "unsupported_media_type");
}

/// `%ff` and `%fe` were the same lock, and a body that was compressed was read as it came.
#[test]
fn an_encoding_that_cannot_be_read_locks_nothing() {
    let service = Replica::in_memory(Options::new());
    let form = [("content-type", "application/x-www-form-urlencoded")];
    for body in [
        "name=%ff",
        "name=a&owner=%fe",
        "name=%c3&owner=%a9",
        "name=%zz",
        "name=5%",
    ] {
        service
            .send("POST", "/v1/acquire", &form, body)
            .is_problem(422, "invalid");
    }
    let good = service.send("POST", "/v1/acquire", &form, "name=%C3%A9+%25");
    assert_eq!(
        (good.status, good.json()["name"].as_str()),
        (200, Some("é %"))
    );
    for query in [
        "locks?name=%ff",
        "locks?prefix=%C3",
        "events?after=0&name=%fe",
        "timeline?owner=%ff",
        "locks?name=%z",
    ] {
        service
            .get(&format!("/v1/{query}"))
            .is_problem(422, "invalid");
    }
    for coding in ["gzip", "br, identity", "\"\""] {
        let headers = [JSON[0], ("content-encoding", coding)];
        let refused = service.send("POST", "/v1/acquire", &headers, r#"{"name": "a"}"#);
        refused.is_problem(415, "unsupported_media_type");
    }
    let headers = [JSON[0], ("content-encoding", "identity")];
    let plain = service.send("POST", "/v1/acquire", &headers, r#"{"name": "b"}"#);
    assert_eq!(plain.status, 200, "{plain:?}");
    let names = service.get("/v1/locks").json();
    assert_eq!(names["locks"].as_array().unwrap().len(), 2, "{names}");
}

#[test]
fn a_limit_is_named_by_its_problem() {
    let limited = |set: SetLimit| {
        let mut options = Options::new();
        set(&mut options.limits);
        Replica::in_memory(options)
    };
    let service = limited(|limits| limits.body_bytes = 200);
    let body = json!({ "name": "x".repeat(300) });
    service
        .post("/v1/acquire", &body)
        .is_problem(413, "too_large");
    let waits: [(&str, SetLimit); 3] = [
        ("waits", |limits| limits.waits = 0),
        ("waits_per_principal", |limits| {
            limits.waits_per_principal = 0;
        }),
        ("waits_per_name", |limits| limits.waits_per_name = 0),
    ];
    for (name, set) in waits {
        let service = limited(set);
        let refused = service.post("/v1/acquire", &json!({ "name": "a", "wait": "1s" }));
        refused.is_problem(429, "limit");
        assert_eq!(refused.json()["limit"], name);
    }
    let service = limited(|limits| limits.names = 2);
    let refused = service.post("/v1/acquire", &json!({ "names": ["a", "b", "c"] }));
    refused.is_problem(422, "invalid");
    assert!(refused.text.contains("limit names"), "{refused:?}");
}

/// The document and the routes come from one table; this holds the table to what answers.
#[test]
fn the_document_describes_every_path_that_answers() {
    let service = Replica::in_memory(Options::new());
    let document = service.get("/openapi.json").json();
    for (path, operations) in document["paths"].as_object().unwrap() {
        let method = match operations.get("get") {
            Some(_) => "GET",
            None => "POST",
        };
        // Without a cursor it is a stream, which does not end.
        let query = match path.as_str() {
            "/v1/events" => "?after=0",
            _ => "",
        };
        let answer = service.send(method, &format!("{path}{query}"), &JSON, "{}");
        assert_ne!(answer.status, 404, "{path}");
        let known = &operations[method.to_lowercase()]["responses"];
        assert!(
            known.get(answer.status.to_string()).is_some(),
            "{path}: {answer:?}"
        );
    }
}
