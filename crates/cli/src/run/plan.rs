//! [`Plan`]: when a command has to be told to stop, and when it has to be dead. Pure decisions.

use std::time::Duration;

/// The longest that we go without a look at the clock: timers stand still while the machine is
/// suspended, and leases do not.
const LONGEST_NAP: Duration = Duration::from_secs(1);
/// How often we look whether anything is left of the group when the command has ended.
const LOOK: Duration = Duration::from_millis(20);
/// How long before the end of the validity a command is killed, at the most. It takes the system a
/// moment, and on a machine with six times the work that it can do, over a hundred milliseconds.
const LONGEST_MARGIN: Duration = Duration::from_millis(250);

/// How a command is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// From TERM until the end of the validity.
    grace: Duration,
    /// From KILL until the end of the validity.
    margin: Duration,
}

/// What is known.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Situation {
    /// For how long the lock is still ours.
    pub(crate) remaining: Duration,
    /// How long ago the group got TERM from us.
    pub(crate) told: Option<Duration>,
    /// How long ago the command itself ended; others of its group are still there.
    pub(crate) ended: Option<Duration>,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing for that long.
    Wait(Duration),
    /// The lock ends in a moment: send TERM.
    Stop,
    /// The command has ended and left others behind: send TERM to them.
    StopLeftovers,
    /// They were told to stop, and had their time: send KILL.
    Finish,
    /// The lock ends, or has ended: send KILL.
    Kill,
}

impl Plan {
    pub(crate) fn new(grace: Duration) -> Self {
        Self {
            grace,
            margin: LONGEST_MARGIN.min(grace / 2),
        }
    }

    pub(crate) fn next(&self, now: Situation) -> Step {
        let until_kill = now.remaining.saturating_sub(self.margin);
        if until_kill.is_zero() {
            return Step::Kill;
        }
        if let Some(told) = now.told {
            // Also when the lock was renewed after all: what was told to stop does stop.
            let patience = (self.grace - self.margin).saturating_sub(told);
            return match patience.min(until_kill) {
                Duration::ZERO => Step::Finish,
                time => Step::Wait(nap(time, now)),
            };
        }
        let until_stop = now.remaining.saturating_sub(self.grace);
        if until_stop.is_zero() {
            return Step::Stop;
        }
        if now.ended.is_some_and(|ended| ended >= self.grace / 2) {
            return Step::StopLeftovers;
        }
        Step::Wait(nap(until_stop, now))
    }
}

fn nap(time: Duration, now: Situation) -> Duration {
    time.min(match now.ended {
        Some(_) => LOOK,
        None => LONGEST_NAP,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn at(remaining: u64) -> Situation {
        Situation {
            remaining: ms(remaining),
            ..Situation::default()
        }
    }

    #[test]
    fn term_comes_a_grace_before_the_end_and_kill_a_margin_before_it() {
        let plan = Plan::new(ms(2000));
        assert_eq!(plan.next(at(20_000)), Step::Wait(LONGEST_NAP));
        assert_eq!(plan.next(at(2500)), Step::Wait(ms(500)));
        assert_eq!(plan.next(at(2000)), Step::Stop);
        let told = |told| Situation {
            told: Some(ms(told)),
            ..at(2000 - told)
        };
        assert_eq!(plan.next(told(1000)), Step::Wait(ms(750)));
        assert_eq!(plan.next(told(1750)), Step::Kill);
        assert_eq!(plan.next(told(2000)), Step::Kill);
    }

    #[test]
    fn what_is_not_ours_any_more_is_killed_at_once() {
        assert_eq!(Plan::new(ms(2000)).next(at(0)), Step::Kill);
        assert_eq!(Plan::new(ms(4)).next(at(0)), Step::Kill);
    }

    #[test]
    fn a_renewal_after_term_does_not_take_it_back() {
        let renewed = Situation {
            told: Some(ms(1900)),
            ..at(20_000)
        };
        assert_eq!(Plan::new(ms(2000)).next(renewed), Step::Finish);
    }

    #[test]
    fn leftovers_may_end_by_themselves_then_get_term_then_kill() {
        let plan = Plan::new(ms(2000));
        let ended = |ended, told| Situation {
            ended: Some(ms(ended)),
            told,
            ..at(20_000)
        };
        assert_eq!(plan.next(ended(0, None)), Step::Wait(LOOK));
        assert_eq!(plan.next(ended(1000, None)), Step::StopLeftovers);
        assert_eq!(plan.next(ended(1500, Some(ms(500)))), Step::Wait(LOOK));
        assert_eq!(plan.next(ended(2900, Some(ms(1900)))), Step::Finish);
    }
}
