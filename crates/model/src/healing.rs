//! That the lock can be had again, from every state: no state is stuck.
//!
//! From the state that is looked at, the model goes on by one particular run: everything that is
//! under way arrives, or all of it is lost; every key and every quarantine runs out; and then a
//! fresh claim asks one bare majority of the nodes, the others being down. It must get the lock,
//! with a token above all others. Every bare majority is tried.
//!
//! So it is shown of every state that some way leads from it to the lock, and which: healing, and
//! no more waiting than for keys and quarantines to run out.

use std::collections::VecDeque;

use fencepost::{AttemptValue, FencingToken};
use fencepost_core::lock::{Command, LockState};
use fencepost_core::quorum::{AcquireStep, AcquireTally, NodeSet};

use crate::steps::{Locks, subsets};
use crate::world::World;

const FRESH: &str = "fresh";

/// The clock of the fresh claim, where the clocks are in order.
const LATER: u64 = 1_000_000;

impl Locks {
    /// Whether a fresh claim can get the lock after healing.
    #[must_use]
    pub fn heals(&self, world: &World) -> bool {
        let mut arrived = world.clone();
        for node in 0..arrived.nodes.len() {
            for mail in std::mem::take(&mut arrived.nodes[node].mail) {
                if mail.answer.is_none() {
                    // Whatever it says: nobody waits for it any more.
                    let _ = self.carry_out(&mut arrived, node, mail.claim, mail.call);
                }
            }
        }
        let needed = self.setup.quorum().needed();
        let newest = world.tokens().max().unwrap_or_default();
        [world, &arrived].into_iter().all(|world| {
            subsets(self.setup.nodes)
                .filter(|majority| majority.len() == needed)
                .all(|majority| self.gets_the_lock(world, majority) > Some(newest))
        })
    }

    fn gets_the_lock(&self, world: &World, majority: NodeSet) -> Option<FencingToken> {
        let mut nodes: Vec<LockState> = world.nodes.iter().map(|n| n.lock.clone()).collect();
        nodes.iter_mut().for_each(LockState::evict_holder);
        let clocks_help = self.setup.proposals == crate::setup::Setup::CLOCKS_IN_ORDER;
        let proposed = FencingToken::saturating(if clocks_help { LATER } else { 0 });
        let mut attempt = AcquireTally::certified_by(self.setup.quorum(), self.setup.certify());
        let mut calls: VecDeque<(usize, Command)> = majority
            .iter()
            .map(|node| (node, self.acquire(FRESH, proposed)))
            .collect();
        while let Some((node, command)) = calls.pop_front() {
            let reply = self.apply(&mut nodes[node], command);
            match attempt.answered(node, Ok(reply)) {
                AcquireStep::Wait => {}
                AcquireStep::Raise { nodes, to } => {
                    for node in nodes.iter() {
                        let value = AttemptValue::reported(FRESH);
                        calls.push_back((node, Command::Raise { value, to }));
                    }
                }
                AcquireStep::Certified(token) => return Some(token),
                AcquireStep::Blocked => return None,
            }
        }
        None
    }
}
