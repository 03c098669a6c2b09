//! The token that an attempt proposes: the client's clock, if the nodes' clocks confirm it. Pure.
//!
//! Only speed depends on it: a token that is too small has to be raised, and one that is far ahead
//! makes every other client raise theirs. A clock that is years ahead must never exhaust the
//! numbers.

use std::time::Duration;

use super::MOST_NODES;
use crate::words::token::FencingToken;

/// How far a client's clock may differ from the nodes' clocks and still be trusted.
pub(crate) const MOST_OFF: Duration = Duration::from_secs(60);

/// A proposal by the clocks alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// The token.
    pub token: FencingToken,
    /// The difference, if the client's clock was too far off and was not used.
    pub off: Option<Duration>,
}

/// The client's wall clock, or the median of the nodes' clocks if the two differ too much. In
/// microseconds.
#[must_use]
pub fn by_clocks(wall: u64, nodes: impl IntoIterator<Item = u64>) -> Proposal {
    let mut known = [0; MOST_NODES];
    let mut count = 0;
    for (place, time) in known.iter_mut().zip(nodes) {
        *place = time;
        count += 1;
    }
    let known = &mut known[..count];
    known.sort_unstable();
    // The smaller of the two middle ones: a token that is behind is raised, one that is ahead
    // stays.
    let median = known.get(count.saturating_sub(1) / 2).copied();
    let off = median.map_or(0, |median| median.abs_diff(wall));
    let off = Duration::from_micros(off);
    match median {
        Some(median) if off > MOST_OFF => Proposal {
            token: FencingToken::saturating(median),
            off: Some(off),
        },
        _ => Proposal {
            token: FencingToken::saturating(wall),
            off: None,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_800_000_000_000_000;
    const SECOND: u64 = 1_000_000;
    const DAY: u64 = 86_400 * SECOND;

    fn proposed(wall: u64, nodes: &[u64]) -> (u64, bool) {
        let proposal = by_clocks(wall, nodes.iter().copied());
        (proposal.token.get(), proposal.off.is_some())
    }

    #[test]
    fn a_clock_within_a_minute_of_the_nodes_is_believed() {
        for wall in [NOW - 59 * SECOND, NOW, NOW + 60 * SECOND] {
            assert_eq!(proposed(wall, &[NOW, NOW, NOW]), (wall, false));
        }
        assert_eq!(proposed(NOW, &[]), (NOW, false), "nobody to compare with");
    }

    #[test]
    fn a_client_days_wrong_or_in_the_year_2300_proposes_what_the_nodes_say() {
        let year_2300 = NOW + 270 * 365 * DAY;
        for wall in [NOW - 2 * DAY, NOW + 2 * DAY, year_2300, 0, u64::MAX] {
            assert_eq!(proposed(wall, &[NOW]), (NOW, true));
            assert_eq!(proposed(wall, &[NOW + 1, NOW, NOW - 1]), (NOW, true));
        }
    }

    #[test]
    fn a_minority_of_nodes_with_a_wrong_clock_moves_nothing() {
        let nodes = [NOW + DAY, NOW, NOW + 5, NOW - DAY, NOW + 2];
        assert_eq!(proposed(NOW + 7, &nodes), (NOW + 7, false));
        assert_eq!(proposed(NOW + 2 * DAY, &nodes), (NOW + 2, true));
        assert_eq!(proposed(NOW + DAY, &[NOW, NOW + 300 * SECOND]).0, NOW);
    }
}
