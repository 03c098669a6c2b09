//! Acquiring by script, extending, releasing, and nodes that restart.

use super::{Subject, Variant};
use crate::properties::{EXCLUSION, ORDERED, UNIQUE};
use crate::setup::{Expiry, Flaw, Releases, Setup};

const UNEVEN: &[&[u64]] = &[&[0, 0, 1], &[0, 1, 2]];

pub(super) fn sound() -> Vec<Variant> {
    let holds = |name, about, setup| Variant::sound(name, about, Subject::Locks(setup));
    let small = Setup::SMALL;
    vec![
        holds(
            "acquire",
            "2 claims on 3 nodes whose registers differ, and clocks that tell nothing",
            Setup {
                registers: UNEVEN,
                ..small.clone()
            },
        )
        .quick(),
        holds(
            "backwards",
            "2 claims on 3 nodes, and clocks that run backwards",
            Setup {
                proposals: Setup::CLOCKS_BACKWARDS,
                ..small.clone()
            },
        )
        .quick(),
        holds(
            "free-expiry",
            "the same with keys that expire at any time: only the tokens are promised",
            Setup {
                registers: UNEVEN,
                expiry: Expiry::Free,
                ..small.clone()
            },
        ),
        holds(
            "free-extend",
            "the same, each extended once: what is taken again must not disturb the tokens",
            Setup {
                extensions: 1,
                registers: UNEVEN,
                expiry: Expiry::Free,
                ..small.clone()
            },
        )
        .within(18),
        holds(
            "release",
            "2 claims on 3 nodes, with releases that are sent and come late",
            Setup {
                releases: Releases::Sent,
                ..small.clone()
            },
        )
        .quick(),
        holds(
            "timeouts",
            "the same with claims that go on without a node that does not answer",
            Setup {
                releases: Releases::Sent,
                timeouts: true,
                ..small.clone()
            },
        ),
        holds(
            "extend",
            "2 claims on 3 nodes, each extended once",
            Setup {
                extensions: 1,
                registers: UNEVEN,
                ..small.clone()
            },
        )
        .quick(),
        holds(
            "restart",
            "the same with one restart that loses all data, and a quarantine after it",
            Setup {
                extensions: 1,
                restarts: 1,
                proposals: Setup::CLOCKS_IN_ORDER,
                ..small.clone()
            },
        )
        .quick(),
        holds(
            "repaired-votes",
            "the same, and a node counts as soon as it took a forgotten lease again: no fault, as \
             long as every loss is followed by a quarantine; the rule is for losses that are not",
            Setup {
                extensions: 1,
                restarts: 1,
                proposals: Setup::CLOCKS_IN_ORDER,
                flaw: Some(Flaw::RepairedVotes),
                ..small.clone()
            },
        ),
        holds(
            "restarts",
            "2 claims on 3 nodes, extended once, and two restarts, of one node or of two",
            Setup {
                extensions: 1,
                restarts: 2,
                proposals: Setup::CLOCKS_IN_ORDER,
                ..small.clone()
            },
        ),
        holds(
            "extend-twice",
            "a claim that has the lock on 2 of 3 nodes, another, two extensions each, one restart",
            Setup {
                head_start: true,
                extensions: 2,
                restarts: 1,
                proposals: Setup::CLOCKS_IN_ORDER,
                ..small.clone()
            },
        )
        .within(18),
        holds(
            "everything",
            "2 claims on 3 nodes: extended, released, timed out, one restart",
            Setup {
                extensions: 1,
                restarts: 1,
                releases: Releases::Sent,
                timeouts: true,
                proposals: Setup::CLOCKS_IN_ORDER,
                ..small.clone()
            },
        )
        .within(12),
        holds(
            "three-claims",
            "3 claims on 3 nodes whose registers differ",
            Setup {
                claims: 3,
                registers: UNEVEN,
                ..small.clone()
            },
        )
        .within(18),
        holds(
            "five-nodes",
            "2 claims on 5 nodes whose registers differ",
            Setup {
                nodes: 5,
                registers: &[&[0, 0, 0, 1, 1], &[0, 0, 1, 2, 2]],
                ..small.clone()
            },
        )
        .within(18),
        holds(
            "five-nodes-restart",
            "2 claims on 5 nodes, extended once, and one restart",
            Setup {
                nodes: 5,
                extensions: 1,
                restarts: 1,
                proposals: Setup::CLOCKS_IN_ORDER,
                ..small
            },
        )
        .within(16),
    ]
}

pub(super) fn broken() -> Vec<Variant> {
    let flawed = |name, about, property, flaw, setup| {
        let flaw = Some(flaw);
        Variant::broken(
            name,
            about,
            property,
            Subject::Locks(Setup { flaw, ..setup }),
        )
    };
    let small = Setup::SMALL;
    let with_releases = Setup {
        nodes: 1,
        claims: 3,
        releases: Releases::Sent,
        ..small.clone()
    };
    vec![
        flawed(
            "largest-grant",
            "no certification: the token is the largest register of a majority of grants",
            UNIQUE,
            Flaw::LargestOfGrants,
            Setup {
                registers: UNEVEN,
                ..small.clone()
            },
        ),
        flawed(
            "own-proposal",
            "no certification: the token is what the client's clock says",
            ORDERED,
            Flaw::OwnProposal,
            Setup {
                proposals: Setup::CLOCKS_BACKWARDS,
                ..small.clone()
            },
        ),
        flawed(
            "higher-certifies",
            "a node whose register is above the token counts for it",
            UNIQUE,
            Flaw::HigherCertifies,
            small.clone(),
        ),
        flawed(
            "blind-release",
            "a release deletes the key without a look at its value; one node is enough",
            EXCLUSION,
            Flaw::BlindRelease,
            with_releases.clone(),
        ),
        flawed(
            "reused-value",
            "a client's second attempt has the value of its first; one node is enough",
            EXCLUSION,
            Flaw::ReusedValue,
            with_releases,
        ),
        flawed(
            "no-quarantine",
            "a node that lost its data votes at once",
            EXCLUSION,
            Flaw::NoQuarantine,
            Setup {
                restarts: 1,
                proposals: Setup::CLOCKS_IN_ORDER,
                ..small.clone()
            },
        ),
        flawed(
            "quarantined-extends",
            "a node in quarantine grants nothing, but its word on an extension counts",
            EXCLUSION,
            Flaw::QuarantinedExtends,
            Setup {
                head_start: true,
                extensions: 2,
                restarts: 1,
                proposals: Setup::CLOCKS_IN_ORDER,
                ..small.clone()
            },
        ),
        flawed(
            "reachable-quorum",
            "the majority is one of the nodes that can be reached",
            EXCLUSION,
            Flaw::ReachableQuorum,
            Setup {
                proposals: Setup::CLOCKS_IN_ORDER,
                ..small
            },
        ),
    ]
}
