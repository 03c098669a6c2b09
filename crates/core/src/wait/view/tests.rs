#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::*;
use crate::words::owner::Owner;
use crate::words::ticket::{ClientId, TicketId};
use crate::words::value::AttemptValue;

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn head(fair: bool) -> Option<(TicketId, Duration)> {
    let owner = Owner::new("head").unwrap();
    let id = TicketId::new(&ClientId::of(1), 0, fair, &owner);
    Some((id, ms(700)))
}

/// A node where the lock is free, and this many are before us.
fn free(number: u64, ahead: usize, fair: bool) -> Result<NodeQueue, NodeError> {
    Ok(NodeQueue {
        holder: None,
        head: head(fair),
        places: vec![Place {
            number: TicketNumber::saturating(number),
            ahead,
        }],
    })
}

fn held(number: u64, by: &str, left: Option<Duration>) -> Result<NodeQueue, NodeError> {
    let mut queue = free(number, 0, false);
    if let Ok(queue) = &mut queue {
        queue.holder = Some(Holder {
            value: AttemptValue::reported(by),
            token: None,
            remaining: left,
        });
    }
    queue
}

fn away() -> Result<NodeQueue, NodeError> {
    Err(NodeError::Loading)
}

fn view<const N: usize>(answers: [Result<NodeQueue, NodeError>; N]) -> QueueView {
    QueueView::new(Quorum::of(N).unwrap(), Vec::from(answers))
}

#[test]
fn a_number_is_settled_when_a_majority_has_the_largest() {
    let split = view([free(5, 0, false), free(7, 0, false), free(5, 0, false)]);
    assert_eq!(split.number(0), Some(TicketNumber::saturating(7)));
    assert!(!split.is_settled(0));
    assert!(view([free(7, 0, false), free(7, 0, false), away()]).is_settled(0));
    // Two of five that are heard are not enough, however much they agree.
    let few = [free(7, 0, false), free(7, 0, false), away(), away(), away()];
    assert!(!view(few).is_settled(0));
}

#[test]
fn nobody_goes_before_a_majority_is_free() {
    let half = [free(1, 0, false), held(1, "x", Some(ms(30))), away()];
    assert_eq!(view(half).opens_in(0, TicketMode::Default), Some(ms(30)));
    let enough = [free(1, 0, false), held(1, "x", None), free(1, 0, false)];
    assert_eq!(
        view(enough).opens_in(0, TicketMode::Default),
        Some(Duration::ZERO)
    );
    let never = [free(1, 0, false), held(1, "x", None), held(1, "x", None)];
    assert_eq!(view(never).opens_in(0, TicketMode::Default), None);
    let alone = [free(1, 0, false), away(), away()];
    assert_eq!(view(alone.clone()).opens_in(0, TicketMode::Default), None);
    assert!(!view(alone).is_enough());
}

#[test]
fn a_fair_waiter_waits_for_the_ticket_before_it_and_another_only_for_a_fair_one() {
    let behind = |fair| view([free(1, 1, fair), free(1, 1, fair), free(1, 1, fair)]);
    assert_eq!(
        behind(false).opens_in(0, TicketMode::Default),
        Some(Duration::ZERO)
    );
    assert_eq!(behind(false).opens_in(0, TicketMode::Fair), Some(ms(700)));
    assert_eq!(behind(true).opens_in(0, TicketMode::Default), Some(ms(700)));
}

#[test]
fn a_held_lock_is_never_free_at_once() {
    let ending = || held(1, "x", Some(Duration::ZERO));
    let all = view([ending(), ending(), ending()]);
    assert_eq!(all.opens_in(0, TicketMode::Default), Some(NEARLY_FREE));
}

#[test]
fn the_holder_is_who_has_most_nodes_and_the_place_what_most_nodes_say() {
    let answers = [
        held(1, "a", Some(ms(10))),
        held(1, "b", Some(ms(10))),
        held(1, "b", Some(ms(10))),
    ];
    assert_eq!(view(answers).holder().unwrap().value.as_str(), "b");
    let places = [free(1, 0, false), free(1, 3, false), free(1, 3, false)];
    let seen = view(places);
    assert_eq!(seen.place(0), Some(4));
    assert!(seen.is_free(TicketMode::Default) && !seen.is_split(TicketMode::Default));
    let split = [free(1, 0, false), held(1, "b", None), held(1, "b", None)];
    assert!(view(split).is_split(TicketMode::Default));
}

#[test]
fn those_who_read_are_in_nobodys_way_who_reads_too() {
    let read = |ahead: usize| {
        let mut queue = held(1, AttemptValue::shared().as_str(), Some(ms(30)));
        if let Ok(queue) = &mut queue {
            queue.places[0].ahead = ahead;
        }
        queue
    };
    let taken = || held(1, "writer", Some(ms(90)));
    let open = view([read(0), read(0), taken()]);
    assert_eq!(open.opens_in(0, TicketMode::Reader), Some(Duration::ZERO));
    assert_eq!(open.opens_in(0, TicketMode::Fair), Some(ms(30)));
    assert!(open.is_free(TicketMode::Reader) && !open.is_free(TicketMode::Fair));
    // A writer waits before it on one of them.
    let behind = view([read(0), read(2), taken()]);
    assert_eq!(behind.opens_in(0, TicketMode::Reader), Some(ms(30)));
}
