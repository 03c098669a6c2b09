//! Releases a lease by its id: a lock, a slot, or whichever slot it holds.

use fencepost::internals::Replica as _;
use fencepost::leased::LeaseRelease;
use fencepost::{Client, Error, FencingToken, Status};
use fencepost_core::LeaseId;
use fencepost_core::lock::Snapshot;
use futures_util::future::try_join_all;

use crate::held::{find, held_attempt, released};
use crate::leases::{Leases, Way};
use crate::problem::Problem;
use crate::slots::{SLOTS, held, names, plain_name, slot_name};

/// How many slots a late copy of an acquire may come for, where it is not known: none, if its id was chosen here and
/// never comes back.
fn most_reach(attempt: Option<u32>) -> usize {
    match attempt {
        Some(0) => 0,
        _ => SLOTS,
    }
}

/// What is to be released: a lock, a slot, or whichever of so many slots.
pub(crate) struct Release<'a> {
    pub(crate) name: &'a str,
    pub(crate) slot: Option<u32>,
    pub(crate) slots: Option<u32>,
    pub(crate) lease: LeaseId,
}

impl Release<'_> {
    /// Releases what the nodes hold under the lease id, and has them refuse the id from now on: where it may come back
    /// for another slot, at all slots. Returns the names that may have been held, the first of them as it is called to
    /// the client.
    pub(crate) async fn carry_out(
        &self,
        client: &Client,
        leases: &Leases,
    ) -> Result<(Vec<String>, LeaseRelease), Problem> {
        let is_plain =
            self.slot.is_none() && self.slots.is_none() && plain_name(self.name) == self.name;
        if is_plain {
            let outcome = release_one(client, leases, self.name, self.lease).await?;
            if matches!(outcome, LeaseRelease::Released(_)) {
                return Ok((vec![self.name.to_owned()], outcome));
            }
            let name = self.name.to_owned();
            return Box::pin(self.of_slots(client, leases, name, outcome)).await;
        }
        Box::pin(self.of_known_slots(client, leases)).await
    }

    /// What is known to be one of several slots, or may be.
    async fn of_known_slots(
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
                None => most_reach(held_attempt(client, &name, lease).await?),
            };
            let outcome = release_one(client, leases, &name, lease).await?;
            // Also where it was held no more: a late copy would acquire another slot for nobody.
            if reach > 0 {
                let mut others = names(client, plain, reach)?;
                others.retain(|other| *other != name);
                release_all(client, &others, lease).await?;
            }
            return Ok((vec![name], outcome));
        }
        let outcome = release_one(client, leases, &name, lease).await?;
        if matches!(outcome, LeaseRelease::Released(_)) {
            return Ok((vec![name], outcome));
        }
        self.of_slots(client, leases, name, outcome).await
    }

    /// It does not hold the name itself, as that outcome says: it may be one of several slots.
    async fn of_slots(
        &self,
        client: &Client,
        leases: &Leases,
        name: String,
        outcome: LeaseRelease,
    ) -> Result<(Vec<String>, LeaseRelease), Problem> {
        let lease = self.lease;
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

/// Releases one lock: by its value, if this replica acquired it and nobody else can have, as the library releases its
/// own. What the nodes do not hold under that is asked by the lease id.
async fn release_one(
    client: &Client,
    leases: &Leases,
    name: &str,
    lease: LeaseId,
) -> Result<LeaseRelease, Error> {
    let way = leases.way(name, lease);
    let is_repeated = matches!(way, Way::Again);
    if let Way::ByValue(kept) = way {
        let token = kept.token();
        match client.release_kept(*kept).await {
            Ok(()) => return Ok(LeaseRelease::Released(Some(token))),
            Err(error) if error.is_lost() => leases.by_lease_id(name, lease),
            Err(error) => return Err(error),
        }
    }
    match client.release_lease(name, lease).await? {
        // The release before this one went on after its client was told that too few nodes answered.
        LeaseRelease::NotHeld if is_repeated => Ok(LeaseRelease::AlreadyReleased),
        outcome => Ok(outcome),
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
        .filter_map(|slot| Some((slot.name.to_string(), attempt_of(slot, lease)?)));
    Ok(found.collect())
}

/// The last attempt of the lease that holds the slot on any node.
fn attempt_of(slot: &Status, lease: LeaseId) -> Option<u32> {
    let locks = slot.nodes.iter().filter_map(|node| node.lock.as_ref().ok());
    let holders = locks.filter_map(|lock| lock.holder.as_ref());
    let attempts = holders.filter_map(|held| held.value.lease_attempt());
    let its = attempts.filter(|of| of.lease == lease);
    its.map(|of| of.attempt).max()
}

/// What is said of a release of that name.
pub(crate) async fn said(
    client: &Client,
    name: &str,
    lease: LeaseId,
    outcome: LeaseRelease,
) -> Result<Option<FencingToken>, Problem> {
    match outcome {
        LeaseRelease::Released(token) => Ok(token),
        // A release that is repeated after a lost answer is no loss.
        LeaseRelease::AlreadyReleased => Err(released()),
        // Who has it instead is asked only now: those who released hold it nearly always.
        LeaseRelease::NotHeld => Err(Box::pin(find(client, name, lease)).await?.none),
    }
}
