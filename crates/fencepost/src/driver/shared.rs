//! [`Shared`]: what all requests, guards and clones of one client share.

use std::sync::Arc;
#[cfg(feature = "blocking")]
use std::sync::OnceLock;
use std::time::Duration;

use super::coordinator::Coordinator;
use super::identity::ValueForm;
use super::renewer::Renewer;
use super::waiters::WaitRegistry;
use crate::error::{Cause, Error};
#[cfg(feature = "blocking")]
use crate::runtime::thread::Background;
use crate::store::LockService;
use fencepost_core::ttl::{Readable, Ttl};
use fencepost_core::{Owner, SessionId};

/// What all requests, guards and clones of one client share.
pub(crate) struct Shared {
    pub(crate) coordinator: Arc<Coordinator>,
    pub(crate) owner: Owner,
    pub(crate) session: SessionId,
    pub(crate) waiters: Arc<WaitRegistry>,
    pub(crate) renewer: Arc<Renewer>,
    pub(crate) max_ttl: Ttl,
    pub(crate) default_ttl: Ttl,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) max_renewals: Option<u32>,
    pub(crate) node_timeout: Duration,
    /// It acquires for the clients of a lock service, and goes on when a lease has ended.
    pub(crate) is_replica: bool,
    /// The thread that drives a blocking client. Here, so that it lives as long as the last guard.
    #[cfg(feature = "blocking")]
    pub(crate) thread: OnceLock<Background>,
}

impl Shared {
    /// The form of this client's values, where nothing else is said.
    pub(crate) fn value_form(&self) -> ValueForm {
        ValueForm::Labelled(self.owner.clone())
    }

    /// The lock service that acquires for us, if that is what the nodes are.
    pub(crate) fn service(&self) -> Option<&dyn LockService> {
        match self.coordinator.nodes() {
            [node] => node.service(),
            _ => None,
        }
    }

    pub(crate) fn checked_ttl(&self, ttl: Duration) -> Result<Ttl, Error> {
        let checked = Ttl::new(ttl)?;
        if checked > self.max_ttl {
            return Err(Error::from(Cause::InvalidTtl {
                ttl,
                why: format!(
                    "it is above max_ttl, which is {}; take a shorter one, or set a larger \
                     max_ttl in every client of these nodes, because a restarted node is not \
                     asked for that long",
                    Readable(self.max_ttl.get())
                ),
            }));
        }
        Ok(checked)
    }
}

impl Drop for Shared {
    /// The last client and the last lease are gone.
    fn drop(&mut self) {
        self.renewer.close();
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let nodes = self.coordinator.nodes().iter();
        let nodes: Vec<_> = nodes.map(|node| node.address()).collect();
        f.debug_struct("Shared")
            .field("nodes", &nodes)
            .finish_non_exhaustive()
    }
}
