//! [`Ticket`]: a waiter's place in the queue.
//!
//! Tickets order waiters and nothing else: no safety may ever rest on them.

use std::fmt::{self, Write as _};
use std::sync::Arc;
use std::time::Duration;

use super::session::SessionId;
use super::value::{AttemptValue, Owner};

/// How long a node keeps a ticket whose waiter is silent. What a dead waiter costs, at the most.
pub const TICKET_LEASE: Duration = Duration::from_secs(3);

const CLIENT_DIGITS: usize = 32;
const SEQUENCE_DIGITS: usize = 16;
const MODE_AT: usize = CLIENT_DIGITS + SEQUENCE_DIGITS;

/// Whether and by whom a waiter may be passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TicketMode {
    /// The queue is a hint: a newcomer may acquire a free lock first.
    Default,
    /// First in, first out.
    Fair,
    /// First in, first out, and neighbouring readers are let in together.
    Reader,
}

impl TicketMode {
    /// `Fair` or `Default`.
    #[must_use]
    pub const fn of(fair: bool) -> Self {
        if fair { Self::Fair } else { Self::Default }
    }

    const ALL: [Self; 3] = [Self::Default, Self::Fair, Self::Reader];

    /// What stands in an id. The scripts know these letters too.
    const fn letter(self) -> u8 {
        match self {
            Self::Default => b'd',
            Self::Fair => b'f',
            Self::Reader => b'r',
        }
    }

    /// Whether it may not be passed.
    #[must_use]
    pub fn is_fair(self) -> bool {
        self != Self::Default
    }
}

/// The client to wake, for all its waiters.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ClientId(Arc<str>);

impl ClientId {
    /// The id of that number, which no other client may have: a random one.
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

/// What tells one ticket from all others: its client, a number of the client's own, whether it is
/// fair or a reader's, and then `:` and the owner's label.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(transparent)
)]
pub struct TicketId(Arc<str>);

impl TicketId {
    /// The client's ticket of that number.
    #[must_use]
    pub fn new(client: &ClientId, sequence: u64, fair: bool, owner: &Owner) -> Self {
        Self::of_mode(client, sequence, TicketMode::of(fair), owner)
    }

    /// The client's ticket of that number and mode.
    #[must_use]
    pub fn of_mode(client: &ClientId, sequence: u64, mode: TicketMode, owner: &Owner) -> Self {
        let mode = char::from(mode.letter());
        let client = client.as_str();
        let mut id = String::with_capacity(MODE_AT + 2 + owner.as_str().len());
        // Writing to a string does not fail.
        let _ = write!(id, "{client}{sequence:0SEQUENCE_DIGITS$x}{mode}:{owner}");
        Self(id.into())
    }

    /// An id as a node reported it.
    #[must_use]
    pub fn reported(id: impl Into<Arc<str>>) -> Self {
        Self(id.into())
    }

    /// Whether this is what stands before the owner's label in an id.
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

    /// Whether it may not be passed.
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

    /// The client's own number of it. `None` when it is not a ticket of ours.
    #[must_use]
    pub fn sequence(&self) -> Option<u64> {
        let digits = self.0.get(CLIENT_DIGITS..MODE_AT)?;
        u64::from_str_radix(digits, 16).ok()
    }

    /// The session that waits. `None` when it is not a ticket of ours.
    #[must_use]
    pub fn session(&self) -> Option<SessionId> {
        let (unique, _) = self.0.split_once(':')?;
        let ours = Self::is_unique_part(unique);
        ours.then(|| SessionId::leading(unique)).flatten()
    }

    /// Who waits, for people.
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

/// The number on a ticket: microseconds, moved behind those who came before. The smallest is
/// served first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(transparent)
)]
pub struct TicketNumber(u64);

impl TicketNumber {
    /// The largest number: what a Lua number still holds exactly.
    pub const MAX: Self = Self((1 << 53) - 1);

    /// That number, or [`MAX`](Self::MAX) if it is above.
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

/// A ticket as its waiter shows it to a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ticket {
    /// Whose.
    pub id: TicketId,
    /// Its number.
    pub number: Standing,
}

/// How far the number of a ticket is settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Standing {
    /// The waiter's clock: the node puts it behind those who wait already.
    Proposed(TicketNumber),
    /// What a node has answered: the others take it over, whatever they had themselves.
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
    /// The number that the node has it under.
    pub number: TicketNumber,
    /// How many are ahead of it. None for a reader with no writer ahead of it.
    pub ahead: usize,
}

/// A wake-up for a waiter, because a lock has become free.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Wake {
    /// Whose turn it is.
    pub ticket: TicketId,
    /// Whether it is the head of the queue, or one of the readers there. The second waiter is woken
    /// too, and acts only if the lock is still free a moment later: the first may be dead.
    pub first: bool,
    /// Which slot of a semaphore was released. `None` where a lock was, and for one who has become the
    /// head of a semaphore's queue.
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
