//! [`SessionId`]: which holders and waiters belong to one client.
//!
//! Every client draws one. It is the prefix of the client's id, which every ticket carries, and of
//! the random part of every value. So a node can tell, without storing anything else, that a waiter
//! for one lock holds another. Labels cannot tell: two processes may share one.
//!
//! A client of the service that chooses its lease ids chooses its session the same way: lease ids
//! with the same first twelve digits belong to one session.

use std::fmt;
use std::str::FromStr;

/// The number of hexadecimal digits.
const DIGITS: usize = 12;
/// The number of the 128 bits after it.
const BEHIND: u32 = 128 - 4 * DIGITS as u32;

/// Which holders and waiters belong to one client: 48 bits, written as twelve digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(u64);

/// An invalid session id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected {DIGITS} hexadecimal digits")]
pub struct InvalidSession;

impl SessionId {
    /// The session of this number: its leading bits.
    #[must_use]
    pub const fn of(number: u128) -> Self {
        Self((number >> BEHIND) as u64)
    }

    /// The number with its leading bits replaced by this session.
    #[must_use]
    pub const fn lead(self, number: u128) -> u128 {
        (number << (4 * DIGITS)) >> (4 * DIGITS) | (self.0 as u128) << BEHIND
    }

    /// The session of a value or ticket id, which starts with it. A uuid has a dash in between.
    pub(super) fn leading(unique: &str) -> Option<Self> {
        let digits: String = unique.chars().filter(|c| *c != '-').take(DIGITS).collect();
        digits.parse().ok()
    }
}

impl FromStr for SessionId {
    type Err = InvalidSession;

    fn from_str(text: &str) -> Result<Self, InvalidSession> {
        let fits = text.len() == DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        match fits {
            true => u64::from_str_radix(text, 16)
                .map(Self)
                .map_err(|_| InvalidSession),
            false => Err(InvalidSession),
        }
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:0DIGITS$x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::{AttemptValue, ClientId, Owner, TicketId};

    #[test]
    fn ticket_and_values_of_one_session_share_it_whatever_else_is_random() {
        let session = SessionId::of(u128::MAX / 3);
        let client = ClientId::of(session.lead(u128::MAX));
        let owner = Owner::new("web-3").unwrap();
        let ticket = TicketId::new(&client, 7, true, &owner);
        assert_eq!(ticket.session(), Some(session));
        for random in [0, 1, u128::MAX, 1 << 79] {
            let random = session.lead(random);
            let plain = AttemptValue::labelled(random, &owner);
            assert_eq!(plain.session(), Some(session));
            assert_eq!(AttemptValue::reentrant(random, 1).session(), Some(session));
        }
        assert_eq!(session.lead(5) & 0xff, 5);
        assert_eq!(session.to_string().parse(), Ok(session));
    }

    #[test]
    fn who_is_not_ours_has_no_session() {
        let foreign = "abcdefabcdefabcdefabcdef";
        assert_eq!(AttemptValue::reported(foreign).session(), None);
        assert_eq!(AttemptValue::shared().session(), None);
        assert_eq!(TicketId::reported(foreign).session(), None);
        for text in ["", "abc", "+bcdefabcdef", "abcdefabcdefa", "ü"] {
            assert!(text.parse::<SessionId>().is_err(), "{text}");
        }
    }
}
