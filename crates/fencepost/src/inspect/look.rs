//! One look at several locks at once: what the nodes say of each, as soon as enough have said it.
//!
//! It changes nothing, and must never wait for a slow node once those who ask have heard enough.

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::time::{Instant, timeout_at};

use crate::driver::shared::Shared;
use crate::error::{Error, NodeError, NodeOutcome};
use fencepost_core::lock::{Command, Reply, Snapshot};
use fencepost_core::name::LockName;

/// What each node says of one lock, in the order in which they were configured; `None` of those
/// that have not answered.
pub(crate) type Answers = Vec<Option<Result<Snapshot, NodeError>>>;

/// Asks all nodes for all these locks, until `is_enough` of each, or a node's time is up.
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
    // A call that is dropped in the end leaves nothing behind.
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

fn snapshot(reply: Reply) -> Result<Snapshot, NodeError> {
    match reply {
        Reply::Snapshot(snapshot) => Ok(snapshot),
        other => Err(NodeError::Other(format!("an unfit answer: {other:?}"))),
    }
}

/// What was seen on the nodes that answered.
pub(crate) fn heard(answers: &Answers) -> impl Iterator<Item = &Snapshot> {
    answers.iter().flatten().flatten()
}

/// That fewer than a majority answered.
pub(crate) fn too_few(shared: &Shared, name: &LockName, answers: &Answers) -> Error {
    let outcomes = answers.iter().map(|answer| match answer {
        Some(Ok(_)) => NodeOutcome::Agreed,
        Some(Err(error)) => NodeOutcome::Failed(error.clone()),
        None => NodeOutcome::Failed(NodeError::Timeout(shared.node_timeout)),
    });
    shared.coordinator.no_quorum(name.clone(), outcomes)
}
