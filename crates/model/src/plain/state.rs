//! Everything there is in one state, and what must hold of it.

use fencepost_core::quorum::{AcquireTally, NodeSet};

use crate::world::hash_of;

/// Everything there is.
#[derive(Clone, Debug, Hash)]
#[expect(
    clippy::derived_hash_with_manual_eq,
    reason = "the equality is by the hash"
)]
pub struct State {
    pub(super) nodes: Vec<Server>,
    pub(super) attempts: Vec<Attempt>,
    pub(super) forgets_left: u8,
}

impl PartialEq for State {
    fn eq(&self, other: &Self) -> bool {
        hash_of(self) == hash_of(other)
    }
}

/// One node.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Server {
    pub(super) key: Option<usize>,
    pub(super) register: u64,
    pub(super) ticket: bool,
    /// Who held the key, each once, the first one first.
    pub(super) held: Vec<usize>,
}

#[derive(Clone, Debug, Hash)]
pub(super) struct Attempt {
    pub(super) stage: Stage,
    /// What is under way between it and each node.
    pub(super) wires: Vec<Wire>,
    /// The largest token that was handed out when it began.
    pub(super) floor: u64,
    /// The register of some node was forgotten since it began.
    pub(super) is_old: bool,
    pub(super) token: Option<u64>,
    pub(super) counted: NodeSet,
}

#[derive(Clone, Debug, Hash)]
pub(super) enum Stage {
    Idle,
    Acquiring {
        tally: AcquireTally,
        granted: NodeSet,
        lifted: NodeSet,
    },
    Ended,
}

/// Between one attempt and one node: at most one command or its answer, and a release behind them.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Wire {
    pub(super) call: Option<Call>,
    pub(super) answer: Option<Answer>,
    pub(super) release: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Call {
    Acquire,
    /// The second of the two commands, and what the first one did.
    Rest(bool),
    Raise(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Answer {
    /// Granted, and lifted to this or not: then the register is at this or above.
    Granted {
        register: u64,
        lifted: bool,
    },
    /// Another has it; the register may have been lifted.
    Held {
        lifted: bool,
    },
    NotHeld,
}

impl Attempt {
    pub(super) fn stop_reading(&mut self) {
        self.stage = Stage::Ended;
        for wire in &mut self.wires {
            wire.answer = None;
        }
    }
}

impl State {
    pub(super) fn tokens(&self) -> impl Iterator<Item = u64> {
        self.attempts.iter().filter_map(|attempt| attempt.token)
    }

    pub(super) fn are_unique(&self) -> bool {
        let mut tokens = self.tokens().enumerate();
        tokens.all(|(place, token)| !self.tokens().take(place).any(|other| other == token))
    }

    pub(super) fn are_ordered(&self) -> bool {
        let mut attempts = self.attempts.iter();
        attempts.all(|attempt| attempt.token.is_none_or(|token| token > attempt.floor))
    }

    pub(super) fn holds_are_ordered(&self) -> bool {
        self.nodes.iter().enumerate().all(|(node, server)| {
            let had = server.held.iter().map(|attempt| &self.attempts[*attempt]);
            let had = had.filter(|attempt| attempt.counted.contains(node));
            let tokens: Vec<_> = had.filter_map(|attempt| attempt.token).collect();
            tokens.is_sorted_by(|earlier, later| earlier < later)
        })
    }

    /// Nodes are alike: states that differ by their order only are one.
    pub(super) fn put_in_order(&mut self) {
        let said = |state: &State, node: usize| {
            let attempts = state.attempts.iter().map(|attempt| {
                let tally = match &attempt.stage {
                    Stage::Acquiring {
                        tally,
                        granted,
                        lifted,
                    } => {
                        let tally = hash_of(&tally.reordered(&[node]));
                        hash_of(&(tally, granted.contains(node), lifted.contains(node)))
                    }
                    Stage::Idle | Stage::Ended => 0,
                };
                (&attempt.wires[node], attempt.counted.contains(node), tally)
            });
            hash_of(&(&state.nodes[node], attempts.collect::<Vec<_>>()))
        };
        let mut order: Vec<_> = (0..self.nodes.len())
            .map(|node| (said(self, node), node))
            .collect();
        if order.is_sorted() {
            return;
        }
        order.sort_unstable();
        let order: Vec<usize> = order.into_iter().map(|(_, node)| node).collect();
        let reordered = |set: NodeSet| {
            let mut new = NodeSet::NONE;
            let places = order.iter().enumerate();
            places
                .filter(|(_, old)| set.contains(**old))
                .for_each(|(place, _)| new.insert(place));
            new
        };
        self.nodes = order.iter().map(|node| self.nodes[*node].clone()).collect();
        for attempt in &mut self.attempts {
            attempt.wires = order
                .iter()
                .map(|node| attempt.wires[*node].clone())
                .collect();
            attempt.counted = reordered(attempt.counted);
            if let Stage::Acquiring {
                tally,
                granted,
                lifted,
            } = &mut attempt.stage
            {
                *tally = tally.reordered(&order);
                *granted = reordered(*granted);
                *lifted = reordered(*lifted);
            }
        }
    }
}
