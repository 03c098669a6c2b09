//! Every variant by name: the sound ones, of which everything must hold, and the broken ones, of
//! each of which the checker must find that it is broken.

use crate::properties::{EXCLUSION, ORDERED, UNIQUE};
use crate::read_write::{self, ALONE, ReadWrite};
use crate::release::{self, NOTHING_LEFT, OneRelease};
use crate::run::{Outcome, Reach, check};
use crate::semaphore::{self, NO_CROWD, Semaphore};
use crate::setup::{Expiry, Flaw, Releases, Setup};
use crate::steps::Locks;
use crate::story;

/// One model and what is expected of it.
#[derive(Clone, Debug)]
pub struct Variant {
    /// Its name, for the table and for `--show`.
    pub name: &'static str,
    /// What it is about, in a line.
    pub about: &'static str,
    /// What the checker must say of it.
    pub expected: Expected,
    /// How far to look.
    pub reach: Reach,
    /// Small enough for the tests that run at every change.
    pub quick: bool,
    subject: Subject,
}

/// What the checker must say of a variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// Everything holds.
    Holds,
    /// This property does not, and the checker finds out.
    Breaks(&'static str),
}

#[derive(Clone, Debug)]
enum Subject {
    Locks(Setup),
    Semaphore(Semaphore),
    OneRelease(OneRelease),
    ReadWrite(ReadWrite),
}

/// How a variant did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Everything holds, as it must.
    Holds,
    /// It is broken, as it must be.
    Broken,
    /// Not what was expected.
    Unexpected,
}

impl Variant {
    /// Checks it.
    #[must_use]
    pub fn check(&self, threads: usize) -> Outcome {
        // With one thread, states are looked at in the order of their steps: the story stays short.
        let threads = match self.expected {
            Expected::Holds => threads,
            Expected::Breaks(_) => 1,
        };
        match self.subject.clone() {
            Subject::Locks(setup) => check(Locks::new(setup), self.reach, threads, story::tell),
            Subject::Semaphore(model) => check(model, self.reach, threads, semaphore::tell),
            Subject::OneRelease(model) => check(model, self.reach, threads, release::tell),
            Subject::ReadWrite(model) => check(model, self.reach, threads, read_write::tell),
        }
    }

    /// Whether the outcome is what it must be.
    #[must_use]
    pub fn verdict(&self, outcome: &Outcome) -> Verdict {
        let found = outcome.fault.as_ref().map(|fault| fault.property);
        match self.expected {
            Expected::Holds if found.is_none() && outcome.missing.is_empty() => Verdict::Holds,
            Expected::Breaks(property) if found == Some(property) => Verdict::Broken,
            _ => Verdict::Unexpected,
        }
    }
}

const UNEVEN: &[&[u64]] = &[&[0, 0, 1], &[0, 1, 2]];

/// All variants, the sound ones first.
#[must_use]
pub fn all() -> Vec<Variant> {
    let mut all = sound();
    all.extend(broken());
    all
}

fn sound() -> Vec<Variant> {
    let holds = |name, about, setup| Variant {
        name,
        about,
        expected: Expected::Holds,
        reach: Reach::Exhaustive,
        quick: false,
        subject: Subject::Locks(setup),
    };
    let quick = |variant| Variant {
        quick: true,
        ..variant
    };
    let bounded = |steps, variant| Variant {
        reach: Reach::Steps(steps),
        ..variant
    };
    let shared = |name, about, nodes, writers, readers| Variant {
        subject: Subject::ReadWrite(ReadWrite {
            nodes,
            writers,
            readers,
            readers_ask: nodes,
        }),
        ..holds(name, about, Setup::SMALL)
    };
    let small = Setup::SMALL;
    vec![
        quick(holds(
            "acquire",
            "2 claims on 3 nodes whose counters differ, and clocks that tell nothing",
            Setup {
                counters: UNEVEN,
                ..small.clone()
            },
        )),
        quick(holds(
            "backwards",
            "2 claims on 3 nodes, and clocks that run backwards",
            Setup {
                proposals: Setup::CLOCKS_BACKWARDS,
                ..small.clone()
            },
        )),
        holds(
            "free-expiry",
            "the same with keys that expire at any time: only the tokens are promised",
            Setup {
                counters: UNEVEN,
                expiry: Expiry::Free,
                ..small.clone()
            },
        ),
        bounded(
            18,
            holds(
                "free-extend",
                "the same, each extended once: what is taken again must not disturb the tokens",
                Setup {
                    extensions: 1,
                    counters: UNEVEN,
                    expiry: Expiry::Free,
                    ..small.clone()
                },
            ),
        ),
        quick(holds(
            "release",
            "2 claims on 3 nodes, with releases that are sent and come late",
            Setup {
                releases: Releases::Sent,
                ..small.clone()
            },
        )),
        holds(
            "timeouts",
            "the same with claims that go on without a node that does not answer",
            Setup {
                releases: Releases::Sent,
                timeouts: true,
                ..small.clone()
            },
        ),
        quick(holds(
            "extend",
            "2 claims on 3 nodes, each extended once",
            Setup {
                extensions: 1,
                counters: UNEVEN,
                ..small.clone()
            },
        )),
        quick(holds(
            "restart",
            "the same with one restart that loses all data, and a quarantine after it",
            Setup {
                extensions: 1,
                restarts: 1,
                proposals: Setup::CLOCKS_IN_ORDER,
                ..small.clone()
            },
        )),
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
        bounded(
            18,
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
            ),
        ),
        bounded(
            12,
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
            ),
        ),
        bounded(
            18,
            holds(
                "three-claims",
                "3 claims on 3 nodes whose counters differ",
                Setup {
                    claims: 3,
                    counters: UNEVEN,
                    ..small.clone()
                },
            ),
        ),
        bounded(
            18,
            holds(
                "five-nodes",
                "2 claims on 5 nodes whose counters differ",
                Setup {
                    nodes: 5,
                    counters: &[&[0, 0, 0, 1, 1], &[0, 0, 1, 2, 2]],
                    ..small.clone()
                },
            ),
        ),
        bounded(
            16,
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
            ),
        ),
        Variant {
            name: "tombstones",
            about: "1 claim is released on 1 node over connections that break: tombstones refuse what comes late",
            expected: Expected::Holds,
            reach: Reach::Exhaustive,
            quick: true,
            subject: Subject::OneRelease(OneRelease {
                tombstones: true,
                breaks: 3,
            }),
        },
        quick(shared(
            "read-write",
            "1 writer, which may become a reader, and 1 reader on 3 nodes",
            3,
            1,
            1,
        )),
        quick(shared(
            "read-write-one-node",
            "2 writers and 2 readers on 1 node",
            1,
            2,
            2,
        )),
        bounded(
            14,
            shared(
                "read-write-read",
                "1 writer and 2 readers on 3 nodes",
                3,
                1,
                2,
            ),
        ),
        bounded(
            14,
            shared(
                "write-write-read",
                "2 writers and 1 reader on 3 nodes",
                3,
                2,
                1,
            ),
        ),
    ]
}

fn broken() -> Vec<Variant> {
    let breaks = |name, about, property, subject| Variant {
        name,
        about,
        expected: Expected::Breaks(property),
        reach: Reach::Exhaustive,
        quick: true,
        subject,
    };
    let flawed = |name, about, property, flaw, setup| {
        let flaw = Some(flaw);
        breaks(
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
            "no certification: the token is the largest counter of a majority of grants",
            UNIQUE,
            Flaw::LargestOfGrants,
            Setup {
                counters: UNEVEN,
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
            "a node whose counter is above the token counts for it",
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
        breaks(
            "semaphore-by-count",
            "each node admits 2, and whoever has a majority of 3 nodes is in",
            NO_CROWD,
            Subject::Semaphore(Semaphore {
                nodes: 3,
                places: 2,
                claims: 3,
            }),
        ),
        breaks(
            "read-one",
            "readers ask 1 of 3 nodes, and writers a majority",
            ALONE,
            Subject::ReadWrite(ReadWrite {
                nodes: 3,
                writers: 1,
                readers: 1,
                readers_ask: 1,
            }),
        ),
        breaks(
            "no-tombstones",
            "a release leaves no tombstone for what comes late over a broken connection",
            NOTHING_LEFT,
            Subject::OneRelease(OneRelease {
                tombstones: false,
                breaks: 1,
            }),
        ),
    ]
}
