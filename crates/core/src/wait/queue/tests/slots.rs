//! Waiting for one of many slots in one queue.

use super::*;

/// A queue for slots of that many waiters of ours, which have looked at zero and stand behind so many
/// others.
fn waiting(waiters: u64, behind: usize) -> (LockQueue, Vec<QueueAction>) {
    let mut queue = queue().for_slots();
    for waiter in 1..=waiters {
        queue.on(joined(waiter), at(0));
    }
    assert_eq!(look(&mut queue, 0).len() as u64, waiters);
    let ahead: Vec<_> = (0..waiters as usize).map(|n| n + behind).collect();
    let actions = queue.on(all(node(None, &ahead)), at(0));
    (queue, actions)
}

/// The same, and its head has found all slots taken.
fn all_taken(waiters: u64) -> LockQueue {
    let (mut queue, actions) = waiting(waiters, 0);
    assert_eq!(wakes(&actions), [1]);
    queue.on(QueueEvent::AttemptStarted(1), at(1));
    assert_eq!(queue.on(QueueEvent::AllTaken(1), at(2)), []);
    queue
}

fn told(node: usize, waiter: WaiterId, first: bool, slot: Option<usize>) -> QueueEvent {
    let wake = Wake {
        ticket: ticket(waiter),
        first,
        everywhere: false,
        slot,
    };
    QueueEvent::Woken { node, waiter, wake }
}

#[test]
fn the_head_looks_at_the_slots_at_once_and_then_once_a_second() {
    let mut queue = all_taken(2);
    assert_eq!(queue.next_look(), at(1000));
    look(&mut queue, 1000);
    // It is two milliseconds early: another look at the queue would cost more.
    let again = queue.on(all(node(None, &[0, 1])), at(1000));
    assert_eq!(wakes(&again), [1]);
    queue.on(QueueEvent::AttemptStarted(1), at(1000));
    queue.on(QueueEvent::AllTaken(1), at(1001));
    // A look for another reason finds that it is too early.
    queue.on(joined(3), at(1100));
    assert_eq!(look(&mut queue, 1100).len(), 2);
    assert_eq!(wakes(&queue.on(all(node(None, &[0, 2])), at(1100))), []);
}

#[test]
fn whoever_is_not_the_head_never_looks_at_the_slots_by_itself() {
    let (mut queue, actions) = waiting(1, 1);
    assert_eq!(wakes(&actions), []);
    assert_eq!(queue.next_look(), at(1000));
    // Far from the head it looks less often still.
    let (mut far, _) = waiting(1, 5);
    look(&mut far, 1000);
    far.on(all(node(None, &[5])), at(1000));
    assert_eq!(far.next_look(), at(3200));
    // Told that it is the head now, it looks.
    for node in [0, 1] {
        queue.on(told(node, 1, true, None), at(100));
    }
    assert!(queue.is_woken(1));
    assert_eq!(queue.take_freed(1), Vec::<usize>::new());
}

#[test]
fn the_head_tries_the_slot_that_was_released() {
    let mut queue = all_taken(1);
    assert_eq!(wakes(&queue.on(told(0, 1, true, Some(7)), at(100))), []);
    assert_eq!(wakes(&queue.on(told(2, 1, true, Some(7)), at(101))), [1]);
    assert_eq!(queue.take_freed(1), [7]);
    assert_eq!(queue.take_freed(1), Vec::<usize>::new(), "once");
}

#[test]
fn a_slot_that_fewer_nodes_than_a_majority_told_of_is_looked_at_soon() {
    let mut queue = all_taken(1);
    queue.on(told(0, 1, true, Some(7)), at(100));
    assert_eq!(queue.next_look(), at(103));
    look(&mut queue, 103);
    assert_eq!(wakes(&queue.on(all(node(None, &[0])), at(103))), [1]);
}

#[test]
fn a_slot_released_while_the_head_looks_is_not_missed() {
    let (mut queue, _) = waiting(1, 0);
    queue.on(QueueEvent::AttemptStarted(1), at(1));
    queue.on(told(0, 1, true, Some(3)), at(2));
    queue.on(told(1, 1, true, Some(3)), at(2));
    assert_eq!(wakes(&queue.on(QueueEvent::AllTaken(1), at(3))), [1]);
    queue.on(QueueEvent::AttemptStarted(1), at(3));
    queue.on(told(2, 1, true, Some(4)), at(4));
    queue.on(QueueEvent::AllTaken(1), at(5));
    assert!(queue.next_look() <= at(8), "one of three told of another");
}

#[test]
fn the_second_acts_a_moment_after_it_was_told_of_a_slot_if_it_may_pass() {
    let (mut queue, _) = waiting(1, 1);
    queue.on(told(0, 1, false, None), at(90));
    assert_eq!(queue.next_look(), at(1000), "nothing was released");
    queue.on(told(0, 1, false, Some(2)), at(100));
    assert_eq!(queue.next_look(), at(150));
    look(&mut queue, 150);
    assert_eq!(wakes(&queue.on(all(node(None, &[1])), at(150))), [1]);

    let mut fair = queue_of_a_fair_one();
    fair.on(told_fair(0, false, Some(2)), at(100));
    look(&mut fair, 150);
    assert_eq!(wakes(&fair.on(all(node(None, &[1])), at(150))), []);
}

fn queue_of_a_fair_one() -> LockQueue {
    let mut queue = queue().for_slots();
    queue.on(joined_as(1, TicketMode::Fair), at(0));
    look(&mut queue, 0);
    queue.on(all(node(None, &[1])), at(0));
    queue
}

fn told_fair(node: usize, first: bool, slot: Option<usize>) -> QueueEvent {
    let ticket = ticket_of(&client(), 1, TicketMode::Fair);
    let wake = Wake {
        ticket,
        first,
        everywhere: false,
        slot,
    };
    let waiter = 1;
    QueueEvent::Woken { node, waiter, wake }
}

/// A grant leaves the ticket in the queue: were it not taken out, everybody behind a fair one would
/// wait for its lease.
#[test]
fn whoever_was_served_leaves_the_queue_by_itself() {
    let mut queue = all_taken(2);
    let actions = queue.on(QueueEvent::Served(1), at(10));
    assert_eq!(actions, [QueueAction::Withdraw(vec![ticket(1)])]);
    // And whoever is the head of ours now has not seen the slots.
    look(&mut queue, 20);
    assert_eq!(wakes(&queue.on(all(node(None, &[0])), at(20))), [2]);
}

#[test]
fn whoever_pauses_keeps_its_place() {
    let mut queue = all_taken(2);
    assert_eq!(queue.on(QueueEvent::Paused(1), at(10)), []);
    assert_eq!(queue.ticket(1), None);
}

#[test]
fn an_attempt_that_failed_at_a_free_slot_is_made_again_soon() {
    let (mut queue, _) = waiting(1, 0);
    queue.on(QueueEvent::AttemptStarted(1), at(1));
    let share = WHOLE;
    queue.on(QueueEvent::AttemptFailed { waiter: 1, share }, at(2));
    assert_eq!(queue.next_look(), at(6));
    look(&mut queue, 6);
    assert_eq!(wakes(&queue.on(all(node(None, &[0])), at(6))), [1]);
}

#[test]
fn a_release_of_our_own_hands_the_slot_off_to_the_first_waiter() {
    let mut queue = all_taken(2);
    let (to, slot) = (ticket(1), Some(5));
    let actions = queue.on(QueueEvent::HandedOff { to, slot }, at(10));
    assert_eq!(wakes(&actions), [1]);
    assert_eq!(queue.take_freed(1), [5]);
}
