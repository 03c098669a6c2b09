//! [`DetachedLock`]: a lock that outlives the process that acquired it. Its name, value and token let
//! another process extend or release it.
//!
//! A lease that may have been lost must never be reported as held. A detached lock has no deadline
//! that another process could trust, so nothing is answered from memory: an extension counts only
//! if a majority of the nodes still held the lock under this exact value.

use std::fmt;
use std::num::NonZeroU32;
use std::time::Duration;

use crate::driver::claim::{Access, Claim, NotExtended};
use crate::driver::in_flight::InFlight;
use crate::driver::shared::Shared;
use crate::error::{Cause, Error, LossReason, NodeOutcome, NodeReport};
use crate::inspect::status::Status;
use fencepost_core::lock::{Command, Holder, Repair, Snapshot, TicketDisposition};
use fencepost_core::name::LockName;
use fencepost_core::quorum::tally::majority_holder;
use fencepost_core::quorum::{Quorum, ReleaseStep, ReleaseTally};
use fencepost_core::token::FencingToken;
use fencepost_core::value::AttemptValue;

/// The maximum length of a value, in bytes. Ours have at most 233.
const LONGEST_VALUE: usize = 1024;
/// How long commands to slow nodes may take to be sent once the outcome is decided.
const LINGER: Duration = Duration::from_millis(100);
/// How often to check whether they were sent.
const LINGER_LOOK: Duration = Duration::from_millis(2);

/// What it takes to extend or release a lock from any process: created by
/// [`Lease::detach`](crate::Lease::detach), or from its three parts.
///
/// It is a credential: protect it as you would the lock. On Redis such a lock ends with its TTL; in
/// a file also with the [process](crate::Builder::holder_process) that holds it.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), fencepost::Error> {
/// # let locks = fencepost::Client::memory()?;
/// use std::time::Duration;
/// use fencepost::DetachedLock;
///
/// let ttl = Duration::from_secs(10);
/// let detached = locks.try_lock("invoice-42").ttl(ttl).await?.detach().await?;
/// // Write the three parts down, and in another process …
/// let (value, token) = (detached.value().to_owned(), detached.token());
/// let detached = DetachedLock::new("invoice-42", value, token)?;
/// let left = locks.extend_detached(&detached, ttl).await?;
/// assert!(left <= ttl);
/// locks.release_detached(&detached).await?;
/// assert!(locks.extend_detached(&detached, ttl).await.unwrap_err().is_lost());
/// # Ok(()) }
/// ```
#[derive(Clone, PartialEq, Eq)]
#[must_use = "without it nothing can release the lock before its TTL ends"]
pub struct DetachedLock {
    name: LockName,
    value: AttemptValue,
    token: FencingToken,
}

impl DetachedLock {
    /// A detached lock from its parts.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidName`](crate::ErrorKind::InvalidName), and [`ErrorKind::InvalidOption`](crate::ErrorKind::InvalidOption) for a value that no lock can have.
    pub fn new(
        name: impl AsRef<str>,
        value: impl AsRef<str>,
        token: FencingToken,
    ) -> Result<Self, Error> {
        let value = value.as_ref();
        if value.is_empty() || value.len() > LONGEST_VALUE {
            return Err(Error::from(Cause::InvalidOption {
                option: "value",
                why: format!("expected 1 to {LONGEST_VALUE} bytes, got {}", value.len()),
            }));
        }
        Ok(Self::of(
            LockName::new(name)?,
            AttemptValue::reported(value),
            token,
        ))
    }

    pub(crate) fn of(name: LockName, value: AttemptValue, token: FencingToken) -> Self {
        Self { name, value, token }
    }

    /// The lock's name.
    #[must_use]
    pub fn name(&self) -> &LockName {
        &self.name
    }

    /// The value that the nodes store for it.
    #[must_use]
    pub fn value(&self) -> &str {
        self.value.as_str()
    }

    /// The fencing token.
    #[must_use]
    pub fn token(&self) -> FencingToken {
        self.token
    }

    fn claim(&self, ttl: fencepost_core::ttl::Ttl, access: Access) -> Claim {
        Claim {
            name: self.name.clone(),
            value: self.value.clone(),
            ttl,
            access,
            ticket: None,
            repair: Repair::Never,
            outlives: false,
        }
    }

    fn lost(&self, why: LossReason) -> Error {
        Error::lost(self.name.clone(), why)
    }
}

/// Without the value: who reads it in a log could release the lock.
impl fmt::Debug for DetachedLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DetachedLock")
            .field("name", &self.name)
            .field("token", &self.token)
            .finish_non_exhaustive()
    }
}

/// Extends the lock: see the client's method.
pub(crate) async fn extend(
    shared: &Shared,
    detached: &DetachedLock,
    ttl: Duration,
) -> Result<Duration, Error> {
    match shared.service() {
        // A service shows no values, and compares them itself.
        Some(_) => extend_as(shared, detached, ttl, Access::Exclusive).await,
        None => {
            let coordinator = &shared.coordinator;
            let on_a_majority = |seen: &[&Snapshot]| {
                let has_it = |lock: &&&Snapshot| has(lock, &detached.value);
                seen.iter().filter(has_it).count() >= coordinator.quorum.needed()
            };
            let name = detached.name.clone();
            let seen = Status::ask_until(coordinator, name, on_a_majority).await;
            extend_seen(shared, detached, ttl, &seen).await
        }
    }
}

/// The same, with the nodes' state already known.
pub(crate) async fn extend_seen(
    shared: &Shared,
    detached: &DetachedLock,
    ttl: Duration,
    seen: &Status,
) -> Result<Duration, Error> {
    match check(seen, detached, shared.coordinator.quorum) {
        // A look cannot tell a steal from an expiry, nor a node that has forgotten from one that never held
        // the lock: only votes can. Whoever was promised the lock may still rely on the nodes that have it.
        // But nodes that forgot it would raise their registers to whatever token comes with the command.
        Err(lost) if lost.loss() == Some(&LossReason::Unknown) && fits(seen, detached) => {}
        checked => checked?,
    }
    extend_as(shared, detached, ttl, access(seen, detached)).await
}

async fn extend_as(
    shared: &Shared,
    detached: &DetachedLock,
    ttl: Duration,
    access: Access,
) -> Result<Duration, Error> {
    let ttl = shared.checked_ttl(ttl)?;
    let coordinator = &shared.coordinator;
    let claim = detached.claim(ttl, access);
    let start = coordinator.clock.now();
    let limit = claim.ttl.get();
    let mut open = InFlight::default();
    let late = |late| open.join(late);
    let outcome = coordinator
        .extend(
            &claim,
            detached.token,
            NonZeroU32::MIN,
            start + limit,
            limit,
            late,
        )
        .await;
    match outcome {
        Ok(deadline) => {
            linger(shared, open).await;
            let left = deadline.since(coordinator.clock.now());
            match left.is_zero() {
                true => Err(detached.lost(LossReason::Expired)),
                false => Ok(left),
            }
        }
        // Released nowhere: another process may extend the same lock, and was promised it meanwhile.
        Err(NotExtended::Lost(why)) => Err(detached.lost(why)),
        Err(NotExtended::TooLate) => Err(detached.lost(LossReason::Expired)),
        Err(NotExtended::NoQuorum(nodes)) => {
            Err(coordinator.no_quorum_of(detached.name.clone(), nodes))
        }
    }
}

/// Releases the lock: see the client's method.
pub(crate) async fn release(shared: &Shared, detached: &DetachedLock) -> Result<(), Error> {
    let coordinator = &shared.coordinator;
    let command = Command::Release {
        value: detached.value.clone(),
        tombstone: Some(shared.max_ttl.get()),
        ticket: TicketDisposition::Stays,
        follower: None,
        is_lease: true,
    };
    let answers = coordinator.ask_all(&detached.name, &command).await;
    let mut votes = ReleaseTally::new(coordinator.quorum);
    let mut step = ReleaseStep::Wait;
    for (node, answer) in answers.into_iter().enumerate() {
        step = votes.answered(node, answer);
    }
    match step {
        ReleaseStep::Released => Ok(()),
        ReleaseStep::Lost(why) => Err(detached.lost(why)),
        ReleaseStep::Wait | ReleaseStep::NoQuorum => {
            Err(coordinator.no_quorum(detached.name.clone(), votes.outcomes()))
        }
    }
}

/// Whether a node holds the lock under that value, also for a reader.
fn has(lock: &Snapshot, value: &AttemptValue) -> bool {
    let mut holders = lock.holder.iter().chain(&lock.readers);
    holders.any(|holder| holder.value == *value)
}

/// Whether an extension can succeed, by the nodes' replies.
fn check(seen: &Status, detached: &DetachedLock, quorum: Quorum) -> Result<(), Error> {
    let needed = quorum.needed();
    let has_it = |lock: &&Snapshot| has(lock, &detached.value);
    let answers = || seen.nodes.iter().filter_map(|node| node.lock.as_ref().ok());
    let unknown = seen.nodes.len() - answers().count();
    let known = answers().filter(has_it).count();
    if known + unknown < needed {
        // What a node in quarantine grants is no vote for anybody (seed 5024 of the simulation).
        let votes = seen.nodes.iter().filter(|node| node.quarantine.is_none());
        let holders = votes.filter_map(|node| node.lock.as_ref().ok()?.holder.as_ref());
        return Err(detached.lost(match majority_holder(quorum, holders) {
            Some(holder) => LossReason::Stolen {
                by: holder.value.owner(),
            },
            None => LossReason::Unknown,
        }));
    }
    if known < needed {
        let nodes = seen.nodes.iter().map(|node| {
            let outcome = match &node.lock {
                Err(error) => NodeOutcome::Failed(error.clone()),
                Ok(lock) if has_it(&lock) => NodeOutcome::Agreed,
                Ok(_) => NodeOutcome::NotHeld,
            };
            NodeReport::new(&*node.node, outcome)
        });
        return Err(Error::from(Cause::NoQuorum {
            name: detached.name.clone(),
            needed,
            nodes: nodes.collect(),
        }));
    }
    if !fits(seen, detached) {
        return Err(Error::from(Cause::InvalidOption {
            option: "token",
            why: format!(
                "{} does not match this value; pass the token of the same acquisition",
                detached.token
            ),
        }));
    }
    Ok(())
}

/// Whether the token may be the one that was certified for this value. A majority certified it, and a
/// majority still holds the lock: they share a node.
///
/// Nodes store no token for a reader, but one that certified it has a register of at least the token.
/// Refusing a larger one means that no extension raises a register above what some node has: a reader
/// could exhaust the tokens of a name otherwise.
fn fits(seen: &Status, detached: &DetachedLock) -> bool {
    let is_its = |holder: &&Holder| holder.value == detached.value;
    let answers = seen.nodes.iter().filter_map(|node| node.lock.as_ref().ok());
    let mut is_unknown = true;
    for lock in answers {
        let fits = match lock.holder.iter().find(is_its) {
            Some(holder) => holder.token.is_none_or(|token| token == detached.token),
            None if lock.readers.iter().any(|it| is_its(&it)) => lock.register >= detached.token,
            None => continue,
        };
        if fits {
            return true;
        }
        is_unknown = false;
    }
    is_unknown
}

/// Whether it belongs to a reader. One node's word is enough: a reader never becomes a writer.
fn access(seen: &Status, detached: &DetachedLock) -> Access {
    let nodes = seen.nodes.iter().filter_map(|node| node.lock.as_ref().ok());
    let mut readers = nodes.flat_map(|lock| &lock.readers);
    match readers.any(|reader| reader.value == detached.value) {
        true => Access::Shared,
        false => Access::Exclusive,
    }
}

/// Gives unawaited commands time to leave this process, which may be about to exit; a replica of a service is not.
pub(crate) async fn linger(shared: &Shared, mut late: InFlight) {
    if shared.is_replica {
        return shared.coordinator.look_after(late.into_calls());
    }
    let end = tokio::time::Instant::now() + LINGER;
    late.settle();
    while late.is_open() && tokio::time::Instant::now() < end {
        tokio::time::sleep(LINGER_LOOK).await;
        late.settle();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_shows_which_lock_is_detached_and_not_how_to_release_it() {
        let token = FencingToken::saturating(7);
        let detached = DetachedLock::new("invoice-42", "5ec8e7:web-3", token).unwrap();
        let shown = r#"DetachedLock { name: "invoice-42", token: FencingToken(7), .. }"#;
        assert_eq!(format!("{detached:?}"), shown);
    }
}
