//! Slots of a name: `{ci/pool}:semaphore:1` is one of `ci/pool`. Clients use the name that they asked
//! for; the nodes have one name for each slot.

use fencepost::internals::Replica as _;
use fencepost::{Client, Error, NamePattern};
use fencepost_core::LockName;
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
    let mut names = names(client, name, SLOTS)?;
    match slot < names.len() {
        true => Ok(names.swap_remove(slot)),
        false => Err(Problem::invalid(format!(
            "a slot is a number below {SLOTS}"
        ))),
    }
}

/// The names of the first so many slots.
pub(crate) fn names(client: &Client, name: &str, slots: usize) -> Result<Vec<String>, Error> {
    let names = client.semaphore(name, slots).slot_names()?;
    Ok(names.iter().map(ToString::to_string).collect())
}

/// Of the first so many slots, those that somebody holds.
pub(crate) async fn held(client: &Client, name: &str, slots: usize) -> Result<Vec<String>, Error> {
    let names = client.semaphore(name, slots).held_slots().await?;
    Ok(names.iter().map(ToString::to_string).collect())
}

/// The name of the one queue of all slots.
pub(crate) fn queue(client: &Client, name: &str) -> Option<String> {
    let first = names(client, name, 1).ok()?.pop()?;
    let (queue, _) = first.rsplit_once(':')?;
    Some(queue.to_owned())
}

/// The number of the slot that has this name.
pub(crate) fn number(name: &str) -> Option<usize> {
    name.rsplit_once(':')
        .and_then(|(_, slot)| slot.parse().ok())
}

/// The names of the locks whose names, or whose semaphores' names, begin like one of these, in order; and whether there
/// are more than a listing can hold.
pub(crate) async fn list(
    client: &Client,
    prefixes: &[&str],
) -> Result<(Vec<LockName>, bool), Error> {
    let each = prefixes.iter().map(|prefix| begin_like(client, prefix));
    let (mut all, mut more) = (Vec::new(), false);
    for (names, has_more) in try_join_all(each).await? {
        all.extend(names);
        more |= has_more;
    }
    all.sort_unstable();
    all.dedup();
    Ok((all, more))
}

async fn begin_like(client: &Client, prefix: &str) -> Result<(Vec<LockName>, bool), Error> {
    // By the nodes, which hand out a bounded number of names. In a pattern `*` is no letter: `?` is any.
    let like = prefix.replace('*', "?");
    let plain = NamePattern::new(format!("{like}*"));
    let (mut names, mut more) = client.names(&plain).await?;
    if !prefix.is_empty() {
        let slots = NamePattern::new(format!("{{{like}*{SLOT_OF}*"));
        let (slots, has_more) = client.names(&slots).await?;
        more |= has_more;
        names.extend(slots);
    }
    names.retain(|name| has_prefix(name.as_str(), prefix));
    Ok((names, more))
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
