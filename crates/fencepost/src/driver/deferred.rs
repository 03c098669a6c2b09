//! Releases for a node that is away: kept until it comes back or the lock has expired anyway.
//!
//! At most one task a node works on them, and only while there are any.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{sleep, timeout};

use crate::error::NodeError;
use crate::runtime::clock::{Clock, Moment};
use crate::runtime::randomness::Randomness;
use crate::store::Node;
use fencepost_core::lock::Command;
use fencepost_core::name::LockName;
use fencepost_core::quorum::unresolved::Sent;
use fencepost_core::wait::backoff::Backoff;

/// The most releases that wait for one node. What is beyond ends by its TTL.
const MOST_WAITING: usize = 10_000;
/// The pauses after a release that failed again.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(1));

/// The releases that one node has not had yet.
#[derive(Clone)]
pub(super) struct DeferredReleases {
    node: Arc<dyn Node>,
    node_timeout: Duration,
    pending: Arc<Mutex<Pending>>,
}

#[derive(Default)]
struct Pending {
    waiting: VecDeque<DeferredRelease>,
    being_delivered: bool,
}

struct DeferredRelease {
    name: LockName,
    command: Command,
    /// When the lock has expired on the node anyway.
    until: Moment,
}

impl DeferredReleases {
    pub(super) fn new(node: Arc<dyn Node>, node_timeout: Duration) -> Self {
        Self {
            node,
            node_timeout,
            pending: Arc::default(),
        }
    }

    /// Adds a release. Returns true when no delivery is running: then the caller must spawn
    /// [`deliver`](Self::deliver).
    #[must_use]
    pub(super) fn put(&self, name: LockName, command: Command, until: Moment) -> bool {
        let mut pending = self.pending();
        if pending.waiting.len() >= MOST_WAITING {
            pending.waiting.pop_front();
        }
        pending.waiting.push_back(DeferredRelease {
            name,
            command,
            until,
        });
        !std::mem::replace(&mut pending.being_delivered, true)
    }

    fn pending(&self) -> MutexGuard<'_, Pending> {
        // A panic while it was locked cannot have left it half changed.
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next(&self, now: Moment) -> Option<DeferredRelease> {
        let mut pending = self.pending();
        pending.waiting.retain(|release| release.until > now);
        let next = pending.waiting.pop_front();
        pending.being_delivered = next.is_some();
        next
    }

    /// Sends them until none is left.
    pub(super) fn deliver(
        &self,
        clock: Arc<dyn Clock>,
        randomness: Arc<dyn Randomness>,
    ) -> impl Future<Output = ()> + use<> {
        let outbox = self.clone();
        async move {
            let mut backoff = BACKOFF;
            while let Some(release) = outbox.next(clock.now()) {
                let left = release.until.since(clock.now());
                if timeout(left, outbox.node.ready()).await.is_err() {
                    continue;
                }
                let call = outbox.node.call(&release.name, release.command.clone());
                let answer = timeout(outbox.node_timeout, call).await;
                let timed_out = NodeError::Timeout(outbox.node_timeout);
                let error = answer.map_or(Some(timed_out), Result::err);
                if error.is_some_and(|error| Sent::Deferred.leaves_open(&error)) {
                    outbox.pending().waiting.push_front(release);
                    sleep(backoff.next(randomness.share())).await;
                } else {
                    backoff.reset();
                }
            }
        }
    }
}
