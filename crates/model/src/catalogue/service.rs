//! A client of the lock service, its replicas, and a proxy that repeats requests.

use super::{Subject, Variant};
use crate::service::{ONE_HOLDER, RELEASED, Service, ServiceFlaw};

/// A client of the lock service on one node, with everything that can go wrong.
const SERVICE: Service = Service {
    nodes: 1,
    attempts: 2,
    repeats: 1,
    crashes: 1,
    rival: true,
    flaw: None,
};

pub(super) fn sound() -> Vec<Variant> {
    let served = |name, about, model| Variant::sound(name, about, Subject::Service(model));
    vec![
        served(
            "service",
            "2 attempts of one lease through replicas on 1 node, one repeated by a proxy, one replica dies, and a rival",
            SERVICE,
        )
        .quick(),
        served(
            "service-three-attempts",
            "the same with 3 attempts",
            Service {
                attempts: 3,
                ..SERVICE
            },
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
        ),
    ]
}

pub(super) fn broken() -> Vec<Variant> {
    let breaks = |name, about, property, flaw| {
        let model = Service {
            crashes: 0,
            flaw: Some(flaw),
            ..SERVICE
        };
        Variant::broken(name, about, property, Subject::Service(model))
    };
    vec![
        breaks(
            "service-clean-up-by-lease-id",
            "a replica cleans up whatever its lease id holds, not exactly its own value",
            ONE_HOLDER,
            ServiceFlaw::CleanUpByLeaseId,
        ),
        breaks(
            "service-take-over-from-any",
            "a request takes over from any attempt of its lease, also from a larger one",
            ONE_HOLDER,
            ServiceFlaw::TakeOverFromAny,
        ),
        breaks(
            "service-doubled-post-takes-over",
            "a request that a proxy repeats takes over from itself",
            ONE_HOLDER,
            ServiceFlaw::TakeOverFromEqual,
        ),
        breaks(
            "service-late-answer-counts",
            "the client takes the answer to an attempt that it has voided",
            ONE_HOLDER,
            ServiceFlaw::LateAnswerCounts,
        ),
        breaks(
            "service-no-tombstone",
            "a release leaves no tombstone of its lease id, and a repeated request acquires for nobody",
            RELEASED,
            ServiceFlaw::NoTombstone,
        ),
        breaks(
            "service-looks-before-it-sets",
            "plain commands look for the tombstone before they set the lock, and a release comes between",
            RELEASED,
            ServiceFlaw::LooksBeforeItSets,
        ),
    ]
}
