//! Behind a holder who knows of no queue.

use super::super::foreign::LATEST_FOREIGN;
use super::*;

/// A queue of that many waiters of ours, of which the first has seen a foreign holder.
fn behind_a_foreign_holder(waiters: u64) -> LockQueue {
    let mut queue = queue();
    for waiter in 1..=waiters {
        queue.on(joined(waiter), at(0));
    }
    look(&mut queue, 0);
    let ahead: Vec<_> = (0..waiters as usize).collect();
    let seen = queue.on(foreign(&ahead), at(0));
    assert!(seen.contains(&QueueAction::Track), "{seen:?}");
    queue
}

fn foreign(ahead: &[usize]) -> QueueEvent {
    all(node(Some(("foreign", Some(60_000))), ahead))
}

fn changed(node: usize) -> QueueEvent {
    QueueEvent::Changed { node }
}

#[test]
fn the_head_makes_its_attempt_as_soon_as_a_majority_says_that_the_holder_changed() {
    let mut queue = behind_a_foreign_holder(2);
    assert_eq!(wakes(&queue.on(changed(0), at(100))), []);
    assert_eq!(
        queue.next_look(),
        at(103),
        "the others may be a moment later"
    );
    assert_eq!(wakes(&queue.on(changed(0), at(100))), [], "the same node");
    assert_eq!(
        wakes(&queue.on(changed(1), at(101))),
        [1],
        "it does not look first"
    );
    assert_eq!(
        wakes(&queue.on(changed(2), at(102))),
        [],
        "the second does not go"
    );
}

#[test]
fn after_a_near_miss_it_looks_within_milliseconds_however_often_it_misses() {
    let mut queue = behind_a_foreign_holder(1);
    let mut now = 100;
    for _ in 0..50 {
        queue.on(changed(0), at(now));
        assert_eq!(wakes(&queue.on(changed(1), at(now))), [1]);
        queue.on(QueueEvent::AttemptStarted(1), at(now));
        let (waiter, share) = (1, WHOLE);
        queue.on(QueueEvent::AttemptFailed { waiter, share }, at(now));
        let pause = queue.next_look().since(at(now));
        assert!(pause <= LATEST_FOREIGN, "{pause:?}");
        now += 5;
        look(&mut queue, now);
        let seen = queue.on(foreign(&[0]), at(now));
        assert!(seen.contains(&QueueAction::Track), "armed again");
    }
}

#[test]
fn only_the_head_is_told_and_only_behind_a_foreign_holder() {
    let mut queue = queue();
    queue.on(joined(1), at(0));
    look(&mut queue, 0);
    let second = queue.on(foreign(&[1]), at(0));
    assert!(!second.contains(&QueueAction::Track), "{second:?}");
    assert_eq!(wakes(&queue.on(changed(0), at(1))), []);
    assert_eq!(wakes(&queue.on(changed(1), at(1))), []);
    let mut queue = settled(1);
    queue.on(changed(0), at(1));
    assert_eq!(
        wakes(&queue.on(changed(1), at(1))),
        [],
        "ours wakes by itself"
    );
}
