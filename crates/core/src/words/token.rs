//! [`FencingToken`]: the number that protects a resource from a holder that was paused.
//!
//! A token is only a number; what makes it grow is the [`lock`](crate::lock) of each node and
//! the certification in [`quorum`](crate::quorum).

use std::fmt;

/// A number that grows with every acquisition of one lock name.
///
/// Hand it to the resource that the lock protects, and let the resource refuse every token that is
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
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(transparent)
)]
pub struct FencingToken(u64);

impl FencingToken {
    /// No acquisition has this token: it is what a counter says before its first use.
    pub const ZERO: Self = Self(0);

    /// The largest token: what a Lua number, a JavaScript number and a JSON number all still hold
    /// exactly. Microseconds since 1970 reach it in the year 2255.
    pub const MAX: Self = Self((1 << 53) - 1);

    /// A token of that number, or `None` above [`MAX`](Self::MAX).
    #[must_use]
    pub const fn new(number: u64) -> Option<Self> {
        if number <= Self::MAX.0 {
            Some(Self(number))
        } else {
            None
        }
    }

    /// The token of that number, or [`MAX`](Self::MAX) if it is above.
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
