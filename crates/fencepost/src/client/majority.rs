//! Waits for the nodes when a client connects.

use std::task::Poll;

use tokio::time::sleep;

use crate::driver::coordinator::{Coordinator, REPORT_PATIENCE};
use crate::error::{Cause, Error, NodeError, NodeOutcome};

/// Waits until a majority of the nodes answers, or too many do not.
pub(super) async fn wait_for_majority(coordinator: &Coordinator) -> Result<(), Error> {
    let mut greetings: Vec<_> = coordinator
        .nodes()
        .iter()
        .map(|node| node.hello())
        .collect();
    let mut outcomes = vec![NodeOutcome::Pending; greetings.len()];
    let mut patience = None;
    std::future::poll_fn(|cx| {
        for (greeting, outcome) in greetings.iter_mut().zip(&mut outcomes) {
            if *outcome == NodeOutcome::Pending
                && let Poll::Ready(answer) = greeting.as_mut().poll(cx)
            {
                *outcome = match answer {
                    // It is up. It may still be in quarantine.
                    Ok(()) | Err(NodeError::Quarantined(_)) => NodeOutcome::Agreed,
                    Err(error) => NodeOutcome::Failed(error),
                };
            }
        }
        let count = |which: fn(&NodeOutcome) -> bool| outcomes.iter().filter(|o| which(o)).count();
        let there = count(|outcome| *outcome == NodeOutcome::Agreed);
        let open = count(|outcome| *outcome == NodeOutcome::Pending);
        if there >= coordinator.quorum.needed() {
            Poll::Ready(Ok(()))
        } else if there + open < coordinator.quorum.needed() {
            if open == 0 {
                return Poll::Ready(Err(()));
            }
            // Decided. But a healthy node that is told of as silent sends people to the wrong machine.
            let limit = REPORT_PATIENCE.min(coordinator.node_timeout());
            let patience = patience.get_or_insert_with(|| Box::pin(sleep(limit)));
            patience.as_mut().poll(cx).map(Err)
        } else {
            Poll::Pending
        }
    })
    .await
    .map_err(|()| {
        Error::from(Cause::Unreachable {
            needed: coordinator.quorum.needed(),
            nodes: coordinator.report(outcomes.into_iter()),
        })
    })
}
