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
    /// Why a node could not be reached, or did not tell of all locks, in configured order.
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
        mut failed,
        truncated,
    } = known(coordinator, wanted).await?;
    let locks = Status::ask_for_all(coordinator, &names).await;
    for (place, node) in coordinator.nodes().iter().enumerate() {
        let is_known = failed.iter().any(|report| report.node == node.address());
        let why = |lock: &Status| lock.nodes[place].lock.clone().err();
        if let (false, Some(why)) = (is_known, locks.iter().find_map(why)) {
            failed.push(NodeReport::new(node.address(), NodeOutcome::Failed(why)));
        }
    }
    let address = |report: &NodeReport| {
        let mut nodes = coordinator.nodes().iter();
        nodes.position(|node| node.address() == report.node)
    };
    failed.sort_by_key(address);
    Ok(Listing {
        locks,
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
    use std::collections::HashSet;
    use std::pin::Pin;
    use std::sync::Mutex;

    use super::*;
    use crate::Client;
    use crate::runtime::clock::TokioClock;
    use crate::store::memory::MemoryNode;
    use crate::store::{Call, Names, Node};
    use fencepost_core::lock::Command;

    /// Does not tell of a lock when it is asked for the first time; of one that is called "never", not at all.
    struct Late {
        node: MemoryNode,
        asked: Mutex<HashSet<LockName>>,
    }

    impl Node for Late {
        fn call(&self, name: &LockName, command: Command) -> Call {
            let is_look = matches!(command, Command::Inspect);
            let is_first = || self.asked.lock().unwrap().insert(name.clone());
            match is_look && (is_first() || name.as_str() == "never") {
                true => Box::pin(std::future::pending()),
                false => self.node.call(name, command),
            }
        }

        fn address(&self) -> &str {
            "late"
        }

        fn names<'a>(
            &'a self,
            wanted: &'a NamePattern,
        ) -> Pin<Box<dyn Future<Output = Result<Names, NodeError>> + Send + 'a>> {
            self.node.names(wanted)
        }
    }

    /// A busy server answered after the time-out, and its locks were left out of the list as if they were free.
    #[tokio::test(start_paused = true)]
    async fn a_lock_that_was_told_of_too_late_is_asked_for_again_and_never_taken_for_free() {
        let clock = Arc::new(TokioClock::new());
        let late = Late {
            node: MemoryNode::with_clock(clock.clone()),
            asked: Mutex::default(),
        };
        let locks = Client::builder().clock(clock).node(late).build().unwrap();
        let _held = locks.try_lock("a").await.unwrap();
        let listing = locks.list(&NamePattern::all()).await.unwrap();
        assert!(listing.locks[0].holder.is_some() && listing.failed.is_empty());
        let _never = locks.try_lock("never").await.unwrap();
        let listing = locks.list(&NamePattern::all()).await.unwrap();
        assert!(listing.locks[0].holder.is_some());
        assert_eq!(listing.locks[1].held, None);
        assert_eq!(listing.failed[0].node, "late");
    }

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
