//! What an attempt does: it asks, counts the answers by the real rule, and has the lock or ends.

use std::time::Duration;

use fencepost::{AttemptValue, FencingToken};
use fencepost_core::lock::{Holder, Reply};
use fencepost_core::quorum::{AcquireStep, AcquireTally, NodeSet};

use super::state::{Answer, Call, Stage, State};
use super::{Plain, PlainFlaw};

impl Plain {
    pub(super) fn begin(&self, state: &mut State, attempt: usize) {
        let floor = state.tokens().max().unwrap_or(0);
        let me = &mut state.attempts[attempt];
        me.floor = floor;
        me.stage = Stage::Acquiring {
            tally: AcquireTally::new(self.quorum()),
            granted: NodeSet::NONE,
            lifted: NodeSet::NONE,
        };
        for wire in &mut me.wires {
            wire.call = Some(Call::Acquire);
        }
    }

    pub(super) fn read(&self, state: &mut State, attempt: usize, node: usize) {
        let me = &mut state.attempts[attempt];
        let Some(answer) = me.wires[node].answer.take() else {
            return;
        };
        let Stage::Acquiring {
            tally,
            granted,
            lifted: lifts,
        } = &mut me.stage
        else {
            return;
        };
        let (reply, is_granted, is_lifted) = match answer {
            Answer::Granted { register, lifted } => {
                let register = FencingToken::saturating(register);
                let reply = match lifted {
                    true => Reply::Raised(register),
                    false => Reply::NotRaised(register),
                };
                (reply, true, lifted)
            }
            Answer::Held { lifted } => {
                let another = Holder {
                    value: AttemptValue::reported("another"),
                    token: None,
                    remaining: Some(Duration::ZERO),
                };
                (Reply::Held(another), false, lifted)
            }
            Answer::NotHeld => (Reply::NotHeld(None), false, false),
        };
        if is_granted {
            granted.insert(node);
        }
        if is_lifted {
            lifts.insert(node);
        }
        let needed = self.quorum().needed();
        let step = tally.answered(node, Ok(reply));
        let enough = granted.len() >= needed && lifts.len() >= needed;
        if self.has(PlainFlaw::DifferentNodes) && enough {
            let counted = *granted;
            return self.succeed(state, attempt, self.proposals[attempt], counted);
        }
        match step {
            AcquireStep::Wait => {}
            AcquireStep::Raise { nodes, to } => {
                for node in nodes.iter() {
                    me.wires[node].call = Some(Call::Raise(to.get()));
                }
            }
            AcquireStep::Certified(token) => {
                let counted = tally.counted_for(token);
                self.succeed(state, attempt, token.get(), counted);
            }
            AcquireStep::Blocked => self.end(state, attempt),
        }
    }

    fn succeed(&self, state: &mut State, attempt: usize, token: u64, counted: NodeSet) {
        if state.attempts[attempt].is_old && !self.has(PlainFlaw::NoTimeCheck) {
            return self.end(state, attempt);
        }
        let me = &mut state.attempts[attempt];
        me.token = Some(token);
        me.counted = counted;
        me.stop_reading();
    }

    pub(super) fn end(&self, state: &mut State, attempt: usize) {
        let me = &mut state.attempts[attempt];
        me.stop_reading();
        for wire in &mut me.wires {
            wire.release = true;
        }
    }
}
