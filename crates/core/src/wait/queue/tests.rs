//! One test for each event, on three nodes.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::*;
use crate::lock::Holder;
use crate::words::owner::Owner;
use crate::words::ticket::{Place, TicketNumber};
use crate::words::value::AttemptValue;

/// Random shares that leave a pause as it is.
const WHOLE: f64 = 1.0;

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn at(millis: u64) -> Moment {
    Moment::from_start(ms(millis))
}

fn client() -> ClientId {
    ClientId::of(7)
}

fn ticket_of(client: &ClientId, waiter: WaiterId, mode: TicketMode) -> TicketId {
    TicketId::of_mode(client, waiter, mode, &Owner::new("me").unwrap())
}

fn ticket(waiter: WaiterId) -> TicketId {
    ticket_of(&client(), waiter, TicketMode::Default)
}

fn queue() -> LockQueue {
    LockQueue::new(Quorum::of(3).unwrap(), client(), false, at(0))
}

fn joined_as(waiter: WaiterId, mode: TicketMode) -> QueueEvent {
    QueueEvent::Joined {
        waiter,
        ticket: ticket_of(&client(), waiter, mode),
        proposed: TicketNumber::saturating(100 + waiter),
        is_watched: false,
    }
}

fn joined(waiter: WaiterId) -> QueueEvent {
    joined_as(waiter, TicketMode::Default)
}

fn woken(node: usize, waiter: WaiterId, first: bool) -> QueueEvent {
    let wake = Wake {
        ticket: ticket(waiter),
        first,
        everywhere: false,
        slot: None,
    };
    QueueEvent::Woken { node, waiter, wake }
}

/// What a node says whose queue has that many before each of the tickets that were shown, with the
/// number that each of them has asked for.
fn node(holder: Option<(&str, Option<u64>)>, ahead: &[usize]) -> Result<NodeQueue, NodeError> {
    let place = |(n, ahead): (usize, &usize)| Place {
        number: TicketNumber::saturating(101 + n as u64),
        ahead: *ahead,
    };
    Ok(NodeQueue {
        holder: holder.map(|(value, left)| Holder {
            value: AttemptValue::reported(value),
            token: None,
            remaining: left.map(ms),
        }),
        head: Some((ticket(1), ms(2000))),
        places: ahead.iter().enumerate().map(place).collect(),
    })
}

fn shown(answers: [Result<NodeQueue, NodeError>; 3]) -> QueueEvent {
    QueueEvent::Shown {
        answers: answers.into(),
        share: WHOLE,
    }
}

fn all(answer: Result<NodeQueue, NodeError>) -> QueueEvent {
    shown([answer.clone(), answer.clone(), answer])
}

/// A value as this library writes it, so that its holder is known to wake those who queue.
fn ours() -> String {
    AttemptValue::labelled(5, &Owner::new("other").unwrap())
        .as_str()
        .to_owned()
}

fn look(queue: &mut LockQueue, now: u64) -> Vec<TicketId> {
    let actions = queue.on(QueueEvent::LookDue { share: WHOLE }, at(now));
    match actions.into_iter().next() {
        Some(QueueAction::Show(tickets)) => tickets.into_iter().map(|one| one.id).collect(),
        Some(QueueAction::Inspect) => panic!("it is withdrawn"),
        _ => Vec::new(),
    }
}

/// A queue of that many waiters that have looked at zero, and found the lock held for long.
fn settled(waiters: u64) -> LockQueue {
    let mut queue = queue();
    for waiter in 1..=waiters {
        queue.on(joined(waiter), at(0));
    }
    assert_eq!(look(&mut queue, 0).len() as u64, waiters);
    let ahead: Vec<_> = (0..waiters as usize).collect();
    let held = node(Some((&ours(), Some(60_000))), &ahead);
    assert_eq!(queue.on(all(held), at(0)), []);
    assert_eq!(queue.next_look(), at(1000));
    queue
}

fn wakes(actions: &[QueueAction]) -> Vec<WaiterId> {
    let wakes = actions.iter().filter_map(|action| match action {
        QueueAction::Wake(waiter) => Some(*waiter),
        _ => None,
    });
    wakes.collect()
}

#[test]
fn whoever_joins_is_shown_at_once_and_alone() {
    let mut queue = settled(2);
    let actions = queue.on(joined(3), at(100));
    assert_eq!(actions, [QueueAction::LookAt(at(100))]);
    // And the first of us, of whom there is something to learn.
    assert_eq!(look(&mut queue, 100), [ticket(1), ticket(3)]);
    assert_eq!(queue.next_look(), at(1000));
}

#[test]
fn everybody_is_shown_once_a_second() {
    let mut queue = settled(3);
    assert_eq!(look(&mut queue, 700), [ticket(1)], "it is not time yet");
    assert_eq!(look(&mut queue, 750).len(), 3, "rather early than twice");
    assert_eq!(queue.next_look(), at(1750));
}

#[test]
fn whoever_leaves_withdraws_its_ticket_and_the_last_one_closes_the_queue() {
    let mut queue = settled(2);
    let withdrawn = |waiter| QueueAction::Withdraw(vec![ticket(waiter)]);
    assert_eq!(queue.on(QueueEvent::Left(1), at(1)), [withdrawn(1)]);
    assert!(!queue.is_empty());
    let last = queue.on(QueueEvent::Left(2), at(1));
    assert_eq!(last, [QueueAction::Close, withdrawn(2)]);
    assert!(queue.is_empty());
    assert_eq!(queue.on(QueueEvent::Left(2), at(1)), []);
}

#[test]
fn whoever_is_served_has_no_ticket_left_to_withdraw() {
    let mut queue = settled(1);
    let actions = queue.on(QueueEvent::Served(1), at(1));
    assert_eq!(actions, [QueueAction::Close]);
    assert_eq!(queue.on(QueueEvent::Left(1), at(1)), []);
}

#[test]
fn a_waiter_goes_when_a_majority_of_the_nodes_has_woken_it() {
    let mut queue = settled(2);
    let actions = queue.on(woken(0, 1, true), at(100));
    assert_eq!(
        actions,
        [QueueAction::LookAt(at(103))],
        "the others may be a moment later"
    );
    assert_eq!(queue.on(woken(0, 1, true), at(100)), [], "the same node");
    assert_eq!(queue.on(woken(2, 1, true), at(101)), [QueueAction::Wake(1)]);
    assert!(queue.is_woken(1) && !queue.is_woken(2));
}

#[test]
fn a_wake_up_for_another_ticket_is_nobodys() {
    let mut queue = settled(1);
    let foreign = ticket_of(&ClientId::of(8), 1, TicketMode::Default);
    let wake = Wake {
        ticket: foreign,
        first: true,
        everywhere: false,
        slot: None,
    };
    let event = QueueEvent::Woken {
        node: 0,
        waiter: 1,
        wake,
    };
    assert_eq!(queue.on(event, at(1)), []);
    assert_eq!(queue.on(woken(0, 9, true), at(1)), [], "it has left");
}

#[test]
fn the_second_waiter_leaves_the_first_a_head_start_and_goes_then() {
    let mut queue = settled(1);
    let actions = queue.on(woken(0, 1, false), at(100));
    assert_eq!(actions, [QueueAction::LookAt(at(150))]);
    look(&mut queue, 120);
    let early = queue.on(all(node(None, &[1])), at(120));
    assert_eq!(early, [QueueAction::LookAt(at(150))]);
    look(&mut queue, 150);
    let late = queue.on(all(node(None, &[1])), at(150));
    assert_eq!(wakes(&late), [1], "the first seems to be dead");
}

#[test]
fn the_first_waiter_goes_when_a_look_finds_the_lock_free_on_a_majority() {
    let mut queue = settled(2);
    look(&mut queue, 10);
    let held = || node(Some((&ours(), Some(60_000))), &[0, 1]);
    let half = [node(None, &[0, 1]), held(), held()];
    assert_eq!(wakes(&queue.on(shown(half), at(10))), []);
    look(&mut queue, 20);
    let enough = [node(None, &[0, 1]), held(), node(None, &[0, 1])];
    assert_eq!(wakes(&queue.on(shown(enough), at(20))), [1]);
}

#[test]
fn the_first_waiter_looks_when_the_holders_time_is_up() {
    let mut queue = settled(1);
    look(&mut queue, 10);
    let ending = node(Some((&ours(), Some(300))), &[0]);
    queue.on(all(ending), at(10));
    assert_eq!(queue.next_look(), at(310));
}

#[test]
fn behind_a_foreign_holder_the_first_waiter_looks_four_times_a_second_unless_it_is_told() {
    let foreign = || all(node(Some(("foreign", Some(60_000))), &[0]));
    let mut queue = settled(1);
    look(&mut queue, 10);
    queue.on(foreign(), at(10));
    assert_eq!(queue.next_look(), at(260));
    for node in 0..2 {
        queue.on(QueueEvent::Freed { node }, at(260));
    }
    look(&mut queue, 263);
    queue.on(foreign(), at(263));
    assert_eq!(queue.next_look(), at(1000));
}

#[test]
fn where_too_few_nodes_wake_anybody_the_first_waiter_looks_often() {
    let mut queue = LockQueue::new(Quorum::of(3).unwrap(), client(), true, at(0));
    queue.on(joined(1), at(0));
    look(&mut queue, 0);
    let held = node(Some((&ours(), Some(60_000))), &[0]);
    queue.on(all(held), at(0));
    assert_eq!(queue.next_look(), at(250));
}

#[test]
fn a_number_that_a_majority_has_stays_and_one_that_it_has_not_is_asked_for_again() {
    let numbered = |number| {
        let mut said = node(Some((&ours(), Some(60_000))), &[0]);
        if let Ok(said) = &mut said {
            said.places[0].number = TicketNumber::saturating(number);
        }
        said
    };
    let mut queue = queue();
    queue.on(joined(1), at(0));
    look(&mut queue, 0);
    let split = shown([numbered(101), numbered(150), numbered(102)]);
    let actions = queue.on(split, at(5));
    assert_eq!(actions, [QueueAction::LookAt(at(5))]);
    let agreed = Standing::Agreed(TicketNumber::saturating(150));
    assert_eq!(queue.ticket(1).unwrap().number, agreed);
    look(&mut queue, 5);
    queue.on(all(numbered(150)), at(6));
    look(&mut queue, 1000);
    queue.on(all(numbered(999)), at(1000));
    assert_eq!(queue.ticket(1).unwrap().number, agreed);
}

#[test]
fn numbers_that_are_never_agreed_on_are_not_asked_for_without_end() {
    let mut queue = queue();
    queue.on(joined(1), at(0));
    for (round, now) in (0..).zip([0, 1, 2, 3]) {
        look(&mut queue, now);
        let mut said = [0, 1, 2].map(|_| node(Some((&ours(), None)), &[0]));
        for (n, said) in said.iter_mut().enumerate() {
            if let Ok(said) = said {
                said.places[0].number = TicketNumber::saturating(200 + 10 * round + n as u64);
            }
        }
        queue.on(shown(said), at(now));
        let again = queue.next_look() == at(now);
        assert_eq!(again, round < 2, "round {round}");
    }
}

#[test]
fn a_failed_attempt_is_followed_by_looks_with_backoff() {
    let mut queue = settled(1);
    let failed = || QueueEvent::AttemptFailed {
        waiter: 1,
        share: WHOLE,
    };
    queue.on(QueueEvent::AttemptStarted(1), at(100));
    assert!(!queue.is_waited_in());
    assert_eq!(queue.on(failed(), at(110)), [QueueAction::LookAt(at(114))]);
    look(&mut queue, 114);
    queue.on(QueueEvent::AttemptStarted(1), at(115));
    assert_eq!(queue.on(failed(), at(120)), [QueueAction::LookAt(at(128))]);
}

#[test]
fn who_is_woken_during_its_attempt_goes_again_when_that_has_failed() {
    let mut queue = settled(1);
    queue.on(QueueEvent::AttemptStarted(1), at(100));
    for node in 0..2 {
        assert_eq!(wakes(&queue.on(woken(node, 1, true), at(101))), []);
    }
    let failed = QueueEvent::AttemptFailed {
        waiter: 1,
        share: WHOLE,
    };
    assert_eq!(wakes(&queue.on(failed, at(102))), [1]);
}

#[test]
fn an_attempt_answers_the_wake_ups_before_it() {
    let mut queue = settled(1);
    queue.on(woken(0, 1, true), at(100));
    queue.on(QueueEvent::AttemptStarted(1), at(101));
    let failed = QueueEvent::AttemptFailed {
        waiter: 1,
        share: WHOLE,
    };
    queue.on(failed, at(102));
    let actions = queue.on(woken(1, 1, true), at(103));
    assert_eq!(wakes(&actions), [], "one node only since then");
}

/// A node says that a lease was released, which goes to all nodes.
fn released(node: usize, waiter: WaiterId) -> QueueEvent {
    let QueueEvent::Woken { mut wake, .. } = woken(node, waiter, true) else {
        unreachable!("that is what it makes");
    };
    wake.everywhere = true;
    QueueEvent::Woken { node, waiter, wake }
}

#[test]
fn when_a_lease_is_released_the_head_goes_at_the_first_word_of_it() {
    let mut queue = settled(1);
    assert_eq!(wakes(&queue.on(released(2, 1), at(100))), [1]);
    queue.on(QueueEvent::AttemptStarted(1), at(101));
    assert_eq!(wakes(&queue.on(released(0, 1), at(102))), [], "it is going");
}

/// Its attempt was faster than the release.
#[test]
fn whoever_went_too_early_goes_again_once_when_a_majority_has_woken_it() {
    let mut queue = settled(1);
    let failed = || QueueEvent::AttemptFailed {
        waiter: 1,
        share: WHOLE,
    };
    for during in [false, true] {
        assert_eq!(wakes(&queue.on(released(0, 1), at(100))), [1]);
        queue.on(QueueEvent::AttemptStarted(1), at(101));
        let again = match during {
            false => {
                assert_eq!(wakes(&queue.on(failed(), at(102))), []);
                queue.on(released(1, 1), at(103))
            }
            true => {
                assert_eq!(wakes(&queue.on(released(1, 1), at(102))), []);
                queue.on(failed(), at(103))
            }
        };
        assert_eq!(wakes(&again), [1], "during: {during}");
        queue.on(QueueEvent::AttemptStarted(1), at(104));
        assert_eq!(wakes(&queue.on(failed(), at(105))), []);
    }
}

/// On another node another may be the head.
#[test]
fn a_waiter_without_an_agreed_number_waits_for_a_majority() {
    let mut queue = queue();
    queue.on(joined(1), at(0));
    assert_eq!(wakes(&queue.on(released(0, 1), at(1))), []);
    assert_eq!(wakes(&queue.on(released(1, 1), at(2))), [1]);
}

#[test]
fn a_look_need_not_wait_for_all_nodes_when_a_majority_says_all_that_matters() {
    let mut queue = queue();
    queue.on(joined(1), at(0));
    look(&mut queue, 0);
    let silent = || Err(NodeError::Timeout(ms(1)));
    let free = || node(None, &[0]);
    let held = || node(Some((&ours(), Some(1000))), &[0]);
    let foreign = || node(Some(("theirs", Some(1000))), &[0]);
    let mut other_number = free();
    if let Ok(queue) = &mut other_number {
        queue.places[0].number = TicketNumber::saturating(7);
    }
    assert!(queue.knows_enough(&[free(), free(), silent()]));
    assert!(queue.knows_enough(&[silent(), held(), held()]));
    assert!(!queue.knows_enough(&[held(), free(), silent()]), "split");
    assert!(
        !queue.knows_enough(&[free(), silent(), silent()]),
        "too few"
    );
    assert!(
        !queue.knows_enough(&[foreign(), foreign(), silent()]),
        "nobody will wake us"
    );
    assert!(
        !queue.knows_enough(&[free(), other_number, silent()]),
        "no number is agreed on"
    );
}

#[test]
fn a_waiter_is_held_up_by_a_holder_and_by_those_before_it() {
    for (answer, is_held_up) in [
        (node(None, &[0]), false),
        (node(Some((&ours(), Some(1000))), &[0]), true),
        (node(None, &[1]), true),
    ] {
        let mut queue = queue();
        queue.on(joined(1), at(0));
        look(&mut queue, 0);
        queue.on(all(answer), at(1));
        assert_eq!(queue.is_held_up(1), is_held_up);
    }
}

#[test]
fn a_look_answers_the_wake_ups_before_it_and_not_those_during_it() {
    let held = || all(node(Some((&ours(), Some(60_000))), &[0]));
    let mut queue = settled(1);
    queue.on(woken(0, 1, true), at(100));
    look(&mut queue, 103);
    queue.on(woken(1, 1, true), at(104));
    assert!(queue.is_woken(1), "a majority");
    let mut queue = settled(1);
    queue.on(woken(0, 1, true), at(100));
    look(&mut queue, 103);
    queue.on(held(), at(104));
    assert_eq!(wakes(&queue.on(woken(1, 1, true), at(105))), []);
    assert_eq!(wakes(&queue.on(woken(2, 1, true), at(106))), [1]);
}

fn handed_off_to(waiter: WaiterId) -> QueueEvent {
    let (to, slot) = (ticket(waiter), None);
    QueueEvent::HandedOff { to, slot }
}

#[test]
fn a_release_of_our_own_hands_off_to_the_first_waiter() {
    let mut queue = settled(2);
    assert_eq!(queue.hand_off_to(at(10)), Some(ticket(1)));
    let actions = queue.on(handed_off_to(1), at(10));
    // And the second looks as if the nodes had told it.
    assert_eq!(actions, [QueueAction::Wake(1), QueueAction::LookAt(at(60))]);
    assert_eq!(queue.hand_off_to(at(11)), Some(ticket(2)));
    let gone = queue.on(handed_off_to(9), at(11));
    assert_eq!(gone, [], "it has left, and the second looks anyway");
    look(&mut queue, 61);
    let free = queue.on(all(node(None, &[1])), at(61));
    assert_eq!(wakes(&free), [2]);
}

#[test]
fn a_release_hands_off_to_nobody_while_others_are_known_to_wait() {
    let others = |queue: &mut LockQueue, now: u64| {
        look(queue, now);
        let mut held = node(Some((&ours(), Some(60_000))), &[1]);
        if let Ok(said) = &mut held {
            let foreign = ticket_of(&ClientId::of(8), 3, TicketMode::Default);
            said.head = Some((foreign, ms(1000)));
        }
        queue.on(all(held), at(now));
    };
    let mut queue = settled(1);
    others(&mut queue, 100);
    assert_eq!(queue.hand_off_to(at(200)), None);
    assert_eq!(queue.hand_off_to(at(2100)), None);
    assert_eq!(queue.hand_off_to(at(2101)), Some(ticket(1)), "long ago");
}

#[test]
fn a_release_hands_off_to_no_reader() {
    let mut queue = queue();
    queue.on(joined_as(1, TicketMode::Reader), at(0));
    assert_eq!(queue.hand_off_to(at(1)), None);
    queue.on(joined(2), at(0));
    assert_eq!(queue.hand_off_to(at(1)), None, "the reader is first");
}

#[test]
fn readers_for_whom_nobody_is_in_the_way_are_woken_together() {
    let mut queue = queue();
    queue.on(joined_as(1, TicketMode::Reader), at(0));
    queue.on(joined_as(2, TicketMode::Reader), at(0));
    queue.on(joined_as(3, TicketMode::Fair), at(0));
    queue.on(joined_as(4, TicketMode::Reader), at(0));
    look(&mut queue, 0);
    let actions = queue.on(all(node(None, &[0, 0, 2, 1])), at(0));
    assert_eq!(wakes(&actions), [1, 2]);
}

#[test]
fn a_lock_that_was_released_by_somebody_is_looked_at_by_those_who_are_near() {
    let mut queue = settled(1);
    let freed = QueueEvent::Freed { node: 1 };
    let actions = queue.on(freed.clone(), at(100));
    assert_eq!(actions, [QueueAction::LookAt(at(103))]);
    look(&mut queue, 103);
    queue.on(all(node(Some((&ours(), None)), &[2])), at(103));
    assert_eq!(queue.on(freed, at(200)), [], "two are before it");
}

#[test]
fn what_may_have_been_missed_is_looked_for_but_not_all_the_time() {
    let mut queue = settled(2);
    let missed = QueueEvent::MayHaveMissed { node: 0 };
    let actions = queue.on(missed.clone(), at(100));
    assert_eq!(actions, [QueueAction::LookAt(at(100))]);
    assert_eq!(look(&mut queue, 100).len(), 2, "all of them");
    assert_eq!(
        queue.on(missed, at(110)),
        [QueueAction::LookAt(at(150))],
        "the connection breaks again and again"
    );
}

#[test]
fn whoever_is_cut_off_withdraws_its_tickets_and_says_why() {
    let mut queue = settled(2);
    look(&mut queue, 1000);
    let away = || Err(NodeError::Loading);
    let held = node(Some((&ours(), None)), &[0, 1]);
    let actions = queue.on(shown([held, away(), away()]), at(1010));
    let failed = NodeOutcome::Failed(NodeError::Loading);
    let said = vec![NodeOutcome::Agreed, failed.clone(), failed];
    assert_eq!(
        actions,
        [
            QueueAction::TellNoQuorum(said),
            QueueAction::Withdraw(vec![ticket(1), ticket(2)]),
            QueueAction::LookAt(at(1060)),
        ]
    );
    let due = QueueEvent::LookDue { share: WHOLE };
    assert_eq!(queue.on(due, at(1060)), [QueueAction::Inspect]);
}

#[test]
fn who_was_cut_off_queues_again_once_a_majority_can_be_asked() {
    let mut queue = settled(1);
    look(&mut queue, 1000);
    let away = || Err(NodeError::Loading);
    queue.on(shown([away(), away(), away()]), at(1000));
    let inspected = |heard: usize| {
        let mut outcomes = vec![NodeOutcome::Failed(NodeError::Loading); 3];
        outcomes[..heard].fill(NodeOutcome::Agreed);
        QueueEvent::Inspected {
            outcomes,
            share: WHOLE,
        }
    };
    let due = QueueEvent::LookDue { share: WHOLE };
    queue.on(due, at(1050));
    let actions = queue.on(inspected(1), at(1060));
    assert!(matches!(actions[..], [QueueAction::TellNoQuorum(_)]));
    assert_eq!(queue.next_look(), at(1110));
    queue.on(inspected(2), at(1110));
    assert_eq!(queue.next_look(), at(1110));
    assert_eq!(look(&mut queue, 1110), [ticket(1)]);
    let seen = all(node(Some((&ours(), Some(60_000))), &[0]));
    let actions = queue.on(seen, at(1111));
    assert!(
        matches!(actions[..], [QueueAction::Tell { waiter: 1, .. }]),
        "good news after bad: {actions:?}"
    );
}

#[test]
fn whoever_is_watched_is_told_who_holds_the_lock_and_its_place() {
    let mut queue = queue();
    let mut joined = joined(1);
    if let QueueEvent::Joined { is_watched, .. } = &mut joined {
        *is_watched = true;
    }
    queue.on(joined, at(0));
    look(&mut queue, 0);
    let actions = queue.on(all(node(Some((&ours(), Some(500))), &[2])), at(0));
    assert_eq!(
        actions,
        [QueueAction::Tell {
            waiter: 1,
            holder: Some(Owner::new("other").unwrap()),
            split: Vec::new(),
            token: None,
            remaining: Some(ms(500)),
            place: Some(3),
            is_settled: true,
        }]
    );
}

#[test]
fn whoever_is_watched_is_told_of_a_split_and_of_no_holder_without_a_majority() {
    let mut queue = queue();
    let mut joined = joined(1);
    if let QueueEvent::Joined { is_watched, .. } = &mut joined {
        *is_watched = true;
    }
    queue.on(joined, at(0));
    look(&mut queue, 0);
    let held = |by: &str| node(Some((by, Some(500))), &[0]);
    let actions = queue.on(shown([held("x"), held("y"), node(None, &[0])]), at(0));
    let told = actions.iter().find_map(|action| match action {
        QueueAction::Tell { holder, split, .. } => Some((holder.clone(), split.clone())),
        _ => None,
    });
    let owner = |name| Owner::new(name).unwrap();
    assert_eq!(told, Some((None, vec![owner("x"), owner("y")])));
}

#[test]
fn a_lock_that_is_neither_held_nor_free_is_looked_at_again_soon_and_ever_more_seldom() {
    let mut queue = settled(1);
    let held = || node(Some((&ours(), Some(60_000))), &[0]);
    for (now, next) in [(100, 104), (104, 112), (112, 128)] {
        look(&mut queue, now);
        queue.on(shown([node(None, &[0]), held(), held()]), at(now));
        assert_eq!(queue.next_look(), at(next));
    }
}

#[test]
fn an_empty_look_shows_nothing() {
    let mut queue = settled(1);
    queue.on(QueueEvent::AttemptStarted(1), at(500));
    assert_eq!(look(&mut queue, 1000), []);
    assert_eq!(queue.next_look(), at(2000));
}

mod foreign;
mod slots;

/// Eight thousand that wait for one name are no more than the nodes can answer in a moment.
#[test]
fn a_crowd_that_comes_at_once_is_shown_in_parts_until_all_have_a_place() {
    let mut queue = queue();
    for waiter in 1..=8_000 {
        queue.on(joined(waiter), at(0));
    }
    let mut looks = 0;
    while queue.next_look() <= at(0) {
        let tickets = look(&mut queue, 0).len();
        assert!(tickets <= 501, "{tickets} at once");
        let ahead: Vec<_> = (0..tickets).collect();
        queue.on(all(node(Some((&ours(), Some(60_000))), &ahead)), at(0));
        looks += 1;
    }
    assert!(looks <= 17, "{looks}");
    assert!(queue.waiters.values().all(|waiter| waiter.has_place));
}

#[test]
fn the_first_of_a_crowd_is_the_one_with_the_smallest_number_whoever_comes_and_goes() {
    let mut queue = settled(5);
    assert_eq!(queue.hand_off_to(at(0)), Some(ticket(1)));
    queue.on(QueueEvent::AttemptStarted(1), at(10));
    assert_eq!(queue.hand_off_to(at(10)), Some(ticket(2)));
    queue.on(QueueEvent::Left(2), at(20));
    let share = WHOLE;
    queue.on(QueueEvent::AttemptFailed { waiter: 1, share }, at(30));
    assert_eq!(queue.hand_off_to(at(30)), Some(ticket(1)));
    queue.on(QueueEvent::Served(1), at(40));
    // It came back, and asks for a place behind the others.
    queue.on(joined(2), at(50));
    let again = QueueEvent::Joined {
        waiter: 3,
        ticket: ticket(3),
        proposed: TicketNumber::saturating(900),
        is_watched: false,
    };
    queue.on(again, at(60));
    assert_eq!(queue.hand_off_to(at(60)), Some(ticket(2)));
    queue.on(QueueEvent::Left(2), at(70));
    assert_eq!(queue.hand_off_to(at(70)), Some(ticket(4)));
    let to = ticket(5);
    let handed = queue.on(QueueEvent::HandedOff { to, slot: None }, at(80));
    assert_eq!(wakes(&handed), [5]);
}
