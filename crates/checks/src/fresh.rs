//! A lease that is handed out is valid at that moment.
//!
//! Only for histories in which no time passes between the return of an acquisition and its being
//! written down: those of the simulation. A real process may be stopped in between.

use crate::history::History;
use crate::violation::Violation;

/// All leases that were over when they were handed out.
#[must_use]
pub fn check(history: &History) -> Vec<Violation> {
    let mut found = Vec::new();
    for turn in history.turns() {
        if let Some(at) = turn.acquired
            && turn.valid_until <= at
        {
            let what = format!(
                "a lease of {:?} was over when it was handed out",
                turn.of.lock
            );
            found.push(Violation::new("fresh", what, turn.shown_by()));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Sample;

    #[test]
    fn a_lease_with_time_left_is_fine() {
        assert_eq!(check(&Sample::new().acquired(1, 10, 7, 11).history()), []);
    }

    #[test]
    fn a_lease_that_is_over_is_found() {
        let found = check(&Sample::new().acquired(1, 10, 7, 10).history());
        assert_eq!(found.len(), 1);
    }
}
