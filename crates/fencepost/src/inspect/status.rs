//! [`Status`]: who holds a lock, and what each node reports.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::timeout;

use crate::driver::coordinator::Coordinator;
use crate::error::HolderStatus;
use crate::error::NodeError;
use crate::store::Node;
use fencepost_core::lock::{Command, Holder, Reply, Snapshot};
use fencepost_core::name::LockName;
use fencepost_core::owner::Owner;
use fencepost_core::quorum::Quorum;
use fencepost_core::quorum::tally::{self, Possession};
use fencepost_core::token::FencingToken;

/// How many locks are inspected concurrently.
const AT_ONCE: usize = 512;

/// One lock, as its nodes see it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Status {
    /// The lock.
    pub name: LockName,
    /// The holder on a majority of the nodes. All readers together are one holder, called
    /// "readers", until the last of them expires.
    pub holder: Option<HolderStatus>,
    /// Whether a client holds it on a majority of the nodes. `None` if nodes that did not answer, or may have
    /// forgotten it, could complete a majority.
    pub held: Option<bool>,
    /// The clients that hold it on some nodes each, in node order, if none is known to hold it on a
    /// majority: while several attempt to acquire it, or after nodes were lost.
    pub split: Vec<Owner>,
    /// The readers on a majority of the nodes.
    pub readers: Vec<HolderStatus>,
    /// The token of the holder on a majority of the nodes. `None` without a holder, for a client of
    /// another library, and for readers.
    pub token: Option<FencingToken>,
    /// The largest fence register of any node, zero for an unused name: no holder so far had a
    /// larger token. It is not a holder's token: failed attempts raise it too.
    pub register: FencingToken,
    /// The number of waiters, as most nodes report it.
    pub waiting: usize,
    /// Each node's report, in configured order.
    pub nodes: Vec<NodeStatus>,
}

/// One node's report about a lock.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct NodeStatus {
    /// The node's address.
    pub node: String,
    /// Its report, or why there is none.
    pub lock: Result<Snapshot, NodeError>,
    /// How long it does not vote yet, because it may have forgotten locks.
    pub quarantine: Option<Duration>,
}

impl NodeStatus {
    /// Whether it can tell who holds the lock: it answered, and either has a holder or cannot have forgotten
    /// one.
    #[must_use]
    pub fn can_tell(&self) -> bool {
        let lock = self.lock.as_ref();
        lock.is_ok_and(|lock| lock.holder.is_some() || self.quarantine.is_none())
    }

    async fn of(node: &dyn Node, answer: Result<Reply, NodeError>) -> Self {
        let lock = match answer {
            Ok(Reply::Snapshot(snapshot)) => Ok(snapshot),
            Ok(other) => Err(NodeError::Other(format!("unexpected reply: {other:?}"))),
            Err(error) => Err(error),
        };
        // It has just answered, so that this is known. Whoever has lost it meanwhile must not wait for it.
        let quarantine = match &lock {
            Ok(_) => match timeout(Duration::ZERO, node.hello()).await {
                Ok(Err(NodeError::Quarantined(left))) => Some(left),
                _ => None,
            },
            Err(_) => None,
        };
        Self {
            node: node.address().to_owned(),
            lock,
            quarantine,
        }
    }
}

/// What is said of a node whose answer was not needed.
const NOT_WAITED_FOR: &str = "its answer was not waited for";

impl Status {
    pub(crate) async fn ask(coordinator: &Arc<Coordinator>, name: LockName) -> Self {
        let answers = coordinator.ask_all(&name, &Command::Inspect).await;
        Self::of(coordinator, name, answers).await
    }

    /// The same as soon as what the nodes have said so far is enough. The others are not waited for, and it is not
    /// known what they hold.
    pub(crate) async fn ask_until(
        coordinator: &Arc<Coordinator>,
        name: LockName,
        is_enough: impl Fn(&[&Snapshot]) -> bool,
    ) -> Self {
        let not_waited_for = || Err(NodeError::Other(NOT_WAITED_FOR.to_owned()));
        let mut answers: Vec<_> = coordinator
            .nodes()
            .iter()
            .map(|_| not_waited_for())
            .collect();
        let hear = |node: usize, answer| {
            answers[node] = answer;
            let seen = answers.iter().filter_map(|answer| match answer {
                Ok(Reply::Snapshot(snapshot)) => Some(snapshot),
                _ => None,
            });
            is_enough(&seen.collect::<Vec<_>>())
        };
        // A look that is dropped leaves nothing behind.
        drop(coordinator.ask_until(&name, &Command::Inspect, hear).await);
        Self::of(coordinator, name, answers).await
    }

    /// By what the nodes have said.
    async fn of(
        coordinator: &Coordinator,
        name: LockName,
        answers: Vec<Result<Reply, NodeError>>,
    ) -> Self {
        let asked = coordinator.nodes().iter().zip(answers);
        let nodes = asked.map(|(node, answer)| NodeStatus::of(&**node, answer));
        let nodes = join_all(nodes).await;
        let seen = || nodes.iter().filter_map(|node| node.lock.as_ref().ok());
        let answers = nodes.iter().map(|node| {
            let lock = node.lock.as_ref().ok().filter(|_| node.can_tell())?;
            Some(lock.holder.as_ref())
        });
        let possession = Possession::of(coordinator.quorum, answers);
        let holder = possession.holder().map(HolderStatus::of);
        let token = holder.as_ref().and_then(|holder| holder.token);
        let register = seen().map(|lock| lock.register).max().unwrap_or_default();
        let readers = majority_readers(seen(), coordinator.quorum);
        let mut waiting: Vec<_> = seen().map(|lock| lock.waiting).collect();
        waiting.sort_unstable();
        let waiting = waiting.get(waiting.len() / 2).copied().unwrap_or(0);
        Self {
            name,
            holder,
            held: possession.is_held(),
            split: possession.parties(),
            readers,
            token,
            register,
            waiting,
            nodes,
        }
    }

    /// The same for many locks, in the same order. One of which too few nodes have told in time would look free: it is
    /// asked for once more.
    pub(crate) async fn ask_for_all(
        coordinator: &Arc<Coordinator>,
        names: &[LockName],
    ) -> Vec<Self> {
        let mut all = Self::ask_in_turns(coordinator, names).await;
        let is_late = |status: &&mut Self| status.answers() < coordinator.quorum.needed();
        let late: Vec<_> = all.iter_mut().filter(is_late).collect();
        let names: Vec<_> = late.iter().map(|status| status.name.clone()).collect();
        let again = Self::ask_in_turns(coordinator, &names).await;
        for (status, again) in late.into_iter().zip(again) {
            *status = again;
        }
        all
    }

    async fn ask_in_turns(coordinator: &Arc<Coordinator>, names: &[LockName]) -> Vec<Self> {
        let mut all = Vec::with_capacity(names.len());
        for some in names.chunks(AT_ONCE) {
            let looks = some.iter().map(|name| Self::ask(coordinator, name.clone()));
            all.extend(join_all(looks).await);
        }
        all
    }

    /// How many nodes have answered.
    fn answers(&self) -> usize {
        self.nodes.iter().filter(|node| node.lock.is_ok()).count()
    }
}

/// Each reader once, by expiry.
fn majority_readers<'a>(
    seen: impl Iterator<Item = &'a Snapshot>,
    quorum: Quorum,
) -> Vec<HolderStatus> {
    let mut by_value: BTreeMap<&str, Vec<&Holder>> = BTreeMap::new();
    for reader in seen.flat_map(|lock| &lock.readers) {
        by_value
            .entry(reader.value.as_str())
            .or_default()
            .push(reader);
    }
    let held = |same: Vec<&Holder>| majority_holder(&same, quorum);
    let mut readers: Vec<_> = by_value.into_values().filter_map(held).collect();
    readers.sort_by_key(|reader| reader.remaining);
    readers
}

/// The holder on a majority, with its own token, as the nodes store it with the lock.
pub(crate) fn majority_holder(holders: &[&Holder], quorum: Quorum) -> Option<HolderStatus> {
    let holder = tally::majority_holder(quorum, holders.iter().copied())?;
    Some(HolderStatus::of(&holder))
}
