//! The schemas of the OpenAPI document: what is sent, and what is answered.

use serde_json::{Value, json};

use crate::limits::Limits;
use crate::slots::SLOTS;

/// An object of these fields and no others.
fn closed(required: &[&str], properties: Value) -> Value {
    json!({
        "type": "object", "additionalProperties": false,
        "required": required, "properties": properties,
    })
}

/// An object that may get more fields.
fn open(required: &[&str], properties: Value) -> Value {
    json!({ "type": "object", "required": required, "properties": properties })
}

fn list(items: Value) -> Value {
    json!({ "type": "array", "items": items })
}

fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

fn count() -> Value {
    json!({ "type": "integer", "minimum": 0 })
}

fn maybe(kind: &str) -> Value {
    json!({ "type": [kind, "null"] })
}

pub(crate) fn schemas(limits: &Limits) -> Value {
    let mut all = requests(limits);
    for some in [answers(), problem()] {
        if let (Value::Object(all), Value::Object(some)) = (&mut all, some) {
            all.extend(some);
        }
    }
    all
}

fn requests(limits: &Limits) -> Value {
    let name = json!({ "type": "string", "minLength": 1, "maxLength": 512 });
    let duration = json!({ "type": "string", "examples": ["30s", "1m30s"] });
    // Of a second: whoever sends the examples waits for what it holds itself.
    let wait = json!({ "type": "string", "examples": ["1s"] });
    let lease = json!({
        "type": "string",
        "pattern": "^([0-9a-fA-F]{32}|[A-Za-z0-9_-]{21}[AQgw])$",
    });
    let label = json!({ "type": "string", "maxLength": 200 });
    let slot = json!({
        "type": "integer", "minimum": 0, "maximum": SLOTS - 1,
        "description": "which of several slots, as the acquire has answered",
    });
    let flag = json!({ "type": "boolean" });
    let form = json!({
        "name": name, "ttl": duration, "wait": wait, "max_hold": duration,
        "lease": lease, "attempt": { "type": "integer", "minimum": 1 },
        "fair": flag, "shared": flag,
        "slots": { "type": "integer", "minimum": 1, "maximum": SLOTS },
        "owner": label, "meta": label,
    });
    let mut acquire = form.clone();
    acquire["names"] = json!({
        "type": "array", "items": name, "minItems": 1, "maxItems": limits.names,
    });
    let token = count();
    let extended = closed(
        &["name", "lease", "token"],
        json!({ "name": name, "slot": slot, "lease": lease, "token": token }),
    );
    let release = json!({
        "name": name, "slot": slot, "lease": lease,
        "slots": {
            "type": "integer", "minimum": 1, "maximum": SLOTS,
            "description": "whichever of so many slots, as the acquire has asked",
        },
    });
    json!({
        "Acquire": closed(&[], acquire),
        "AcquireForm": closed(&["name"], form),
        "Extend": closed(&["leases"], json!({
            "ttl": duration,
            "leases": {
                "type": "array", "minItems": 1, "maxItems": limits.batch, "items": extended,
            },
        })),
        "Release": closed(&["name", "lease"], release),
        "Steal": closed(&["name", "reason"], json!({
            "name": name, "ttl": duration, "lease": lease, "owner": label,
            "reason": { "type": "string", "minLength": 1, "maxLength": 1024 },
            "overwrite_foreign": {
                "type": "boolean", "default": false,
                "description": "overwrite also what fencepost did not write",
            },
        })),
    })
}

fn answers() -> Value {
    let (text, flag) = (json!({ "type": "string" }), json!({ "type": "boolean" }));
    let lock = json!({ "name": text, "token": count() });
    json!({
        "Grant": closed(&["lease", "valid_for_ms", "waited_ms"], json!({
            "lease": text, "name": text, "token": count(),
            "leases": list(closed(&["name", "token"], lock)),
            "valid_for_ms": count(), "waited_ms": count(), "slot": count(),
            "stolen_from": text, "repeated": flag,
        })),
        "Extended": closed(&["leases"], json!({
            "leases": list(closed(&["name", "lease", "outcome"], json!({
                "name": text, "lease": text,
                "outcome": {
                    "type": "string", "description": "`extended`, or the code of a problem",
                },
                "valid_for_ms": count(), "detail": text, "holder": text,
                "reason": maybe("string"), "retry_after_ms": count(),
            }))),
        })),
        "Released": closed(&["name", "outcome"], json!({
            "name": text, "outcome": { "const": "released" },
        })),
        "Holder": open(&["owner"], json!({
            "owner": text, "token": maybe("integer"), "since_ms": maybe("integer"),
            "expires_in_ms": maybe("integer"), "lease_hash": maybe("string"),
        })),
        "Lock": open(&["name", "holder", "held", "register", "waiting", "nodes"], json!({
            "name": text,
            "holder": { "anyOf": [reference("Holder"), { "type": "null" }] },
            "held": maybe("boolean"), "split": list(text.clone()),
            "readers": list(reference("Holder")),
            "register": count(), "waiting": count(),
            "nodes": list(open(&["node"], json!({ "node": text, "error": text }))),
        })),
        "Locks": closed(&["locks", "cursor", "more"], json!({
            "locks": list(reference("Lock")), "cursor": maybe("string"), "more": flag,
        })),
        "News": open(&["cursor"], json!({ "cursor": text })),
        "Nodes": open(&["nodes"], json!({ "nodes": list(open(&["node"], json!({ "node": text }))) })),
        "Contention": open(&[], json!({})),
        "Timeline": open(&["since_ms"], json!({ "since_ms": count() })),
    })
}

fn problem() -> Value {
    let text = json!({ "type": "string" });
    json!({
        "Problem": open(&["type", "title", "status", "code", "detail"], json!({
            "type": text, "title": text, "status": count(),
            "code": { "type": "string", "description": "stays the same for the same cause" },
            "detail": text, "request_id": text, "retry_after_ms": count(),
            "limit": { "type": "string", "enum": Limits::NAMES },
            "holder": text, "holder_token": maybe("integer"), "expires_in_ms": count(),
            "since_ms": maybe("integer"),
            "place": {
                "type": "integer", "minimum": 1,
                "description": "in the queue, for the next attempt of the lease; 1 is next",
            },
            "reason": maybe("string"),
            "nodes": list(open(&["node", "outcome"], json!({ "node": text, "outcome": text }))),
        })),
    })
}
