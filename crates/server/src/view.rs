//! [`LockView`]: one lock as the nodes say it is, for those who look. Pure.
//!
//! Values never leave: whoever has one can release the lock. A session leaves as a hash.

use std::time::Duration;

use fencepost::{AttemptValue, SessionId, Status, Waiter};
use fencepost_core::lock::Holder;
use fencepost_core::quorum::Quorum;
use fencepost_core::quorum::tally::majority_holder;
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use crate::answer::{millis, unix_millis};
use crate::shown::{MOST_WAITERS, named};
use crate::waits_for::Contended;

/// How far two readings of the same expiry may lie apart.
const JITTER_MS: u64 = 250;
/// What a lock is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    /// A lock, or an election: an election is a lock whose label is what the leader proclaims.
    Lock,
    Reentrant,
    Semaphore,
    Latch,
    Barrier,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct HolderView {
    /// What tells it from every other holder. Never sent.
    #[serde(skip)]
    pub(crate) key: String,
    #[serde(skip)]
    pub(crate) session_id: Option<SessionId>,
    pub(crate) owner: String,
    pub(crate) session: Option<String>,
    pub(crate) token: Option<u64>,
    /// Since when, by its token or by the first look that saw it.
    pub(crate) since_ms: u64,
    /// `None`: it never expires.
    pub(crate) expires_at_ms: Option<u64>,
    /// The longest time that was seen left of it: its TTL, about.
    pub(crate) ttl_ms: Option<u64>,
    /// How long it may be held at the most, where the nodes know: leases of the service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max_hold_ms: Option<u64>,
    pub(crate) foreign: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct WaiterView {
    #[serde(skip)]
    pub(crate) session_id: Option<SessionId>,
    pub(crate) owner: String,
    pub(crate) session: Option<String>,
    pub(crate) since_ms: u64,
    pub(crate) mode: &'static str,
}

/// What one node says of the lock.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Cell {
    pub(crate) node: String,
    #[serde(skip)]
    pub(crate) keys: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
    pub(crate) holder: Option<String>,
    pub(crate) token: Option<u64>,
    pub(crate) expires_at_ms: Option<u64>,
    pub(crate) register: u64,
    pub(crate) waiting: usize,
    /// Whether it says what the majority says.
    pub(crate) agrees: bool,
}

/// One lock, as the nodes say it is.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct LockView {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    /// Of what it is a slot, and which.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) of: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) slot: Option<String>,
    /// `None` when too few nodes answer to tell.
    pub(crate) held: Option<bool>,
    pub(crate) holder: Option<HolderView>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) readers: Vec<HolderView>,
    pub(crate) register: u64,
    pub(crate) waiting: usize,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) queue: Vec<WaiterView>,
    /// How many nodes have this holder.
    pub(crate) votes: usize,
    pub(crate) answered: usize,
    pub(crate) of_nodes: usize,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) warnings: Vec<&'static str>,
    #[serde(skip)]
    pub(crate) cells: Vec<Cell>,
}

/// A session as it is shown: who sees it cannot guess the values of its leases from it.
pub(crate) fn shown_session(session: SessionId) -> String {
    let digest = Sha256::digest(session.to_string());
    digest[..6].iter().fold(String::new(), |mut text, byte| {
        use std::fmt::Write as _;
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Reads the token as a time where it can be one: a token is microseconds since 1970, unless the
/// client's clock was wrong or many came at once.
fn since(token: Option<u64>, now_ms: u64) -> u64 {
    const DAY_MS: u64 = 24 * 60 * 60 * 1000;
    match token.map(|token| token / 1000) {
        Some(at) if at <= now_ms && at + 400 * DAY_MS > now_ms => at,
        _ => now_ms,
    }
}

/// What kind of lock has such a name, of what it is a slot, and which.
fn kind_of(name: &str) -> (Kind, Option<String>, Option<String>) {
    for (mark, kind) in [
        (":semaphore:", Kind::Semaphore),
        (":latch:", Kind::Latch),
        (":barrier:", Kind::Barrier),
    ] {
        if let Some((whole, slot)) = name.rsplit_once(mark)
            && name.contains('{')
            && !slot.is_empty()
        {
            // `{pool}:semaphore:0`: the braces are ours where nothing else is around them.
            let inner = whole.strip_prefix('{').and_then(|it| it.strip_suffix('}'));
            let whole = inner.filter(|it| !it.contains(['{', '}'])).unwrap_or(whole);
            return (kind, Some(whole.to_owned()), Some(slot.to_owned()));
        }
    }
    (Kind::Lock, None, None)
}

fn holder(held: &Holder, token: Option<u64>, remaining: Option<Duration>, now: u64) -> HolderView {
    let value: &AttemptValue = &held.value;
    let session = value.session();
    HolderView {
        key: value.unique_part().to_owned(),
        session_id: session,
        owner: named(&value.owner()).to_string(),
        session: session.map(shown_session),
        token,
        since_ms: since(token, now),
        expires_at_ms: remaining.map(|left| now + millis(left)),
        ttl_ms: remaining.map(millis),
        max_hold_ms: value.lease_attempt().and_then(|it| it.max_hold).map(millis),
        foreign: !value.is_ours(),
    }
}

impl LockView {
    /// What the nodes said at that time.
    pub(crate) fn new(status: &Status, queue: &[Waiter], now_ms: u64) -> Self {
        let (mut kind, of, slot) = kind_of(status.name.as_str());
        let of_nodes = status.nodes.len();
        let needed = of_nodes / 2 + 1;
        let seen = || {
            status
                .nodes
                .iter()
                .filter_map(|node| node.lock.as_ref().ok())
        };
        let answered = seen().count();
        let all: Vec<&Holder> = seen().filter_map(|lock| lock.holder.as_ref()).collect();
        let same = |one: &Holder| all.iter().filter(|it| it.value == one.value).count();
        let token = status.token.map(u64::from);
        let by_majority =
            Quorum::of(of_nodes).and_then(|quorum| majority_holder(quorum, all.iter().copied()));
        let by_majority = by_majority.as_ref();
        let votes = by_majority.map_or(0, same);
        let shared = by_majority.is_some_and(|one| one.value.is_shared());
        let left = status.holder.as_ref().and_then(|held| held.remaining);
        let holder_view = by_majority.filter(|_| !shared);
        let holder_view = holder_view.map(|one| holder(one, token, left, now_ms));
        if by_majority.is_some_and(|one| one.value.is_reentrant()) {
            kind = Kind::Reentrant;
        }
        let mut readers: Vec<HolderView> = Vec::new();
        for reader in seen().flat_map(|lock| &lock.readers) {
            let key = reader.value.unique_part();
            let everywhere = seen().flat_map(|lock| &lock.readers);
            let count = everywhere.filter(|it| it.value.unique_part() == key);
            if count.count() >= needed && readers.iter().all(|it| it.key != key) {
                readers.push(holder(reader, None, reader.remaining, now_ms));
            }
        }
        let majority_key = by_majority.map(|one| one.value.unique_part());
        let cells = status.nodes.iter().map(|node| match &node.lock {
            Ok(lock) => {
                let here = lock.holder.as_ref();
                let key = here.map(|held| held.value.unique_part());
                let readers = lock.readers.iter().map(|it| it.value.unique_part());
                Cell {
                    node: node.node.clone(),
                    keys: key.into_iter().chain(readers).map(str::to_owned).collect(),
                    error: None,
                    holder: here.map(|held| named(&held.value.owner()).to_string()),
                    token: here.and_then(|held| held.token).map(u64::from),
                    expires_at_ms: here
                        .and_then(|held| held.remaining)
                        .map(|left| now_ms + millis(left)),
                    register: lock.register.get(),
                    waiting: lock.waiting,
                    agrees: key == majority_key,
                }
            }
            Err(error) => Cell {
                node: node.node.clone(),
                keys: Vec::new(),
                error: Some(error.to_string()),
                holder: None,
                token: None,
                expires_at_ms: None,
                register: 0,
                waiting: 0,
                agrees: false,
            },
        });
        let waiters = queue.iter().take(MOST_WAITERS).map(|waiter| WaiterView {
            session_id: waiter.session,
            owner: named(&waiter.owner).to_string(),
            session: waiter.session.map(shown_session),
            since_ms: unix_millis(waiter.since),
            mode: match (waiter.reader, waiter.fair) {
                (true, _) => "reader",
                (false, true) => "fair",
                (false, false) => "default",
            },
        });
        let mut warnings = Vec::new();
        let mut warn = |it: bool, word| {
            if it {
                warnings.push(word);
            }
        };
        warn(status.held.is_none(), "unknown");
        warn(status.held.is_some() && !status.split.is_empty(), "split");
        warn(of_nodes > 1 && votes == needed, "bare_majority");
        warn(holder_view.as_ref().is_some_and(|it| it.foreign), "foreign");
        let endless = |it: &HolderView| it.expires_at_ms.is_none();
        warn(holder_view.as_ref().is_some_and(endless), "no_expiry");
        Self {
            name: status.name.as_str().to_owned(),
            kind,
            of,
            slot,
            held: status.held,
            holder: holder_view,
            readers,
            register: status.register.get(),
            waiting: status.waiting.max(queue.len()),
            queue: waiters.collect(),
            votes,
            answered,
            of_nodes,
            warnings,
            cells: cells.collect(),
        }
    }

    /// Whether there is anything to be seen of it: it is held or split, somebody waits, or nobody knows.
    pub(crate) fn is_busy(&self) -> bool {
        self.held != Some(false) || self.waiting > 0 || !self.warnings.is_empty()
    }

    /// Who holds it: the holder, or each reader.
    pub(crate) fn holders(&self) -> impl Iterator<Item = &HolderView> {
        self.holder.iter().chain(&self.readers)
    }

    /// On how many nodes that holder is seen.
    pub(crate) fn nodes_with(&self, key: &str) -> usize {
        let has = |cell: &&Cell| cell.keys.iter().any(|it| it == key);
        self.cells.iter().filter(has).count()
    }

    /// Takes over what an earlier look knew better: since when it is held, how long its TTL is; and
    /// expiries that have not changed, which would differ by the time that the look took.
    pub(crate) fn continued(&mut self, before: &Self) {
        let steady = |new: &mut Option<u64>, old: Option<u64>| {
            if let (Some(at), Some(was)) = (*new, old)
                && at.abs_diff(was) < JITTER_MS
            {
                *new = old;
            }
        };
        for now in self.holder.iter_mut().chain(&mut self.readers) {
            let Some(then) = before.holders().find(|then| then.key == now.key) else {
                continue;
            };
            now.since_ms = now.since_ms.min(then.since_ms);
            now.ttl_ms = now.ttl_ms.max(then.ttl_ms);
            steady(&mut now.expires_at_ms, then.expires_at_ms);
        }
        for now in &mut self.cells {
            if let Some(then) = before.cells.iter().find(|then| then.node == now.node)
                && then.keys == now.keys
            {
                steady(&mut now.expires_at_ms, then.expires_at_ms);
            }
        }
    }

    /// Warns of a holder whose time is over, or who has not renewed in time, if it renews at all: what
    /// is left is less than a third of what was seen left.
    pub(crate) fn warn_of_the_end(&mut self, now_ms: u64) {
        let over = self.holders().any(|it| is_past_its_hold(it, now_ms));
        let near = self.holders().any(|it| is_near_its_end(it, now_ms));
        let words = [(over, "max_hold"), (near, "near_end")];
        let words = words.into_iter().filter(|(is, _)| *is);
        self.warnings.extend(words.map(|(_, word)| word));
    }

    pub(crate) fn contended(&self) -> Option<Contended> {
        // Whoever waits for a slot waits for any of them: one that is held in a ring says nothing.
        if self.queue.is_empty() || !matches!(self.kind, Kind::Lock | Kind::Reentrant) {
            return None;
        }
        let holders = self.holders();
        let waiters = self.queue.iter();
        Some(Contended {
            lock: self.name.clone(),
            holders: holders
                .filter_map(|it| Some((it.session_id?, it.owner.clone())))
                .collect(),
            waiters: waiters
                .filter_map(|it| Some((it.session_id?, it.owner.clone())))
                .collect(),
        })
    }
}

/// Who holds and who waits for one lock, if anybody waits.
#[must_use]
pub fn contended(status: &Status, queue: &[Waiter]) -> Option<Contended> {
    LockView::new(status, queue, 0).contended()
}

/// What is to be worried about in what the nodes say of a lock at that time (milliseconds since 1970), as
/// the dashboard words it; but not whether it is near its end, which one look does not tell.
#[must_use]
pub fn warnings(status: &Status, now_ms: u64) -> Vec<&'static str> {
    let mut view = LockView::new(status, &[], now_ms);
    view.warn_of_the_end(now_ms);
    view.warnings
}

/// Whether it is held for longer than it may be: its lease is over, and the node does not know.
fn is_past_its_hold(holder: &HolderView, now_ms: u64) -> bool {
    let held_ms = now_ms.saturating_sub(holder.since_ms);
    holder.max_hold_ms.is_some_and(|most| held_ms > most)
}

/// Whether less than a third of its TTL, as far as that was seen, is left.
pub(crate) fn is_near_its_end(holder: &HolderView, now_ms: u64) -> bool {
    match (holder.expires_at_ms, holder.ttl_ms) {
        (Some(end), Some(ttl)) => end.saturating_sub(now_ms) < ttl / 3,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_shown_as_one() {
        let kind = |name: &str| {
            let (kind, of, slot) = kind_of(name);
            (kind, of.unwrap_or_default(), slot.unwrap_or_default())
        };
        assert_eq!(
            kind("{pool}:semaphore:3"),
            (Kind::Semaphore, "pool".into(), "3".into())
        );
        assert_eq!(
            kind("{tenant}:pool:semaphore:0"),
            (Kind::Semaphore, "{tenant}:pool".into(), "0".into())
        );
        assert_eq!(kind("{all}:latch:1").0, Kind::Latch);
        assert_eq!(kind("job").0, Kind::Lock);
        assert_eq!(kind("a:semaphore:1").0, Kind::Lock);
    }

    #[test]
    fn a_token_is_a_time_only_where_it_can_be_one() {
        let now = 1_800_000_000_000;
        assert_eq!(since(Some((now - 5_000) * 1000), now), now - 5_000);
        assert_eq!(since(Some(7), now), now);
        assert_eq!(since(Some((now + 60_000) * 1000), now), now);
        assert_eq!(since(None, now), now);
    }
}
