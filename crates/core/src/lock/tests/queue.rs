//! Who waits, who is told, and who may go.

use super::*;
use crate::words::owner::Owner;
use crate::words::ticket::ClientId;

const LEASE: Duration = Duration::from_secs(3);

pub(super) fn id(n: u64, fair: bool) -> TicketId {
    TicketId::new(&ClientId::of(9), n, fair, &Owner::new("w").unwrap())
}

fn proposed(id: &TicketId, number: u64) -> Command {
    queue(id, Standing::Proposed(TicketNumber::saturating(number)))
}

pub(super) fn agreed(id: &TicketId, number: u64) -> Command {
    queue(id, Standing::Agreed(TicketNumber::saturating(number)))
}

fn queue(id: &TicketId, number: Standing) -> Command {
    Command::Enqueue {
        tickets: vec![Ticket {
            id: id.clone(),
            number,
        }],
        lease: LEASE,
    }
}

pub(super) fn leave(id: &TicketId) -> Command {
    Command::Leave {
        tickets: vec![id.clone()],
    }
}

fn take(who: &str, turn: Precedence) -> Command {
    Command::Acquire {
        value: value(who),
        ttl: ttl(TTL),
        proposed: token(1),
        turn,
    }
}

fn give_back(who: &str, ticket: TicketDisposition) -> Command {
    Command::Release {
        value: value(who),
        tombstone: None,
        ticket,
        follower: None,
        is_lease: false,
    }
}

/// The place and number of the only ticket that was shown.
pub(super) fn place(reply: Reply) -> (u64, usize) {
    match reply {
        Reply::Queue(line) => (line.places[0].number.get(), line.places[0].ahead),
        other => panic!("{other:?}"),
    }
}

pub(super) fn woken(bench: &mut Bench, command: &Command) -> Vec<(TicketId, bool)> {
    let mut next = Vec::new();
    let now = at(bench.elapsed);
    bench
        .lock
        .apply_and_wake(command, now, |wake| next.push((wake.ticket, wake.first)));
    next
}

#[test]
fn a_newcomer_is_put_behind_those_who_wait_whatever_its_clock_says() {
    let mut bench = Bench::default();
    let (a, b, c) = (id(1, true), id(2, true), id(3, true));
    assert_eq!(place(bench.ask(&proposed(&a, 100))), (100, 0));
    assert_eq!(place(bench.ask(&proposed(&b, 5))), (101, 1), "a slow clock");
    assert_eq!(place(bench.ask(&proposed(&c, 500))), (500, 2), "a fast one");
    assert_eq!(
        place(bench.ask(&proposed(&a, 900))),
        (100, 0),
        "keeps its place"
    );
}

#[test]
fn an_agreed_number_is_taken_over_whatever_the_node_had() {
    let mut bench = Bench::default();
    let (a, b) = (id(1, true), id(2, true));
    bench.ask(&proposed(&a, 100));
    bench.ask(&proposed(&b, 100));
    assert_eq!(place(bench.ask(&agreed(&a, 200))), (200, 1));
    assert_eq!(place(bench.ask(&agreed(&a, 50))), (50, 0));
    // A node that had forgotten it.
    let c = id(3, true);
    assert_eq!(place(bench.ask(&agreed(&c, 20))), (20, 0));
}

#[test]
fn a_proposal_from_the_far_future_is_brought_back() {
    let mut bench = Bench::default();
    let (number, _) = place(bench.ask(&proposed(&id(1, true), u64::MAX)));
    assert_eq!(number, LATE + MAX_SKEW.as_micros() as u64);
}

#[test]
fn silent_waiters_are_dropped_together_one_lease_after_their_last_word() {
    let mut bench = Bench::default();
    for n in 0..50 {
        bench.ask(&proposed(&id(n, true), 1));
    }
    bench.wait(LEASE - INSTANT);
    let late = id(99, true);
    assert_eq!(place(bench.ask(&proposed(&late, 1))).1, 50);
    bench.wait(INSTANT);
    assert_eq!(place(bench.ask(&proposed(&late, 1))).1, 0);
}

#[test]
fn a_fair_ticket_is_passed_by_nobody_and_another_by_those_who_do_not_mind() {
    for (head_is_fair, turn, passes) in [
        (false, Precedence::MayPass, true),
        (true, Precedence::MayPass, false),
        (false, Precedence::PassNobody, false),
        (true, Precedence::PassNobody, false),
        (false, Precedence::Ticket(id(2, false)), true),
        (true, Precedence::Ticket(id(2, false)), false),
        (false, Precedence::Ticket(id(2, true)), false),
        (true, Precedence::Ticket(id(2, true)), false),
        (true, Precedence::Ticket(id(1, true)), true),
        (false, Precedence::Ticket(id(1, false)), true),
    ] {
        let mut bench = Bench::default();
        bench.ask(&proposed(&id(1, head_is_fair), 1));
        bench.ask(&proposed(&id(2, false), 1));
        bench.wait(INSTANT);
        let reply = bench.ask(&take("x", turn.clone()));
        let expected = if passes {
            granted(1)
        } else {
            Reply::Held(holder(id(1, head_is_fair).as_str(), LEASE - INSTANT))
        };
        assert_eq!(reply, expected, "{head_is_fair} {turn:?}");
    }
}

#[test]
fn a_grant_takes_the_ticket_out_of_the_line_and_a_failed_attempt_puts_it_back() {
    let mut bench = Bench::default();
    let (a, b) = (id(1, true), id(2, true));
    bench.ask(&proposed(&a, 10));
    bench.ask(&proposed(&b, 10));
    bench.ask(&take("x", Precedence::Ticket(a.clone())));
    assert_eq!(place(bench.ask(&proposed(&b, 10))), (11, 0));
    let back = TicketDisposition::Returns {
        id: a.clone(),
        number: TicketNumber::saturating(10),
        lease: LEASE,
    };
    let told = woken(&mut bench, &give_back("x", back));
    assert_eq!(
        told,
        [(b.clone(), false)],
        "not itself, and the other as second"
    );
    assert_eq!(place(bench.ask(&proposed(&b, 10))), (11, 1));
}

#[test]
fn a_release_tells_the_first_and_the_second_and_nobody_else() {
    let mut bench = Bench::after(&[acquire("h", 1)]);
    let line: Vec<_> = (0..4).map(|n| id(n, false)).collect();
    for id in &line {
        bench.ask(&proposed(id, 1));
    }
    let told = woken(&mut bench, &release("h"));
    assert_eq!(told, [(line[0].clone(), true), (line[1].clone(), false)]);
    let told = woken(&mut bench, &release("h"));
    assert_eq!(told, [], "nothing was given back");
}

#[test]
fn a_holders_own_leftover_ticket_is_not_woken() {
    let mut bench = Bench::after(&[acquire("h", 1)]);
    let (a, b) = (id(1, false), id(2, false));
    bench.ask(&proposed(&a, 1));
    bench.ask(&proposed(&b, 1));
    let told = woken(&mut bench, &give_back("h", TicketDisposition::Leaves(a)));
    assert_eq!(told, [(b, true)]);
}

#[test]
fn when_the_first_leaves_a_free_lock_the_next_is_told() {
    let mut bench = Bench::default();
    let (a, b, c) = (id(1, true), id(2, true), id(3, true));
    for id in [&a, &b, &c] {
        bench.ask(&proposed(id, 1));
    }
    assert_eq!(
        woken(&mut bench, &leave(&b)),
        [],
        "the first is still there"
    );
    assert_eq!(woken(&mut bench, &leave(&a)), [(c.clone(), true)]);
    bench.ask(&take("x", Precedence::Ticket(c)));
    bench.ask(&proposed(&a, 1));
    bench.ask(&proposed(&b, 1));
    assert_eq!(woken(&mut bench, &leave(&a)), [], "it is held");
}

#[test]
fn the_line_is_no_reason_to_forget_a_lock_and_none_to_remember_it_for_ever() {
    let mut bench = Bench::default();
    bench.ask(&proposed(&id(1, true), 1));
    assert!(!bench.lock.is_forgettable(bench.elapsed));
    bench.wait(LEASE);
    assert!(bench.lock.is_forgettable(bench.elapsed));
}

#[test]
fn whoever_notices_a_free_lock_can_tell_who_is_next() {
    let mut bench = Bench::after(&[acquire("h", 1)]);
    let a = id(1, true);
    bench.ask(&proposed(&a, 1));
    assert_eq!(bench.lock.next_waiters(bench.elapsed), []);
    let gone = bench.elapsed + TTL;
    assert_eq!(bench.lock.next_waiters(gone), [], "its lease is shorter");
    bench.wait(TTL);
    bench.ask(&proposed(&a, 1));
    let next = bench.lock.next_waiters(bench.elapsed);
    assert_eq!(next.len(), 1);
    assert!(next[0].first && next[0].ticket == a);
}

/// A granted attempt came too late and gave the lock back. A newcomer with a slow clock had found the
/// line empty meanwhile, got a smaller number and was served first.
#[test]
fn nobody_gets_before_a_ticket_that_is_out_for_an_attempt() {
    let mut bench = Bench::default();
    let (a, b) = (id(1, true), id(2, true));
    let (number, _) = place(bench.ask(&proposed(&a, 100)));
    let attempt = Command::Acquire {
        value: value("x"),
        ttl: ttl(TTL),
        proposed: token(number + 1),
        turn: Precedence::Ticket(a.clone()),
    };
    assert_eq!(bench.ask(&attempt), granted(101));
    assert_eq!(place(bench.ask(&proposed(&b, 5))), (102, 0));
    let back = TicketDisposition::Returns {
        id: a,
        number: TicketNumber::saturating(number),
        lease: LEASE,
    };
    bench.ask(&give_back("x", back));
    assert_eq!(place(bench.ask(&proposed(&b, 5))), (102, 1));
}

/// Many came at once, each node had another of them first, and a release woke each of those on one
/// node only. They agreed on their numbers then, and the one who was first everywhere had heard
/// nothing: the lock was free for most of a second.
#[test]
fn whoever_becomes_first_of_a_free_lock_because_another_steps_back_is_told() {
    let mut bench = Bench::default();
    let (a, b, c) = (id(1, true), id(2, true), id(3, true));
    for id in [&a, &b, &c] {
        bench.ask(&proposed(id, 10));
    }
    let told = woken(&mut bench, &agreed(&a, 100));
    assert_eq!(told, [(b.clone(), true), (c.clone(), false)]);
    assert_eq!(woken(&mut bench, &agreed(&c, 200)), [], "the first stays");
    let told = woken(&mut bench, &agreed(&a, 1));
    assert_eq!(told, [(b.clone(), false)], "the first sees for itself");
    bench.ask(&take("x", Precedence::Ticket(a)));
    assert_eq!(woken(&mut bench, &agreed(&b, 300)), [], "it is held");
}
