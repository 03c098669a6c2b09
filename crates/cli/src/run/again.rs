//! When a turn that is over is followed by another. Pure decisions.

use std::time::Duration;

use nix::libc::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};

use crate::args::Again;
use crate::exit::Exit;
use crate::voice::Ended;

/// How long after the end of one turn the next one begins, at the least: a command that fails at
/// once must not keep the nodes busy, and others shall have their chance to lead.
pub(super) const PAUSE: Duration = Duration::from_secs(1);

/// How a turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The command ended, and what was held was released.
    Command(Ended),
    /// What was held was lost.
    Lost,
    /// It did not begin: too few nodes could be asked.
    NoQuorum,
    /// It did not begin, for another reason.
    NotBegun,
}

/// What else matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Circumstances {
    /// Whether we were told to end.
    pub(super) told_to_end: bool,
    /// Whether the command has ever begun: what never worked is more likely a mistake than a fault.
    pub(super) began: bool,
    /// Whether the user waits for as long as it takes.
    pub(super) waits_for_ever: bool,
}

/// Whether another turn follows.
pub(super) fn follows(again: Again, end: End, now: Circumstances) -> bool {
    match (again, end) {
        _ if now.told_to_end => false,
        (Again::Never, _) | (_, End::NotBegun) => false,
        (_, End::Lost) => true,
        (_, End::NoQuorum) => now.began && now.waits_for_ever,
        (Again::Lost, End::Command(_)) => false,
        (Again::Always, End::Command(ended)) => !is_final(ended),
    }
}

/// Whether a command that ended so shall not run again: it was ended on purpose (at a terminal ^C is for
/// it, and not for us), or it cannot be executed.
fn is_final(ended: Ended) -> bool {
    match ended {
        Ended::Signal(number) => [SIGHUP, SIGINT, SIGQUIT, SIGTERM].contains(&number),
        Ended::Code(code) => [Exit::CannotExecute.code(), Exit::NotFound.code()].contains(&code),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Circumstances = Circumstances {
        told_to_end: false,
        began: true,
        waits_for_ever: true,
    };

    #[test]
    fn another_turn_follows_when_the_user_wants_it_and_it_was_not_ended_on_purpose() {
        let done = |code| End::Command(Ended::Code(code));
        let killed = |number| End::Command(Ended::Signal(number));
        for (again, end, expected) in [
            (Again::Never, End::Lost, false),
            (Again::Never, done(0), false),
            (Again::Lost, End::Lost, true),
            (Again::Lost, End::NoQuorum, true),
            (Again::Lost, done(1), false),
            (Again::Lost, End::NotBegun, false),
            (Again::Always, End::Lost, true),
            (Again::Always, End::NotBegun, false),
            (Again::Always, done(0), true),
            (Again::Always, done(1), true),
            (Again::Always, done(126), false),
            (Again::Always, done(127), false),
            (Again::Always, killed(9), true),
            (Again::Always, killed(2), false),
            (Again::Always, killed(15), false),
        ] {
            assert_eq!(follows(again, end, NOW), expected, "{again:?} {end:?}");
            let told_to_end = true;
            let now = Circumstances { told_to_end, ..NOW };
            assert!(!follows(again, end, now), "{again:?} {end:?}");
        }
    }

    #[test]
    fn nodes_that_were_never_reached_or_not_in_time_are_not_waited_for() {
        for now in [
            Circumstances {
                began: false,
                ..NOW
            },
            Circumstances {
                waits_for_ever: false,
                ..NOW
            },
        ] {
            assert!(!follows(Again::Always, End::NoQuorum, now));
            assert!(follows(Again::Always, End::Lost, now));
        }
    }
}
