//! The words: one checked type per idea, built in one place and valid from then on.
//!
//! A word's error lives with it.

pub mod lease_id;
pub mod moment;
pub mod name;
pub mod owner;
pub mod pattern;
pub mod session;
pub mod stored;
pub mod ticket;
pub mod token;
pub mod ttl;
pub mod value;

pub use lease_id::{InvalidLeaseId, LeaseAttempt, LeaseId};
pub use moment::Moment;
pub use name::{InvalidName, LockName};
pub use owner::{InvalidOwner, Owner};
pub use pattern::{NamePattern, Names};
pub use session::{InvalidSession, SessionId};
pub use stored::Stored;
pub use ticket::{ClientId, Ticket, TicketId, TicketMode, TicketNumber};
pub use token::{FencingToken, InvalidToken};
pub use ttl::{Drift, InvalidDrift, InvalidTtl, Readable, Ttl};
pub use value::AttemptValue;
