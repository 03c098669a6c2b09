//! A path through the model, told in sentences.

use fencepost::NodeError;
use fencepost_core::lock::Reply;
use fencepost_core::quorum::NodeSet;
use stateright::{Model, Path};

use crate::steps::{Locks, Step};
use crate::world::{Answer, Call, Stage, World};

/// What claims are called.
pub(crate) fn name(claim: usize) -> &'static str {
    ["A", "B", "C", "D"][claim]
}

/// Every step of a path in a line.
#[must_use]
pub fn tell(locks: &Locks, path: Path<World, Step>) -> Vec<String> {
    let mut lines = Vec::new();
    if locks.setup.head_start {
        let q = locks.setup.quorum().needed();
        lines.push(format!(
            "A has the lock, by nodes 1 to {q}, and the others know nothing of it"
        ));
    }
    for (world, step) in path.into_vec() {
        let Some(step) = step else { break };
        let Some(next) = locks.next_state(&world, step) else {
            break;
        };
        let mut line = sentence(locks, &world, step);
        for claim in 0..next.claims.len() {
            line.push_str(&news(&world, &next, claim));
        }
        lines.push(line);
    }
    lines
}

fn sentence(locks: &Locks, world: &World, step: Step) -> String {
    let number = |node: usize| world.nodes[node].name.0;
    match step {
        Step::Begin { claim, reach } if reach == NodeSet::all(locks.setup.nodes) => {
            let proposal = locks.setup.proposal(claim);
            let again = match locks.setup.value_of(claim) {
                own if own == claim => String::new(),
                other => format!(
                    " again, as the same client and with the value of {}",
                    name(other)
                ),
            };
            format!(
                "{} asks all nodes for the lock{again}, proposing token {proposal}",
                name(claim)
            )
        }
        Step::Begin { claim, reach } => {
            let nodes: Vec<String> = reach.iter().map(|node| number(node).to_string()).collect();
            format!(
                "{} can reach only node {}, and asks there for the lock",
                name(claim),
                nodes.join(" and ")
            )
        }
        Step::Arrive {
            node,
            claim,
            call,
            expired,
        } => {
            let before = match (expired, world.nodes[node].stamp) {
                (true, Some(stamp)) => format!(
                    "{}'s key expires on node {}; ",
                    name(stamp.claim),
                    number(node)
                ),
                _ => String::new(),
            };
            let mut after = world.clone();
            if expired {
                after.nodes[node].lock.evict_holder();
            }
            let quarantine = match world.nodes[node].quarantine {
                Some(_) => ", which is in quarantine",
                None => "",
            };
            let answer = locks.carry_out(&mut after, node, claim, call);
            format!(
                "{before}{}'s {} arrives at node {}{quarantine}: {}",
                name(claim),
                called(call),
                number(node),
                said(&answer)
            )
        }
        Step::Take { node, claim, call } => {
            format!(
                "{} reads node {}'s answer to its {}",
                name(claim),
                number(node),
                called(call)
            )
        }
        Step::TimeOut { node, claim, call } => format!(
            "{} stops waiting for node {}'s answer to its {}",
            name(claim),
            number(node),
            called(call)
        ),
        Step::GiveUp { claim } => format!("{} gives up", name(claim)),
        Step::Extend { claim } => format!(
            "{} sends its extension {} to all nodes",
            name(claim),
            world.claims[claim].rounds
        ),
        Step::Release { claim } => format!("{} gives the lock back", name(claim)),
        Step::Restart { node } => format!("node {} restarts and has lost all data", number(node)),
        Step::QuarantineOver { node } => {
            format!(
                "node {}'s quarantine ends, and all validity from before its restart",
                number(node)
            )
        }
    }
}

fn called(call: Call) -> String {
    match call {
        Call::Acquire => "acquire".into(),
        Call::Raise(to) => format!("raise to {to}"),
        Call::Extend(round) => format!("extension {round}"),
        Call::Release { refuse: true } => "release with a mark".into(),
        Call::Release { refuse: false } => "release".into(),
    }
}

fn said(answer: &Answer) -> String {
    match answer {
        Ok(Reply::Granted { register, .. }) => format!("granted, register {register}"),
        Ok(Reply::Held(_)) => "held by another".into(),
        Ok(Reply::Tombstoned) => "refused by a tombstone".into(),
        Ok(Reply::Raised(register)) => format!("register {register}"),
        Ok(Reply::NotRaised(register)) => format!("register {register} already"),
        Ok(Reply::Extended) => "extended".into(),
        Ok(Reply::Repaired) => "forgotten, taken again".into(),
        Ok(Reply::Released) => "released".into(),
        Ok(Reply::NotHeld(_)) => "not held".into(),
        Ok(other) => format!("{other:?}"),
        Err(NodeError::Quarantined(_)) => "no vote".into(),
        Err(error) => error.to_string(),
    }
}

/// What the step has changed for a claim.
fn news(before: &World, after: &World, claim: usize) -> String {
    let (was, is) = (&before.claims[claim], &after.claims[claim]);
    let name = name(claim);
    if let (None, Some(token)) = (was.token, is.token) {
        return format!(" => {name} HAS THE LOCK, token {token}");
    }
    match (&was.stage, &is.stage) {
        (Stage::Holding { round: old, .. }, Stage::Holding { round: new, .. }) if new > old => {
            format!(" => {name} is valid by its extension {new}")
        }
        (Stage::Holding { .. }, Stage::Ended | Stage::Releasing(_)) => {
            format!(" => {name} no longer has it")
        }
        (Stage::Acquiring(_), Stage::Ended) => format!(" => {name} does not get it"),
        _ => String::new(),
    }
}
