//! [`Row`]: one kind of fault, what it takes, and what is promised under it.

use std::io;
use std::time::Duration;

use crate::cluster::Layout;
use crate::scene::Scene;

/// What is enough for servers that do not vote for `max_ttl`.
const SETTLED_AFTER: Duration = Duration::from_secs(5);

/// What must hold while a fault of this kind happens again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// Everything: exclusion, tokens, the resource, the telling of losses, service after healing,
    /// nothing left behind.
    Everything,
    /// Nodes forget locks without a restart, or let them expire early, so that two holders may be
    /// valid at a time, and one may not be told before the next. Tokens stay unique and in order,
    /// and the resource that checks them loses nothing; all else holds.
    AllButExclusion,
}

/// What a row cannot do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// Servers and processes.
    Nothing,
    /// Links that can be cut: namespaces, or else proxies.
    Cuts,
    /// Links that can be cut between servers, too: namespaces.
    Namespaces,
    /// A server's or a client's clock that can be bent.
    BentClocks,
}

/// One kind of fault.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Its name on the command line.
    pub name: &'static str,
    /// What is done, in a sentence.
    pub what: &'static str,
    /// What must hold.
    pub promise: Promise,
    /// What it cannot do without.
    pub needs: Needs,
    /// How long after the healing a request may still find too few nodes: until restarted servers
    /// vote, and clients have connected again.
    pub settled_after: Duration,
    /// How its servers are started.
    pub lay_out: fn(&mut Layout),
    /// What is done before the clients are started.
    pub prepare: fn(&mut Scene) -> io::Result<()>,
    /// One episode: hurts, waits, and mends what can be mended. How many faults it was.
    pub hurt: fn(&mut Scene) -> io::Result<usize>,
}

impl Row {
    /// A row of plain servers under which everything is promised.
    pub(crate) const fn new(
        name: &'static str,
        what: &'static str,
        hurt: fn(&mut Scene) -> io::Result<usize>,
    ) -> Self {
        Self {
            name,
            what,
            promise: Promise::Everything,
            needs: Needs::Nothing,
            settled_after: SETTLED_AFTER,
            lay_out: |_| {},
            prepare: |_| Ok(()),
            hurt,
        }
    }
}
