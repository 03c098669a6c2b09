//! What the holders of a semaphore's permits did, and whether it was allowed: too many at a time,
//! two in one slot, tokens of a slot that repeat or fall.

use std::fmt;
use std::str::FromStr;

use crate::history::{Turn, check, crowds, most_at_once};

/// One permit, as its holder saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stay {
    /// Which slot.
    pub slot: usize,
    /// When, and with which token.
    pub turn: Turn,
}

impl fmt::Display for Stay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.slot, self.turn)
    }
}

impl FromStr for Stay {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let fault = || format!("not a stay: {line:?}");
        let (slot, turn) = line.split_once(' ').ok_or_else(fault)?;
        Ok(Self {
            slot: slot.parse().map_err(|_| fault())?,
            turn: turn.parse()?,
        })
    }
}

/// Checks that never more than `most` permits were valid at the same time, and of each slot what is
/// checked of a lock. Returns how many there were at once, at the most.
///
/// # Errors
/// The first thing that is wrong.
pub fn check_crowd(stays: &[Stay], most: usize) -> Result<usize, String> {
    let turns: Vec<_> = stays.iter().map(|stay| stay.turn).collect();
    if let Some((time, now)) = crowds(&turns).find(|(_, now)| *now > most) {
        return Err(format!("{now} at a time where {most} may be, at {time}"));
    }
    if let Some(stay) = stays.iter().find(|stay| stay.slot >= most) {
        return Err(format!("there is no slot {}", stay.slot));
    }
    for slot in 0..most {
        let of_slot = stays.iter().filter(|stay| stay.slot == slot);
        let turns: Vec<_> = of_slot.map(|stay| stay.turn).collect();
        check(&turns).map_err(|fault| format!("slot {slot}: {fault}"))?;
    }
    Ok(most_at_once(&turns))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stay(slot: usize, asked: u64, begin: u64, end: u64, token: u64) -> Stay {
        let turn = Turn {
            asked,
            begin,
            end,
            token,
        };
        Stay { slot, turn }
    }

    #[test]
    fn a_good_history_passes() {
        let stays = [
            stay(0, 0, 1, 5, 10),
            stay(1, 0, 2, 6, 10),
            stay(0, 2, 5, 9, 11),
            stay(1, 2, 7, 7, 12),
        ];
        assert_eq!(check_crowd(&stays, 2), Ok(2));
        assert_eq!(stays[3].to_string().parse(), Ok(stays[3]));
        assert!("1 2 3".parse::<Stay>().is_err());
        assert!("x 1 2 3 4".parse::<Stay>().is_err());
    }

    #[test]
    fn one_too_many_is_found_whatever_slot_it_says_it_has() {
        let stays = [
            stay(0, 0, 1, 5, 10),
            stay(1, 0, 2, 6, 10),
            stay(0, 0, 4, 9, 11),
        ];
        let fault = check_crowd(&stays, 2).unwrap_err();
        assert!(fault.contains("3 at a time where 2"), "{fault}");
    }

    #[test]
    fn two_in_one_slot_are_found_though_they_are_not_too_many() {
        let fault = check_crowd(&[stay(1, 0, 1, 5, 10), stay(1, 0, 4, 9, 11)], 3).unwrap_err();
        assert!(fault.contains("slot 1: two at a time"), "{fault}");
    }

    #[test]
    fn a_slot_that_does_not_exist_is_found() {
        let fault = check_crowd(&[stay(3, 0, 1, 5, 10)], 3).unwrap_err();
        assert!(fault.contains("no slot 3"), "{fault}");
    }

    #[test]
    fn tokens_are_checked_slot_by_slot() {
        let falls = [stay(0, 0, 1, 2, 10), stay(0, 3, 4, 5, 9)];
        let fault = check_crowd(&falls, 3).unwrap_err();
        assert!(fault.contains("had been given before"), "{fault}");
        let twice = [stay(0, 0, 1, 2, 10), stay(0, 0, 4, 5, 10)];
        assert!(check_crowd(&twice, 3).unwrap_err().contains("twice"));
        let of_two_slots = [stay(0, 0, 1, 2, 10), stay(1, 3, 4, 5, 9)];
        assert_eq!(check_crowd(&of_two_slots, 3), Ok(1));
    }
}
