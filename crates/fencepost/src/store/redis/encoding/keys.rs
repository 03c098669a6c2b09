//! The keys of a lock on Redis.
//!
//! The lock itself is the canonical Redlock key: the prefix and the name, nothing else. The side
//! keys share its hash slot. No lock's key may ever be another lock's side key.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, OnceLock};

use super::scripts::Site;
use crate::error::{Cause, Error, NodeError};
use crate::store::redis::protocol::command::{Arg, Cmd};
use fencepost_core::name::{
    LEASES_KEY, LockName, QUEUE_KEY, READERS_KEY, SIDE_KEYS, STOLEN_KEY, TOMBSTONE_KEY,
    has_odd_braces, hash_tag,
};
use fencepost_core::value::AttemptValue;

/// The fence register: one sorted set for all locks of a database, whatever their prefix. A member
/// is a lock's key, its score the largest token ever raised there.
pub(crate) const REGISTER: &str = "fencepost:fences";
/// Written before each `WAIT` for replicas.
pub(crate) const WAIT_KEY: &str = "fencepost:wait";
/// The key of the marker: one per database, whatever the prefix of the locks.
pub(crate) const MARKER: &str = "fencepost:marker";

/// In a Cluster: under which owner each slot was complete.
const STAMP: &str = "fencepost:slot";
/// In a Cluster: which owner has stamped all its slots.
const SWEPT: &str = "fencepost:swept";

/// In a Cluster every slot has its own copy of the keys that a server has once.
pub(crate) mod of_slot {
    use super::{MARKER, REGISTER, STAMP, SWEPT, WAIT_KEY, tag_of_slot};

    fn key(of: &str, slot: u16) -> String {
        format!("{of}:{{{}}}", tag_of_slot(usize::from(slot)))
    }

    /// The fence register of all locks in the slot.
    pub(crate) fn register(slot: u16) -> String {
        key(REGISTER, slot)
    }

    /// The key of a shard's marker, if the slot is one of its [places](crate::store::redis::cluster).
    pub(crate) fn marker(slot: u16) -> String {
        key(MARKER, slot)
    }

    /// The key of the slot's own stamp.
    pub(crate) fn stamp(slot: u16) -> String {
        key(STAMP, slot)
    }

    /// The key that records that all slots of the shard are stamped.
    pub(crate) fn swept(slot: u16) -> String {
        key(SWEPT, slot)
    }

    /// Written before each `WAIT` for replicas.
    pub(crate) fn wait_key(slot: u16) -> String {
        key(WAIT_KEY, slot)
    }
}

/// The checked prefix of every key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Prefix {
    text: Arc<str>,
    /// Whether the keys are spread over the slots of a Cluster.
    is_spread: bool,
}

impl Prefix {
    /// # Errors
    /// [`ErrorKind::InvalidOption`](crate::ErrorKind::InvalidOption) when no name after it could
    /// have its keys in one hash slot.
    pub(crate) fn new(prefix: &str) -> Result<Self, Error> {
        let fault = if prefix.chars().any(char::is_control) {
            "it has a control character, such as a line break or a tab"
        } else if prefix.contains(['{', '}']) && hash_tag(prefix).is_none() {
            "it has a brace but no complete \"{tag}\", so the keys of a lock cannot share a hash \
             slot; write it without braces, or with a tag such as \"{app}:\""
        } else {
            return Ok(Self {
                text: prefix.into(),
                is_spread: false,
            });
        };
        Err(Error::from(Cause::InvalidOption {
            option: "prefix",
            why: fault.to_owned(),
        }))
    }

    /// The same for a Cluster, where every slot has its own register.
    pub(crate) fn spread(self) -> Self {
        Self {
            is_spread: true,
            ..self
        }
    }

    /// A pattern that matches the keys of all locks with this prefix.
    pub(crate) fn locks(&self) -> String {
        let mut pattern = String::new();
        for c in self.text.chars() {
            if matches!(c, '*' | '?' | '[' | ']' | '\\' | '^') {
                pattern.push('\\');
            }
            pattern.push(c);
        }
        pattern + "*"
    }

    /// The name of the lock with this key, if it has this prefix.
    pub(crate) fn name_of(&self, key: &str) -> Option<LockName> {
        let name = LockName::new(key.strip_prefix(&*self.text)?).ok()?;
        self.keys(&name).is_ok().then_some(name)
    }

    /// The keys of one lock.
    pub(crate) fn keys(&self, name: &LockName) -> Result<Keys, NodeError> {
        let keys = self.keys_of(name)?;
        Ok(match self.is_spread {
            true => {
                let slot = keys.slot();
                Keys {
                    register: Cow::Owned(of_slot::register(slot)),
                    ..keys
                }
            }
            false => keys,
        })
    }

    fn keys_of(&self, name: &LockName) -> Result<Keys, NodeError> {
        let queue_end = self.text.len() + name.queue().as_str().len();
        let is_slot = name.slot().is_some();
        let name = name.as_str();
        let lock = [&self.text, name].concat();
        let of_slots = [REGISTER, MARKER, WAIT_KEY, STAMP, SWEPT];
        let is_of_slot = |of: &&str| {
            let rest = lock.strip_prefix(*of);
            rest.is_some_and(|rest| rest.starts_with(":{"))
        };
        if [REGISTER, MARKER, WAIT_KEY].contains(&&*lock)
            || (self.is_spread && of_slots.iter().any(is_of_slot))
        {
            return Err(NodeError::Other(format!(
                "{lock} is a key reserved by fencepost; use another name"
            )));
        }
        if has_odd_braces(&lock) {
            let around = Around::before(&lock);
            return Ok(Keys::new(lock, around));
        }
        if hash_tag(&lock).is_none() {
            return Ok(Keys::new(lock, Around::Braces));
        }
        // `LockName` has rejected such a suffix if the tag is the name's own.
        if SIDE_KEYS.iter().any(|end| name.ends_with(end)) || name.contains(TOMBSTONE_KEY) {
            return Err(NodeError::Other(format!(
                "behind a prefix with a {{tag}}, the lock name {name:?} looks like a key reserved \
                 by fencepost; use another name"
            )));
        }
        let keys = Keys::new(lock, Around::Nothing);
        Ok(match is_slot {
            // Its name has a tag, so nothing is added around it.
            true => Keys { queue_end, ..keys },
            false => keys,
        })
    }
}

/// How a side key gets its lock's hash slot.
#[derive(Clone, Debug)]
enum Around {
    /// The lock's key has a `{tag}`, and so has the side key.
    Nothing,
    /// It has none: the whole key is the side key's tag.
    Braces,
    /// Its braces rule out both: a tag with the same slot is put before it. No lock's key has such
    /// a prefix, which `LockName` rejects.
    Before(String),
}

impl Around {
    fn before(lock: &str) -> Self {
        let tag = match hash_tag(lock) {
            Some(tag) => tag.to_owned(),
            None => tag_of_slot(slot(lock)).to_string(),
        };
        Self::Before(format!("{{{tag}}}{TOMBSTONE_KEY}"))
    }
}

/// The number of hash slots of a Redis Cluster.
const SLOTS: usize = 16_384;

/// The hash slot of a key.
pub(crate) fn slot_of(key: &str) -> u16 {
    // Below 2^14.
    slot(hash_tag(key).unwrap_or(key)) as u16
}

/// The hash slot of a key without a tag: CRC16 (XMODEM).
fn slot(key: &str) -> usize {
    let crc = key.bytes().fold(0_u16, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| {
            let shifted = crc << 1;
            if crc & 0x8000 == 0 {
                shifted
            } else {
                shifted ^ 0x1021
            }
        })
    });
    usize::from(crc) % SLOTS
}

/// The smallest number whose digits have this slot: the same for every client.
fn tag_of_slot(wanted: usize) -> u32 {
    static TAGS: OnceLock<Vec<u32>> = OnceLock::new();
    let tags = TAGS.get_or_init(|| {
        let mut tags = vec![None; SLOTS];
        let mut missing = SLOTS;
        for number in 0.. {
            let tag: &mut Option<u32> = &mut tags[slot(&number.to_string())];
            if tag.is_none() {
                *tag = Some(number);
                missing -= 1;
            }
            if missing == 0 {
                break;
            }
        }
        tags.into_iter().flatten().collect()
    });
    tags[wanted]
}

/// The keys of one lock.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    /// The key of the holder's value.
    pub(crate) lock: String,
    around: Around,
    /// How much of it is the key of its queue: all slots of a semaphore share one queue.
    queue_end: usize,
    register: Cow<'static, str>,
}

impl Keys {
    fn new(lock: String, around: Around) -> Self {
        let queue_end = lock.len();
        Self {
            lock,
            around,
            queue_end,
            register: Cow::Borrowed(REGISTER),
        }
    }

    /// The Cluster hash slot of all of them.
    pub(crate) fn slot(&self) -> u16 {
        slot_of(&self.lock)
    }

    /// Where its scripts run.
    pub(crate) fn site(&self) -> Site {
        match self.register {
            Cow::Borrowed(_) => Site::Server,
            // That of its slot.
            Cow::Owned(_) => Site::Cluster,
        }
    }

    /// Whether it is a slot of a semaphore, which shares its queue.
    pub(crate) fn is_slot(&self) -> bool {
        self.queue_end < self.lock.len()
    }

    /// The fence register, in which the lock's key is a member.
    pub(crate) fn register(&self) -> &str {
        &self.register
    }

    /// The key of the waiters by number.
    pub(crate) fn queue(&self) -> SideKey<'_> {
        self.beside_queue(QUEUE_KEY)
    }

    /// The key of the waiters by ticket expiry.
    pub(crate) fn leases(&self) -> SideKey<'_> {
        self.beside_queue(LEASES_KEY)
    }

    /// The key of the readers by expiry.
    pub(crate) fn readers(&self) -> SideKey<'_> {
        self.side(READERS_KEY, "")
    }

    /// The key of the latest steal: its victims, and the client that stole.
    pub(crate) fn stolen(&self) -> SideKey<'_> {
        self.side(STOLEN_KEY, "")
    }

    /// The key of an attempt's tombstone.
    pub(crate) fn tombstone<'a>(&'a self, value: &'a AttemptValue) -> SideKey<'a> {
        self.side(TOMBSTONE_KEY, value.unique_part())
    }

    /// The key of the tombstone of an attempt's lease.
    pub(crate) fn lease_tombstone<'a>(&'a self, value: &'a AttemptValue) -> Option<SideKey<'a>> {
        let lease = value.lease_digits()?;
        Some(self.side(TOMBSTONE_KEY, lease))
    }

    /// The channel on which Redisson announces that a reentrant lock is free. Our scripts use the
    /// same rule.
    pub(crate) fn foreign_channel(&self) -> String {
        match self.lock.contains('{') {
            true => format!("redisson_lock__channel:{}", self.lock),
            false => format!("redisson_lock__channel:{{{}}}", self.lock),
        }
    }

    fn beside_queue(&self, kind: &'static str) -> SideKey<'_> {
        let lock = &self.lock[..self.queue_end];
        SideKey {
            lock,
            ..self.side(kind, "")
        }
    }

    fn side<'a>(&'a self, kind: &'static str, of: &'a str) -> SideKey<'a> {
        SideKey {
            lock: &self.lock,
            around: &self.around,
            kind,
            of,
        }
    }
}

/// A side key, written directly into its command.
#[derive(Clone, Copy)]
pub(crate) struct SideKey<'a> {
    lock: &'a str,
    around: &'a Around,
    kind: &'static str,
    of: &'a str,
}

impl SideKey<'_> {
    /// Its parts.
    pub(crate) fn parts(&self) -> [&str; 5] {
        let (open, close) = match self.around {
            Around::Nothing => ("", ""),
            Around::Braces => ("{", "}"),
            Around::Before(tag) => (tag.as_str(), ""),
        };
        [open, self.lock, close, self.kind, self.of]
    }
}

impl fmt::Display for SideKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = self.parts().into_iter();
        parts.try_for_each(|part| f.write_str(part))
    }
}

impl Arg for SideKey<'_> {
    fn add_to(&self, cmd: &mut Cmd) {
        cmd.parts(&self.parts());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(prefix: &str, name: &str) -> Keys {
        let name = LockName::new(name).unwrap();
        Prefix::new(prefix).unwrap().keys(&name).unwrap()
    }

    #[test]
    fn the_lock_is_the_canonical_key_and_its_side_keys_share_its_slot() {
        let value = AttemptValue::reported(format!("{}:me", "0".repeat(32)));
        for (prefix, name, lock, queue) in [
            ("", "job", "job", "{job}:queue"),
            ("app:", "job", "app:job", "{app:job}:queue"),
            ("", "{t}job", "{t}job", "{t}job:queue"),
            ("app:", "a{t}job", "app:a{t}job", "app:a{t}job:queue"),
            ("{app}:", "job", "{app}:job", "{app}:job:queue"),
            ("", "a{b", "a{b", "{a{b}:queue"),
            // Not `{t}:queue`, which is the queue of the lock `t`.
            ("", "{t}", "{t}", "{t}:gone:{t}:queue"),
            ("app:", "{t}", "app:{t}", "app:{t}:queue"),
        ] {
            let keys = keys(prefix, name);
            assert_eq!(keys.lock, lock);
            assert_eq!(keys.queue().to_string(), queue);
            // A key without a tag is hashed as a whole.
            let slot = hash_tag(lock).unwrap_or(lock);
            assert_eq!(hash_tag(queue), Some(slot));
            let tombstone = keys.tombstone(&value).to_string();
            assert_eq!(hash_tag(&tombstone), Some(slot));
            assert!(tombstone.ends_with(&format!(":gone:{}", "0".repeat(32))));
        }
    }

    #[test]
    fn all_slots_of_a_semaphore_have_their_queue_together_and_all_else_apart() {
        let value = AttemptValue::reported(format!("{}:me", "0".repeat(32)));
        for prefix in ["", "app:", "{app}:"] {
            let slot = keys(prefix, "{pool}:semaphore:12");
            let whole = keys(prefix, "{pool}:semaphore");
            assert!(slot.is_slot() && !whole.is_slot());
            assert_eq!(slot.lock, format!("{prefix}{{pool}}:semaphore:12"));
            assert_eq!(slot.queue().to_string(), whole.queue().to_string());
            assert_eq!(slot.leases().to_string(), whole.leases().to_string());
            let gone = slot.tombstone(&value).to_string();
            assert!(gone.starts_with(&format!("{}:gone:", slot.lock)));
            assert!(slot.readers().to_string().starts_with(&slot.lock));
        }
    }

    /// `CLUSTER KEYSLOT` of a real server says the same: see `names_with_braces` of the tests.
    #[test]
    fn whatever_the_braces_the_side_keys_share_the_slot_of_the_lock() {
        assert_eq!(
            slot("123456789"),
            0x31c3 % SLOTS,
            "the check value of CRC16"
        );
        let slot_of = |key: &str| slot(hash_tag(key).unwrap_or(key));
        for lock in ["x}", "{}x", "a}b{c", "{}", "}", "}{", "{}{t}"] {
            let queue = keys("", lock).queue().to_string();
            assert_eq!(slot_of(&queue), slot(lock), "{queue}");
            assert!(queue.ends_with(&format!("}}:gone:{lock}:queue")));
        }
    }

    #[test]
    fn a_reentrant_lock_is_told_free_where_redisson_listens() {
        for (prefix, name, channel) in [
            ("", "job", "redisson_lock__channel:{job}"),
            ("app:", "job", "redisson_lock__channel:{app:job}"),
            ("", "{t}job", "redisson_lock__channel:{t}job"),
            ("", "a{b", "redisson_lock__channel:a{b"),
        ] {
            assert_eq!(keys(prefix, name).foreign_channel(), channel);
        }
    }

    #[test]
    fn a_member_of_the_register_tells_the_name_of_its_lock_and_nothing_else_does() {
        for (prefix, name) in [
            ("", "job"),
            ("", "{t}job"),
            ("", "a{b"),
            ("", "{a}x{c}"),
            ("app:", "job"),
            ("app:", "a{t}job"),
            ("{app}:", "job"),
            ("", "job:queue"),
            ("", "{t}"),
            ("", "x}"),
            ("app:", "{}x"),
        ] {
            let found = Prefix::new(prefix).unwrap();
            let found = found.name_of(&keys(prefix, name).lock);
            assert_eq!(found.as_ref().map(LockName::as_str), Some(name));
        }
        let none = Prefix::new("").unwrap();
        for key in ["", "a\nb", "{t}job:queue", REGISTER, MARKER] {
            assert_eq!(none.name_of(key), None, "{key}");
        }
        let other = Prefix::new("other:").unwrap();
        assert_eq!(other.name_of("app:job"), None);
        assert_eq!(Prefix::new("a[b").unwrap().locks(), "a\\[b*");
    }

    #[test]
    fn a_prefix_that_tears_a_locks_keys_apart_is_refused() {
        for prefix in ["a{", "}a", "{}", "a\nb", "{}{x}"] {
            let error = Prefix::new(prefix).unwrap_err().to_string();
            assert!(error.contains("prefix"), "{prefix:?}: {error}");
        }
    }

    #[test]
    fn no_lock_behind_a_tagged_prefix_is_anothers_side_key() {
        let prefix = Prefix::new("{app}:").unwrap();
        for name in [
            "job:queue",
            "job:leases",
            "job:readers",
            "job:stolen",
            "job:gone:1",
        ] {
            assert!(prefix.keys(&LockName::new(name).unwrap()).is_err());
        }
    }
}
