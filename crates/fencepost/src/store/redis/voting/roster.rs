//! [`Roster`]: which server each node of one client has reached, so that none votes twice.
//!
//! A claim must outlive the connection that made it: as long as a vote given through one address
//! may still count, the same server must not vote through another.

use super::membership::Membership;
use crate::store::redis::protocol::reader::Reader;
use fencepost_core::quorum::membership::Terms;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Which servers the nodes of one client have reached: shared by them, so that no server votes
/// twice.
#[derive(Clone, Default)]
pub struct Roster {
    entries: Arc<Mutex<Entries>>,
    membership: Option<Arc<Membership>>,
    /// Of nodes without a marker of ours: they must not have one on other terms.
    outside: Option<Arc<Terms>>,
    /// Runs the connections of all of them.
    reader: Reader,
}

#[derive(Default)]
struct Entries {
    next: u64,
    taken: Vec<Claim>,
}

struct Claim {
    number: u64,
    address: String,
    /// The server's `run_id`, or its address if that is hidden.
    server: Option<String>,
}

impl Roster {
    /// A roster of nodes that vote only under the marker of their cluster.
    pub(crate) fn of(membership: Arc<Membership>) -> Self {
        Self {
            membership: Some(membership),
            ..Self::default()
        }
    }

    /// A roster of nodes that vote without a marker, unless they belong to a cluster on other terms.
    pub(crate) fn outside(terms: Terms) -> Self {
        Self {
            outside: Some(Arc::new(terms)),
            ..Self::default()
        }
    }

    pub(crate) fn membership(&self) -> Option<&Arc<Membership>> {
        self.membership.as_ref()
    }

    /// An entry for one node, removed when it is dropped.
    pub(crate) fn enter(&self, address: &str) -> RosterEntry {
        let mut entries = self.lock();
        let number = entries.next;
        entries.next += 1;
        entries.taken.push(Claim {
            number,
            address: address.to_owned(),
            server: None,
        });
        RosterEntry {
            roster: self.clone(),
            number,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One node's entry in the roster.
pub(crate) struct RosterEntry {
    roster: Roster,
    number: u64,
}

impl RosterEntry {
    /// Claims a server for this node, replacing its earlier claim.
    ///
    /// # Errors
    /// The address of the node that has already claimed the same server.
    pub(crate) fn claim(&self, run_id: Option<&str>) -> Result<(), String> {
        let mut entries = self.roster.lock();
        let own = |claim: &&mut Claim| claim.number == self.number;
        let Some(address) = entries
            .taken
            .iter_mut()
            .find(own)
            .map(|own| own.address.clone())
        else {
            return Ok(());
        };
        let server = run_id.map_or(address, str::to_owned);
        let others = entries
            .taken
            .iter()
            .filter(|claim| claim.number != self.number);
        for other in others {
            if other.server.as_deref() == Some(&server) {
                return Err(other.address.clone());
            }
        }
        if let Some(own) = entries.taken.iter_mut().find(own) {
            own.server = Some(server);
        }
        Ok(())
    }

    /// The client's terms, where it keeps no marker and must not vote under another's.
    pub(crate) fn outside(&self) -> Option<&Terms> {
        self.roster.outside.as_deref()
    }

    /// Whether this is the client's only node.
    pub(crate) fn is_alone(&self) -> bool {
        self.roster.lock().taken.len() == 1
    }

    /// Runs the connections of all nodes of the client.
    pub(crate) fn reader(&self) -> &Reader {
        &self.roster.reader
    }

    /// Removes the entry.
    pub(crate) fn leave(&self) {
        let mut entries = self.roster.lock();
        entries.taken.retain(|claim| claim.number != self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_has_one_entry() {
        let roster = Roster::default();
        let (one, two) = (roster.enter("one"), roster.enter("two"));
        assert_eq!(one.claim(Some("x")), Ok(()));
        assert_eq!(two.claim(Some("x")), Err("one".to_owned()));
        assert_eq!(one.claim(Some("x")), Ok(()), "its own again");
        assert_eq!(one.claim(Some("y")), Ok(()), "restarted");
        assert_eq!(two.claim(Some("x")), Ok(()));
        one.leave();
        assert_eq!(two.claim(Some("y")), Ok(()));
    }

    #[test]
    fn where_the_run_id_is_hidden_the_address_stands_for_it() {
        let roster = Roster::default();
        let (one, two) = (roster.enter("same"), roster.enter("same"));
        let other = roster.enter("other");
        assert_eq!(one.claim(None), Ok(()));
        assert_eq!(two.claim(None), Err("same".to_owned()));
        assert_eq!(other.claim(None), Ok(()));
    }
}
