//! [`LeaseId`]: names one lease of the lock service; [`LeaseAttempt`]: one numbered try at it.

use std::fmt;
use std::time::Duration;

/// Names one lease of the lock service: 128 bits, chosen by its client.
///
/// ```
/// use fencepost_core::LeaseId;
///
/// let id: LeaseId = "000102030405060708090a0b0c0d0e0f".parse().expect("32 hex digits");
/// let same = "AAECAwQFBgcICQoLDA0ODw".parse().expect("22 characters of base64url");
/// assert_eq!(id, same);
/// assert_eq!(id.to_string(), "000102030405060708090a0b0c0d0e0f");
/// assert!("job-42".parse::<LeaseId>().is_err());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LeaseId(u128);

/// An invalid lease id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a lease id is 128 random bits: 32 hex digits or 22 characters of base64url")]
pub struct InvalidLeaseId;

/// 128 bits as hexadecimal digits.
pub(super) const HEX_DIGITS: usize = 32;
/// 128 bits in base64url without padding.
const BASE64_CHARS: usize = 22;

impl LeaseId {
    /// The id with these bits. They must be random: knowing the id is enough to release the lease.
    #[must_use]
    pub const fn new(bits: u128) -> Self {
        Self(bits)
    }

    /// The bits.
    #[must_use]
    pub const fn get(self) -> u128 {
        self.0
    }

    fn from_hex(text: &str) -> Option<Self> {
        // `from_str_radix` alone would accept a sign.
        let digits = text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let bits = u128::from_str_radix(text, 16).ok();
        bits.filter(|_| digits).map(Self)
    }

    fn from_base64url(text: &str) -> Option<Self> {
        let mut bits: u128 = 0;
        for (place, byte) in text.bytes().enumerate() {
            let six = match byte {
                b'A'..=b'Z' => byte - b'A',
                b'a'..=b'z' => byte - b'a' + 26,
                b'0'..=b'9' => byte - b'0' + 52,
                b'-' => 62,
                b'_' => 63,
                _ => return None,
            };
            bits = match place + 1 {
                // The last character has four surplus bits; each id has one spelling.
                BASE64_CHARS if six & 0b1111 != 0 => return None,
                BASE64_CHARS => bits << 2 | u128::from(six >> 4),
                _ => bits << 6 | u128::from(six),
            };
        }
        Some(Self(bits))
    }
}

impl std::str::FromStr for LeaseId {
    type Err = InvalidLeaseId;

    fn from_str(text: &str) -> Result<Self, InvalidLeaseId> {
        let id = match text.len() {
            HEX_DIGITS => Self::from_hex(text),
            BASE64_CHARS => Self::from_base64url(text),
            _ => None,
        };
        id.ok_or(InvalidLeaseId)
    }
}

impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:0HEX_DIGITS$x}", self.0)
    }
}

impl fmt::Debug for LeaseId {
    /// Not the id: a reader of the log could release the lease.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LeaseId(..)")
    }
}

/// One numbered attempt to acquire under a lease id. The client numbers them 1, 2, …, and the
/// answer to an earlier one is void once a later one was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LeaseAttempt {
    /// The lease.
    pub lease: LeaseId,
    /// The number of the client's attempt. 0: the service chose the id, which is never repeated.
    pub attempt: u32,
    /// The maximum hold time of the lease, including extensions.
    pub max_hold: Option<Duration>,
}

impl LeaseAttempt {
    /// The prefix of the owner's label in a value: `~lease.attempt~`, or `~lease.attempt.ms~` with
    /// the maximum hold time in milliseconds.
    pub(super) fn parse(label: &str) -> Option<(Self, &str)> {
        let (tag, owner) = label.strip_prefix(LEASE_MARK)?.split_once(LEASE_MARK)?;
        let (lease, attempt) = tag.split_once('.')?;
        let lease = (lease.len() == HEX_DIGITS).then(|| LeaseId::from_hex(lease))??;
        let (attempt, max_hold) = match attempt.split_once('.') {
            Some((attempt, millis)) => (attempt, Some(millis.parse().ok()?)),
            None => (attempt, None),
        };
        let of = Self {
            lease,
            attempt: attempt.parse().ok()?,
            max_hold: max_hold.map(Duration::from_millis),
        };
        Some((of, owner))
    }
}

/// Before and behind the lease and attempt in a value.
pub(super) const LEASE_MARK: char = '~';

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_id_has_two_spellings_and_nothing_else_is_one() {
        for (text, bits) in [
            ("00000000000000000000000000000001", 1),
            ("FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF", u128::MAX),
            ("AAAAAAAAAAAAAAAAAAAAAQ", 1),
            ("_____________________w", u128::MAX),
        ] {
            assert_eq!(text.parse(), Ok(LeaseId::new(bits)));
        }
        for text in [
            "",
            "+0000000000000000000000000000001",
            "0000000000000000000000000000000g",
            "AAAAAAAAAAAAAAAAAAAAAR",
            "AAAAAAAAAAAAAAAAAAAA+/",
            "00000000-0000-0000-0000-000000000001",
        ] {
            assert_eq!(text.parse::<LeaseId>(), Err(InvalidLeaseId), "{text}");
        }
    }
}
