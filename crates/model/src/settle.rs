//! Which states are taken for one, and why that loses nothing.
//!
//! After every step the state is brought into a normal form. Each rule either forgets what can have
//! no effect any more, or does at once what could as well be done later without anybody seeing a
//! difference:
//!
//! - A claim whose time is over ends at once. Until it looks at its clock it may do no more than it
//!   has done, and that it does not do.
//! - An answer that nobody waits for is dropped.
//! - A refusal of an attempt is read at once: it can bring the attempt no nearer to the lock, and a
//!   claim may give up at any time anyway. A grant is not: which grants are read decides the token.
//! - An answer to an extension is read at once unless it decides the round. Votes for an extension
//!   only add up, so an earlier one takes nothing from a later decision, and the one that decides
//!   is read at any later time.
//! - The answer to a release is read at once: nothing depends on when.
//! - Of a claim that is over only its token is kept, and its key may expire at any time.
//! - A command of a claim that is over is dropped when it can do nothing to its node any more.
//! - A quarantine that protects nobody is over. A node that votes can do all that one does that
//!   does not, for a vote may also be late.
//! - The nodes are put into a fixed order. All nodes follow the same rules, and the decisions count
//!   them without asking which they are, so states that differ only in the names of the nodes have
//!   the same futures but for these names.

use fencepost::NodeError;
use fencepost_core::lock::Reply;
use fencepost_core::quorum::ExtendStep;

use crate::setup::Flaw;
use crate::steps::Locks;
use crate::world::{Call, Mail, Stage, World, hash_of};

impl Locks {
    pub(crate) fn settle(&self, world: &mut World) {
        self.end_what_is_over(world);
        self.tidy(world);
        while let Some((node, claim, call)) = self.next_harmless(world) {
            self.take(world, node, claim, call);
            self.tidy(world);
        }
        self.forget(world);
        for place in &mut world.nodes {
            place.mail.sort_by_key(|mail| (mail.claim, mail.call));
        }
        // Where claims ask different nodes, it matters which.
        if !self.setup.has(Flaw::ReachableQuorum) {
            put_in_order(world);
        }
    }

    fn end_what_is_over(&self, world: &mut World) {
        for claim in 0..world.claims.len() {
            let me = &world.claims[claim];
            let over = match &me.stage {
                Stage::Acquiring(_) => me.over > 0,
                Stage::Holding { round, .. } => me.over > *round,
                _ => false,
            };
            if over {
                self.end(world, claim);
            }
        }
    }

    /// Drops the answers that nobody waits for.
    fn tidy(&self, world: &mut World) {
        for place in &mut world.nodes {
            for mail in &mut place.mail {
                mail.open &= is_wanted(&world.claims[mail.claim].stage, mail.call);
            }
            place.mail.retain(|mail| mail.open || mail.answer.is_none());
        }
    }

    /// An answer that may as well be read now.
    fn next_harmless(&self, world: &World) -> Option<(usize, usize, Call)> {
        for (node, place) in world.nodes.iter().enumerate() {
            for mail in &place.mail {
                if is_harmless(world, node, mail) {
                    return Some((node, mail.claim, mail.call));
                }
            }
        }
        None
    }

    fn forget(&self, world: &mut World) {
        for claim in &mut world.claims {
            match claim.stage {
                Stage::Ended => {
                    claim.rounds = 0;
                    claim.over = 0;
                    claim.reach = Default::default();
                    claim.floor = Default::default();
                }
                Stage::Holding { .. } | Stage::Releasing(_) => claim.floor = Default::default(),
                _ => {}
            }
        }
        for place in &mut world.nodes {
            if let Some(stamp) = &mut place.stamp
                && !may_be_valid(&world.claims[stamp.claim].stage)
            {
                stamp.rounds = 0;
            }
            if let Some(begun) = &mut place.quarantine {
                for (claim, begun) in world.claims.iter().zip(begun.iter_mut()) {
                    if !may_be_valid(&claim.stage) || claim.over >= *begun {
                        *begun = 0;
                    }
                }
                if begun.iter().all(|begun| *begun == 0) {
                    place.quarantine = None;
                }
            }
        }
        let values_tell = !matches!(
            self.setup.flaw,
            Some(Flaw::BlindRelease | Flaw::ReusedValue)
        );
        if values_tell {
            self.drop_dead_mail(world);
        }
    }

    fn drop_dead_mail(&self, world: &mut World) {
        for place in &mut world.nodes {
            for index in (0..place.mail.len()).rev() {
                let Mail { claim, call, .. } = place.mail[index];
                let over = matches!(world.claims[claim].stage, Stage::Ended);
                let holds = place.lock.holder() == Some(self.value(claim));
                let may_hold_later = place.mail.iter().any(|mail| {
                    mail.claim == claim && matches!(mail.call, Call::Acquire | Call::Extend(_))
                });
                // Both act only on a key of their own value, which will not be there again.
                let acts_on_own_key = matches!(call, Call::Release { .. } | Call::Raise(_));
                if over && acts_on_own_key && !holds && !may_hold_later {
                    place.mail.remove(index);
                }
            }
        }
    }
}

fn may_be_valid(stage: &Stage) -> bool {
    matches!(stage, Stage::Acquiring(_) | Stage::Holding { .. })
}

pub(crate) fn is_wanted(stage: &Stage, call: Call) -> bool {
    match (stage, call) {
        (Stage::Acquiring(_), Call::Acquire | Call::Raise(_)) => true,
        (Stage::Holding { extending, .. }, Call::Extend(number)) => {
            extending.iter().any(|(other, _)| *other == number)
        }
        (Stage::Releasing(_), Call::Release { .. }) => true,
        _ => false,
    }
}

fn is_harmless(world: &World, node: usize, mail: &Mail) -> bool {
    let Some(answer) = &mail.answer else {
        return false;
    };
    match (&world.claims[mail.claim].stage, mail.call) {
        (Stage::Acquiring(_), Call::Acquire) => matches!(
            answer,
            Ok(Reply::Held(_) | Reply::Tombstoned) | Err(NodeError::Quarantined(_))
        ),
        (Stage::Holding { extending, .. }, Call::Extend(number)) => {
            let round = extending.iter().find(|(other, _)| *other == number);
            round.is_some_and(|(_, round)| {
                let step = round.clone().answered(node, answer.clone());
                matches!(step, ExtendStep::Wait | ExtendStep::NoQuorum)
            })
        }
        (Stage::Releasing(_), Call::Release { .. }) => true,
        _ => false,
    }
}

fn put_in_order(world: &mut World) {
    let mut order: Vec<(u64, usize)> = (0..world.nodes.len())
        .map(|node| (fingerprint(world, node), node))
        .collect();
    if order.is_sorted() {
        return;
    }
    order.sort_unstable();
    let order: Vec<usize> = order.into_iter().map(|(_, node)| node).collect();
    world.nodes = order
        .iter()
        .map(|node| world.nodes[*node].clone())
        .collect();
    for claim in &mut world.claims {
        match &mut claim.stage {
            Stage::Acquiring(attempt) => *attempt = attempt.reordered(&order),
            Stage::Holding { extending, .. } => {
                for (_, round) in extending {
                    *round = round.reordered(&order);
                }
            }
            Stage::Releasing(handover) => *handover = handover.reordered(&order),
            Stage::Idle | Stage::Ended => {}
        }
    }
}

/// Everything about one node, and nothing about the others.
fn fingerprint(world: &World, node: usize) -> u64 {
    let only = [node];
    let said = world.claims.iter().map(|claim| match &claim.stage {
        Stage::Acquiring(attempt) => hash_of(&attempt.reordered(&only)),
        Stage::Holding { extending, .. } => {
            let rounds = extending.iter().map(|(_, round)| round.reordered(&only));
            hash_of(&rounds.collect::<Vec<_>>())
        }
        Stage::Releasing(handover) => hash_of(&handover.reordered(&only)),
        Stage::Idle | Stage::Ended => 0,
    });
    hash_of(&(&world.nodes[node], said.collect::<Vec<_>>()))
}
