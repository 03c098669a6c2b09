//! The words: one checked type per idea, built in one place and valid from then on.
//!
//! A word's error lives with it.

pub mod moment;
pub mod name;
pub mod pattern;
pub mod session;
pub mod ticket;
pub mod token;
pub mod ttl;
pub mod value;

pub use moment::Moment;
pub use name::{InvalidName, LockName};
pub use pattern::{NamePattern, Names};
pub use session::{InvalidSession, SessionId};
pub use ticket::{ClientId, Ticket, TicketId, TicketMode, TicketNumber};
pub use token::{FencingToken, InvalidToken};
pub use ttl::{Drift, InvalidShare, InvalidTtl, Readable, Ttl};
pub use value::{AttemptValue, InvalidLabel, InvalidLeaseId, LeaseAttempt, LeaseId, Owner};
