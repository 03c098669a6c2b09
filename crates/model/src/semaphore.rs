//! A model of its own: a semaphore by count, which is broken and must be found so.
//!
//! "Each node admits k, and whoever has a majority is in" looks like the lock with a larger number.
//! But a majority is needed only so that *two* cannot both have one; of n nodes with k places each,
//! as many as `n * k / q` claims can have a majority. The library gives every place a lock of its
//! own instead.

use fencepost::FencingToken;
use fencepost_core::lock::Reply;
use fencepost_core::quorum::{AcquireStep, AcquireTally, NodeSet, Quorum};
use stateright::{Model, Path, Property};

use crate::story::name;

/// No more are in than there are places.
pub const NO_CROWD: &str = "at most k are in";

/// Nodes that count.
#[derive(Clone, Copy, Debug)]
pub struct Semaphore {
    /// How many nodes.
    pub nodes: usize,
    /// How many each of them admits, and how many there should be in all.
    pub places: usize,
    /// How many want to get in.
    pub claims: usize,
}

/// Whom each node has admitted. Nobody ever leaves: that is enough.
pub type Admitted = Vec<NodeSet>;

/// A claim's request arrives at a node, which has a place left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admit {
    claim: usize,
    node: usize,
}

impl Semaphore {
    fn is_in(&self, admitted: &Admitted, claim: usize) -> bool {
        let quorum = Quorum::of(self.nodes).expect("1 to 9 nodes");
        let mut attempt = AcquireTally::new(quorum);
        (0..self.nodes)
            .filter(|node| admitted[*node].contains(claim))
            .any(|node| {
                let granted = Reply::Granted {
                    register: FencingToken::ZERO,
                    evicted: None,
                };
                let step = attempt.answered(node, Ok(granted));
                matches!(step, AcquireStep::Certified(_))
            })
    }

    fn how_many_are_in(&self, admitted: &Admitted) -> usize {
        let claims = 0..self.claims;
        claims.filter(|claim| self.is_in(admitted, *claim)).count()
    }
}

impl Model for Semaphore {
    type State = Admitted;
    type Action = Admit;

    fn init_states(&self) -> Vec<Admitted> {
        vec![vec![NodeSet::NONE; self.nodes]]
    }

    fn actions(&self, admitted: &Admitted, steps: &mut Vec<Admit>) {
        for (node, inside) in admitted.iter().enumerate() {
            for claim in 0..self.claims {
                if inside.len() < self.places && !inside.contains(claim) {
                    steps.push(Admit { claim, node });
                }
            }
        }
    }

    fn next_state(&self, last: &Admitted, step: Admit) -> Option<Admitted> {
        let mut admitted = last.clone();
        admitted[step.node].insert(step.claim);
        Some(admitted)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![Property::always(NO_CROWD, |model: &Self, admitted| {
            model.how_many_are_in(admitted) <= model.places
        })]
    }
}

/// Every step of a path in a line.
#[must_use]
pub fn tell(model: &Semaphore, path: Path<Admitted, Admit>) -> Vec<String> {
    let mut lines = Vec::new();
    for (admitted, step) in path.into_vec() {
        let Some(step) = step else { break };
        let Some(next) = model.next_state(&admitted, step) else {
            break;
        };
        let Admit { claim, node } = step;
        let mut line = format!("node {} admits {}", node + 1, name(claim));
        if !model.is_in(&admitted, claim) && model.is_in(&next, claim) {
            let many = model.how_many_are_in(&next);
            line += &format!(
                " => {} IS IN, as number {many} of {}",
                name(claim),
                model.places
            );
        }
        lines.push(line);
    }
    lines
}
