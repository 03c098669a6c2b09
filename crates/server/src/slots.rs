//! Slots of a name: `{ci/pool}:semaphore:1` is one of `ci/pool`. Clients use the name that they asked
//! for; the nodes have one name for each slot.

use fencepost::leased::LeaseRelease;
use fencepost::{Client, Error, NamePattern, Status};
use fencepost_core::lock::Snapshot;
use fencepost_core::{LeaseId, LockName};
use futures_util::future::try_join_all;

use crate::leases::Leases;
use crate::locks;
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

/// The slots of that name which a lease holds on any node of a majority, and the last attempt that does.
async fn held_by(client: &Client, name: &str, lease: LeaseId) -> Result<Vec<(String, u32)>, Error> {
    // Some names have no slots.
    if names(client, name, SLOTS).is_err() {
        return Ok(Vec::new());
    }
    let names = held(client, name, SLOTS).await?;
    let is_majority = |seen: &[&Snapshot], majority: usize| seen.len() >= majority;
    let looks = names
        .iter()
        .map(|name| client.status_until(name, is_majority));
    let seen = try_join_all(looks).await?;
    let found = seen
        .iter()
        .filter_map(|slot| Some((slot.name.to_string(), held_attempt(slot, lease)?)));
    Ok(found.collect())
}

/// The last attempt of the lease that holds the slot on any node.
fn held_attempt(slot: &Status, lease: LeaseId) -> Option<u32> {
    let locks = slot.nodes.iter().filter_map(|node| node.lock.as_ref().ok());
    let holders = locks.filter_map(|lock| lock.holder.as_ref());
    let attempts = holders.filter_map(|held| held.value.lease_attempt());
    let its = attempts.filter(|of| of.lease == lease);
    its.map(|of| of.attempt).max()
}

/// How many slots a late copy of an acquire may come for, where it is not known: none, if its id was chosen here and
/// never comes back.
fn most_reach(attempt: Option<u32>) -> usize {
    match attempt {
        Some(0) => 0,
        _ => SLOTS,
    }
}

/// What is to be released: a lock, a slot, or whichever of so many slots.
pub(crate) struct Released<'a> {
    pub(crate) name: &'a str,
    pub(crate) slot: Option<u32>,
    pub(crate) slots: Option<u32>,
    pub(crate) lease: LeaseId,
}

impl Released<'_> {
    /// Releases what the nodes hold under the lease id, and has them refuse the id from now on: where it may come back
    /// for another slot, at all slots. Returns the names that may have been held, the first of them as it is called to
    /// the client.
    pub(crate) async fn release(
        &self,
        client: &Client,
        leases: &Leases,
    ) -> Result<(Vec<String>, LeaseRelease), Problem> {
        let lease = self.lease;
        if let Some(slots) = self.slots {
            let slots = slots as usize;
            if self.slot.is_some() || plain_name(self.name) != self.name {
                return Err(Problem::invalid("give either slot or slots"));
            }
            if !(1..=SLOTS).contains(&slots) {
                return Err(Problem::invalid(format!("expected 1 to {SLOTS} slots")));
            }
            let names = names(client, self.name, slots)?;
            let outcome = release_all(client, &names, lease).await?;
            return Ok((names, outcome));
        }
        let name = slot_name(client, self.name, self.slot)?;
        let plain = plain_name(&name);
        if plain != name {
            let reach = match leases.reach(&name, lease) {
                Some(reach) => reach,
                None => most_reach(locks::held_attempt(client, &name, lease).await?),
            };
            let outcome = client.release_lease(&name, lease).await?;
            if outcome != LeaseRelease::NotHeld && reach > 0 {
                let mut others = names(client, plain, reach)?;
                others.retain(|other| *other != name);
                release_all(client, &others, lease).await?;
            }
            return Ok((vec![name], outcome));
        }
        let outcome = client.release_lease(&name, lease).await?;
        if matches!(outcome, LeaseRelease::Released(_)) {
            return Ok((vec![name], outcome));
        }
        // It may be one of several slots.
        let held = held_by(client, &name, lease).await?;
        let Some((first, _)) = held.first() else {
            return Ok((vec![name], outcome));
        };
        let last = held.iter().map(|(_, attempt)| *attempt).max();
        let reach = leases.reach(first, lease).unwrap_or(most_reach(last));
        let mut all = match reach {
            0 => Vec::new(),
            reach => names(client, &name, reach)?,
        };
        let held = held.into_iter().map(|(name, _)| name);
        let held: Vec<_> = held.filter(|name| !all.contains(name)).collect();
        all.extend(held);
        let outcome = release_all(client, &all, lease).await?;
        Ok((all, outcome))
    }
}

/// Releases them side by side: released if one of them was.
async fn release_all(
    client: &Client,
    names: &[String],
    lease: LeaseId,
) -> Result<LeaseRelease, Error> {
    let each = names.iter().map(|name| client.release_lease(name, lease));
    let each = try_join_all(each).await?;
    let rank = |outcome: &LeaseRelease| match outcome {
        LeaseRelease::Released(_) => 2,
        LeaseRelease::AlreadyReleased => 1,
        LeaseRelease::NotHeld => 0,
    };
    let best = each.into_iter().max_by_key(rank);
    Ok(best.unwrap_or(LeaseRelease::NotHeld))
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
