//! Many who read, or one who writes: who comes in, with which number, and who is told.

use super::queue::{agreed, id, leave, place, woken};
use super::*;
use crate::words::owner::Owner;
use crate::words::ticket::{ClientId, TicketMode};

fn reader(n: u64) -> TicketId {
    let owner = Owner::new("r").unwrap();
    TicketId::of_mode(&ClientId::of(9), n, TicketMode::Reader, &owner)
}

fn writer(n: u64) -> TicketId {
    id(n, true)
}

fn share_as(who: &str, id: &TicketId) -> Command {
    Command::Share {
        value: value(who),
        ttl: ttl(TTL),
        proposed: token(1),
        turn: Precedence::Ticket(id.clone()),
    }
}

/// Enqueues them in this order.
fn enqueue(bench: &mut Bench, queue: &[&TicketId]) {
    for (n, id) in queue.iter().enumerate() {
        bench.ask(&agreed(id, 10 + n as u64));
    }
}

fn is_granted(reply: &Reply) -> bool {
    matches!(reply, Reply::Granted { .. })
}

fn first(id: &TicketId) -> (TicketId, bool) {
    (id.clone(), true)
}

fn second(id: &TicketId) -> (TicketId, bool) {
    (id.clone(), false)
}

#[test]
fn the_first_reader_moves_the_counter_and_the_others_get_the_same_number() {
    let mut bench = Bench::after(&[acquire("w", 5), release("w")]);
    assert_eq!(bench.ask(&share("a", 1)), granted(6));
    assert_eq!(bench.ask(&share("b", 900)), granted(6));
    assert_eq!(bench.ask(&raise("b", 50)), Reply::Raised(token(50)));
    assert_eq!(bench.ask(&share("c", 1)), granted(50));
    for who in ["a", "b", "c"] {
        assert_eq!(bench.ask(&release(who)), Reply::Released);
    }
    assert_eq!(bench.ask(&acquire("w", 1)), granted(51));
}

#[test]
fn each_reader_has_an_end_of_its_own_and_the_last_one_counts() {
    let mut bench = Bench::after(&[share("a", 1)]);
    bench.wait(TTL / 2);
    bench.ask(&share("b", 1));
    let all = holder("fencepost:shared", TTL);
    assert_eq!(bench.ask(&acquire("w", 1)), Reply::Held(all));
    bench.wait(TTL / 2);
    let left = holder("fencepost:shared", TTL / 2);
    assert_eq!(bench.ask(&release("a")), Reply::NotHeld(Some(left)));
    assert_eq!(bench.ask(&release("b")), Reply::Released);
    assert!(is_granted(&bench.ask(&acquire("w", 1))));
}

#[test]
fn a_reader_passes_readers_and_never_a_writer() {
    let mut bench = Bench::after(&[share("x", 1)]);
    let (a, w, b) = (reader(1), writer(2), reader(3));
    enqueue(&mut bench, &[&a, &w, &b]);
    let kept_for_w = |reply: Reply| match reply {
        Reply::Held(holder) => holder.value.as_str() == w.as_str(),
        _ => false,
    };
    assert!(kept_for_w(bench.ask(&share("new", 1))));
    assert!(kept_for_w(bench.ask(&share_as("b", &b))));
    assert!(is_granted(&bench.ask(&share_as("a", &a))));
    bench.ask(&leave(&w));
    assert!(is_granted(&bench.ask(&share("new", 1))));
    assert!(is_granted(&bench.ask(&share_as("b", &b))));
}

#[test]
fn readers_in_front_of_a_writer_have_nobody_before_them() {
    let mut bench = Bench::after(&[acquire("w", 1)]);
    let (a, b, w, c) = (reader(1), reader(2), writer(3), reader(4));
    enqueue(&mut bench, &[&a, &b, &w, &c]);
    for (id, number, ahead) in [(&a, 10, 0), (&b, 11, 0), (&w, 12, 2), (&c, 13, 3)] {
        assert_eq!(place(bench.ask(&agreed(id, number))), (number, ahead));
    }
}

#[test]
fn a_writer_wakes_all_readers_that_wait_side_by_side() {
    let mut bench = Bench::after(&[acquire("w", 1)]);
    let (a, b, w, c) = (reader(1), reader(2), writer(3), reader(4));
    enqueue(&mut bench, &[&a, &b, &w, &c]);
    let told = woken(&mut bench, &release("w"));
    assert_eq!(told, [first(&a), first(&b), second(&w)]);
    // They were told: one that takes its place, and one that goes again, tell nobody.
    assert_eq!(woken(&mut bench, &share_as("a", &a)), []);
    assert_eq!(woken(&mut bench, &release("a")), []);
    bench.ask(&share_as("b", &b));
    assert_eq!(woken(&mut bench, &release("b")), [first(&w), second(&c)]);
}

#[test]
fn only_the_last_reader_wakes_the_writer() {
    let mut bench = Bench::after(&[share("a", 1), share("b", 1)]);
    let w = writer(1);
    enqueue(&mut bench, &[&w]);
    assert_eq!(woken(&mut bench, &release("a")), []);
    assert_eq!(woken(&mut bench, &release("b")), [first(&w)]);
}

#[test]
fn a_writer_that_leaves_the_line_lets_the_readers_behind_it_in() {
    let mut bench = Bench::after(&[share("x", 1)]);
    let (w, a, b, v) = (writer(1), reader(2), reader(3), writer(4));
    enqueue(&mut bench, &[&w, &a, &b, &v]);
    let told = woken(&mut bench, &leave(&w));
    assert_eq!(told, [first(&a), first(&b), second(&v)]);

    // Also one in the middle; those before it were told already.
    let mut bench = Bench::after(&[share("x", 1)]);
    let (a, w, b) = (reader(1), writer(2), reader(3));
    enqueue(&mut bench, &[&a, &w, &b]);
    assert_eq!(woken(&mut bench, &leave(&w)), [first(&b)]);
}

#[test]
fn a_writer_becomes_a_reader_at_once_and_lets_readers_in_but_no_writer() {
    let mut bench = Bench::after(&[acquire("w", 7)]);
    let (a, v) = (reader(1), writer(2));
    enqueue(&mut bench, &[&a, &v]);
    bench.wait(INSTANT);
    let told = woken(&mut bench, &extend_shared("w", 7));
    assert_eq!(told, [first(&a), second(&v)]);
    let shared = holder("fencepost:shared", TTL);
    assert_eq!(bench.ask(&acquire("new", 1)), Reply::Held(shared.clone()));
    assert_eq!(bench.ask(&share_as("a", &a)), granted(7));
    // What the writer sent before and comes late makes it no writer again.
    assert_eq!(bench.ask(&extend("w", 7)), Reply::NotHeld(Some(shared)));
    assert_eq!(bench.ask(&release("w")), Reply::Released);

    let mut bench = Bench::after(&[acquire("w", 7)]);
    enqueue(&mut bench, &[&v, &a]);
    assert_eq!(woken(&mut bench, &extend_shared("w", 7)), []);
}

#[test]
fn readers_are_gone_after_a_reboot_and_stay_when_a_process_is_gone() {
    let mut bench = Bench::after(&[share("a", 1)]);
    bench.lock.evict_holder();
    assert!(!bench.lock.is_forgettable(TTL / 2));
    assert!(matches!(bench.ask(&acquire("w", 1)), Reply::Held(_)));
    bench.lock.after_reboot(Duration::ZERO);
    assert!(is_granted(&bench.ask(&acquire("w", 1))));
}
