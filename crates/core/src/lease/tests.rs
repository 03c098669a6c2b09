#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::*;
use crate::words::owner::Owner;

const RENEWED: Limits = Limits {
    renew: true,
    max_hold: None,
    max_renewals: None,
};

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn at(millis: u64) -> Moment {
    Moment::from_start(ms(millis))
}

/// A lease of 900 ms that was acquired at zero and is valid for 890.
fn lease(limits: Limits) -> LeaseState {
    let ttl = Ttl::new(ms(900)).unwrap();
    LeaseState::new(ttl, at(890), limits, false, at(0))
}

fn extended(asker: Asker, until: u64) -> LeaseEvent {
    LeaseEvent::Extended {
        asker,
        outcome: Extension::Extended(at(until)),
        in_flight: false,
    }
}

fn failed(outcome: Extension) -> LeaseEvent {
    LeaseEvent::Extended {
        asker: Asker::Renewer,
        outcome,
        in_flight: false,
    }
}

/// What it was lost by when that happened at that time.
fn lost(lease: &mut LeaseState, event: LeaseEvent, now: u64) -> Option<LossReason> {
    let actions = lease.on(event, at(now));
    assert_eq!(actions.lost.is_some(), actions.ended);
    if actions.ended {
        assert_eq!((actions.look_at, lease.is_over()), (None, true));
        assert_eq!(lease.remaining(at(0)), Duration::ZERO);
    }
    actions.lost
}

#[test]
fn the_first_renewal_comes_after_a_third_of_the_ttl_or_half_of_what_is_left() {
    assert_eq!(lease(RENEWED).look_at(), Some(at(300)));
    let ttl = Ttl::new(ms(900)).unwrap();
    let slow = LeaseState::new(ttl, at(890), RENEWED, false, at(790));
    assert_eq!(slow.look_at(), Some(at(840)));
}

#[test]
fn a_renewal_that_is_due_begins_once() {
    let mut lease = lease(RENEWED);
    assert!(!lease.on(LeaseEvent::Due, at(299)).renew);
    let actions = lease.on(LeaseEvent::Due, at(300));
    assert!(actions.renew && !actions.ended);
    assert_eq!(
        actions.look_at,
        Some(at(865)),
        "while it is in flight, only the end counts"
    );
    assert!(!lease.on(LeaseEvent::Due, at(301)).renew);
}

#[test]
fn a_renewed_lease_lasts_longer_and_is_renewed_again() {
    let mut lease = lease(RENEWED);
    let _ = lease.on(LeaseEvent::Due, at(300));
    let actions = lease.on(extended(Asker::Renewer, 1190), at(310));
    assert_eq!(actions.look_at, Some(at(610)));
    assert_eq!(lease.remaining(at(310)), ms(880));
}

#[test]
fn an_extension_never_shortens_a_lease() {
    let mut lease = lease(RENEWED);
    let _ = lease.on(extended(Asker::Holder, 1500), at(10));
    let _ = lease.on(extended(Asker::Renewer, 1200), at(20));
    assert_eq!(lease.deadline(), at(1500));
}

#[test]
fn a_renewal_without_a_quorum_is_tried_again_and_takes_nothing_away() {
    let mut lease = lease(RENEWED);
    let _ = lease.on(LeaseEvent::Due, at(300));
    let actions = lease.on(failed(Extension::NoQuorum), at(400));
    assert_eq!(actions.look_at, Some(at(445)), "a twentieth of the TTL");
    assert_eq!(lease.deadline(), at(890));
    let why = lost(&mut lease, LeaseEvent::Due, 866);
    assert_eq!(why, Some(LossReason::NoQuorum));
}

#[test]
fn the_loss_is_told_before_the_deadline() {
    let mut lease = lease(Limits::default());
    assert_eq!(lease.look_at(), Some(at(865)));
    assert_eq!(lost(&mut lease, LeaseEvent::Due, 864), None);
    let why = lost(&mut lease, LeaseEvent::Due, 865);
    assert_eq!(why, Some(LossReason::Expired), "it was never renewed");
}

#[test]
fn a_renewal_that_hangs_until_the_notice_found_no_quorum() {
    let mut lease = lease(RENEWED);
    let _ = lease.on(LeaseEvent::Due, at(300));
    let why = lost(&mut lease, LeaseEvent::Due, 865);
    assert_eq!(why, Some(LossReason::NoQuorum));
}

#[test]
fn after_the_deadline_it_says_that_it_is_lost() {
    let mut lease = lease(RENEWED);
    assert_eq!(lost(&mut lease, LeaseEvent::Asked, 889), None);
    let why = lost(&mut lease, LeaseEvent::Asked, 890);
    assert_eq!(why, Some(LossReason::Suspended), "no timer told it before");
    assert_eq!(lease.loss(), Some(&LossReason::Suspended));
}

/// A stopped process went on behind its deadline, and the time-out of the renewal that was in flight came before
/// anything else: it was said to have had no quorum.
#[test]
fn a_renewal_that_times_out_behind_the_deadline_was_suspended() {
    let mut lease = lease(RENEWED);
    let _ = lease.on(LeaseEvent::Due, at(300));
    let why = lost(&mut lease, failed(Extension::NoQuorum), 2000);
    assert_eq!(why, Some(LossReason::Suspended));
}

#[test]
fn a_majority_that_has_it_no_more_ends_it_at_once() {
    let stolen = LossReason::Stolen {
        by: Owner::new("thief").unwrap(),
    };
    let mut lease = lease(RENEWED);
    let why = lost(&mut lease, failed(Extension::Lost(stolen.clone())), 10);
    assert_eq!(why, Some(stolen));
}

/// It was called expired while it was valid, because the nodes were flushed.
#[test]
fn what_nobody_saw_is_unknown_until_its_time_is_up() {
    let gone = || failed(Extension::Lost(LossReason::Unknown));
    let why = lost(&mut lease(RENEWED), gone(), 10);
    assert_eq!(why, Some(LossReason::Unknown));
    let why = lost(&mut lease(Limits::default()), gone(), 900);
    assert_eq!(why, Some(LossReason::Expired));
    let why = lost(&mut lease(RENEWED), gone(), 2000);
    assert_eq!(why, Some(LossReason::Suspended));
}

#[test]
fn a_round_that_was_too_late_for_its_own_deadline_ends_only_a_lease_that_is_over() {
    let mut renewed = lease(RENEWED);
    let _ = renewed.on(extended(Asker::Renewer, 1190), at(310));
    assert_eq!(lost(&mut renewed, failed(Extension::TooLate), 900), None);
    assert_eq!(renewed.deadline(), at(1190));
    let mut other = lease(Limits::default());
    let why = lost(&mut other, failed(Extension::TooLate), 900);
    assert_eq!(why, Some(LossReason::Expired));
}

#[test]
fn max_hold_ends_it_however_often_it_is_extended() {
    let mut lease = lease(Limits {
        max_hold: Some(ms(1000)),
        ..RENEWED
    });
    let actions = lease.on(extended(Asker::Holder, 1500), at(600));
    assert_eq!(lease.deadline(), at(1000));
    assert_eq!(actions.look_at, Some(at(975)), "nothing is left to renew");
    assert!(!lease.on(LeaseEvent::Due, at(950)).renew);
    let why = lost(&mut lease, LeaseEvent::Due, 975);
    assert_eq!(why, Some(LossReason::MaxHold));
}

#[test]
fn only_renewals_count_towards_max_renewals() {
    let mut lease = lease(Limits {
        max_renewals: Some(1),
        ..RENEWED
    });
    let _ = lease.on(extended(Asker::Holder, 900), at(10));
    let _ = lease.on(failed(Extension::NoQuorum), at(20));
    assert!(lease.on(LeaseEvent::Due, at(400)).renew);
    let _ = lease.on(extended(Asker::Renewer, 1290), at(410));
    assert!(!lease.on(LeaseEvent::Due, at(1200)).renew);
    let why = lost(&mut lease, LeaseEvent::Due, 1265);
    assert_eq!(why, Some(LossReason::MaxHold));
}

#[test]
fn a_released_lease_is_over_and_was_not_lost() {
    let mut lease = lease(RENEWED);
    let actions = lease.on(LeaseEvent::Released, at(10));
    assert_eq!((actions.ended, actions.lost), (true, None));
    assert!(lease.is_over() && lease.loss().is_none());
    assert_eq!(lease.look_at(), None);
}

#[test]
fn what_is_over_never_comes_back() {
    let mut lost = lease(RENEWED);
    let _ = lost.on(LeaseEvent::Lost(LossReason::ClientGone), at(10));
    for event in [
        extended(Asker::Renewer, 9999),
        LeaseEvent::Due,
        LeaseEvent::Asked,
        LeaseEvent::Lost(LossReason::Expired),
        LeaseEvent::Released,
    ] {
        let actions = lost.on(event, at(400));
        assert!(!actions.renew && actions.lost.is_none() && actions.look_at.is_none());
        assert_eq!(lost.loss(), Some(&LossReason::ClientGone));
        assert_eq!(lost.remaining(at(400)), Duration::ZERO);
    }
}

#[test]
fn answered_commands_are_dropped_once_after_a_while() {
    let ttl = Ttl::new(ms(9000)).unwrap();
    let mut lease = LeaseState::new(ttl, at(8900), RENEWED, true, at(0));
    assert_eq!(lease.look_at(), Some(at(1000)));
    let actions = lease.on(LeaseEvent::Due, at(1000));
    assert!(actions.tidy && !actions.renew);
    assert_eq!(actions.look_at, Some(at(3000)));
    let in_flight = LeaseEvent::Extended {
        asker: Asker::Renewer,
        outcome: Extension::Extended(at(11_900)),
        in_flight: true,
    };
    assert_eq!(lease.on(in_flight, at(3000)).look_at, Some(at(4000)));
}

#[test]
fn the_renewer_gives_up_on_silent_nodes_while_there_is_time_to_try_again() {
    let lease = lease(RENEWED);
    assert_eq!(lease.time_to_extend(Asker::Holder, at(90)), ms(800));
    assert_eq!(lease.time_to_extend(Asker::Renewer, at(90)), ms(400));
    assert_eq!(lease.time_to_extend(Asker::Holder, at(999)), ms(0));
}
