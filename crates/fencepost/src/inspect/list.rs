//! [`Listing`]: the locks known to the nodes.
//!
//! A listing is a snapshot, not a promise: a lock may come and go while the nodes answer.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::timeout;

use crate::driver::coordinator::Coordinator;
use crate::error::{Cause, Error, NodeError, NodeOutcome, NodeReport};
use crate::inspect::status::Status;
pub use fencepost_core::NamePattern;
use fencepost_core::name::LockName;

/// How long one node may take to list its locks.
const LIMIT: Duration = Duration::from_secs(30);

/// The locks known to the nodes.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Listing {
    /// The status of each lock, by name. A free lock is listed as long as its register is kept.
    pub locks: Vec<Status>,
    /// Why a node could not be reached, in configured order.
    pub failed: Vec<NodeReport>,
    /// Whether there are more names than a listing can hold.
    pub truncated: bool,
}

/// The names of the locks known to the nodes.
pub(crate) struct Known {
    pub(crate) names: Vec<LockName>,
    failed: Vec<NodeReport>,
    pub(crate) truncated: bool,
}

/// The locks known to these nodes.
pub(crate) async fn list(
    coordinator: &Arc<Coordinator>,
    wanted: &NamePattern,
) -> Result<Listing, Error> {
    let Known {
        names,
        failed,
        truncated,
    } = known(coordinator, wanted).await?;
    Ok(Listing {
        locks: Status::ask_for_all(coordinator, &names).await,
        failed,
        truncated,
    })
}

/// The names of the locks known to these nodes, in order.
pub(crate) async fn known(
    coordinator: &Arc<Coordinator>,
    wanted: &NamePattern,
) -> Result<Known, Error> {
    let asked = coordinator.nodes().iter().map(|node| async {
        match timeout(LIMIT, node.names(wanted)).await {
            Ok(answer) => answer,
            Err(_) => Err(NodeError::Timeout(LIMIT)),
        }
    });
    let answers = join_all(asked).await;
    if answers.iter().all(Result::is_err) {
        let outcomes = answers.into_iter().map(|answer| match answer {
            Err(error) => NodeOutcome::Failed(error),
            Ok(_) => NodeOutcome::Agreed,
        });
        return Err(Error::from(Cause::Unreachable {
            needed: coordinator.quorum.needed(),
            nodes: coordinator.report(outcomes),
        }));
    }
    let (mut names, mut failed, mut truncated) = (Vec::new(), Vec::new(), false);
    for (node, answer) in coordinator.nodes().iter().zip(answers) {
        match answer {
            Ok(answer) => {
                names.extend(answer.names);
                truncated |= answer.more;
            }
            Err(error) => {
                failed.push(NodeReport::new(node.address(), NodeOutcome::Failed(error)));
            }
        }
    }
    names.sort_unstable();
    names.dedup();
    Ok(Known {
        names,
        failed,
        truncated,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Client;

    #[tokio::test]
    async fn a_listing_has_what_is_held_and_what_is_remembered() {
        let locks = Client::memory().unwrap();
        let _held = locks.try_lock("b").await.unwrap();
        locks.try_lock("a").await.unwrap().release().await.unwrap();
        drop(locks.try_lock("other").await.unwrap());
        let listing = locks.list(&NamePattern::new("?")).await.unwrap();
        let seen: Vec<_> = listing.locks.iter().collect();
        let seen: Vec<_> = seen
            .iter()
            .map(|lock| (lock.name.as_str(), lock.holder.is_some()))
            .collect();
        assert_eq!(seen, [("a", false), ("b", true)]);
    }
}
