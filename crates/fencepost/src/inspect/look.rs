//! Inspects several locks at once, and returns as soon as enough nodes have answered.
//!
//! It changes nothing, and must never wait for a slow node once the caller has enough replies.

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::time::{Instant, timeout_at};

use crate::driver::shared::Shared;
use crate::error::{Error, NodeError, NodeOutcome};
use fencepost_core::lock::{Command, Reply, Snapshot};
use fencepost_core::name::LockName;

/// Each node's reply for one lock, in configured order; `None` for nodes that have not answered.
pub(crate) type Answers = Vec<Option<Result<Snapshot, NodeError>>>;

/// Asks all nodes about all these locks, until `is_enough` for each, or the node timeout.
pub(crate) async fn look(
    shared: &Shared,
    names: &[LockName],
    is_enough: impl Fn(&Answers) -> bool,
) -> Vec<Answers> {
    let nodes = shared.coordinator.nodes();
    let mut seen = vec![vec![None; nodes.len()]; names.len()];
    let end = Instant::now() + shared.node_timeout;
    let mut asked: FuturesUnordered<_> = names
        .iter()
        .enumerate()
        .flat_map(|(lock, name)| {
            let calls = nodes.iter().map(|node| node.call(name, Command::Inspect));
            let calls = calls.enumerate();
            calls.map(move |(node, call)| async move { (lock, node, call.await) })
        })
        .collect();
    let mut open = names.len();
    // A dropped call leaves nothing behind.
    while let Ok(Some((lock, node, answer))) = timeout_at(end, asked.next()).await {
        let was_enough = is_enough(&seen[lock]);
        seen[lock][node] = Some(answer.and_then(snapshot));
        if !was_enough && is_enough(&seen[lock]) {
            open -= 1;
        }
        if open == 0 {
            break;
        }
    }
    seen
}

/// Which of these locks each node reports as held, as soon as a majority has answered. One command
/// per node, for any number of locks.
pub(crate) async fn held(
    shared: &Shared,
    names: &[LockName],
) -> Vec<Option<Result<Vec<bool>, NodeError>>> {
    let nodes = shared.coordinator.nodes();
    let mut seen = vec![None; nodes.len()];
    let end = Instant::now() + shared.node_timeout;
    let asked = nodes.iter().enumerate();
    let asked = asked.map(|(node, of)| async move { (node, of.held(names).await) });
    let mut asked: FuturesUnordered<_> = asked.collect();
    let mut heard = 0;
    while heard < shared.coordinator.quorum.needed()
        && let Ok(Some((node, answer))) = timeout_at(end, asked.next()).await
    {
        heard += usize::from(answer.is_ok());
        seen[node] = Some(answer);
    }
    seen
}

fn snapshot(reply: Reply) -> Result<Snapshot, NodeError> {
    match reply {
        Reply::Snapshot(snapshot) => Ok(snapshot),
        other => Err(NodeError::Other(format!("unexpected reply: {other:?}"))),
    }
}

/// The replies of the nodes that answered.
pub(crate) fn answered(answers: &Answers) -> impl Iterator<Item = &Snapshot> + Clone {
    answers.iter().flatten().flatten()
}

/// The error when fewer than a majority answered.
pub(crate) fn too_few<T>(
    shared: &Shared,
    name: &LockName,
    answers: &[Option<Result<T, NodeError>>],
) -> Error {
    let outcomes = answers.iter().map(|answer| match answer {
        Some(Ok(_)) => NodeOutcome::Agreed,
        Some(Err(error)) => NodeOutcome::Failed(error.clone()),
        None => NodeOutcome::Failed(NodeError::Timeout(shared.node_timeout)),
    });
    shared.coordinator.no_quorum(name.clone(), outcomes)
}
