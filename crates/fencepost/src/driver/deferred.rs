//! Releases for a node that is away: kept until it comes back or the lock has expired anyway.
//!
//! At most one task a node works on them, and only while there are any.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{sleep, timeout};

use crate::runtime::clock::{Clock, Moment};
use crate::store::Node;
use fencepost_core::lock::Command;
use fencepost_core::name::LockName;

/// The most releases that wait for one node. What is beyond ends by its TTL.
const MOST_WAITING: usize = 10_000;
/// The pause after a release that failed again.
const PAUSE: Duration = Duration::from_millis(100);

/// The releases that one node has not had yet.
#[derive(Clone)]
pub(super) struct DeferredReleases {
    node: Arc<dyn Node>,
    node_timeout: Duration,
    letters: Arc<Mutex<Pending>>,
}

#[derive(Default)]
struct Pending {
    waiting: VecDeque<DeferredRelease>,
    being_delivered: bool,
}

struct DeferredRelease {
    name: LockName,
    command: Command,
    /// When the lock has expired on the node without our help.
    until: Moment,
}

impl DeferredReleases {
    pub(super) fn new(node: Arc<dyn Node>, node_timeout: Duration) -> Self {
        Self {
            node,
            node_timeout,
            letters: Arc::default(),
        }
    }

    /// Puts a release in. True when nobody delivers yet: then [`deliver`](Self::deliver) must be
    /// spawned.
    #[must_use]
    pub(super) fn put(&self, name: LockName, command: Command, until: Moment) -> bool {
        let mut letters = self.letters();
        if letters.waiting.len() >= MOST_WAITING {
            letters.waiting.pop_front();
        }
        letters.waiting.push_back(DeferredRelease {
            name,
            command,
            until,
        });
        !std::mem::replace(&mut letters.being_delivered, true)
    }

    fn letters(&self) -> MutexGuard<'_, Pending> {
        // A panic while it was locked cannot have left it half changed.
        self.letters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next(&self, now: Moment) -> Option<DeferredRelease> {
        let mut letters = self.letters();
        letters.waiting.retain(|letter| letter.until > now);
        let next = letters.waiting.pop_front();
        letters.being_delivered = next.is_some();
        next
    }

    /// Delivers until the outbox is empty.
    pub(super) fn deliver(&self, clock: Arc<dyn Clock>) -> impl Future<Output = ()> + use<> {
        let outbox = self.clone();
        async move {
            while let Some(letter) = outbox.next(clock.now()) {
                let left = letter.until.since(clock.now());
                if timeout(left, outbox.node.ready()).await.is_err() {
                    continue;
                }
                let call = outbox.node.call(&letter.name, letter.command.clone());
                match timeout(outbox.node_timeout, call).await {
                    Ok(Err(error)) if !error.may_pass() => {}
                    Ok(Ok(_)) => {}
                    Ok(Err(_)) | Err(_) => {
                        outbox.letters().waiting.push_front(letter);
                        sleep(PAUSE).await;
                    }
                }
            }
        }
    }
}
