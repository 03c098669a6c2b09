//! The promises of one lock on one node. `pairs` runs every command after every other one, with
//! and without an expiry in between; the rest of this file is what a pair cannot show.

mod pairs;
mod queue;
mod readers;

use std::num::NonZeroU32;

use super::*;
use crate::words::lease_id::LeaseAttempt;
use crate::words::owner::Owner;

const TTL: Duration = Duration::from_secs(10);
const INSTANT: Duration = Duration::from_millis(1);
/// A wall clock so late that no number in these tests is clamped by it, unless a test says so.
const LATE: u64 = 1 << 50;

fn value(who: &str) -> AttemptValue {
    AttemptValue::reported(who)
}

fn token(number: u64) -> FencingToken {
    FencingToken::new(number).unwrap()
}

fn ttl(time: Duration) -> Ttl {
    Ttl::new(time).unwrap()
}

fn acquire(who: &str, proposed: u64) -> Command {
    Command::Acquire {
        value: value(who),
        ttl: ttl(TTL),
        proposed: token(proposed),
        turn: Default::default(),
    }
}

fn steal(who: &str, proposed: u64) -> Command {
    Command::Steal {
        value: value(who),
        ttl: ttl(TTL),
        proposed: token(proposed),
        from: Vec::new(),
    }
}

fn share(who: &str, proposed: u64) -> Command {
    Command::Share {
        value: value(who),
        ttl: ttl(TTL),
        proposed: token(proposed),
        turn: Default::default(),
    }
}

fn extend_shared(who: &str, number: u64) -> Command {
    Command::ExtendShared {
        value: value(who),
        ttl: ttl(TTL),
        token: token(number),
    }
}

fn raise(who: &str, to: u64) -> Command {
    Command::Raise {
        value: value(who),
        to: token(to),
    }
}

fn extend(who: &str, number: u64) -> Command {
    Command::Extend {
        value: value(who),
        ttl: ttl(TTL),
        token: token(number),
        entries: NonZeroU32::MIN,
        repair: Repair::UnlessOvertaken,
    }
}

fn release(who: &str) -> Command {
    Command::Release {
        value: value(who),
        tombstone: None,
        ticket: Default::default(),
        follower: None,
        is_lease: false,
    }
}

fn withdraw(who: &str, tombstone: Duration) -> Command {
    Command::Release {
        value: value(who),
        tombstone: Some(tombstone),
        ticket: Default::default(),
        follower: None,
        is_lease: false,
    }
}

fn granted(register: u64) -> Reply {
    Reply::Granted {
        register: token(register),
        evicted: None,
    }
}

fn holder(who: &str, remaining: Duration) -> Holder {
    Holder {
        value: value(who),
        token: None,
        remaining: Some(remaining),
    }
}

fn at(elapsed: Duration) -> Now {
    Now {
        elapsed,
        wall_micros: LATE,
    }
}

/// A lock and a clock that only the test moves.
#[derive(Default)]
struct Bench {
    lock: LockState,
    elapsed: Duration,
}

impl Bench {
    fn after(commands: &[Command]) -> Self {
        let mut bench = Self::default();
        for command in commands {
            bench.ask(command);
        }
        bench
    }

    fn ask(&mut self, command: &Command) -> Reply {
        self.lock.apply(command, at(self.elapsed))
    }

    fn wait(&mut self, time: Duration) -> &mut Self {
        self.elapsed += time;
        self
    }

    fn register(&self) -> u64 {
        match self.lock.clone().apply(&Command::Inspect, at(self.elapsed)) {
            Reply::Snapshot(seen) => seen.register.get(),
            other => panic!("inspect answered {other:?}"),
        }
    }
}

// The register.

#[test]
fn a_grant_takes_the_proposal_when_it_is_ahead_and_the_next_number_when_it_is_not() {
    let mut bench = Bench::after(&[acquire("a", 100), release("a")]);
    assert_eq!(bench.ask(&acquire("b", 100)), granted(101), "a tie grows");
    bench.ask(&release("b"));
    assert_eq!(bench.ask(&acquire("c", 7)), granted(102), "a slow clock");
    bench.ask(&release("c"));
    assert_eq!(bench.ask(&acquire("d", 500)), granted(500));
}

#[test]
fn the_first_token_of_a_lock_is_never_zero() {
    assert_eq!(Bench::default().ask(&acquire("a", 0)), granted(1));
}

#[test]
fn a_proposal_from_the_far_future_is_cut_to_the_largest_skew() {
    let wall_micros = 1_000_000;
    let latest = wall_micros + MAX_SKEW.as_micros() as u64;
    let now = Now {
        elapsed: Duration::ZERO,
        wall_micros,
    };
    for (proposed, given) in [
        (latest - 1, latest - 1),
        (latest, latest),
        (latest + 1, latest),
        (FencingToken::MAX.get(), latest),
    ] {
        for command in [acquire("a", proposed), steal("a", proposed)] {
            let mut lock = LockState::default();
            assert_eq!(lock.apply(&command, now), granted(given), "{command:?}");
        }
    }
}

#[test]
fn a_counter_beyond_the_skew_still_grows_by_one() {
    let mut bench = Bench::after(&[acquire("a", 1), raise("a", 9_000_000_000_000), release("a")]);
    let now = Now {
        elapsed: Duration::ZERO,
        wall_micros: 0,
    };
    let reply = bench.lock.apply(&acquire("b", 9_900_000_000_000), now);
    assert_eq!(reply, granted(9_000_000_000_001));
}

#[test]
fn a_wall_clock_at_its_very_end_is_no_overflow() {
    let now = Now {
        elapsed: Duration::ZERO,
        wall_micros: u64::MAX,
    };
    let max = FencingToken::MAX.get();
    let reply = LockState::default().apply(&acquire("a", max), now);
    assert_eq!(reply, granted(max));
}

#[test]
fn a_used_up_counter_refuses_instead_of_handing_a_token_out_twice() {
    let max = FencingToken::MAX.get();
    let mut bench = Bench::after(&[acquire("a", 1), raise("a", max)]);
    assert_eq!(bench.ask(&acquire("a", 1)), granted(max), "no new grant");
    assert_eq!(bench.ask(&extend("a", max)), Reply::Extended);
    assert_eq!(bench.ask(&steal("b", 1)), Reply::Exhausted);
    assert_eq!(
        bench.ask(&acquire("b", 1)),
        Reply::Held(holder("a", TTL)),
        "a steal that cannot succeed throws nobody out"
    );
    bench.ask(&release("a"));
    assert_eq!(bench.ask(&acquire("b", 1)), Reply::Exhausted);
    assert_eq!(bench.ask(&steal("b", 1)), Reply::Exhausted);
    assert_eq!(bench.lock.holder(), None);
}

#[test]
fn the_counter_outlives_its_last_holder_by_the_retention_and_no_longer() {
    let held_until = |commands: &[Command]| {
        let mut bench = Bench::after(&commands[..1]);
        bench.wait(TTL / 2);
        commands[1..].iter().for_each(|command| {
            bench.ask(command);
        });
        bench
    };
    for (story, commands, end) in [
        ("expired", vec![acquire("a", 100)], TTL),
        (
            "released: counted from when it would have expired",
            vec![acquire("a", 100), release("a")],
            TTL,
        ),
        (
            "stolen",
            vec![acquire("a", 1), steal("b", 100)],
            TTL / 2 + TTL,
        ),
        (
            "extended",
            vec![acquire("a", 100), extend("a", 100)],
            TTL / 2 + TTL,
        ),
        (
            "repaired",
            vec![acquire("a", 1), release("a"), extend("a", 100)],
            TTL / 2 + TTL,
        ),
        (
            "looked at, asked for and raised, which prolongs nothing",
            vec![
                acquire("a", 1),
                raise("a", 100),
                acquire("a", 999),
                acquire("b", 999),
                Command::Inspect,
            ],
            TTL,
        ),
    ] {
        let mut bench = held_until(&commands);
        bench.elapsed = end + REGISTER_RETENTION - INSTANT;
        assert_eq!(bench.register(), 100, "{story}: kept");
        bench.wait(INSTANT);
        assert_eq!(bench.register(), 0, "{story}: forgotten");
        assert_eq!(bench.ask(&acquire("c", 5)), granted(5), "{story}: anew");
    }
}

// Extending what a node has forgotten.

#[test]
fn an_extend_repairs_a_free_lock_only_if_nobody_had_it_since() {
    for (token, repaired) in [(99, false), (100, true), (101, true)] {
        let mut bench = Bench::after(&[acquire("a", 100), release("a")]);
        let reply = bench.ask(&extend("b", token));
        if repaired {
            assert_eq!(reply, Reply::Repaired);
            assert_eq!(bench.register(), token);
            assert_eq!(bench.ask(&extend("b", token)), Reply::Extended);
        } else {
            assert_eq!(reply, Reply::NotHeld(None));
            assert_eq!(bench.register(), 100);
            assert_eq!(bench.lock.holder(), None);
        }
    }
}

#[test]
fn an_extend_never_shortens_because_it_may_have_been_overtaken() {
    let mut bench = Bench::after(&[acquire("a", 1)]);
    bench.ask(&Command::Extend {
        value: value("a"),
        ttl: ttl(TTL / 10),
        token: token(1),
        entries: NonZeroU32::MIN,
        repair: Repair::UnlessOvertaken,
    });
    bench.wait(TTL - INSTANT);
    assert!(matches!(bench.ask(&acquire("b", 2)), Reply::Held(_)));
    bench.wait(INSTANT);
    assert_eq!(bench.ask(&acquire("b", 2)), granted(2));
}

/// Whoever tried and failed by plain commands has lifted the register.
#[test]
fn an_extend_of_an_uninterrupted_lease_repairs_whatever_the_register_says() {
    let mut bench = Bench::after(&[acquire("b", 100), release("b")]);
    let uninterrupted = |who: &str| Command::Extend {
        value: value(who),
        ttl: ttl(TTL),
        token: token(7),
        entries: NonZeroU32::MIN,
        repair: Repair::Always,
    };
    assert_eq!(bench.ask(&extend("a", 7)), Reply::NotHeld(None));
    let of_several = match uninterrupted("a") {
        Command::Extend {
            value,
            ttl,
            token,
            entries,
            ..
        } => Command::Extend {
            value,
            ttl,
            token,
            entries,
            repair: Repair::Never,
        },
        other => other,
    };
    assert_eq!(bench.ask(&of_several), Reply::NotHeld(None));
    assert_eq!(bench.ask(&uninterrupted("a")), Reply::Repaired);
    assert!(matches!(
        bench.ask(&uninterrupted("b")),
        Reply::NotHeld(Some(_))
    ));
    let mut bench = Bench::after(&[withdraw("a", TTL)]);
    assert_eq!(bench.ask(&uninterrupted("a")), Reply::NotHeld(None));
}

/// Its thief may have released the lock by then: without the note of the steal, the victim would have it again.
#[test]
fn whoever_was_stolen_from_never_has_the_lock_again_by_a_repair() {
    let mut bench = Bench::after(&[acquire("a", 7), steal("thief", 8), release("thief")]);
    for repair in [Repair::Always, Repair::UnlessOvertaken, Repair::Never] {
        let renewal = Command::Extend {
            value: value("a"),
            ttl: ttl(TTL),
            token: token(9),
            entries: NonZeroU32::MIN,
            repair,
        };
        assert_eq!(bench.ask(&renewal), Reply::Stolen(value("thief")));
    }
    assert!(matches!(
        bench.ask(&acquire("b", 10)),
        Reply::Granted { .. }
    ));
}

// Attempts that were given up.

#[test]
fn a_withdrawn_attempt_is_refused_whatever_it_asks_for_until_its_time_is_over() {
    for late in [acquire("a", 200), steal("a", 200), extend("a", 200)] {
        let refusal = match late {
            Command::Extend { .. } => Reply::NotHeld(None),
            _ => Reply::Tombstoned,
        };
        let mut bench = Bench::after(&[withdraw("a", TTL)]);
        assert_eq!(bench.ask(&late), refusal);
        bench.wait(TTL - INSTANT);
        assert_eq!(bench.ask(&late), refusal, "the last instant");
        assert_eq!(bench.lock.holder(), None);
        assert_eq!(bench.register(), 0, "a refusal leaves no trace");
        bench.wait(INSTANT);
        bench.ask(&late);
        assert_eq!(bench.lock.holder(), Some(&value("a")));
    }
}

#[test]
fn withdrawing_one_attempt_refuses_no_other() {
    let mut bench = Bench::after(&[acquire("a", 1), withdraw("a", TTL), withdraw("b", TTL)]);
    assert_eq!(bench.ask(&acquire("c", 2)), granted(2));
    for gone in ["a", "b"] {
        assert_eq!(
            bench.ask(&acquire(gone, 3)),
            Reply::Held(holder("c", TTL)),
            "who holds it matters more than who gave up"
        );
        assert_eq!(bench.ask(&steal(gone, 3)), Reply::Tombstoned);
    }
    assert_eq!(
        bench.ask(&extend("c", 2)),
        Reply::Extended,
        "a refused steal throws nobody out"
    );
}

#[test]
fn withdrawing_twice_refuses_from_the_later_word_on() {
    let mut bench = Bench::after(&[withdraw("a", TTL)]);
    bench.wait(TTL / 2).ask(&withdraw("a", TTL));
    bench.wait(TTL - INSTANT);
    assert_eq!(bench.ask(&acquire("a", 1)), Reply::Tombstoned);
    bench.wait(INSTANT);
    assert_eq!(bench.ask(&acquire("a", 1)), granted(1));
}

#[test]
fn a_certain_release_after_an_uncertain_one_does_not_let_the_late_acquire_in() {
    let mut bench = Bench::after(&[withdraw("a", TTL), release("a")]);
    assert_eq!(bench.ask(&acquire("a", 1)), Reply::Tombstoned);
}

#[test]
fn a_refusal_without_end_is_no_overflow() {
    let mut bench = Bench::default();
    bench.wait(TTL);
    let reply = bench.ask(&withdraw("a", Duration::MAX));
    assert_eq!(reply, Reply::NotHeld(None));
    assert_eq!(bench.ask(&acquire("a", 1)), Reply::Tombstoned);
}

// Releasing by lease id.

fn leased(random: u128, lease: u128, attempt: u32) -> AttemptValue {
    let of = LeaseAttempt {
        lease: LeaseId::new(lease),
        attempt,
        max_hold: None,
    };
    AttemptValue::leased(random, of, &Owner::readable("client"))
}

fn acquire_as(value: AttemptValue, proposed: u64) -> Command {
    Command::Acquire {
        value,
        ttl: ttl(TTL),
        proposed: token(proposed),
        turn: Precedence::MayPass,
    }
}

fn release_lease(lease: u128) -> Command {
    Command::ReleaseLease {
        lease: LeaseId::new(lease),
        tombstone: TTL,
    }
}

#[test]
fn a_release_by_lease_id_releases_any_attempt_and_refuses_all_of_them_from_then_on() {
    let mut bench = Bench::after(&[acquire_as(leased(1, 7, 3), 5)]);
    let released = Reply::LeaseReleased(vec![Stored {
        value: leased(1, 7, 3),
        token: FencingToken::new(5),
    }]);
    assert_eq!(bench.ask(&release_lease(7)), released);
    assert_eq!(bench.ask(&release_lease(7)), Reply::Tombstoned);
    for value in [leased(1, 7, 3), leased(2, 7, 4), leased(3, 7, 1)] {
        let steal = Command::Steal {
            value: value.clone(),
            ttl: ttl(TTL),
            proposed: token(9),
            from: Vec::new(),
        };
        let extend = Command::Extend {
            value: value.clone(),
            ttl: ttl(TTL),
            token: token(9),
            entries: NonZeroU32::MIN,
            repair: Repair::Always,
        };
        assert_eq!(bench.ask(&acquire_as(value, 9)), Reply::Tombstoned);
        assert_eq!(bench.ask(&steal), Reply::Tombstoned);
        assert_eq!(bench.ask(&extend), Reply::NotHeld(None), "no repair");
    }
    assert_eq!(
        bench.ask(&acquire_as(leased(4, 8, 1), 9)),
        granted(9),
        "another lease"
    );
}

#[test]
fn a_release_by_lease_id_touches_no_other_lease_and_still_refuses_its_own() {
    let mut bench = Bench::after(&[acquire_as(leased(1, 8, 1), 5)]);
    assert!(matches!(
        bench.ask(&release_lease(7)),
        Reply::NotHeld(Some(_))
    ));
    assert_eq!(bench.lock.holder(), Some(&leased(1, 8, 1)));
    bench.ask(&release_lease(8));
    assert_eq!(
        bench.ask(&acquire_as(leased(2, 7, 1), 6)),
        Reply::Tombstoned
    );
    bench.wait(TTL);
    assert_eq!(bench.ask(&acquire_as(leased(2, 7, 1), 6)), granted(6));
}

/// Such an id is told to nobody before it was granted, and never acquired under again.
#[test]
fn an_id_that_the_service_made_leaves_no_tombstone() {
    let mut bench = Bench::after(&[acquire_as(leased(1, 7, 0), 5)]);
    assert!(matches!(
        bench.ask(&release_lease(7)),
        Reply::LeaseReleased(_)
    ));
    assert!(bench.lock.tombstones.is_empty());
    assert!(matches!(bench.ask(&release_lease(7)), Reply::NotHeld(None)));
}

#[test]
fn tombstones_are_bounded_and_the_oldest_makes_room() {
    let mut bench = Bench::default();
    for lease in 0..=MOST_TOMBSTONES as u128 {
        bench.ask(&release_lease(lease));
    }
    assert_eq!(bench.lock.tombstones.len(), MOST_TOMBSTONES);
    assert_eq!(bench.ask(&release_lease(1)), Reply::Tombstoned);
    assert_eq!(bench.ask(&release_lease(0)), Reply::NotHeld(None));
}

// Stealing.

#[test]
fn a_steal_says_who_was_thrown_out_and_that_one_can_do_nothing_any_more() {
    let mut bench = Bench::after(&[acquire("a", 100)]);
    let reply = bench.ask(&steal("b", 50));
    assert_eq!(
        reply,
        Reply::Granted {
            register: token(101),
            evicted: Some(value("a")),
        }
    );
    let thief = Some(holder("b", TTL));
    for command in [raise("a", 900), extend("a", 900), release("a")] {
        assert_eq!(bench.ask(&command), Reply::NotHeld(thief.clone()));
    }
    assert_eq!(bench.register(), 101);
}

#[test]
fn a_steal_sent_twice_is_one_steal() {
    let mut bench = Bench::after(&[acquire("a", 100), steal("b", 200)]);
    bench.wait(TTL / 2);
    assert_eq!(bench.ask(&steal("b", 300)), granted(200));
    bench.wait(TTL / 2);
    assert_eq!(
        bench
            .lock
            .clone()
            .apply(&acquire("c", 1), at(bench.elapsed)),
        granted(201)
    );
}

// Ends that no command brings about.

#[test]
fn evicting_a_dead_holder_frees_the_lock_at_once_and_keeps_the_counter() {
    let mut bench = Bench::after(&[acquire("a", 100)]);
    bench.lock.evict_holder();
    assert_eq!(bench.ask(&acquire("b", 1)), granted(101));
}

#[test]
fn the_holder_is_named_even_after_its_time_so_that_its_death_can_be_looked_up() {
    let bench = Bench::after(&[acquire("a", 1)]);
    assert_eq!(bench.lock.holder(), Some(&value("a")));
    assert_eq!(LockState::default().holder(), None);
}

#[test]
fn a_reboot_frees_everything_but_the_counter_though_time_begins_again() {
    let mut bench = Bench::default();
    bench.wait(1_000 * TTL);
    bench.ask(&withdraw("w", 1_000 * TTL));
    bench.ask(&acquire("a", 100));
    bench.elapsed = TTL;
    bench.lock.after_reboot(bench.elapsed);
    assert_eq!(
        bench.ask(&Command::Inspect),
        Reply::Snapshot(Snapshot {
            holder: None,
            readers: Vec::new(),
            register: token(100),
            waiting: 0,
        })
    );
    bench.wait(REGISTER_RETENTION - INSTANT);
    assert_eq!(bench.register(), 100, "kept, counted from the reboot");
    assert!(!bench.lock.is_forgettable(bench.elapsed));
    bench.wait(INSTANT);
    assert_eq!(bench.register(), 0);
    assert_eq!(bench.ask(&acquire("w", 3)), granted(3), "tombstones ended");
}

#[test]
fn a_lock_is_forgettable_exactly_when_forgetting_it_changes_no_reply() {
    let commands = [
        acquire("a", 7),
        steal("a", 7),
        raise("a", 7),
        extend("a", 7),
        release("a"),
        Command::Inspect,
    ];
    let stories: [&[Command]; 7] = [
        &[],
        &[Command::Inspect],
        &[acquire("a", 100)],
        &[acquire("a", 100), release("a")],
        &[acquire("b", 100), withdraw("b", TTL)],
        &[withdraw("a", TTL)],
        &[withdraw("a", 2 * REGISTER_RETENTION)],
    ];
    let moments = [
        Duration::ZERO,
        TTL - INSTANT,
        TTL,
        TTL + REGISTER_RETENTION - INSTANT,
        TTL + REGISTER_RETENTION,
        2 * REGISTER_RETENTION - INSTANT,
        2 * REGISTER_RETENTION,
    ];
    for story in stories {
        for moment in moments {
            let kept = Bench::after(story).lock;
            let told_apart = commands.iter().any(|command| {
                let now = at(moment);
                kept.clone().apply(command, now) != LockState::default().apply(command, now)
            });
            assert_eq!(
                kept.is_forgettable(moment),
                !told_apart,
                "{story:?} after {moment:?}"
            );
        }
    }
}
