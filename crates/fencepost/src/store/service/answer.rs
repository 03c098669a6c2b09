//! Parses the responses of the service. Pure.
//!
//! A response that is not understood must never count as a lock.

use std::time::Duration;

use serde_json::Value;

use super::http::Answer;
use crate::error::NodeError;
use crate::store::lock_service::Served;
use fencepost_core::Moment;
use fencepost_core::lock::{Holder, Reply, Snapshot};
use fencepost_core::name::LockName;
use fencepost_core::token::FencingToken;
use fencepost_core::value::AttemptValue;

/// The holder where the service names none: split attempts, or an overtaken one.
const UNNAMED: &str = "(not named by the service)";

/// The response to an acquire that was sent at this moment.
pub(super) fn acquired(answer: &Answer, sent: Moment) -> Result<Served, NodeError> {
    let body = &answer.body;
    match (answer.status, code(body)) {
        (200, _) => {
            let valid_for = millis(&body["valid_for_ms"]);
            match (token(&body["token"]), valid_for) {
                (Some(token), Some(valid_for)) => Ok(Served::Granted {
                    token,
                    deadline: sent + valid_for,
                    slot: body["slot"].as_u64().and_then(|slot| slot.try_into().ok()),
                }),
                _ => Err(unfit(answer)),
            }
        }
        (409, "in_progress" | "superseded") => Ok(Served::AlreadyServed),
        (409, _) => Ok(Served::Held(holder_of(body))),
        _ => Err(refusal(answer)),
    }
}

/// The response to an extension of one lease.
pub(super) fn extended(answer: &Answer) -> Result<Reply, NodeError> {
    let one = &answer.body["leases"][0];
    match (answer.status, one["outcome"].as_str()) {
        (200, Some("extended")) => match millis(&one["valid_for_ms"]) {
            Some(valid_for) => Ok(Reply::ExtendedFor(valid_for)),
            None => Err(unfit(answer)),
        },
        (200, Some("lost" | "released")) => {
            let stolen = one["holder"].is_string().then(|| holder_of(one));
            Ok(Reply::NotHeld(stolen))
        }
        (200, Some("forbidden" | "invalid")) => Err(NodeError::Refused(detail(one))),
        (200, Some(_)) => Err(NodeError::Other(detail(one))),
        (200, None) => Err(unfit(answer)),
        _ => Err(refusal(answer)),
    }
}

/// The response to a release. An earlier try may have succeeded without a response.
pub(super) fn released(answer: &Answer, is_repeated: bool) -> Result<Reply, NodeError> {
    let body = &answer.body;
    match (answer.status, code(body)) {
        (200, _) => Ok(Reply::Released),
        (410, "released") if is_repeated => Ok(Reply::Released),
        (410, _) => {
            let stolen = body["holder"].is_string().then(|| holder_of(body));
            Ok(Reply::NotHeld(stolen))
        }
        _ => Err(refusal(answer)),
    }
}

/// The response to a steal.
pub(super) fn stolen(answer: &Answer) -> Result<Reply, NodeError> {
    let body = &answer.body;
    match (answer.status, token(&body["token"])) {
        (200, Some(register)) => Ok(Reply::Granted {
            register,
            evicted: body["stolen_from"].as_str().map(AttemptValue::reported),
        }),
        (200, None) => Err(unfit(answer)),
        _ => Err(refusal(answer)),
    }
}

/// The response to a query for one lock.
pub(super) fn snapshot(answer: &Answer) -> Result<Reply, NodeError> {
    let body = &answer.body;
    if answer.status != 200 {
        return Err(refusal(answer));
    }
    let (Some(waiting), Some(register)) = (body["waiting"].as_u64(), token(&body["register"]))
    else {
        return Err(unfit(answer));
    };
    // A single node has a holder or none: what the service does not know of its own nodes is
    // unknown here too.
    if body.get("held").is_some_and(Value::is_null) {
        return Err(NodeError::Other("no quorum of its nodes".to_owned()));
    }
    let split = body["split"].as_array().map(Vec::as_slice);
    let split: Vec<_> = split
        .unwrap_or_default()
        .iter()
        .filter_map(Value::as_str)
        .map(readable)
        .collect();
    if !split.is_empty() {
        let parties = split.join(" and ");
        let why = format!("its nodes are split between {parties}; no holder has a majority");
        return Err(NodeError::Other(why));
    }
    let readers = body["readers"].as_array().map(Vec::as_slice);
    let readers: Vec<Holder> = readers.unwrap_or_default().iter().map(shown).collect();
    let holder = match &body["holder"] {
        Value::Null => None,
        _ if !readers.is_empty() => Some(Holder {
            value: AttemptValue::shared(),
            token: None,
            remaining: readers.iter().filter_map(|reader| reader.remaining).max(),
        }),
        holder => Some(shown(holder)),
    };
    Ok(Reply::Snapshot(Snapshot {
        holder,
        readers,
        register,
        waiting: usize::try_from(waiting).unwrap_or(usize::MAX),
    }))
}

/// A page of a listing.
pub(super) struct Page {
    pub(super) names: Vec<LockName>,
    /// The start of the next page.
    pub(super) next: Option<String>,
    /// Whether there are names that are on no page.
    pub(super) more: bool,
}

/// The response to a page of a listing.
pub(super) fn names(answer: &Answer) -> Result<Page, NodeError> {
    let body = &answer.body;
    let Some(locks) = body["locks"].as_array().filter(|_| answer.status == 200) else {
        return Err(refusal(answer));
    };
    let names = locks.iter().filter_map(|lock| lock["name"].as_str());
    let names = names.filter_map(|name| LockName::new(name).ok()).collect();
    Ok(Page {
        names,
        next: body["cursor"].as_str().map(str::to_owned),
        more: body["more"].as_bool().unwrap_or(false),
    })
}

/// Why it refused.
pub(super) fn refusal(answer: &Answer) -> NodeError {
    let why = detail(&answer.body);
    match answer.status {
        401 => NodeError::Refused(format!(
            "{why}; set FENCEPOST_SERVICE_TOKEN, or name a file that has the token"
        )),
        // It is overloaded, or temporarily unable.
        408 | 429 | 500.. => NodeError::Other(why),
        400.. => NodeError::Refused(why),
        _ => unfit(answer),
    }
}

fn unfit(answer: &Answer) -> NodeError {
    let status = answer.status;
    NodeError::Other(format!(
        "unexpected response (HTTP {status}); is this a lock service?"
    ))
}

fn code(body: &Value) -> &str {
    body["code"].as_str().unwrap_or_default()
}

fn detail(body: &Value) -> String {
    let detail = body["detail"].as_str();
    detail.map_or_else(|| "no reason given".to_owned(), readable)
}

/// A readable part of a foreign text.
fn readable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(500).collect()
}

/// As a problem document names it.
fn holder_of(problem: &Value) -> Holder {
    Holder {
        value: AttemptValue::reported(problem["holder"].as_str().unwrap_or(UNNAMED)),
        token: token(&problem["holder_token"]),
        remaining: millis(&problem["expires_in_ms"]),
    }
}

/// As a query for a lock names it. The hash of its lease distinguishes it from other holders.
fn shown(holder: &Value) -> Holder {
    let owner = holder["owner"].as_str().unwrap_or(UNNAMED);
    Holder {
        value: match holder["lease_hash"].as_str() {
            Some(hash) => AttemptValue::reported(format!("{hash}:{owner}")),
            None => AttemptValue::reported(owner),
        },
        token: token(&holder["token"]),
        remaining: millis(&holder["expires_in_ms"]),
    }
}

fn token(value: &Value) -> Option<FencingToken> {
    value.as_u64().and_then(FencingToken::new)
}

fn millis(value: &Value) -> Option<Duration> {
    value.as_u64().map(Duration::from_millis)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn answer(status: u16, body: Value) -> Answer {
        Answer { status, body }
    }

    fn sent() -> Moment {
        Moment::from_start(Duration::from_secs(100))
    }

    #[test]
    fn a_grant_lasts_from_the_moment_in_which_it_was_asked_for() {
        let body = json!({ "token": 7, "valid_for_ms": 1500, "slot": 2 });
        let granted = Served::Granted {
            token: FencingToken::new(7).expect("fits"),
            deadline: Moment::from_start(Duration::from_millis(101_500)),
            slot: Some(2),
        };
        assert_eq!(acquired(&answer(200, body), sent()), Ok(granted));
    }

    #[test]
    fn what_is_not_understood_is_no_lock() {
        for (status, body) in [
            (200, json!({})),
            (200, json!({ "token": 7 })),
            (200, json!({ "token": -7, "valid_for_ms": 10 })),
            (200, json!({ "token": "7", "valid_for_ms": 10 })),
            (200, json!({ "leases": [{ "outcome": "extended" }] })),
            (200, Value::Null),
            (204, Value::Null),
            (302, Value::Null),
            (502, json!("Bad Gateway")),
        ] {
            let answer = answer(status, body);
            assert!(acquired(&answer, sent()).is_err(), "{answer:?}");
            assert!(stolen(&answer).is_err() || answer.body["token"] == 7);
            assert!(extended(&answer).is_err(), "{answer:?}");
            assert!(snapshot(&answer).is_err(), "{answer:?}");
        }
    }

    #[test]
    fn a_lock_is_not_free_whose_holder_the_service_does_not_know() {
        let free = json!({ "waiting": 0, "register": 7, "holder": null, "held": false });
        assert!(snapshot(&answer(200, free.clone())).is_ok());
        let mut split = free.clone();
        split["split"] = json!(["a", "b"]);
        let why = snapshot(&answer(200, split)).unwrap_err().to_string();
        assert!(why.contains("split between a and b"), "{why}");
        let mut unknown = free;
        unknown["held"] = Value::Null;
        assert!(snapshot(&answer(200, unknown)).is_err());
    }

    #[test]
    fn only_a_release_that_was_sent_before_may_have_been_its_own() {
        let gone = answer(410, json!({ "code": "released" }));
        assert_eq!(released(&gone, true), Ok(Reply::Released));
        assert_eq!(released(&gone, false), Ok(Reply::NotHeld(None)));
        let lost = answer(410, json!({ "code": "lost" }));
        assert_eq!(released(&lost, true), Ok(Reply::NotHeld(None)));
    }

    #[test]
    fn a_refusal_is_for_people_and_an_overload_is_not() {
        for (status, for_people) in [
            (401, true),
            (403, true),
            (422, true),
            (408, false),
            (429, false),
            (503, false),
        ] {
            let error = refusal(&answer(status, json!({ "detail": "why" })));
            assert_eq!(error.is_permanent(), for_people, "{status}: {error}");
            assert!(error.to_string().contains("why"), "{error}");
        }
    }
}
