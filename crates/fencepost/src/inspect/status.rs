//! [`Status`]: who holds a lock, and what each node says of it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

use crate::driver::coordinator::Coordinator;
use crate::error::HolderStatus;
use crate::error::NodeError;
use fencepost_core::lock::{Command, Holder, Reply, Snapshot};
use fencepost_core::name::LockName;
use fencepost_core::quorum::{Quorum, token_of_holder};
use fencepost_core::token::FencingToken;

/// How many locks are looked at at the same time.
const AT_ONCE: usize = 512;

/// One lock, as its nodes see it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Status {
    /// The lock.
    pub name: LockName,
    /// Who holds it on a majority of the nodes. All who read together are one holder, called
    /// "readers", for as long as the last of them.
    pub holder: Option<HolderStatus>,
    /// Who reads it on a majority of the nodes.
    pub readers: Vec<HolderStatus>,
    /// The token of whoever holds it on a majority of the nodes. `None` when nobody does, for a client of
    /// another library, and for those who read.
    pub token: Option<FencingToken>,
    /// The largest fence register of any node, zero for a name that was never used: no holder so far had
    /// a larger token. It is nobody's token: whoever fails to get the lock may lift it too.
    pub register: FencingToken,
    /// How many wait in line for it: what most nodes say.
    pub waiting: usize,
    /// What each node says, in the order in which they were configured.
    pub nodes: Vec<NodeStatus>,
}

/// What one node says of a lock.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct NodeStatus {
    /// The node's address.
    pub node: String,
    /// What it says, or why it says nothing.
    pub lock: Result<Snapshot, NodeError>,
}

impl Status {
    pub(crate) async fn ask(coordinator: &Arc<Coordinator>, name: LockName) -> Self {
        let answers = coordinator.ask_all(&name, &Command::Inspect).await;
        let nodes = coordinator
            .nodes()
            .iter()
            .zip(answers)
            .map(|(node, answer)| {
                let lock = match answer {
                    Ok(Reply::Snapshot(snapshot)) => Ok(snapshot),
                    Ok(other) => Err(NodeError::Other(format!("an unfit answer: {other:?}"))),
                    Err(error) => Err(error),
                };
                NodeStatus {
                    node: node.address().to_owned(),
                    lock,
                }
            });
        let nodes: Vec<_> = nodes.collect();
        let seen = || nodes.iter().filter_map(|node| node.lock.as_ref().ok());
        let holders: Vec<&Holder> = seen().filter_map(|lock| lock.holder.as_ref()).collect();
        let needed = coordinator.quorum.needed();
        let holder = majority_holder(&holders, needed);
        let token = own_token(&holders, coordinator.quorum);
        let register = seen().map(|lock| lock.counter).max().unwrap_or_default();
        let readers = majority_readers(seen(), needed);
        let mut waiting: Vec<_> = seen().map(|lock| lock.waiting).collect();
        waiting.sort_unstable();
        let waiting = waiting.get(waiting.len() / 2).copied().unwrap_or(0);
        Self {
            name,
            holder,
            readers,
            token,
            register,
            waiting,
            nodes,
        }
    }

    /// What is known of each of them, in their order.
    pub(crate) async fn ask_for_all(
        coordinator: &Arc<Coordinator>,
        names: &[LockName],
    ) -> Vec<Self> {
        let mut all = Vec::with_capacity(names.len());
        for some in names.chunks(AT_ONCE) {
            let looks = some.iter().map(|name| Self::ask(coordinator, name.clone()));
            all.extend(join_all(looks).await);
        }
        all
    }
}

/// Each reader once, whose time is up first comes first.
fn majority_readers<'a>(
    seen: impl Iterator<Item = &'a Snapshot>,
    needed: usize,
) -> Vec<HolderStatus> {
    let mut by_value: BTreeMap<&str, Vec<&Holder>> = BTreeMap::new();
    for reader in seen.flat_map(|lock| &lock.readers) {
        by_value
            .entry(reader.value.as_str())
            .or_default()
            .push(reader);
    }
    let held = |same: Vec<&Holder>| majority_holder(&same, needed);
    let mut readers: Vec<_> = by_value.into_values().filter_map(held).collect();
    readers.sort_by_key(|reader| reader.remaining);
    readers
}

/// The token of whoever has the lock on a majority: its own, as the nodes store it with the lock.
fn own_token(holders: &[&Holder], quorum: Quorum) -> Option<FencingToken> {
    holders.iter().find_map(|one| {
        let same = holders.iter().filter(|other| other.value == one.value);
        let tokens: Vec<_> = same.filter_map(|holder| holder.token).collect();
        token_of_holder(quorum, &tokens, None)
    })
}

pub(crate) fn majority_holder(holders: &[&Holder], needed: usize) -> Option<HolderStatus> {
    holders.iter().find_map(|one| {
        let same = holders.iter().filter(|other| other.value == one.value);
        let mut remaining: Vec<_> = same
            .map(|holder| holder.remaining.unwrap_or(Duration::MAX))
            .collect();
        // Longest first: the lock is held while the last of a majority holds it.
        remaining.sort_unstable_by(|a, b| b.cmp(a));
        let left = *remaining.get(needed - 1)?;
        Some(HolderStatus {
            owner: one.value.owner(),
            remaining: (left != Duration::MAX).then_some(left),
        })
    })
}
