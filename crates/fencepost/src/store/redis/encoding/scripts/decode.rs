//! The replies of the scripts.

use std::borrow::Cow;
use std::time::Duration;

use crate::error::NodeError;
use crate::store::redis::fault;
use crate::store::redis::protocol::value::Value;
use fencepost_core::lock::{Holder, NodeQueue, Reply, Snapshot};
use fencepost_core::stored::Stored;
use fencepost_core::ticket::{Place, TicketId, TicketNumber};
use fencepost_core::token::FencingToken;
use fencepost_core::value::AttemptValue;

/// Parses a script's reply.
pub(crate) fn read(value: Value) -> Result<Reply, NodeError> {
    let answer = |value: &Value| NodeError::Other(format!("malformed reply: {value}"));
    if let Some(register) = token(Some(&value)) {
        let evicted = None;
        return Ok(Reply::Granted { register, evicted });
    }
    let items = match &value {
        Value::Array(items) => items,
        word => std::slice::from_ref(word),
    };
    let (word, rest) = match items.split_first() {
        Some((Value::BulkString(word), rest)) => (word.as_slice(), rest),
        _ => return Err(answer(&value)),
    };
    let reply = match word {
        b"granted" => token(rest.first()).map(|register| Reply::Granted {
            register,
            evicted: rest.get(1).and_then(stored).map(|held| held.value),
        }),
        b"held" => holder(rest).map(Reply::Held),
        b"tombstoned" => Some(Reply::Tombstoned),
        b"exhausted" => Some(Reply::Exhausted),
        b"raised" => token(rest.first()).map(Reply::Raised),
        b"not raised" => token(rest.first()).map(Reply::NotRaised),
        b"extended" => Some(Reply::Extended),
        b"repaired" => Some(Reply::Repaired),
        b"released" => Some(Reply::Released),
        b"lease released" => {
            let values: Vec<_> = rest.iter().filter_map(stored).collect();
            (values.len() == rest.len()).then_some(Reply::LeaseReleased(values))
        }
        b"not held" => Some(Reply::NotHeld(holder(rest))),
        b"stolen" => rest
            .first()
            .and_then(text)
            .map(|by| Reply::Stolen(AttemptValue::reported(&*by))),
        b"line" => queue_view(rest).map(Reply::Queue),
        b"left" => Some(Reply::Left),
        b"seen" => match rest {
            [register, waiting, seen @ ..] => token(Some(register)).map(|register| {
                Reply::Snapshot(Snapshot {
                    holder: holder(seen),
                    readers: seen.chunks_exact(2).skip(1).filter_map(reader).collect(),
                    register,
                    waiting: count(waiting).unwrap_or(0),
                })
            }),
            _ => None,
        },
        _ => None,
    };
    reply.ok_or_else(|| answer(&value))
}

/// The holder, the head of the queue, and the presented tickets: a number and how many are ahead.
fn queue_view(items: &[Value]) -> Option<NodeQueue> {
    let (seen, places) = items.split_at_checked(4)?;
    let head = match (text(&seen[2]), &seen[3]) {
        (Some(head), Value::Int(left)) => {
            let left = Duration::from_millis(u64::try_from(*left).unwrap_or(0));
            Some((TicketId::reported(&*head), left))
        }
        _ => None,
    };
    let place = |pair: &[Value]| {
        let (number, ahead) = (count(&pair[0])?, count(&pair[1])?);
        let number = TicketNumber::saturating(number as u64);
        Some(Place { number, ahead })
    };
    Some(NodeQueue {
        holder: holder(seen),
        head,
        places: places.chunks_exact(2).map(place).collect::<Option<_>>()?,
    })
}

fn count(value: &Value) -> Option<usize> {
    match value {
        Value::Int(n) => usize::try_from(*n).ok(),
        _ => None,
    }
}

fn token(value: Option<&Value>) -> Option<FencingToken> {
    match value {
        // A register that was set beyond the integer range comes back negative.
        Some(Value::Int(n)) => {
            Some(u64::try_from(*n).map_or(FencingToken::MAX, FencingToken::saturating))
        }
        _ => None,
    }
}

/// The holder's value and token, and its remaining milliseconds: -1 without an expiry.
fn holder(items: &[Value]) -> Option<Holder> {
    let Stored { value, token } = items.first().and_then(stored)?;
    Some(Holder {
        value,
        token,
        remaining: remaining(items.get(1)?)?,
    })
}

/// The same for a reader: its value is stored alone.
fn reader(items: &[Value]) -> Option<Holder> {
    Some(Holder {
        value: AttemptValue::reported(&*items.first().and_then(text)?),
        token: None,
        remaining: remaining(items.get(1)?)?,
    })
}

fn remaining(value: &Value) -> Option<Option<Duration>> {
    match value {
        Value::Int(left) => Some(u64::try_from(*left).ok().map(Duration::from_millis)),
        _ => None,
    }
}

fn stored(value: &Value) -> Option<Stored> {
    text(value).map(|text| Stored::parse(&text))
}

fn text(value: &Value) -> Option<Cow<'_, str>> {
    match value {
        Value::BulkString(bytes) => Some(fault::text_or_hex(bytes)),
        _ => None,
    }
}
