//! [`SessionId`]: which holders and waiters are one and the same party.
//!
//! Every client draws one. It leads the client's id, which every ticket carries, and the random part
//! of every value that the client draws: so a node tells, without storing anything more, that who
//! waits for one lock holds another. Labels never tell that: two processes may share one.
//!
//! A client of the service that chooses its lease ids chooses its session the same way: lease ids
//! that begin with the same twelve digits are of one session.

use std::fmt;
use std::str::FromStr;

/// How many hexadecimal digits it has.
const DIGITS: usize = 12;
/// How many of 128 bits come behind it.
const BEHIND: u32 = 128 - 4 * DIGITS as u32;

/// Which holders and waiters are one and the same party: 48 bits, written as twelve digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(u64);

/// A text that is no session id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a session id has {DIGITS} hexadecimal digits")]
pub struct InvalidSession;

impl SessionId {
    /// The session that this number begins with.
    #[must_use]
    pub const fn of(number: u128) -> Self {
        Self((number >> BEHIND) as u64)
    }

    /// That number, beginning with this session. What is behind it stays.
    #[must_use]
    pub const fn lead(self, number: u128) -> u128 {
        (number << (4 * DIGITS)) >> (4 * DIGITS) | (self.0 as u128) << BEHIND
    }

    /// The session of a value or a ticket id, which begins with it. A uuid has a dash in between.
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
