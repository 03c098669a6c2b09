//! Slots of a name: `{ci/pool}:semaphore:1` is one of `ci/pool`. Clients use the name that they asked
//! for; the nodes have one name for each slot.

use fencepost::{Client, Error, NamePattern, Status};
use fencepost_core::LeaseId;
use futures_util::future::try_join_all;

use crate::problem::Problem;

/// The most slots of one name.
pub(crate) const SLOTS: usize = 64;

const SLOT_OF: &str = ":semaphore:";

/// The name that was asked for: for a slot, that of which it is one.
pub(crate) fn plain_name(name: &str) -> &str {
    let Some((whole, slot)) = name.rsplit_once(SLOT_OF) else {
        return name;
    };
    let is_number = !slot.is_empty() && slot.bytes().all(|byte| byte.is_ascii_digit());
    let tag = fencepost_core::name::hash_tag(whole);
    match (is_number, tag) {
        // The braces are ours where nothing else is around them.
        (true, Some(_)) => match whole.strip_prefix('{').and_then(|it| it.strip_suffix('}')) {
            Some(inner) if !inner.contains('}') => inner,
            _ => whole,
        },
        _ => name,
    }
}

/// The lock that is meant by a name, and by a slot of it.
pub(crate) fn slot_name(client: &Client, name: &str, slot: Option<u32>) -> Result<String, Problem> {
    let Some(slot) = slot.map(|slot| slot as usize) else {
        return Ok(name.to_owned());
    };
    // The answer to an acquire has the name of the slot beside its number.
    if plain_name(name) != name {
        return Ok(name.to_owned());
    }
    let mut names = names(client, name)?;
    match slot < names.len() {
        true => Ok(names.swap_remove(slot)),
        false => Err(Problem::invalid(format!(
            "a slot is a number below {SLOTS}"
        ))),
    }
}

fn names(client: &Client, name: &str) -> Result<Vec<String>, Error> {
    let names = client.semaphore(name, SLOTS).slot_names()?;
    Ok(names.iter().map(ToString::to_string).collect())
}

/// The slot of that name which a lease holds, on any node. That asks for all of them.
pub(crate) async fn held_slot(
    client: &Client,
    name: &str,
    lease: LeaseId,
) -> Result<Option<String>, Error> {
    if plain_name(name) != name {
        return Ok(None);
    }
    // Some names have no slots.
    let Ok(names) = names(client, name) else {
        return Ok(None);
    };
    let seen = try_join_all(names.iter().map(|name| client.status(name))).await?;
    let found = seen.into_iter().find(|slot| is_held(slot, lease));
    Ok(found.map(|slot| slot.name.to_string()))
}

fn is_held(slot: &Status, lease: LeaseId) -> bool {
    let locks = slot.nodes.iter().filter_map(|node| node.lock.as_ref().ok());
    let mut holders = locks.filter_map(|lock| lock.holder.as_ref());
    holders.any(|held| {
        held.value
            .lease_attempt()
            .is_some_and(|of| of.lease == lease)
    })
}

/// The locks whose names, or whose semaphores' names, begin like that, in order; and whether there are
/// more than a listing can hold.
pub(crate) async fn list(client: &Client, prefix: &str) -> Result<(Vec<Status>, bool), Error> {
    // By the nodes, which hand out a bounded number of names. In a pattern `*` is no letter: `?` is any.
    let like = prefix.replace('*', "?");
    let plain = NamePattern::new(format!("{like}*"));
    let plain = client.list(&plain).await?;
    let (mut locks, mut more) = (plain.locks, plain.truncated);
    if !prefix.is_empty() {
        let slots = NamePattern::new(format!("{{{like}*{SLOT_OF}*"));
        let slots = client.list(&slots).await?;
        more |= slots.truncated;
        locks.extend(slots.locks);
    }
    locks.retain(|lock| has_prefix(lock.name.as_str(), prefix));
    locks.sort_by(|one, other| one.name.cmp(&other.name));
    locks.dedup_by(|one, other| one.name == other.name);
    Ok((locks, more))
}

/// Whether a name, or that of which it is a slot, begins like that.
pub(crate) fn has_prefix(name: &str, prefix: &str) -> bool {
    name.starts_with(prefix) || plain_name(name).starts_with(prefix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_belongs_to_the_name_that_was_asked_for() {
        for (name, plain) in [
            ("{pool}:semaphore:3", "pool"),
            ("{ci/pool}:semaphore:12", "ci/pool"),
            ("{tenant}:pool:semaphore:0", "{tenant}:pool"),
            ("{a{b}:semaphore:0", "a{b"),
            ("{pool}:semaphore:", "{pool}:semaphore:"),
            ("{pool}:semaphore:x", "{pool}:semaphore:x"),
            ("pool:semaphore:1", "pool:semaphore:1"),
            ("job", "job"),
        ] {
            assert_eq!(plain_name(name), plain);
        }
    }
}
