//! [`Roster`]: which server each node of one client has reached, so that none votes twice.
//!
//! A claim must outlive the connection that made it: as long as a vote given through one address
//! may still count, the same server must not vote through another.

use super::membership::Membership;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Which servers the nodes of one client have reached: shared by them, so that no server votes
/// twice.
#[derive(Clone, Default)]
pub struct Roster(Arc<Mutex<Seats>>, Option<Arc<Membership>>);

#[derive(Default)]
struct Seats {
    next: u64,
    taken: Vec<Claim>,
}

struct Claim {
    seat: u64,
    address: String,
    /// The server's `run_id`; its address where that is hidden.
    server: Option<String>,
}

impl Roster {
    /// A roster of nodes that vote only under the marker of their cluster.
    pub(crate) fn of(membership: Arc<Membership>) -> Self {
        Self(Arc::default(), Some(membership))
    }

    pub(super) fn membership(&self) -> Option<&Arc<Membership>> {
        self.1.as_ref()
    }

    /// A place for one node, freed when it is dropped.
    pub(super) fn seat(&self, address: &str) -> RosterEntry {
        let mut seats = self.lock();
        let seat = seats.next;
        seats.next += 1;
        seats.taken.push(Claim {
            seat,
            address: address.to_owned(),
            server: None,
        });
        RosterEntry {
            roster: self.clone(),
            number: seat,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Seats> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One node's place in the roster.
pub(super) struct RosterEntry {
    roster: Roster,
    number: u64,
}

impl RosterEntry {
    /// Claims a server for this node, in place of what it claimed before.
    ///
    /// # Errors
    /// The address of the node that has claimed the same server already.
    pub(super) fn claim(&self, run_id: Option<&str>) -> Result<(), String> {
        let mut seats = self.roster.lock();
        let own = |claim: &&mut Claim| claim.seat == self.number;
        let Some(address) = seats
            .taken
            .iter_mut()
            .find(own)
            .map(|own| own.address.clone())
        else {
            return Ok(());
        };
        let server = run_id.map_or(address, str::to_owned);
        let others = seats.taken.iter().filter(|claim| claim.seat != self.number);
        for other in others {
            if other.server.as_deref() == Some(&server) {
                return Err(other.address.clone());
            }
        }
        if let Some(own) = seats.taken.iter_mut().find(own) {
            own.server = Some(server);
        }
        Ok(())
    }

    /// Whether the client has no other node.
    pub(super) fn is_alone(&self) -> bool {
        self.roster.lock().taken.len() == 1
    }

    /// Gives the place back.
    pub(super) fn leave(&self) {
        let mut seats = self.roster.lock();
        seats.taken.retain(|claim| claim.seat != self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_has_one_seat() {
        let roster = Roster::default();
        let (one, two) = (roster.seat("one"), roster.seat("two"));
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
        let (one, two) = (roster.seat("same"), roster.seat("same"));
        let other = roster.seat("other");
        assert_eq!(one.claim(None), Ok(()));
        assert_eq!(two.claim(None), Err("same".to_owned()));
        assert_eq!(other.claim(None), Ok(()));
    }
}
