//! What must hold in every state, and what must occur in some.
//!
//! | property | what exactly |
//! | --- | --- |
//! | [`EXCLUSION`] | no two claims are valid in the same state. Only where the clocks hold what they promise |
//! | [`UNIQUE`] | no two claims were ever given the same token |
//! | [`ORDERED`] | a claim that began when others had their token has a larger one. Where nodes lose their data, this and the former hold by the clocks, which are in order there |
//! | [`NO_ENDLESS_WAIT`] | a claim that waits has a command under way whose answer, or whose time-out, will move it on |
//! | [`NO_STUCK_STATE`] | from this state a fresh claim can get the lock, with any majority of the nodes and no other, once keys and quarantines have run out: see [`healing`](crate::healing) |
//!
//! What must occur in some state guards against a model in which nothing happens.

use stateright::Property;

use crate::setup::{Expiry, Setup};
use crate::steps::Locks;
use crate::world::{Call, Stage, World};

/// No two claims are valid at the same time.
pub const EXCLUSION: &str = "mutual exclusion";
/// No two claims have the same token.
pub const UNIQUE: &str = "tokens are unique";
/// Who begins after another has its token gets a larger one.
pub const ORDERED: &str = "tokens are in order";
/// Whoever waits, waits for something.
pub const NO_ENDLESS_WAIT: &str = "whoever waits, waits for something";
/// The lock can be had again.
pub const NO_STUCK_STATE: &str = "the lock can be had again";

pub(crate) fn of(setup: &Setup) -> Vec<Property<Locks>> {
    let mut all = vec![
        Property::always(UNIQUE, |_, world| tokens_are_unique(world)),
        Property::always(ORDERED, |_, world| tokens_are_ordered(world)),
        Property::always(NO_ENDLESS_WAIT, |_, world| nobody_waits_for_nothing(world)),
    ];
    if setup.expiry == Expiry::AfterValidity {
        all.push(Property::always(EXCLUSION, |_, world| {
            at_most_one_is_valid(world)
        }));
    }
    if setup.flaw.is_some() {
        return all;
    }
    all.push(Property::always(NO_STUCK_STATE, Locks::heals));
    all.push(Property::sometimes(
        "one gets the lock after another",
        |_, world: &World| world.tokens().count() > 1,
    ));
    // Where the clocks are in order and nobody is overtaken, all nodes take what is proposed.
    if !setup.head_start {
        all.push(Property::sometimes(
            "registers differ and are raised",
            |_, world: &World| {
                let mut mail = world.nodes.iter().flat_map(|place| &place.mail);
                mail.any(|mail| matches!(mail.call, Call::Raise(_)))
            },
        ));
    }
    if setup.extensions > 0 {
        all.push(Property::sometimes(
            "a lease is extended",
            |_, world: &World| {
                let mut claims = world.claims.iter();
                claims.any(|claim| matches!(claim.stage, Stage::Holding { round, .. } if round > 0))
            },
        ));
    }
    if setup.restarts > 0 {
        all.push(Property::sometimes(
            "a node is in quarantine",
            |_, world: &World| world.nodes.iter().any(|place| place.quarantine.is_some()),
        ));
    }
    all
}

pub(crate) fn is_faulty(locks: &Locks, world: &World) -> bool {
    let exclusion_is_promised = locks.setup.expiry == Expiry::AfterValidity;
    !tokens_are_unique(world)
        || !tokens_are_ordered(world)
        || (exclusion_is_promised && !at_most_one_is_valid(world))
}

fn at_most_one_is_valid(world: &World) -> bool {
    let claims = 0..world.claims.len();
    claims.filter(|claim| world.is_valid(*claim)).count() <= 1
}

fn tokens_are_unique(world: &World) -> bool {
    let mut tokens = world.tokens().enumerate();
    tokens.all(|(place, token)| !world.tokens().take(place).any(|other| other == token))
}

fn tokens_are_ordered(world: &World) -> bool {
    !world.claims.iter().any(|claim| claim.out_of_order)
}

fn nobody_waits_for_nothing(world: &World) -> bool {
    let open = |claim: usize, call: fn(Call) -> Option<u8>, round: u8| {
        let mut mail = world.nodes.iter().flat_map(|place| &place.mail);
        mail.any(|mail| mail.open && mail.claim == claim && call(mail.call) == Some(round))
    };
    let mut claims = world.claims.iter().enumerate();
    claims.all(|(claim, me)| match &me.stage {
        Stage::Acquiring(_) => open(claim, of_attempt, 0),
        Stage::Holding { extending, .. } => {
            let mut rounds = extending.iter();
            rounds.all(|(round, _)| open(claim, of_extension, *round))
        }
        Stage::Releasing(_) => open(claim, of_release, 0),
        Stage::Idle | Stage::Ended => true,
    })
}

fn of_attempt(call: Call) -> Option<u8> {
    matches!(call, Call::Acquire | Call::Raise(_)).then_some(0)
}

fn of_extension(call: Call) -> Option<u8> {
    match call {
        Call::Extend(round) => Some(round),
        _ => None,
    }
}

fn of_release(call: Call) -> Option<u8> {
    matches!(call, Call::Release { .. }).then_some(0)
}
