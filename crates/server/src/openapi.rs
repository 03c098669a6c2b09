//! The OpenAPI document, from the table of routes.

use serde_json::{Map, Value, json};

use crate::limits::Limits;
use crate::operations::ROUTES;

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
    (503, "no quorum, or draining"),
];

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
                "application/json" => json!({ "type": "object" }),
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
                "name": name, "in": "query", "schema": { "type": "string" },
            })).collect::<Vec<_>>(),
        });
        if let Some(request) = route.request {
            operation["requestBody"] = json!({
                "required": true,
                "content": { "application/json": {
                    "schema": { "$ref": format!("#/components/schemas/{request}") },
                } },
            });
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

fn schemas(limits: &Limits) -> Value {
    let name = json!({ "type": "string", "minLength": 1, "maxLength": 512 });
    let duration = json!({ "type": "string", "examples": ["30s", "1m30s"] });
    let lease = json!({
        "type": "string",
        "pattern": "^([0-9a-fA-F]{32}|[A-Za-z0-9_-]{21}[AQgw])$",
    });
    let label = json!({ "type": "string", "maxLength": 200 });
    let object = |required: Value, properties: Value| {
        json!({
            "type": "object", "additionalProperties": false,
            "required": required, "properties": properties,
        })
    };
    json!({
        "Acquire": object(json!([]), json!({
            "name": name,
            "names": { "type": "array", "items": name, "minItems": 1, "maxItems": limits.names },
            "ttl": duration, "wait": duration, "max_hold": duration,
            "lease": lease, "attempt": { "type": "integer", "minimum": 1 },
            "fair": { "type": "boolean" }, "shared": { "type": "boolean" },
            "slots": { "type": "integer", "minimum": 1, "maximum": 64 },
            "owner": label, "meta": label,
        })),
        "Extend": object(json!(["leases"]), json!({
            "ttl": duration,
            "leases": { "type": "array", "minItems": 1, "maxItems": limits.batch, "items": object(
                json!(["name", "lease", "token"]),
                json!({ "name": name, "lease": lease, "token": { "type": "integer", "minimum": 0 } }),
            ) },
        })),
        "Release": object(json!(["name", "lease"]), json!({ "name": name, "lease": lease })),
        "Steal": object(json!(["name", "reason"]), json!({
            "name": name, "ttl": duration, "lease": lease, "owner": label,
            "reason": { "type": "string", "minLength": 1, "maxLength": 1024 },
        })),
        "Problem": {
            "type": "object",
            "required": ["type", "title", "status", "code", "detail"],
            "properties": {
                "type": { "type": "string" }, "title": { "type": "string" },
                "status": { "type": "integer" }, "code": { "type": "string" },
                "detail": { "type": "string" },
                "request_id": { "type": "string" },
                "retry_after_ms": { "type": "integer" },
                "limit": { "type": "string", "enum": Limits::NAMES },
            },
        },
    })
}
