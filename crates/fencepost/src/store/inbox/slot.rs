//! [`ReplySlot`]: the end of an [`Inbox`] that a connection writes to.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{ALWAYS, Call, Inbox};
use crate::error::NodeError;

impl Inbox {
    /// Where one node's reply goes.
    pub(crate) fn slot(self: &Arc<Self>, node: usize) -> ReplySlot {
        ReplySlot {
            inbox: Some(Arc::clone(self)),
            node,
        }
    }
}

/// Where one node's reply goes. Dropped without one, the node has not replied.
pub(crate) struct ReplySlot {
    /// Empty once it has replied.
    inbox: Option<Arc<Inbox>>,
    node: usize,
}

impl ReplySlot {
    /// The node has given the usual reply. Whether its owner waited for it: nobody does once enough others have.
    pub(crate) fn usual(mut self) -> bool {
        let Some(inbox) = self.inbox.take() else {
            return false;
        };
        let bit = 1 << self.node;
        let given = inbox.given.fetch_or(bit, Ordering::SeqCst) | bit;
        // In this order: whoever is woken by another node's unusual reply, and misses this one, has changed it before.
        let (given, wakes_at) = (given.count_ones(), inbox.wakes_at.load(Ordering::SeqCst));
        if given >= wakes_at {
            inbox.owner.wake();
        }
        given <= wakes_at || wakes_at == ALWAYS
    }

    /// What the node has replied comes to this, which its owner waited for.
    pub(crate) fn goes_on(mut self, call: Call) -> bool {
        self.report(call);
        true
    }

    fn report(&mut self, call: Call) {
        let Some(inbox) = self.inbox.take() else {
            return;
        };
        inbox.unusual().push((self.node, call));
        inbox.wakes_at.store(ALWAYS, Ordering::SeqCst);
        inbox.owner.wake();
    }
}

impl Drop for ReplySlot {
    fn drop(&mut self) {
        let gone = NodeError::Disconnected("the connection was closed".to_owned());
        self.report(Box::pin(std::future::ready(Err(gone))));
    }
}
