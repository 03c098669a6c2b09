//! A lock as the nodes see it, for those who ask about it. Pure.
//!
//! Values and lease ids never leave: whoever has one can release the lock. A hash of it does, which tells
//! one holder from the next.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use fencepost::{AttemptValue, FencingToken, Owner, Status, Waiter};
use fencepost_core::lock::{Holder, Snapshot};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::answer::{millis, unix_millis};

/// The most waiters of one lock that are shown.
pub(crate) const MOST_WAITERS: usize = 64;

/// How a client is named to those who ask: by its label, if it has one. What another library or an
/// application stored is no label, and enough to release its lock.
pub(crate) fn named(owner: &Owner) -> Owner {
    if !owner.is_value() {
        return owner.clone();
    }
    let who = match AttemptValue::reported(owner.as_str()).is_reentrant() {
        true => "the holder of a reentrant lock",
        false => "a client of another library",
    };
    Owner::readable(&format!("{who} ({})", digest("value", owner.as_str(), 4)))
}

/// The lock and, as far as enough nodes say, who waits for it: the first one first.
pub(crate) fn shown_with_queue(status: &Status, queue: Option<&[Waiter]>) -> Value {
    let mut lock = shown(status);
    let waiters = queue.map(|queue| {
        let each = queue.iter().take(MOST_WAITERS).zip(1..);
        let each = each.map(|(waiter, place)| {
            json!({
                "place": place,
                "owner": named(&waiter.owner).as_str(),
                "since_ms": unix_millis(waiter.since),
                "shared": waiter.reader,
                "fair": waiter.fair,
            })
        });
        each.collect::<Vec<_>>()
    });
    lock["queue"] = json!(waiters);
    lock
}

pub(crate) fn shown(status: &Status) -> Value {
    let needed = status.nodes.len() / 2 + 1;
    let locks = || {
        status
            .nodes
            .iter()
            .filter_map(|node| node.lock.as_ref().ok())
    };
    let holders = locks().filter_map(|lock| lock.holder.as_ref());
    let holder = status.holder.as_ref().map(|holder| {
        let own =
            |other: &&Holder| other.value.owner() == holder.owner && other.token == holder.token;
        let value = holders.clone().find(own).map(|own| &own.value);
        person(
            &holder.owner,
            holder.token,
            holder.remaining,
            value.filter(|value| !value.is_shared()),
        )
    });
    let nodes = status.nodes.iter().map(|node| match &node.lock {
        Ok(lock) => json!({
            "node": node.node,
            "holder": lock.holder.as_ref().map(|held| named(&held.value.owner()).to_string()),
            "token": lock.holder.as_ref().and_then(|held| held.token).map(FencingToken::get),
            "expires_in_ms": lock.holder.as_ref().and_then(|held| held.remaining).map(millis),
            "waiting": lock.waiting,
            "quarantine_ms": node.quarantine.map(millis),
        }),
        Err(error) => json!({ "node": node.node, "error": error.to_string() }),
    });
    json!({
        "name": status.name.as_str(),
        "holder": holder,
        "held": status.held,
        "split": status.split.iter().map(|owner| named(owner).to_string()).collect::<Vec<_>>(),
        "readers": readers(locks(), needed),
        "register": status.register.get(),
        "waiting": status.waiting,
        "nodes": nodes.collect::<Vec<_>>(),
    })
}

/// Those whom a majority knows, each once.
fn readers<'a>(locks: impl Iterator<Item = &'a Snapshot>, needed: usize) -> Vec<Value> {
    let mut seen: BTreeMap<&str, Vec<&Holder>> = BTreeMap::new();
    for reader in locks.flat_map(|lock| &lock.readers) {
        seen.entry(reader.value.as_str()).or_default().push(reader);
    }
    let agreed = seen.into_values().filter(|same| same.len() >= needed);
    let one = |same: Vec<&Holder>| {
        let remaining = same.iter().filter_map(|reader| reader.remaining).min();
        let value = &same[0].value;
        person(&value.owner(), None, remaining, Some(value))
    };
    agreed.map(one).collect()
}

fn person(
    owner: &Owner,
    token: Option<FencingToken>,
    remaining: Option<std::time::Duration>,
    value: Option<&AttemptValue>,
) -> Value {
    let since = token.and_then(|token| token.proposed_at(std::time::SystemTime::now()));
    json!({
        "owner": named(owner).as_str(),
        "token": token.map(FencingToken::get),
        "since_ms": since.map(unix_millis),
        "expires_in_ms": remaining.map(millis),
        "lease_hash": value.filter(|value| value.is_ours()).map(hash),
    })
}

/// 128 bits, as many as a lease id has.
fn hash(value: &AttemptValue) -> String {
    let lease = value.lease_attempt().map(|of| of.lease.to_string());
    let id = lease.unwrap_or_else(|| value.unique_part().to_owned());
    digest("lease", &id, 16)
}

/// So many bytes of a hash, in hexadecimal digits.
fn digest(of: &str, text: &str, bytes: usize) -> String {
    let digest = Sha256::digest(format!("fencepost {of} {text}"));
    let bytes = digest.iter().take(bytes);
    bytes.fold(String::new(), |mut text, byte| {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
