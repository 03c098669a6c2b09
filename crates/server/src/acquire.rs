//! Acquires for a client, and takes over what an earlier attempt of the same lease holds.
//!
//! A value is fresh for every try of every replica: what fails, and what nobody read, is cleaned up by
//! exactly that value.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fencepost::internals::Replica as _;
use fencepost::leased::{OnBehalf, Places};
use fencepost::{
    AttemptValue, Client, DetachedLock, Error, FencingToken, Lease, LockOptions, NodeOutcome,
    NodeReport, Owner, Status,
};
use fencepost_core::lock::Snapshot;
use fencepost_core::quorum::repeated::{Beside, LeaseHold, OtherAttempts, Repeated};
use fencepost_core::{LeaseAttempt, LeaseId};
use futures_util::future::try_join_all;
use futures_util::stream::{FuturesUnordered, StreamExt as _};

use crate::held::{DRIFT_SHARE, no_quorum, of_lease, released, values_of};
use crate::looks::Looks;
use crate::problem::{Problem, SOON};
use crate::slots;

/// What is asked for.
#[derive(Clone, Debug)]
pub(crate) struct Wish {
    /// In order, each once. One only with `shared` or `slots`.
    pub(crate) names: Vec<String>,
    pub(crate) ttl: Duration,
    pub(crate) wait: Duration,
    pub(crate) fair: bool,
    pub(crate) shared: bool,
    /// Any of so many slots of the name.
    pub(crate) slots: Option<usize>,
    /// Which attempt of which lease; 0 if the id was made here.
    pub(crate) of: LeaseAttempt,
    pub(crate) owner: Owner,
    /// Whether what is acquired is renewed until the answer: the first of several names is kept while the others
    /// are waited for. Nobody keeps a lease that was answered but its client.
    pub(crate) renew: bool,
}

/// Locks that were acquired. Dropped, they are released by exactly the values of this attempt.
#[derive(Debug)]
pub(crate) struct Granted {
    pub(crate) leases: Vec<Lease>,
    /// From the moment in which the request was read: the client, which sent it before, may count
    /// from then.
    pub(crate) valid_for: Duration,
    pub(crate) waited: Duration,
    pub(crate) slot: Option<usize>,
    /// Whether an earlier attempt of the same lease had a lock already.
    pub(crate) repeated: bool,
}

/// How long what is left of a failed try may take to be gone.
const CLEAN_UP: Duration = Duration::from_millis(50);
/// How often a waiting request looks whether another attempt of its lease holds the lock.
const LOOK_EVERY: Duration = Duration::from_secs(1);

impl Wish {
    /// Whether the client chose the lease id, and may send the request again.
    fn may_be_repeated(&self) -> bool {
        self.of.attempt > 0
    }

    fn on_behalf(&self) -> OnBehalf {
        OnBehalf {
            of: self.of,
            owner: self.owner.clone(),
            keeps_place: self.may_be_repeated(),
        }
    }

    /// What it makes of the other attempts of its lease, in so many places.
    fn repeated(&self, places: usize) -> Repeated {
        Repeated {
            attempt: self.of.attempt,
            any_place: self.slots.is_some(),
            shared: self.shared,
            places,
        }
    }

    /// No longer than the lock may be held.
    fn ttl(&self) -> Duration {
        self.of.max_hold.map_or(self.ttl, |most| most.min(self.ttl))
    }

    fn options(&self, end: Instant) -> LockOptions {
        LockOptions::new()
            .ttl(self.ttl())
            .timeout(end.saturating_duration_since(Instant::now()))
            .fair(self.fair)
            .renew(self.renew)
    }
}

/// Leases, and which slot it is.
struct Found {
    leases: Vec<Lease>,
    slot: Option<usize>,
    repeated: bool,
}

impl Found {
    fn new(leases: Vec<Lease>) -> Self {
        Self {
            leases,
            slot: None,
            repeated: false,
        }
    }
}

pub(crate) async fn acquire(
    client: &Client,
    wish: &Wish,
    looks: &Looks,
) -> Result<Granted, Problem> {
    let start = Instant::now();
    let end = start + wish.wait;
    let found = match wish.may_be_repeated() {
        false => ask(client, wish, end).await?,
        true => Box::pin(repeatable(client, wish, looks, end)).await?,
    };
    // All or none: the others are released by being dropped.
    if let Some(over) = found.leases.iter().find(|lease| !lease.is_valid()) {
        return Err(too_late(over.name()));
    }
    let waited = start.elapsed();
    let left = found.leases.iter().map(Lease::remaining).min();
    Ok(Granted {
        valid_for: waited.mul_f64(1.0 - DRIFT_SHARE) + left.unwrap_or_default(),
        waited,
        leases: found.leases,
        slot: found.slot,
        repeated: found.repeated,
    })
}

/// One request to the library.
async fn ask(client: &Client, wish: &Wish, end: Instant) -> Result<Found, Error> {
    match &wish.names[..] {
        [name] if wish.slots.is_none() && !wish.shared => {
            let lock = client.lock(name).options(wish.options(end));
            let lease = lock.on_behalf(wish.on_behalf()).await?;
            Ok(Found::new(vec![lease]))
        }
        _ => Box::pin(ask_for_others(client, wish, end)).await,
    }
}

/// For what is not simply a lock.
async fn ask_for_others(client: &Client, wish: &Wish, end: Instant) -> Result<Found, Error> {
    let (options, on_behalf) = (wish.options(end), wish.on_behalf());
    if let Some(slots) = wish.slots {
        let semaphore = client.semaphore(&wish.names[0], slots);
        let permit = semaphore.acquire().options(options).on_behalf(on_behalf);
        let permit = permit.await?;
        return Ok(Found {
            slot: Some(permit.slot()),
            ..Found::new(vec![permit.into_lease()])
        });
    }
    if wish.shared {
        let lock = client.read_write(&wish.names[0]);
        let lease = lock.read().options(options).on_behalf(on_behalf).await?;
        return Ok(Found::new(vec![lease.into_lease()]));
    }
    let all = client.lock_all(&wish.names).options(options);
    Ok(Found::new(all.on_behalf(on_behalf).await?.into_leases()))
}

/// A request whose client chose the lease id: another attempt of the same lease may hold the lock, wait
/// for it, or have released it.
async fn repeatable(
    client: &Client,
    wish: &Wish,
    looks: &Looks,
    end: Instant,
) -> Result<Found, Problem> {
    let mut found = match &wish.names[..] {
        // Several: one after the other in the order that everybody keeps to. What is acquired is
        // released if a later one cannot be had.
        names if names.len() > 1 && wish.of.attempt > 1 => {
            let mut all = Found::new(Vec::new());
            for name in names {
                let one = Wish {
                    names: vec![name.clone()],
                    ..wish.clone()
                };
                let found = tokio::select! {
                    biased;
                    name = any_lost(&all.leases) => return Err(too_late(name)),
                    found = waited_for(client, &one, looks, end) => found?,
                };
                all.leases.extend(found.leases);
                all.repeated |= found.repeated;
            }
            all
        }
        _ => waited_for(client, wish, looks, end).await?,
    };
    // Neither readers nor those who hold other slots are in each other's way.
    if wish.shared || wish.slots.is_some() {
        found.repeated |= voided_earlier(client, wish, &found).await?;
    }
    Ok(found)
}

/// Resolves when one of them is lost, with its name.
async fn any_lost(leases: &[Lease]) -> &str {
    let losses = leases.iter().map(|lease| {
        Box::pin(async move {
            lease.lost().await;
            lease.name()
        })
    });
    let mut losses: FuturesUnordered<_> = losses.collect();
    match losses.next().await {
        Some(name) => name,
        // There are none yet.
        None => std::future::pending().await,
    }
}

fn too_late(name: &str) -> Problem {
    let why = format!("lock \"{name}\" was lost before all of it was acquired");
    let status = axum::http::StatusCode::SERVICE_UNAVAILABLE;
    Problem::new(status, "too_late", why).retry_after(SOON)
}

/// The place in the queue that is kept for the next attempt: 1 is next.
pub(crate) async fn place(client: &Client, wish: &Wish, queues: &Looks<Places>) -> Option<usize> {
    if !wish.may_be_repeated() || wish.names.len() > 1 {
        return None;
    }
    let name = match wish.slots {
        None => wish.names[0].clone(),
        Some(_) => slots::queue(client, &wish.names[0])?,
    };
    let places = queues.at(&name).places(client).await.ok()?;
    places.of(wish.of.lease)
}

/// What another attempt of the same lease does.
enum Other {
    /// Nothing.
    None,
    /// Earlier ones hold the lock under these values, by name.
    Earlier(Vec<(String, Vec<AttemptValue>)>),
    /// The same attempt, or a later one, holds it.
    NotEarlier(HashSet<AttemptValue>),
}

async fn waited_for(
    client: &Client,
    wish: &Wish,
    looks: &Looks,
    end: Instant,
) -> Result<Found, Problem> {
    let names = looked_at(client, wish)?;
    let shared: Vec<_> = names.iter().map(|name| looks.at(name)).collect();
    let mut suspects = HashSet::new();
    loop {
        let other = 'other: {
            if wish.slots.is_some() {
                // Another slot would be granted while this lease holds one.
                match settled(client, wish).await {
                    // What could not be seen now is found once it is granted.
                    Ok(Other::None) | Err(_) => {}
                    Ok(other) => break 'other other,
                }
            }
            let mut asked = Box::pin(ask(client, wish, end));
            // An earlier attempt may hold it already; and one that waits, here or at another replica,
            // may get it later.
            let mut looked = wish.of.attempt == 1;
            let mut next_look = match looked {
                true => Instant::now() + LOOK_EVERY,
                false => Instant::now(),
            };
            loop {
                tokio::select! {
                    biased;
                    outcome = &mut asked => match outcome {
                        Ok(found) => return Ok(found),
                        Err(error) => {
                            drop(asked);
                            if was_released(&error) {
                                return Err(released());
                            }
                            match settled(client, wish).await? {
                                Other::None => return Err(error.into()),
                                other => break other,
                            }
                        }
                    },
                    () = tokio::time::sleep_until(next_look.into()) => {
                        next_look = Instant::now() + LOOK_EVERY;
                        // What an earlier attempt has got just now would be missed in an older look.
                        let seen = match std::mem::replace(&mut looked, true) {
                            true => try_join_all(shared.iter().map(|it| it.status(client))).await?,
                            false => asked_now(client, &names, wish.of.lease).await?,
                        };
                        match other(wish, &names, &seen) {
                            Other::None => {}
                            // A try of our own has the same number: but it never lasts until the next look.
                            Other::NotEarlier(values) if suspects.is_disjoint(&values) => {
                                suspects = values;
                            }
                            other => break other,
                        }
                    }
                }
            }
        };
        let held = match other {
            Other::None => continue,
            Other::NotEarlier(_) => return Err(in_progress()),
            Other::Earlier(held) => held,
        };
        match take_over(client, wish, held, end).await {
            Ok(found) => return Ok(found),
            Err(error) if was_released(&error) => return Err(released()),
            Err(error) if error.is_held() && Instant::now() < end => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Whether nodes refused it because the lease id was released.
pub(crate) fn was_released(error: &Error) -> bool {
    let refused = |node: &NodeReport| node.outcome == NodeOutcome::Tombstoned;
    error.nodes().iter().any(refused)
}

/// The same once what was left of our own last try is gone: it has the same number.
async fn settled(client: &Client, wish: &Wish) -> Result<Other, Problem> {
    let look = async || -> Result<_, Problem> {
        let names = may_be_held(client, wish).await?;
        let seen = asked_now(client, &names, wish.of.lease).await?;
        Ok(other(wish, &names, &seen))
    };
    let first = match look().await? {
        Other::NotEarlier(values) => values,
        seen => return Ok(seen),
    };
    tokio::time::sleep(CLEAN_UP).await;
    match look().await? {
        Other::NotEarlier(values) if first.is_disjoint(&values) => Ok(Other::None),
        seen => Ok(seen),
    }
}

/// Compare-and-set on exactly the values of earlier attempts, which their client has voided.
async fn take_over(
    client: &Client,
    wish: &Wish,
    held: Vec<(String, Vec<AttemptValue>)>,
    end: Instant,
) -> Result<Found, Error> {
    let mut found = Found::new(Vec::new());
    found.repeated = true;
    let mut held = held.into_iter().peekable();
    while let Some((name, from)) = held.next() {
        let lease = client.take_over(&name, wish.options(end), wish.on_behalf(), from);
        match lease.await {
            // One slot is enough; what is held of others is released.
            Err(error) if wish.slots.is_some() && error.is_held() && held.peek().is_some() => {}
            lease => found.leases.push(lease?),
        }
        if wish.slots.is_some() && !found.leases.is_empty() {
            found.slot = slots::number(&name);
            break;
        }
    }
    Ok(found)
}

/// The locks that another attempt of the same lease may hold now.
async fn may_be_held(client: &Client, wish: &Wish) -> Result<Vec<String>, Problem> {
    match wish.slots {
        None => Ok(wish.names.clone()),
        Some(slots) => Ok(slots::held(client, &wish.names[0], slots).await?),
    }
}

/// The locks that another attempt of the same lease may come to hold.
fn looked_at(client: &Client, wish: &Wish) -> Result<Vec<String>, Problem> {
    Ok(match wish.slots {
        None => wish.names.clone(),
        Some(slots) => slots::names(client, &wish.names[0], slots)?,
    })
}

/// What the nodes say now. Where a majority says that the lease holds nothing there, the others are not waited for: what
/// they have can be no hold of it.
async fn asked_now(
    client: &Client,
    names: &[String],
    lease: LeaseId,
) -> Result<Vec<Arc<Status>>, Error> {
    let is_not_held = |seen: &[&Snapshot], majority: usize| {
        let mut values = seen.iter().flat_map(|lock| values_of(lock, lease));
        seen.len() >= majority && values.next().is_none()
    };
    let looks = names
        .iter()
        .map(|name| client.status_until(name, is_not_held));
    let seen = try_join_all(looks).await?;
    Ok(seen.into_iter().map(Arc::new).collect())
}

fn other(wish: &Wish, names: &[String], seen: &[Arc<Status>]) -> Other {
    let seen = seen.iter().map(|status| &**status);
    match wish.repeated(names.len()).before(&holds(wish, seen)) {
        OtherAttempts::None => Other::None,
        OtherAttempts::NotEarlier(values) => Other::NotEarlier(values),
        OtherAttempts::Earlier(held) => {
            let held = held.into_iter();
            Other::Earlier(held.map(|(at, from)| (names[at].clone(), from)).collect())
        }
    }
}

/// What each node says that the lease holds, by the place of its name.
fn holds<'a>(wish: &Wish, seen: impl Iterator<Item = &'a Status>) -> Vec<LeaseHold> {
    let each = seen.enumerate().flat_map(|(place, status)| {
        let of_lease = of_lease(status, wish.of.lease);
        of_lease.map(move |(value, of)| LeaseHold { place, value, of })
    });
    each.collect()
}

/// Releases what earlier attempts hold beside what was granted, and says whether there was any; unless the same
/// attempt, or a later one, holds something too.
///
/// Readers are not in each other's way, nor are those who hold different slots, so that is known only now. Of two that
/// were granted, the one that looks last sees the other: both were granted by a majority, and it looks at one.
async fn voided_earlier(client: &Client, wish: &Wish, found: &Found) -> Result<bool, Problem> {
    let is_own = |value: &AttemptValue| {
        let mut own = found.leases.iter();
        own.any(|lease| lease.value() == value.as_str())
    };
    let look = async || -> Result<_, Problem> {
        let names = may_be_held(client, wish).await?;
        let is_majority = |seen: &[&Snapshot], majority: usize| seen.len() >= majority;
        let looks = names
            .iter()
            .map(|name| client.status_until(name, is_majority));
        let seen = try_join_all(looks).await?;
        for status in &seen {
            let answered = status.nodes.iter().filter(|node| node.lock.is_ok()).count();
            if answered <= status.nodes.len() / 2 {
                return Err(no_quorum(status));
            }
        }
        let holds = holds(wish, seen.iter());
        let Beside { earlier, others } = wish.repeated(names.len()).beside(&holds, is_own);
        let named = earlier.into_iter();
        let earlier: Vec<_> = named
            .map(|(at, value)| (names[at].clone(), value))
            .collect();
        Ok((earlier, others))
    };
    let (mut earlier, others) = look().await?;
    if !others.is_empty() {
        // What is left of our own last try has the same number, and is gone soon.
        tokio::time::sleep(CLEAN_UP).await;
        let (still_earlier, still) = look().await?;
        if !others.is_disjoint(&still) {
            return Err(in_progress());
        }
        earlier = still_earlier;
    }
    let any = !earlier.is_empty();
    for (name, value) in earlier {
        let lock = DetachedLock::new(name, value.as_str(), FencingToken::ZERO)?;
        // What is left ends by its TTL.
        let _ = client.release_detached(&lock).await;
    }
    Ok(any)
}

fn in_progress() -> Problem {
    let why = "this attempt of the lease, or a later one, holds the lock already; an answer that was \
               lost is had again by a larger attempt";
    Problem::new(axum::http::StatusCode::CONFLICT, "in_progress", why)
}
