//! The OpenAPI document, from the table of routes.

use serde_json::{Map, Value, json};

use crate::limits::Limits;
use crate::openapi_schemas::schemas;
use crate::operations::{ROUTES, Route};

/// Answers that every operation may give.
const COMMON: [(u16, &str); 12] = [
    (400, "the body cannot be read"),
    (401, "authentication is required"),
    (403, "not permitted"),
    (405, "no such method here"),
    (408, "sent too slowly: `limit` says which limit"),
    (413, "too large: `limit` says which limit"),
    (415, "unknown type of body"),
    (422, "cannot be used"),
    (429, "too much at a time: `limit` says which limit"),
    (
        431,
        "the head is too large (limit `header_bytes`); there is no body",
    ),
    (500, "the service failed"),
    (
        503,
        "no quorum (`no_quorum`), nodes that need an operator (`unusable`), or draining",
    ),
];

fn schema(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

/// What a form may have of that request: no list.
fn form(request: &str) -> Option<&str> {
    match request {
        "Acquire" => Some("AcquireForm"),
        "Extend" => None,
        other => Some(other),
    }
}

/// What is answered as asked.
fn answer(route: &Route) -> Value {
    match route.answer {
        [] => json!({ "type": "object" }),
        [one] => schema(one),
        some => json!({ "anyOf": some.iter().map(|name| schema(name)).collect::<Vec<_>>() }),
    }
}

fn parameter(name: &str) -> Value {
    match name {
        "since_ms" => json!({ "type": "integer", "minimum": 0 }),
        "only" => json!({ "enum": ["this"] }),
        _ => json!({ "type": "string" }),
    }
}

pub(crate) fn document(limits: &Limits) -> Value {
    let mut paths = Map::new();
    for route in &ROUTES {
        let mut responses = Map::new();
        for (status, what) in COMMON.iter().chain(route.answers) {
            let kind = match (status, route.path) {
                (200, "/metrics") => "application/openmetrics-text",
                (200, "/livez" | "/readyz") => "text/plain",
                (200, _) => "application/json",
                _ => "application/problem+json",
            };
            let schema = match kind {
                "application/problem+json" => json!({ "$ref": "#/components/schemas/Problem" }),
                "application/json" => answer(route),
                _ => json!({ "type": "string" }),
            };
            let mut content = json!({ kind: { "schema": schema } });
            if kind == "application/json" && route.path != "/openapi.json" {
                // What a shell asks for by `Accept`.
                content["text/plain"] = json!({ "schema": { "type": "string" } });
            }
            if (*status, route.path) == (200, "/v1/events") {
                content["text/event-stream"] = json!({ "schema": { "type": "string" } });
            }
            responses.insert(
                status.to_string(),
                json!({ "description": what, "content": content }),
            );
        }
        let mut operation = json!({
            "summary": route.summary,
            "operationId": route.path.trim_start_matches('/').replace(['/', '.'], "_"),
            "responses": responses,
            "parameters": route.query.iter().map(|name| json!({
                "name": name, "in": "query", "schema": parameter(name),
            })).collect::<Vec<_>>(),
        });
        if let Some(request) = route.request {
            let mut content = json!({ "application/json": { "schema": schema(request) } });
            if let Some(form) = form(request) {
                let form = json!({ "schema": schema(form) });
                content["application/x-www-form-urlencoded"] = form;
            }
            operation["requestBody"] = json!({ "required": true, "content": content });
        }
        paths.insert(route.path.to_owned(), json!({ route.method: operation }));
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "fencepost",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Distributed locks with fencing tokens.",
        },
        "paths": paths,
        "components": { "schemas": schemas(limits), "securitySchemes": {
            "bearer": { "type": "http", "scheme": "bearer" },
        } },
        "security": [{ "bearer": [] }, {}],
    })
}
