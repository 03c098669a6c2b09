//! The resource's side: reject requests of an old holder.
//!
//! A lock alone cannot protect a resource from a holder that was paused past the end of its lease
//! and then continues as if nothing had happened. The token can, if the *resource* compares it.
#![doc = include_str!("fence.md")]

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use fencepost_core::token::FencingToken;

/// Admits a token only if it is not older than the newest it has seen.
///
/// For a resource that lives in one process. Several processes need the check where the data is:
/// see the recipes in [this module](self).
///
/// ```
/// use fencepost::{FencingToken, fence::Gate};
///
/// let gate = Gate::new();
/// let paused = FencingToken::new(33).expect("fits");
/// let newer = FencingToken::new(34).expect("fits");
///
/// gate.admit(paused)?;
/// gate.admit(newer)?;
/// assert_eq!(gate.admit(paused).unwrap_err().newest, newer);
/// gate.admit(newer)?;
/// # Ok::<(), fencepost::fence::Stale>(())
/// ```
#[derive(Debug, Default)]
pub struct Gate {
    newest: AtomicU64,
}

/// The token is older than one seen before: its holder has lost the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stale {
    /// The token that was refused.
    pub token: FencingToken,
    /// The newest token so far.
    pub newest: FencingToken,
}

impl fmt::Display for Stale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { token, newest } = self;
        write!(
            f,
            "fencing token {token} is older than {newest}: the lock was lost"
        )
    }
}

impl std::error::Error for Stale {}

impl Gate {
    /// A gate that has seen no token.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A gate that has seen this token: after a restart, the newest that the resource has stored.
    #[must_use]
    pub fn starting_at(newest: FencingToken) -> Self {
        Self {
            newest: AtomicU64::new(newest.get()),
        }
    }

    /// Admits the token and remembers it, unless a newer one was seen.
    ///
    /// # Errors
    /// [`Stale`] when a newer one was seen.
    pub fn admit(&self, token: FencingToken) -> Result<(), Stale> {
        let before = self.newest.fetch_max(token.get(), Ordering::AcqRel);
        if before > token.get() {
            return Err(Stale {
                token,
                newest: FencingToken::saturating(before),
            });
        }
        Ok(())
    }
}
