//! [`LockName`]: the name of a lock, checked once and valid from then on.

use std::fmt;
use std::sync::Arc;

/// An invalid lock name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid lock name {name:?}: {why}")]
pub struct InvalidName {
    /// The start of the name.
    pub name: String,
    /// What is wrong with it.
    pub why: &'static str,
}

/// The longest name, in bytes.
const LONGEST: usize = 512;

/// Suffixes of the keys beside a lock's own key on Redis. A name with its own `{tag}` and one of
/// these suffixes would be another lock's side key.
pub const SIDE_KEYS: [&str; 4] = [QUEUE_KEY, LEASES_KEY, READERS_KEY, STOLEN_KEY];
/// The waiters, by number.
pub const QUEUE_KEY: &str = ":queue";
/// The waiters, by the expiry of their tickets.
pub const LEASES_KEY: &str = ":leases";
/// The readers, by expiry.
pub const READERS_KEY: &str = ":readers";
/// The victims of the latest steal.
pub const STOLEN_KEY: &str = ":stolen";
/// The infix of a tombstone's key, for the same reason.
pub const TOMBSTONE_KEY: &str = ":gone:";

/// The infix before the number in the name of a semaphore's slot.
const SLOT_OF: &str = ":semaphore";

/// The checked name of a lock: 1 to 512 bytes of UTF-8 without control characters.
///
/// Every store accepts the same names, so that moving from one machine to five nodes is a change of
/// URL.
///
/// ```
/// use fencepost_core::LockName;
///
/// assert!(LockName::new("invoice-42").is_ok());
/// let error = LockName::new("line\nbreak").unwrap_err();
/// assert!(error.to_string().contains("control character"));
/// ```
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LockName(Arc<str>);

impl LockName {
    /// Checks a name.
    ///
    /// # Errors
    /// [`InvalidName`] says what is wrong with it.
    pub fn new(name: impl AsRef<str>) -> Result<Self, InvalidName> {
        let name = name.as_ref();
        match Self::fault(name) {
            None => Ok(Self(name.into())),
            Some(why) => Err(InvalidName {
                name: name.chars().take(64).collect(),
                why,
            }),
        }
    }

    fn fault(name: &str) -> Option<&'static str> {
        if name.is_empty() {
            return Some("it is empty; expected 1 to 512 bytes");
        }
        if name.len() > LONGEST {
            return Some("it is longer than 512 bytes");
        }
        if name.chars().any(char::is_control) {
            return Some("it has a control character, such as a line break or a tab");
        }
        // Every side key has a tag.
        let looks_like_a_side_key = hash_tag(name).is_some()
            && (SIDE_KEYS.iter().any(|end| name.ends_with(end)) || name.contains(TOMBSTONE_KEY));
        looks_like_a_side_key
            .then_some("with its \"{tag}\" it looks like a key reserved by fencepost")
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The slot number, if this is the name of a semaphore's slot: `{pool}:semaphore:7`.
    #[must_use]
    pub fn slot(&self) -> Option<usize> {
        split_slot(&self.0).map(|(_, slot)| slot)
    }

    /// The name of the queue for this lock. All slots of a semaphore share one, `{pool}:semaphore`,
    /// and no lock of that name is ever held.
    #[must_use]
    pub fn queue(&self) -> Self {
        match split_slot(&self.0) {
            Some((whole, _)) => Self(whole.into()),
            None => self.clone(),
        }
    }

    /// Whether this is the name of a semaphore's queue.
    #[must_use]
    pub fn is_queue_for_slots(&self) -> bool {
        self.0.ends_with(SLOT_OF) && hash_tag(&self.0).is_some()
    }
}

/// The name of a slot without its number, and the number.
fn split_slot(name: &str) -> Option<(&str, usize)> {
    let (whole, number) = name.rsplit_once(':')?;
    let is_slot = whole.ends_with(SLOT_OF) && hash_tag(whole).is_some();
    let slot = number.parse().ok().filter(|_| is_slot)?;
    // Canonical digits only, without a sign or leading zeros.
    let is_plain = matches!(number.as_bytes(), [b'0'] | [b'1'..=b'9', ..]);
    is_plain.then_some((whole, slot))
}

/// The hash tag of a key, which decides its hash slot: the text between the first `{` and the next
/// `}`, unless empty.
pub fn hash_tag(key: &str) -> Option<&str> {
    let (_, after) = key.split_once('{')?;
    let (tag, _) = after.split_once('}')?;
    (!tag.is_empty()).then_some(tag)
}

/// Whether a key's braces conflict with side keys: neither the key with a suffix nor `{key}` with a
/// suffix is sure to share the key's hash slot.
#[must_use]
pub fn has_odd_braces(key: &str) -> bool {
    match hash_tag(key) {
        // The side keys of the lock `tag` are `{tag}` with a suffix.
        Some(tag) => tag.len() + 2 == key.len(),
        // The tag of `{key}` would end at this brace.
        None => key.contains('}'),
    }
}

impl fmt::Display for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_people_use_are_taken() {
        for name in [
            "a",
            "invoice:42",
            "täglich",
            "{tenant}:job",
            "a{b",
            "x y",
            "{x}",
            "{}b",
            "a}b",
            "}{:queue",
        ] {
            assert!(LockName::new(name).is_ok(), "{name}");
        }
        assert!(LockName::new("x".repeat(512)).is_ok());
    }

    #[test]
    fn a_bad_name_is_refused_with_its_reason() {
        for (name, why) in [
            (String::new(), "empty"),
            ("x".repeat(513), "longer"),
            ("a\tb".into(), "control"),
            ("a\u{7f}".into(), "control"),
            ("{x}:queue".into(), "reserved by fencepost"),
            ("{x}:readers".into(), "reserved by fencepost"),
            ("{x}:gone:1".into(), "reserved by fencepost"),
        ] {
            let error = LockName::new(&name).unwrap_err().to_string();
            assert!(error.contains(why), "{name:?}: {error}");
        }
    }

    #[test]
    fn all_slots_of_a_semaphore_have_one_queue() {
        let name = |name: &str| LockName::new(name).unwrap();
        let queue = name("{pool}:semaphore");
        assert!(queue.is_queue_for_slots() && queue.slot().is_none());
        for slot in [0, 7, 999] {
            let of = name(&format!("{{pool}}:semaphore:{slot}"));
            assert_eq!((of.slot(), of.queue()), (Some(slot), queue.clone()));
        }
        assert_eq!(
            name("{t}:pool:semaphore:1").queue(),
            name("{t}:pool:semaphore")
        );
        for other in [
            "job",
            "pool:semaphore:1",
            "{pool}:semaphore:",
            "{pool}:semaphore:01",
            "{pool}:semaphore:+1",
            "{pool}:semaphore:1x",
            "{pool}:latch:1",
            "{pool}:semaphore:1:2",
        ] {
            let other = name(other);
            assert_eq!((other.slot(), other.queue()), (None, other.clone()));
        }
    }

    #[test]
    fn the_hash_tag_is_the_one_redis_takes() {
        assert_eq!(hash_tag("{user1000}.following"), Some("user1000"));
        assert_eq!(hash_tag("foo{}{bar}"), None);
        assert_eq!(hash_tag("foo{{bar}}zap"), Some("{bar"));
        assert_eq!(hash_tag("foo{bar}{zap}"), Some("bar"));
        assert_eq!(hash_tag("foo"), None);
    }
}
