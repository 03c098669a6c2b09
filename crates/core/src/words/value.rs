//! [`AttemptValue`]: proves who may release or extend.
//!
//! A value is random, fresh for every attempt and never reused. With a reused value, a late message
//! of an old attempt could act for a new one.
//!
//! A node stores the holder's token with the value ([`Stored`](super::stored::Stored)), after the unique part: so one
//! `GET` returns both, and a node finds its holder by the unique part alone.
//!
//! A value stored by the lock service also names a lease ([`LeaseId`]): the client of the service
//! chose the lease id and numbered its attempt, and both come before the owner's label. The random
//! part is fresh for every try of every replica, so that a replica cleans up exactly what it wrote.
//!
//! There are two forms. The value of a plain lock carries its owner's label. The value of a
//! reentrant lock is `uuid:number`, as in Redisson; the uuid has version 8, which Redisson never
//! uses, so that ours can be told apart. It has no room for a label.

use std::fmt::{self, Write as _};
use std::sync::Arc;

use super::lease_id::{HEX_DIGITS, LEASE_MARK, LeaseAttempt, LeaseId};
use super::owner::Owner;
use super::session::SessionId;
use super::ticket::TicketId;

/// The random part of a value: 128 bits as hexadecimal digits.
const RANDOM_DIGITS: usize = 32;
/// A uuid as text: the same digits and four dashes, at these positions.
const UUID_CHARS: usize = RANDOM_DIGITS + 4;
const DASHES: [usize; 4] = [8, 13, 18, 23];
/// The position of a uuid's version, and the version whose bits are free to choose.
const VERSION_AT: usize = 14;
const OUR_VERSION: u8 = b'8';
/// Stands for all readers; not a value of any attempt. The scripts know it too.
pub const SHARED: &str = "fencepost:shared";
/// The label of all readers together.
const READERS: &str = "readers";
/// Room for what a value of the service has before its label: two ids and an attempt, but no maximum hold time.
const LEASED_BYTES: usize = 2 * RANDOM_DIGITS + 8;

/// The value that a node stores for a holder: a random part, then `:` and the owner's label, so
/// that `GET name` on Redis shows an operator who holds the lock. For a reentrant lock it is a
/// uuid, `:` and a number of the process.
///
/// A value read from a node may belong to a foreign client: then all of it is label.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct AttemptValue(Arc<str>);

impl AttemptValue {
    /// The value of one attempt. Its random part must be new: a late message of an old attempt
    /// could otherwise act for this one.
    #[must_use]
    pub fn labelled(random: u128, owner: &Owner) -> Self {
        let mut value = String::with_capacity(RANDOM_DIGITS + 1 + owner.as_str().len());
        push_digits(&mut value, random);
        value.push(':');
        value.push_str(owner.as_str());
        Self(value.into())
    }

    /// The value of one try of a replica of the lock service, for this attempt of its client.
    #[must_use]
    pub fn leased(random: u128, of: LeaseAttempt, owner: &Owner) -> Self {
        let mut value = String::with_capacity(LEASED_BYTES + owner.as_str().len());
        push_digits(&mut value, random);
        value.push(':');
        value.push(LEASE_MARK);
        push_digits(&mut value, of.lease.get());
        let _ = write!(value, ".{}", of.attempt);
        if let Some(time) = of.max_hold {
            // A larger number could not be read again: then the lease id would be the owner's label.
            let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
            let _ = write!(value, ".{millis}");
        }
        value.push(LEASE_MARK);
        value.push_str(owner.as_str());
        Self(value.into())
    }

    /// The attempt and lease of the service that it was stored for, if any.
    #[must_use]
    pub fn lease_attempt(&self) -> Option<LeaseAttempt> {
        let (_, label) = self.split()?;
        LeaseAttempt::parse(label).map(|(of, _)| of)
    }

    /// Stands for the lease itself in its tombstone. No node ever stores it for a holder.
    #[must_use]
    pub fn of_lease(lease: LeaseId) -> Self {
        Self::labelled(lease.get(), &Owner::readable(""))
    }

    /// The lease id that it was stored for, as written on the node.
    #[must_use]
    pub fn lease_digits(&self) -> Option<&str> {
        self.lease_attempt()?;
        let (_, label) = self.split()?;
        label.get(LEASE_MARK.len_utf8()..)?.get(..HEX_DIGITS)
    }

    /// The value of one attempt to acquire a reentrant lock, by this process. Uses 122 bits of the
    /// random part.
    #[must_use]
    pub fn reentrant(random: u128, process: u32) -> Self {
        // Version 8 of the standard uuid variant.
        const FIXED: u128 = 0xf << 76 | 0b11 << 62;
        let random = random & !FIXED | 8 << 76 | 0b10 << 62;
        let digits = format!("{random:0RANDOM_DIGITS$x}");
        let mut value = String::with_capacity(UUID_CHARS + 11);
        for digit in digits.chars() {
            if DASHES.contains(&value.len()) {
                value.push('-');
            }
            value.push(digit);
        }
        let _ = write!(value, ":{process}");
        Self(value.into())
    }

    /// A value as a node reported it, or as a test needs it.
    #[must_use]
    pub fn reported(value: impl Into<Arc<str>>) -> Self {
        Self(value.into())
    }

    /// What a node reports as the holder, and Redis stores as the lock, while readers hold it.
    #[must_use]
    pub fn shared() -> Self {
        Self(SHARED.into())
    }

    /// Whether it stands for all readers.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        &*self.0 == SHARED
    }

    /// The whole value, as it is stored.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The part that is unique to the attempt. All of it for a foreign value.
    #[must_use]
    pub fn unique_part(&self) -> &str {
        self.split().map_or(&*self.0, |(random, _)| random)
    }

    /// The session of the holder. `None` for a foreign value, and for all readers together.
    #[must_use]
    pub fn session(&self) -> Option<SessionId> {
        self.split()
            .and_then(|(unique, _)| SessionId::leading(unique))
    }

    /// Whether it is a value of fencepost, not of a foreign client.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        self.split().is_some() || self.is_shared()
    }

    /// Whether it is the value of a reentrant lock of fencepost.
    #[must_use]
    pub fn is_reentrant(&self) -> bool {
        // A cheap check that rules most values out.
        self.0.as_bytes().get(DASHES[0]) == Some(&b'-')
            && self
                .0
                .split_once(':')
                .is_some_and(|(uuid, _)| is_our_uuid(uuid))
    }

    /// Whether a node stores a token with it: with every value of ours, never with a foreign one.
    #[must_use]
    pub(crate) fn has_token(&self) -> bool {
        self.is_labelled() || self.is_reentrant()
    }

    /// Whether it is the value of a plain lock of fencepost.
    pub(super) fn is_labelled(&self) -> bool {
        let bytes = self.0.as_bytes();
        bytes.get(RANDOM_DIGITS) == Some(&b':')
            && bytes[..RANDOM_DIGITS].iter().all(u8::is_ascii_hexdigit)
    }

    /// The holder's label.
    #[must_use]
    pub fn owner(&self) -> Owner {
        if self.is_shared() {
            return Owner::readable(READERS);
        }
        let label = match self.split() {
            // The lease id is a secret of its client: it is enough to release the lease.
            Some((_, label)) if !self.is_reentrant() => {
                LeaseAttempt::parse(label).map_or(label, |(_, owner)| owner)
            }
            _ => {
                return Owner::of_value(&self.0);
            }
        };
        Owner::readable(label)
    }

    fn split(&self) -> Option<(&str, &str)> {
        let (random, label) = self.0.split_once(':')?;
        if is_our_uuid(random) {
            return Some((random, label));
        }
        let ours = random.len() == RANDOM_DIGITS && random.bytes().all(|b| b.is_ascii_hexdigit());
        // A free lock that is reserved is reported under the ticket of the head of the queue.
        (ours || TicketId::is_unique_part(random)).then_some((random, label))
    }
}

/// 128 bits as hexadecimal digits. Each attempt writes some: formatting would take longer than all the rest.
fn push_digits(text: &mut String, bits: u128) {
    for byte in bits.to_be_bytes() {
        for digit in [byte >> 4, byte & 0xf] {
            text.push(char::from(b"0123456789abcdef"[usize::from(digit)]));
        }
    }
}

/// Whether it is the uuid of a reentrant lock of fencepost.
pub(super) fn is_our_uuid(text: &str) -> bool {
    let fits = |(at, byte): (usize, u8)| match DASHES.contains(&at) {
        true => byte == b'-',
        false => byte.is_ascii_hexdigit(),
    };
    text.len() == UUID_CHARS
        && text.as_bytes()[VERSION_AT] == OUR_VERSION
        && text.bytes().enumerate().all(fits)
}

impl fmt::Debug for AttemptValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::words::stored::Stored;
    use crate::words::token::FencingToken;

    #[test]
    fn a_value_carries_its_owner_behind_a_random_part() {
        let owner = Owner::new("web-3:4711:billing").unwrap();
        let one = AttemptValue::labelled(1, &owner);
        let two = AttemptValue::labelled(2, &owner);
        assert_ne!(one, two);
        assert_eq!(one.owner(), owner);
        assert!(!one.owner().is_value());
        assert_eq!(one.unique_part().len(), RANDOM_DIGITS);
        assert!(one.as_str().ends_with(":web-3:4711:billing"));
    }

    #[test]
    fn a_foreign_value_is_all_label() {
        let foreign = AttemptValue::reported("my_random_value");
        assert_eq!(foreign.owner().as_str(), "my_random_value");
        assert!(foreign.owner().is_value());
        assert_eq!(foreign.unique_part(), "my_random_value");
    }

    #[test]
    fn a_reentrant_value_is_a_uuid_and_a_number_and_no_two_are_the_same() {
        let one = AttemptValue::reentrant(u128::MAX, 7);
        assert_ne!(one, AttemptValue::reentrant(1 << 127, 7));
        let (uuid, number) = one.as_str().split_once(':').unwrap();
        let groups: Vec<_> = uuid.split('-').map(str::len).collect();
        assert_eq!(groups, [8, 4, 4, 4, 12]);
        assert!(matches!(uuid.as_bytes()[19], b'8' | b'9' | b'a' | b'b'));
        assert_eq!(number, "7");
        assert!(one.is_ours() && one.is_reentrant());
        assert_eq!(one.unique_part(), uuid);
        assert_eq!(one.owner().as_str(), one.as_str());
        assert!(one.owner().is_value());
    }

    #[test]
    fn redissons_values_are_foreign() {
        for foreign in [
            "6f0829ed-bfd3-4e6f-bba3-6f3d66cd176c:54",
            "6f0829ed-bfd3-8e6f-bba3-6f3d66cd176c",
            "6f0829ed-bfd3-8e6f-bba3_6f3d66cd176c:1",
        ] {
            let foreign = AttemptValue::reported(foreign);
            assert!(!foreign.is_ours() && !foreign.is_reentrant());
            assert_eq!(foreign.unique_part(), foreign.as_str());
        }
        let plain = AttemptValue::labelled(1, &Owner::new("a").unwrap());
        assert!(plain.is_ours() && !plain.is_reentrant());
    }

    #[test]
    fn those_who_read_together_have_one_name() {
        let shared = AttemptValue::shared();
        assert!(shared.is_shared() && shared.is_ours());
        assert_eq!(shared.owner().as_str(), "readers");
        let owner = Owner::new("a").unwrap();
        assert!(!AttemptValue::labelled(1, &owner).is_shared());
    }

    #[test]
    fn a_value_of_the_service_names_its_lease_and_shows_its_owner_only() {
        let owner = Owner::new("web-3~x").unwrap();
        let of = LeaseAttempt {
            lease: LeaseId::new(7),
            attempt: 12,
            max_hold: None,
        };
        let bounded = LeaseAttempt {
            max_hold: Some(Duration::from_millis(1500)),
            ..of
        };
        for of in [bounded, of] {
            let value = AttemptValue::leased(1, of, &owner);
            assert_eq!(value.lease_attempt(), Some(of));
            assert_eq!(value.owner(), owner);
        }
        let endless = LeaseAttempt {
            max_hold: Some(Duration::MAX),
            ..of
        };
        let value = AttemptValue::leased(1, endless, &owner);
        let stored = value.lease_attempt().and_then(|of| of.max_hold);
        assert_eq!(stored, Some(Duration::from_millis(u64::MAX)));
        assert_eq!(value.owner(), owner);
        let value = AttemptValue::leased(1, of, &owner);
        assert_ne!(value.unique_part(), of.lease.to_string());
        let token = FencingToken::new(9);
        let stored = Stored { value, token };
        assert_eq!(Stored::parse(&stored.text()), stored);
        assert!(!format!("{of:?}").contains('7'), "no lease id in a log");
        for label in ["~", "~~", "~1.1~a", "a", ""] {
            let owner = Owner::new(label).unwrap();
            let plain = AttemptValue::labelled(1, &owner);
            assert_eq!((plain.lease_attempt(), plain.owner()), (None, owner));
        }
    }
}
