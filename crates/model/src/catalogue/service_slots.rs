//! A client of the lock service that asks for one of several slots, its replicas, and a proxy that repeats requests.

use super::{Subject, Variant};
use crate::service_slots::{HELD, ONE_SLOT, RELEASED, ServiceSlots, SlotsFlaw};

/// 2 slots on one node, and a request that a proxy repeats.
const SLOTS: ServiceSlots = ServiceSlots {
    nodes: 1,
    slots: 2,
    attempts: 2,
    repeats: 1,
    crashes: 0,
    rivals: 0,
    expiries: 0,
    by_slot: false,
    flaw: None,
};

/// The same with one attempt and its copy, released by the slot that was answered.
const COPY: ServiceSlots = ServiceSlots {
    attempts: 1,
    expiries: 1,
    by_slot: true,
    ..SLOTS
};

pub(super) fn sound() -> Vec<Variant> {
    let served = |name, about, model| Variant::sound(name, about, Subject::ServiceSlots(model));
    vec![
        served(
            "service-slots",
            "a copy of an attempt at 2 slots through replicas on 1 node, released by its slot; one grant expires",
            COPY,
        )
        .quick(),
        served(
            "service-slots-two-attempts",
            "2 attempts of one lease at 2 slots through replicas on 1 node, one repeated by a proxy",
            SLOTS,
        ),
    ]
}

pub(super) fn broken() -> Vec<Variant> {
    let breaks = |name, about, property, model: ServiceSlots, flaw| {
        let model = ServiceSlots {
            flaw: Some(flaw),
            ..model
        };
        Variant::broken(name, about, property, Subject::ServiceSlots(model))
    };
    vec![
        breaks(
            "slots-takes-another",
            "a repeat takes another free slot instead of its own, and keeps both",
            ONE_SLOT,
            SLOTS,
            SlotsFlaw::TakesAnotherSlot,
        ),
        breaks(
            "slots-looks-not-again",
            "a request looks for its lease before it asks, and not again once it is granted",
            ONE_SLOT,
            SLOTS,
            SlotsFlaw::LooksNotAgain,
        ),
        breaks(
            "slots-clean-up-by-lease-id",
            "a replica cleans up whatever its lease id holds in the slot, not exactly its own value",
            HELD,
            SLOTS,
            SlotsFlaw::CleanUpByLeaseId,
        ),
        breaks(
            "slots-take-over-from-equal",
            "a request that a proxy repeats takes over from itself",
            HELD,
            SLOTS,
            SlotsFlaw::TakeOverFromEqual,
        ),
        breaks(
            "slots-voids-later",
            "a request that was granted releases also what a later attempt of its lease holds",
            HELD,
            SLOTS,
            SlotsFlaw::VoidsLater,
        ),
        breaks(
            "slots-no-tombstone",
            "a release leaves no tombstone in the slots, and a repeated request acquires one for nobody",
            RELEASED,
            COPY,
            SlotsFlaw::NoTombstone,
        ),
        breaks(
            "slots-one-tombstone",
            "a release leaves a tombstone only in the slot that was held, and a repeated request acquires another",
            RELEASED,
            COPY,
            SlotsFlaw::OneTombstone,
        ),
        breaks(
            "slots-no-tombstone-once-over",
            "a release of a slot that has expired leaves no tombstone in the others",
            RELEASED,
            COPY,
            SlotsFlaw::NoTombstoneOnceOver,
        ),
    ]
}
