//! A model of its own: acquiring by plain commands, without a script.
//!
//! An attempt is one write to each node: `SET key value NX`, then `ZADD register GT CH p key`, then a look
//! at the head of the queue. An attempt that does not get the key lifts the register all the same. So what a node
//! says counts by the strict rule of [`AcquireTally`](fencepost_core::quorum::AcquireTally) alone: *this* node granted, and *this* node's
//! register was lifted from below the token to it, both in answer to this attempt. What is not lifted is
//! raised once more, on every node that granted, while the lock there is still held by the attempt.
//!
//! The nodes are Redis: a key, a register, a queue, and commands that each are atomic. Attempts by
//! script and steals mix with plain ones on the same nodes.
//!
//! # What can happen
//! Messages of one attempt to one node keep their order (one connection); nothing else does. Keys expire
//! at any time where the setup says so: no clock is part of the argument. The register is forgotten by
//! retention; every attempt that had begun by then is too old to count, because none lasts as long, and
//! what begins later has a later clock.
//!
//! # What must hold
//! - [`UNIQUE`], [`ORDERED`]: as everywhere.
//! - [`HOLD_ORDER`]: of two who had the lock, and whose majorities share a node, the one that held that node
//!   later has the larger token. It needs `MULTI` where keys expire early or are stolen.
//! - [`QUEUE_KEPT`]: no attempt without a ticket has the lock before one that waits in a fair queue.
//!
//! # The files
//! The setup, the steps and the properties are here; `node` is what a node does, `attempt` what an attempt
//! does, `state` what there is, and `story` tells a path.

mod attempt;
mod node;
mod state;
mod story;

use fencepost_core::quorum::{NodeSet, Quorum};
use stateright::{Model, Property};

pub use self::state::State;
use self::state::{Attempt, Server, Stage, Wire};
pub use self::story::tell;
use crate::properties::{ORDERED, UNIQUE};

/// Who held a node later has the larger token.
pub const HOLD_ORDER: &str = "the later hold has the larger token";
/// Nobody passes a fair queue.
pub const QUEUE_KEPT: &str = "nobody passes a fair queue";

/// One rule done wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlainFlaw {
    /// A register that was at the proposal already counts as lifted.
    EqualCounts,
    /// A majority that granted and a majority that was lifted are enough, whichever nodes they are.
    DifferentNodes,
    /// The register is lifted before the key is set.
    RegisterFirst,
    /// A raise does not look at who holds the key.
    BlindRaise,
    /// The head of the queue is not looked at.
    NoLook,
    /// An attempt that is older than the retention still counts.
    NoTimeCheck,
}

/// How an attempt takes the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Way {
    /// `SET NX`, then `ZADD`: others may come in between.
    Commands,
    /// The same inside `MULTI`.
    Multi,
    /// By script: the register grows with the grant, and only with it.
    Script,
    /// By script, from whoever has it.
    Steal,
}

/// Nodes and attempts.
#[derive(Clone, Debug)]
pub struct Plain {
    /// How many nodes.
    pub nodes: usize,
    /// How each attempt goes about it, in the order in which they begin.
    pub ways: &'static [Way],
    /// What each attempt proposes: its clock.
    pub proposals: &'static [u64],
    /// Whether keys may expire at any time.
    pub expiry: bool,
    /// How often a node may forget its register by retention, of all nodes together.
    pub forgets: u8,
    /// Whether the first attempt has waited in a fair queue, and its ticket is on all nodes.
    pub queue: bool,
    /// What is done wrong, if anything.
    pub flaw: Option<PlainFlaw>,
}

/// Something that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// An attempt sends its commands.
    Begin(usize),
    /// A command arrives at a node.
    Arrive {
        /// Whose.
        attempt: usize,
        /// Where.
        node: usize,
    },
    /// An attempt reads an answer.
    Read {
        /// Which attempt.
        attempt: usize,
        /// From which node.
        node: usize,
    },
    /// A release arrives at a node.
    Release {
        /// Whose.
        attempt: usize,
        /// Where.
        node: usize,
    },
    /// An attempt is given up, or what it got is given back.
    End(usize),
    /// A node's key expires.
    Expire(usize),
    /// Retention forgets a node's register.
    Forget(usize),
}

impl Plain {
    fn has(&self, flaw: PlainFlaw) -> bool {
        self.flaw == Some(flaw)
    }

    fn quorum(&self) -> Quorum {
        Quorum::of(self.nodes).expect("1 to 9 nodes")
    }

    fn passes_the_queue(&self, state: &State) -> bool {
        let waiting = state.nodes.iter().filter(|node| node.ticket).count();
        let mut others = state.attempts.iter().skip(1);
        waiting >= self.quorum().needed() && others.any(|other| other.token.is_some())
    }
}

impl Model for Plain {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        let server = Server {
            ticket: self.queue,
            ..Server::default()
        };
        let attempt = Attempt {
            stage: Stage::Idle,
            wires: vec![Wire::default(); self.nodes],
            floor: 0,
            is_old: false,
            token: None,
            counted: NodeSet::NONE,
        };
        vec![State {
            nodes: vec![server; self.nodes],
            attempts: vec![attempt; self.ways.len()],
            forgets_left: self.forgets,
        }]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        for (number, attempt) in state.attempts.iter().enumerate() {
            match attempt.stage {
                Stage::Idle => {
                    // Once a register may be forgotten, the clocks alone keep the order.
                    let idle = |earlier: &Attempt| matches!(earlier.stage, Stage::Idle);
                    if self.forgets == 0 || !state.attempts[..number].iter().any(idle) {
                        steps.push(Step::Begin(number));
                    }
                }
                Stage::Acquiring { .. } => steps.push(Step::End(number)),
                Stage::Ended => {
                    let kept = attempt.wires.iter().all(|wire| !wire.release);
                    if attempt.token.is_some() && kept {
                        steps.push(Step::End(number));
                    }
                }
            }
            for (node, wire) in attempt.wires.iter().enumerate() {
                let attempt = number;
                if wire.call.is_some() {
                    steps.push(Step::Arrive { attempt, node });
                } else if wire.answer.is_some() {
                    steps.push(Step::Read { attempt, node });
                } else if wire.release {
                    steps.push(Step::Release { attempt, node });
                }
            }
        }
        for (node, server) in state.nodes.iter().enumerate() {
            if self.expiry && server.key.is_some() {
                steps.push(Step::Expire(node));
            }
            if state.forgets_left > 0 && server.register > 0 && server.key.is_none() {
                steps.push(Step::Forget(node));
            }
        }
    }

    fn next_state(&self, last: &State, step: Step) -> Option<State> {
        let mut state = last.clone();
        match step {
            Step::Begin(attempt) => self.begin(&mut state, attempt),
            Step::Arrive { attempt, node } => self.arrive(&mut state, attempt, node),
            Step::Read { attempt, node } => self.read(&mut state, attempt, node),
            Step::Release { attempt, node } => {
                state.attempts[attempt].wires[node].release = false;
                let server = &mut state.nodes[node];
                server.key.take_if(|key| *key == attempt);
            }
            Step::End(attempt) => self.end(&mut state, attempt),
            Step::Expire(node) => state.nodes[node].key = None,
            Step::Forget(node) => {
                state.forgets_left -= 1;
                state.nodes[node].register = 0;
                for attempt in &mut state.attempts {
                    attempt.is_old |= matches!(attempt.stage, Stage::Acquiring { .. });
                }
            }
        }
        state.put_in_order();
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut all = vec![
            Property::always(UNIQUE, |_, state: &State| state.are_unique()),
            Property::always(ORDERED, |_, state: &State| state.are_ordered()),
        ];
        let by_commands = self.ways.contains(&Way::Commands);
        let is_disturbed = self.expiry || self.ways.contains(&Way::Steal);
        if !(by_commands && is_disturbed) {
            all.push(Property::always(HOLD_ORDER, |_, state: &State| {
                state.holds_are_ordered()
            }));
        }
        if self.queue {
            all.push(Property::always(QUEUE_KEPT, |model: &Self, state| {
                !model.passes_the_queue(state)
            }));
        }
        if self.flaw.is_none() {
            all.push(Property::sometimes(
                "one gets the lock after another",
                |_, state: &State| state.tokens().count() > 1,
            ));
            all.push(Property::sometimes(
                "a token is raised above everything seen",
                |_, state: &State| state.tokens().any(|token| token > 1000),
            ));
        }
        all
    }
}
