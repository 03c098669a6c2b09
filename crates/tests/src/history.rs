//! What a run did, and whether it was allowed: leases that overlap, tokens that repeat or fall.
//!
//! Times are nanoseconds of the machine's boot clock, which all its processes share.

use std::fmt;
use std::str::FromStr;

/// One acquisition, as its holder saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// When the attempt began.
    pub asked: u64,
    /// When it returned.
    pub begin: u64,
    /// When the holder began to give it back, or its validity ended, whichever was first.
    pub end: u64,
    /// The fencing token.
    pub token: u64,
}

impl fmt::Display for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            asked,
            begin,
            end,
            token,
        } = self;
        write!(f, "{asked} {begin} {end} {token}")
    }
}

impl FromStr for Turn {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let numbers: Result<Vec<u64>, _> = line.split(' ').map(str::parse).collect();
        match numbers.as_deref() {
            Ok(&[asked, begin, end, token]) => Ok(Self {
                asked,
                begin,
                end,
                token,
            }),
            _ => Err(format!("not a turn: {line:?}")),
        }
    }
}

/// Checks that no two leases were valid at the same time, that no token was given twice, and that
/// whoever asked after another had its lock got the larger token.
///
/// # Errors
/// The first thing that is wrong.
pub fn check(turns: &[Turn]) -> Result<(), String> {
    let mut turns = turns.to_vec();
    turns.sort_by_key(|turn| turn.begin);
    for pair in turns.windows(2) {
        if pair[1].begin < pair[0].end {
            return Err(format!("two at a time: {} and {}", pair[0], pair[1]));
        }
    }
    let mut tokens: Vec<u64> = turns.iter().map(|turn| turn.token).collect();
    tokens.sort_unstable();
    if let Some(twice) = tokens.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(format!("token {} twice", twice[0]));
    }
    let by_begin = turns.clone();
    turns.sort_by_key(|turn| turn.asked);
    let mut returned = by_begin.iter().peekable();
    let mut largest = None;
    for turn in &turns {
        while let Some(earlier) = returned.next_if(|earlier| earlier.begin < turn.asked) {
            largest = largest.max(Some(earlier.token));
        }
        if largest.is_some_and(|token| token >= turn.token) {
            return Err(format!("token {largest:?} had been given before {turn}"));
        }
    }
    Ok(())
}

/// How many there are at each moment at which one comes or goes.
pub(crate) fn crowds(turns: &[Turn]) -> impl Iterator<Item = (u64, usize)> {
    let lasting = || turns.iter().filter(|turn| turn.begin < turn.end);
    let goes = lasting().map(|turn| (turn.end, false));
    let comes = lasting().map(|turn| (turn.begin, true));
    let mut steps: Vec<_> = goes.chain(comes).collect();
    // Whoever goes makes room for whoever comes at the same moment.
    steps.sort_unstable();
    let mut now = 0_usize;
    steps.into_iter().map(move |(time, comes)| {
        now = if comes { now + 1 } else { now - 1 };
        (time, now)
    })
}

/// How many there were at once, at the most.
pub(crate) fn most_at_once(turns: &[Turn]) -> usize {
    crowds(turns).map(|(_, now)| now).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(asked: u64, begin: u64, end: u64, token: u64) -> Turn {
        Turn {
            asked,
            begin,
            end,
            token,
        }
    }

    #[test]
    fn a_good_history_passes() {
        let turns = [turn(0, 1, 5, 10), turn(0, 5, 6, 11), turn(7, 8, 9, 12)];
        assert_eq!(check(&turns), Ok(()));
        let text = turns[2].to_string();
        assert_eq!(text.parse(), Ok(turns[2]));
        assert!("1 2 3".parse::<Turn>().is_err());
    }

    #[test]
    fn two_at_a_time_are_found() {
        let fault = check(&[turn(0, 1, 5, 10), turn(2, 4, 6, 11)]).unwrap_err();
        assert!(fault.contains("two at a time"), "{fault}");
    }

    #[test]
    fn a_token_given_twice_is_found() {
        let fault = check(&[turn(0, 1, 2, 10), turn(0, 3, 4, 10)]).unwrap_err();
        assert!(fault.contains("twice"), "{fault}");
    }

    #[test]
    fn a_token_that_falls_is_found_only_where_the_order_is_real() {
        let fault = check(&[turn(0, 1, 2, 10), turn(2, 3, 4, 9)]).unwrap_err();
        assert!(fault.contains("had been given before"), "{fault}");
        let both_asked_at_once = [turn(0, 1, 2, 10), turn(0, 3, 4, 9)];
        assert_eq!(check(&both_asked_at_once), Ok(()));
    }
}
