//! Markers on real servers: which cluster a node belongs to, and whether it may vote. The decisions
//! are in [`membership`](fencepost_core::quorum::membership).
//!
//! - [`Membership`] (here): what the nodes of one client know of each other's markers.
//! - `member`: one node's part: reads its marker, and writes what follows from it.
//! - `server`: reads and writes a marker.
//! - `guard`: watches the marker for the lifetime of the connection.

mod guard;
mod member;
mod server;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

pub(crate) use self::guard::{Alarm, Guard, LOOK_EVERY};
pub(crate) use self::member::{MOST_CHANGES, Member, incarnation};
pub(crate) use self::server::{Server, check_outside};
use super::closing::Closed;
pub(crate) use crate::store::redis::encoding::keys::MARKER as KEY;
use fencepost_core::quorum::membership::{Proposal, Seen, Terms, View, conflict};

/// What the nodes of one client know of each other's markers.
pub(crate) struct Membership {
    terms: Terms,
    /// The operator's promises for a cluster that is created now.
    durable: bool,
    fresh: bool,
    /// The closed cluster that this one replaces.
    old: Option<Closed>,
    views: Mutex<Vec<View>>,
    looks: AtomicU64,
    changed: watch::Sender<u64>,
    /// A node belongs to another cluster: no node of this client may vote.
    is_refused: AtomicBool,
    undo: AtomicBool,
}

impl Membership {
    /// Nothing is known yet of the nodes at these addresses.
    #[must_use]
    pub(crate) fn new(
        nodes: Vec<String>,
        max_ttl: Duration,
        retention: Duration,
        durable: bool,
        fresh: bool,
        old: Option<Closed>,
    ) -> Self {
        let terms = Terms::new(nodes, max_ttl, retention);
        let views = Mutex::new(vec![View::default(); terms.nodes().len()]);
        Self {
            terms,
            durable,
            // Every lock of the old cluster has expired.
            fresh: fresh || old.is_some(),
            old,
            views,
            looks: AtomicU64::new(0),
            changed: watch::Sender::new(0),
            is_refused: AtomicBool::new(false),
            undo: AtomicBool::new(false),
        }
    }

    /// Withdraws what was proposed, where that is still possible.
    pub(crate) fn undo(&self) {
        self.undo.store(true, Ordering::SeqCst);
        self.changed.send_modify(|count| *count += 1);
    }

    /// Resolves when every node belongs to the cluster, or one to another.
    pub(crate) async fn settled(&self) -> Result<(), String> {
        let mut changed = self.changed.subscribe();
        loop {
            {
                let views = self.views();
                if let Some(why) = conflict(&views) {
                    return Err(why);
                }
                let is_member = |view: &View| matches!(view.seen, Seen::Member(_));
                if views.iter().all(is_member) {
                    return Ok(());
                }
            }
            // The sender is in this very struct: it cannot be gone.
            let _ = changed.changed().await;
        }
    }

    /// Whether one of our proposals is still pending somewhere.
    pub(crate) fn is_pending_anywhere(&self) -> bool {
        let is_pending = |view: &View| matches!(view.seen, Seen::Pending(_));
        self.views().iter().any(is_pending)
    }

    /// The settings that all clients must share.
    pub(crate) fn terms(&self) -> &Terms {
        &self.terms
    }

    /// Whether the operator promises that no client holds a lock from before.
    pub(crate) fn is_fresh(&self) -> bool {
        self.fresh
    }

    /// The only node, a Redis Cluster, has its markers.
    pub(crate) fn joined(&self) {
        self.saw(Seen::Member(Proposal {
            cluster: String::new(),
            epoch: 1,
            durable: false,
            fresh: false,
        }));
    }

    /// The only node, a Redis Cluster, has the markers of others.
    pub(crate) fn refuse(&self, why: String) {
        self.saw(Seen::Foreign(why));
    }

    fn saw(&self, seen: Seen) {
        let number = self.looks.fetch_add(1, Ordering::SeqCst) + 1;
        let is_new = {
            let mut views = self.views();
            let is_new = views[0].seen != seen;
            views[0].saw(seen, number);
            is_new
        };
        if is_new {
            self.changed.send_modify(|count| *count += 1);
        }
    }

    fn views(&self) -> MutexGuard<'_, Vec<View>> {
        self.views.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
