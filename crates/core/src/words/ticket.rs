//! [`Ticket`]: a waiter's place in the queue.
//!
//! Tickets order waiters and nothing else: safety never depends on them.

use std::fmt::{self, Write as _};
use std::sync::Arc;
use std::time::Duration;

use super::owner::Owner;
use super::session::SessionId;
use super::value::AttemptValue;

/// How long a node keeps a ticket whose waiter is silent: the maximum cost of a dead waiter.
pub const TICKET_LEASE: Duration = Duration::from_secs(3);

const CLIENT_DIGITS: usize = 32;
const SEQUENCE_DIGITS: usize = 16;
const MODE_AT: usize = CLIENT_DIGITS + SEQUENCE_DIGITS;

/// Which acquirers may pass a waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TicketMode {
    /// The queue is a hint: a newcomer may acquire a free lock first.
    Default,
    /// First in, first out.
    Fair,
    /// First in, first out, and adjacent readers are admitted together.
    Reader,
}

impl TicketMode {
    /// `Fair` or `Default`.
    #[must_use]
    pub const fn of(fair: bool) -> Self {
        if fair { Self::Fair } else { Self::Default }
    }

    const ALL: [Self; 3] = [Self::Default, Self::Fair, Self::Reader];

    /// The letter in an id. The scripts know these letters too.
    const fn letter(self) -> u8 {
        match self {
            Self::Default => b'd',
            Self::Fair => b'f',
            Self::Reader => b'r',
        }
    }

    /// Whether the waiter may not be passed.
    #[must_use]
    pub fn is_fair(self) -> bool {
        self != Self::Default
    }
}

/// The client to wake, for all its waiters.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ClientId(Arc<str>);

impl ClientId {
    /// The id with this number, which must be random and unique.
    #[must_use]
    pub fn of(number: u128) -> Self {
        Self(format!("{number:0CLIENT_DIGITS$x}").into())
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// Identifies a ticket: its client, a sequence number, whether it is fair or a reader's, then `:`
/// and the owner's label.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(
    feature = "stored",
    derive(serde::Serialize, serde::Deserialize),
    serde(transparent)
)]
pub struct TicketId(Arc<str>);

impl TicketId {
    /// The client's ticket with this number.
    #[must_use]
    pub fn new(client: &ClientId, sequence: u64, fair: bool, owner: &Owner) -> Self {
        Self::of_mode(client, sequence, TicketMode::of(fair), owner)
    }

    /// The client's ticket with this number and mode.
    #[must_use]
    pub fn of_mode(client: &ClientId, sequence: u64, mode: TicketMode, owner: &Owner) -> Self {
        let mode = char::from(mode.letter());
        let client = client.as_str();
        let mut id = String::with_capacity(MODE_AT + 2 + owner.as_str().len());
        // Writing to a string cannot fail.
        let _ = write!(id, "{client}{sequence:0SEQUENCE_DIGITS$x}{mode}:{owner}");
        Self(id.into())
    }

    /// An id as a node reported it.
    #[must_use]
    pub fn reported(id: impl Into<Arc<str>>) -> Self {
        Self(id.into())
    }

    /// Whether this is the part before the owner's label in an id.
    pub(super) fn is_unique_part(text: &str) -> bool {
        let mut digits = text.bytes();
        let mode = digits.next_back();
        text.len() == MODE_AT + 1
            && TicketMode::ALL
                .iter()
                .any(|known| mode == Some(known.letter()))
            && digits.all(|digit| digit.is_ascii_hexdigit())
    }

    /// The whole id, as it is stored.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the waiter may not be passed.
    #[must_use]
    pub fn is_fair(&self) -> bool {
        self.mode().is_fair()
    }

    /// Whether it is a reader's ticket.
    #[must_use]
    pub fn is_reader(&self) -> bool {
        self.mode() == TicketMode::Reader
    }

    /// Its mode.
    #[must_use]
    pub fn mode(&self) -> TicketMode {
        let letter = self.0.as_bytes().get(MODE_AT);
        let mut known = TicketMode::ALL.into_iter();
        let mode = known.find(|mode| letter == Some(&mode.letter()));
        mode.unwrap_or(TicketMode::Default)
    }

    /// Whether it is a ticket of that client.
    #[must_use]
    pub fn is_of(&self, client: &ClientId) -> bool {
        self.0.get(..CLIENT_DIGITS) == Some(client.as_str())
    }

    /// The client's sequence number. `None` for a foreign ticket.
    #[must_use]
    pub fn sequence(&self) -> Option<u64> {
        let digits = self.0.get(CLIENT_DIGITS..MODE_AT)?;
        u64::from_str_radix(digits, 16).ok()
    }

    /// The session of the waiter. `None` for a foreign ticket.
    #[must_use]
    pub fn session(&self) -> Option<SessionId> {
        let (unique, _) = self.0.split_once(':')?;
        let ours = Self::is_unique_part(unique);
        ours.then(|| SessionId::leading(unique)).flatten()
    }

    /// The waiter's label.
    #[must_use]
    pub fn owner(&self) -> Owner {
        AttemptValue::reported(Arc::clone(&self.0)).owner()
    }
}

impl fmt::Debug for TicketId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// The number of a ticket: microseconds, moved behind earlier waiters. The smallest is served
/// first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(
    feature = "stored",
    derive(serde::Serialize, serde::Deserialize),
    serde(transparent)
)]
pub struct TicketNumber(u64);

impl TicketNumber {
    /// The largest number that Lua represents exactly.
    pub const MAX: Self = Self((1 << 53) - 1);

    /// This number, or [`MAX`](Self::MAX) if it is larger.
    #[must_use]
    pub const fn saturating(number: u64) -> Self {
        if number < Self::MAX.0 {
            Self(number)
        } else {
            Self::MAX
        }
    }

    /// The next larger number, if there is one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self::saturating(self.0 + 1)
    }

    /// The number itself.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// A ticket as its waiter presents it to a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ticket {
    /// The ticket's id.
    pub id: TicketId,
    /// Its number.
    pub number: Standing,
}

/// Whether the number of a ticket is settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Standing {
    /// The waiter's clock: the node moves it behind those that already wait.
    Proposed(TicketNumber),
    /// A node's answer: the other nodes adopt it, whatever they had.
    Agreed(TicketNumber),
}

impl Standing {
    /// The number, settled or not.
    #[must_use]
    pub const fn number(self) -> TicketNumber {
        match self {
            Self::Proposed(number) | Self::Agreed(number) => number,
        }
    }
}

/// Where a ticket stands on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// Its number on the node.
    pub number: TicketNumber,
    /// How many waiters are ahead of it. Zero for a reader with no writer ahead.
    pub ahead: usize,
}

/// A wake-up for a waiter, because a lock has become free.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Wake {
    /// The ticket whose turn it is.
    pub ticket: TicketId,
    /// Whether it is the head of the queue, or one of the readers there. The second waiter is woken
    /// too, and acts only if the lock is still free a moment later: the head may be dead.
    pub first: bool,
    /// Whether the lock is released on every node, and not only on the one that says so.
    pub everywhere: bool,
    /// The released slot of a semaphore. `None` for a lock, and for the new head of a semaphore's
    /// queue.
    pub slot: Option<usize>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_tells_its_client_its_mode_and_its_owner() {
        let client = ClientId::of(7);
        let owner = Owner::new("web-3").unwrap();
        for fair in [false, true] {
            let id = TicketId::new(&client, 258, fair, &owner);
            assert_eq!(id.is_fair(), fair);
            assert_eq!(id.sequence(), Some(258));
            assert_eq!(id.owner(), owner);
            assert!(id.is_of(&client) && !id.is_of(&ClientId::of(8)));
        }
    }

    #[test]
    fn a_reader_is_never_overtaken() {
        let owner = Owner::new("web-3").unwrap();
        let id = TicketId::of_mode(&ClientId::of(7), 258, TicketMode::Reader, &owner);
        assert!(id.is_reader() && id.is_fair());
        assert_eq!((id.sequence(), id.owner()), (Some(258), owner.clone()));
        assert!(!TicketId::new(&ClientId::of(7), 258, true, &owner).is_reader());
    }

    #[test]
    fn an_id_that_is_not_ours_is_all_label() {
        for text in [
            "",
            "x",
            "a much longer text that is no ticket of the queue ü",
        ] {
            let id = TicketId::reported(text);
            assert!(!id.is_fair() && id.sequence().is_none());
            let _ = id.owner();
        }
    }

    #[test]
    fn numbers_end_where_lua_would_round() {
        assert_eq!(TicketNumber::MAX.next(), TicketNumber::MAX);
        assert_eq!(TicketNumber::saturating(u64::MAX), TicketNumber::MAX);
        assert_eq!(TicketNumber::saturating(4).next().get(), 5);
    }
}
