//! [`FencingToken`]: the number that protects a resource from a paused holder.
//!
//! A token is only a number. The [`lock`](crate::lock) on each node and the certification in
//! [`quorum`](crate::quorum) make it grow.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime};

/// Tokens before 2020 are not times: a register of another library, or of a test.
const FIRST_TIME: Duration = Duration::from_secs(1_577_836_800);
/// How far ahead of our clock a holder's clock may be; raising moves a token by less.
const AHEAD: Duration = Duration::from_secs(60);

/// A number that grows with every acquisition of one lock name.
///
/// Pass it to the resource that the lock protects, and let the resource reject every token that is
/// older than the newest it has seen: see the `fence` module of the library.
///
/// ```
/// use fencepost_core::FencingToken;
///
/// let older = FencingToken::new(41).expect("fits");
/// let newer = FencingToken::new(42).expect("fits");
/// assert!(older < newer);
/// assert_eq!(newer.to_string(), "42");
/// assert_eq!(newer.get(), 42);
///
/// // For a column of a database, and back.
/// let stored = i64::from(newer);
/// assert_eq!(FencingToken::try_from(stored), Ok(newer));
/// assert_eq!("42".parse(), Ok(newer));
/// assert!(FencingToken::try_from(-1_i64).is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(try_from = "u64", into = "u64")
)]
pub struct FencingToken(u64);

impl FencingToken {
    /// The value of an unused register. No acquisition has this token.
    pub const ZERO: Self = Self(0);

    /// The largest token that Lua, JavaScript and JSON numbers represent exactly. Microseconds
    /// since 1970 reach it in 2255.
    pub const MAX: Self = Self((1 << 53) - 1);

    /// A token with this number, or `None` above [`MAX`](Self::MAX).
    #[must_use]
    pub const fn new(number: u64) -> Option<Self> {
        if number <= Self::MAX.0 {
            Some(Self(number))
        } else {
            None
        }
    }

    /// A token with this number, or [`MAX`](Self::MAX) if it is larger.
    #[must_use]
    pub const fn saturating(number: u64) -> Self {
        match Self::new(number) {
            Some(token) => token,
            None => Self::MAX,
        }
    }

    /// The next larger token, or `None` after [`MAX`](Self::MAX).
    #[must_use]
    pub const fn next(self) -> Option<Self> {
        Self::new(self.0 + 1)
    }

    /// The number, to send to the resource.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Approximately when the acquisition began: the holder's clock when it proposed the token, in
    /// microseconds since 1970. For display only; nothing may be decided by it.
    ///
    /// `None` for a number that cannot be such a time: far in the past, or in the future. A token
    /// slightly ahead (another clock, or raised above another token) counts as now.
    #[must_use]
    pub fn proposed_at(self, now: SystemTime) -> Option<SystemTime> {
        let since_1970 = Duration::from_micros(self.0);
        let proposed = SystemTime::UNIX_EPOCH.checked_add(since_1970)?;
        let is_time = since_1970 >= FIRST_TIME && proposed <= now.checked_add(AHEAD)?;
        is_time.then(|| proposed.min(now))
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<FencingToken> for u64 {
    fn from(token: FencingToken) -> Self {
        token.0
    }
}

impl From<FencingToken> for i64 {
    fn from(token: FencingToken) -> Self {
        // The largest token has 53 bits.
        token.0.cast_signed()
    }
}

/// An invalid fencing token: expected an integer from 0 to 2^53 - 1.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid fencing token {text:?}: expected an integer from 0 to {}",
    FencingToken::MAX
)]
pub struct InvalidToken {
    text: String,
}

impl InvalidToken {
    fn of(what: impl fmt::Display) -> Self {
        // The start is enough to identify it.
        let text = what.to_string().chars().take(32).collect();
        Self { text }
    }
}

impl TryFrom<u64> for FencingToken {
    type Error = InvalidToken;

    fn try_from(number: u64) -> Result<Self, InvalidToken> {
        Self::new(number).ok_or_else(|| InvalidToken::of(number))
    }
}

impl TryFrom<i64> for FencingToken {
    type Error = InvalidToken;

    fn try_from(number: i64) -> Result<Self, InvalidToken> {
        let token = u64::try_from(number).ok().and_then(Self::new);
        token.ok_or_else(|| InvalidToken::of(number))
    }
}

impl FromStr for FencingToken {
    type Err = InvalidToken;

    fn from_str(text: &str) -> Result<Self, InvalidToken> {
        // Digits only: a printed token has no sign or blank.
        let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
        let number = text.parse().ok().filter(|_| is_number);
        let token = number.and_then(Self::new);
        token.ok_or_else(|| InvalidToken::of(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_token_is_refused_with_what_would_be_one() {
        for text in ["", "-1", "+1", " 1", "1.0", "x", "9007199254740992"] {
            let error = text.parse::<FencingToken>().unwrap_err();
            assert!(
                error.to_string().contains("0 to 9007199254740991"),
                "{error}"
            );
        }
        assert!(FencingToken::try_from(1_u64 << 53).is_err());
        assert!(FencingToken::try_from(i64::MIN).is_err());
        let shown = "x".repeat(1000).parse::<FencingToken>().unwrap_err();
        assert!(shown.to_string().len() < 150, "{shown}");
    }

    #[test]
    fn a_token_tells_when_it_was_proposed_unless_it_cannot_be_a_time() {
        let second = Duration::from_secs(1);
        let now = SystemTime::UNIX_EPOCH + 1_790_000_000 * second;
        let at = |seconds: u64| FencingToken(seconds * 1_000_000).proposed_at(now);
        assert_eq!(at(1_789_999_880), Some(now - 120 * second));
        // Another clock, or raised above another token.
        assert_eq!(at(1_790_000_059), Some(now));
        assert_eq!(at(1_790_000_061), None);
        assert_eq!(FencingToken(42).proposed_at(now), None);
        assert_eq!(FencingToken::ZERO.proposed_at(now), None);
        assert_eq!(FencingToken::MAX.proposed_at(now), None);
    }

    #[test]
    fn a_token_comes_back_from_whatever_it_was_stored_as() {
        for token in [FencingToken::ZERO, FencingToken(42), FencingToken::MAX] {
            assert_eq!(FencingToken::try_from(i64::from(token)), Ok(token));
            assert_eq!(FencingToken::try_from(u64::from(token)), Ok(token));
            assert_eq!(token.to_string().parse(), Ok(token));
        }
    }
}
