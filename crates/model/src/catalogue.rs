//! Every variant by name: the sound ones, of which everything must hold, and the broken ones, of
//! each of which the checker must find that it is broken.

use crate::failover::{self, Failover, FailoverFlaw, ONE_AFTER_THE_OTHER};
use crate::plain::{self, HOLD_ORDER, Plain, PlainFlaw, QUEUE_KEPT, Way};
use crate::properties::{EXCLUSION, ORDERED, UNIQUE};
use crate::read_write::{self, ALONE, ReadWrite};
use crate::release::{self, NOTHING_LEFT, OneRelease};
use crate::run::{Outcome, Reach, check};
use crate::semaphore::{self, NO_CROWD, Semaphore};
use crate::service::{self, ONE_HOLDER, RELEASED, Service, ServiceFlaw};
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
    Plain(Plain),
    Service(Service),
    Failover(Failover),
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
            Subject::Plain(model) => check(model, self.reach, threads, plain::tell),
            Subject::Service(model) => check(model, self.reach, threads, service::tell),
            Subject::Failover(model) => check(model, self.reach, threads, failover::tell),
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

/// Two plain attempts on three nodes, whose clocks say the same: nothing but the rule keeps them apart.
const PLAIN: Plain = Plain {
    nodes: 3,
    ways: &[Way::Multi, Way::Multi],
    proposals: &[2, 2, 2],
    expiry: false,
    forgets: 0,
    queue: false,
    flaw: None,
};

/// A client of the lock service on one node, with everything that can go wrong.
const SERVICE: Service = Service {
    nodes: 1,
    attempts: 2,
    repeats: 1,
    crashes: 1,
    rival: true,
    flaw: None,
};

/// A Sentinel group.
fn failing_over(
    name: &'static str,
    about: &'static str,
    expected: Expected,
    flaw: Option<FailoverFlaw>,
) -> Variant {
    Variant {
        name,
        about,
        expected,
        reach: Reach::Exhaustive,
        quick: true,
        subject: Subject::Failover(Failover {
            sentinels: 3,
            failover: 2,
            max_ttl: 1,
            flaw,
        }),
    }
}

fn served(name: &'static str, about: &'static str, model: Service, quick: bool) -> Variant {
    Variant {
        name,
        about,
        expected: Expected::Holds,
        reach: Reach::Exhaustive,
        quick,
        subject: Subject::Service(model),
    }
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
    let plain = |name, about, model| Variant {
        subject: Subject::Plain(model),
        ..holds(name, about, Setup::SMALL)
    };
    let small = Setup::SMALL;
    vec![
        quick(plain(
            "plain",
            "2 attempts by plain commands in MULTI on 3 nodes, by clocks that say the same",
            PLAIN,
        )),
        quick(plain(
            "plain-commands",
            "the same without MULTI: others come between SET and ZADD",
            Plain {
                ways: &[Way::Commands, Way::Commands],
                ..PLAIN
            },
        )),
        quick(plain(
            "plain-backwards",
            "an attempt in MULTI and one without, by clocks that run backwards",
            Plain {
                ways: &[Way::Multi, Way::Commands],
                proposals: &[3, 2],
                ..PLAIN
            },
        )),
        plain(
            "plain-expiry",
            "2 attempts in MULTI, and keys that expire at any time",
            Plain {
                expiry: true,
                ..PLAIN
            },
        ),
        bounded(
            20,
            plain(
                "plain-commands-expiry",
                "2 attempts without MULTI, and keys that expire at any time: unique, and in order",
                Plain {
                    ways: &[Way::Commands, Way::Commands],
                    expiry: true,
                    ..PLAIN
                },
            ),
        ),
        quick(plain(
            "plain-script",
            "a plain attempt and one by script on the same nodes",
            Plain {
                ways: &[Way::Multi, Way::Script],
                ..PLAIN
            },
        )),
        quick(plain(
            "plain-steal",
            "a plain attempt, and a theft at any time",
            Plain {
                ways: &[Way::Multi, Way::Steal],
                ..PLAIN
            },
        )),
        plain(
            "plain-forget",
            "2 plain attempts, and retention that forgets a register twice",
            Plain {
                proposals: &[2, 3],
                forgets: 2,
                ..PLAIN
            },
        ),
        quick(plain(
            "plain-queue",
            "one who has waited in a fair queue, and a plain attempt of a newcomer",
            Plain {
                ways: &[Way::Script, Way::Multi],
                queue: true,
                ..PLAIN
            },
        )),
        bounded(
            16,
            plain(
                "plain-three",
                "3 attempts on 3 nodes: in MULTI, without it, and by script",
                Plain {
                    ways: &[Way::Multi, Way::Commands, Way::Script],
                    ..PLAIN
                },
            ),
        ),
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
        failing_over(
            "failover",
            "a Sentinel group of 3 fails over between a holder that renews and a rival",
            Expected::Holds,
            None,
        ),
        served(
            "service",
            "2 attempts of one lease through replicas on 1 node, one repeated by a proxy, one replica dies, and a rival",
            SERVICE,
            true,
        ),
        served(
            "service-three-attempts",
            "the same with 3 attempts",
            Service {
                attempts: 3,
                ..SERVICE
            },
            false,
        ),
        served(
            "service-three-nodes",
            "2 attempts of one lease through replicas on 3 nodes, and a rival",
            Service {
                nodes: 3,
                crashes: 0,
                repeats: 0,
                ..SERVICE
            },
            false,
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

fn broken_service(
    name: &'static str,
    about: &'static str,
    property: &'static str,
    flaw: ServiceFlaw,
) -> Variant {
    Variant {
        name,
        about,
        expected: Expected::Breaks(property),
        reach: Reach::Exhaustive,
        quick: true,
        subject: Subject::Service(Service {
            crashes: 0,
            flaw: Some(flaw),
            ..SERVICE
        }),
    }
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
    let plain = |name, about, property, flaw, model| {
        let flaw = Some(flaw);
        breaks(
            name,
            about,
            property,
            Subject::Plain(Plain { flaw, ..model }),
        )
    };
    vec![
        plain(
            "plain-equal",
            "a register that was at the token already counts as lifted",
            UNIQUE,
            PlainFlaw::EqualCounts,
            PLAIN,
        ),
        plain(
            "plain-different-nodes",
            "a majority granted and a majority was lifted, but they are not the same nodes",
            HOLD_ORDER,
            PlainFlaw::DifferentNodes,
            Plain {
                proposals: &[2, 3],
                ..PLAIN
            },
        ),
        plain(
            "plain-register-first",
            "without MULTI, and ZADD before SET",
            HOLD_ORDER,
            PlainFlaw::RegisterFirst,
            Plain {
                nodes: 1,
                ways: &[Way::Commands, Way::Commands],
                proposals: &[2, 3],
                ..PLAIN
            },
        ),
        plain(
            "plain-blind-raise",
            "a raise that does not look at who holds the key, and a theft",
            HOLD_ORDER,
            PlainFlaw::BlindRaise,
            Plain {
                nodes: 1,
                ways: &[Way::Multi, Way::Steal, Way::Multi],
                ..PLAIN
            },
        ),
        plain(
            "plain-no-look",
            "a newcomer that does not look at the head of the queue",
            QUEUE_KEPT,
            PlainFlaw::NoLook,
            Plain {
                ways: &[Way::Script, Way::Multi],
                queue: true,
                ..PLAIN
            },
        ),
        plain(
            "plain-no-time-check",
            "an attempt that is older than the retention still counts",
            HOLD_ORDER,
            PlainFlaw::NoTimeCheck,
            Plain {
                nodes: 1,
                proposals: &[2, 3],
                forgets: 1,
                ..PLAIN
            },
        ),
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
        failing_over(
            "failover-never-asks-again",
            "a holder goes on renewing at the address that it had",
            Expected::Breaks(ONE_AFTER_THE_OTHER),
            Some(FailoverFlaw::NeverAsksAgain),
        ),
        failing_over(
            "failover-one-sentinel",
            "what one Sentinel says is enough",
            Expected::Breaks(ONE_AFTER_THE_OTHER),
            Some(FailoverFlaw::OneSentinel),
        ),
        failing_over(
            "failover-no-quarantine",
            "the new master votes at once",
            Expected::Breaks(ONE_AFTER_THE_OTHER),
            Some(FailoverFlaw::NoQuarantine),
        ),
        failing_over(
            "failover-quarantine-of-max-ttl",
            "the new master votes after max_ttl, while what the Sentinels said before still counts",
            Expected::Breaks(ONE_AFTER_THE_OTHER),
            Some(FailoverFlaw::QuarantineOfMaxTtl),
        ),
        broken_service(
            "service-clean-up-by-lease-id",
            "a replica cleans up whatever its lease id holds, not exactly its own value",
            ONE_HOLDER,
            ServiceFlaw::CleanUpByLeaseId,
        ),
        broken_service(
            "service-take-over-from-any",
            "a request takes over from any attempt of its lease, also from a larger one",
            ONE_HOLDER,
            ServiceFlaw::TakeOverFromAny,
        ),
        broken_service(
            "service-doubled-post-takes-over",
            "a request that a proxy repeats takes over from itself",
            ONE_HOLDER,
            ServiceFlaw::TakeOverFromEqual,
        ),
        broken_service(
            "service-late-answer-counts",
            "the client takes the answer to an attempt that it has voided",
            ONE_HOLDER,
            ServiceFlaw::LateAnswerCounts,
        ),
        broken_service(
            "service-no-tombstone",
            "a release leaves no tombstone of its lease id, and a repeated request acquires for nobody",
            RELEASED,
            ServiceFlaw::NoTombstone,
        ),
        broken_service(
            "service-looks-before-it-sets",
            "plain commands look for the tombstone before they set the lock, and a release comes between",
            RELEASED,
            ServiceFlaw::LooksBeforeItSets,
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
