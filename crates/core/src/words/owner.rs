//! [`Owner`]: the readable label of a holder.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// The longest owner label, in bytes.
const LONGEST_OWNER: usize = 200;

/// An invalid owner label.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected at most {LONGEST_OWNER} bytes without control characters, got {bytes} bytes")]
pub struct InvalidOwner {
    bytes: usize,
}

/// A readable label of the holder: host, pid and program, or your own.
///
/// ```
/// let owner = fencepost_core::Owner::new("billing@web-3").expect("no control characters");
/// assert_eq!(owner.to_string(), "billing@web-3");
/// ```
#[derive(Clone)]
pub struct Owner {
    label: Arc<str>,
    /// Whether a node reported no label but the value alone.
    is_value: bool,
}

impl Owner {
    fn of(label: impl Into<Arc<str>>) -> Self {
        Self {
            label: label.into(),
            is_value: false,
        }
    }

    /// A holder without a label.
    pub(super) fn of_value(value: &str) -> Self {
        Self {
            is_value: true,
            ..Self::readable(value)
        }
    }

    /// Your own label: at most 200 bytes, no control characters.
    ///
    /// # Errors
    /// [`InvalidOwner`] says what is wrong with it.
    pub fn new(label: impl AsRef<str>) -> Result<Self, InvalidOwner> {
        let label = label.as_ref();
        if label.len() > LONGEST_OWNER || label.chars().any(char::is_control) {
            return Err(InvalidOwner { bytes: label.len() });
        }
        Ok(Self::of(label))
    }

    /// A label cut to what is valid: no control characters, and not too long.
    #[must_use]
    pub fn shortened(label: &str) -> Self {
        let mut short = String::new();
        for c in label.chars().filter(|c| !c.is_control()) {
            if short.len() + c.len_utf8() > LONGEST_OWNER {
                break;
            }
            short.push(c);
        }
        Self::of(short)
    }

    /// A label as a node reported it.
    #[must_use]
    pub fn readable(label: &str) -> Self {
        let readable: String = label.chars().filter(|c| !c.is_control()).collect();
        Self::of(readable)
    }

    /// The label as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.label
    }

    /// Whether it is the holder's whole value, since it has no label: a client of another library,
    /// or a reentrant lock. Knowing a value is enough to release the lock.
    #[must_use]
    pub fn is_value(&self) -> bool {
        self.is_value
    }
}

/// By the text alone.
impl PartialEq for Owner {
    fn eq(&self, other: &Self) -> bool {
        self.label == other.label
    }
}

impl Eq for Owner {}

impl Hash for Owner {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.label.hash(state);
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.label.fmt(f)
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.label, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_label_is_refused() {
        assert!(Owner::new("a\nb").is_err());
        assert!(Owner::new("x".repeat(201)).is_err());
        assert_eq!(Owner::shortened("a\nb").as_str(), "ab");
    }
}
