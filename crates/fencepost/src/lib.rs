//! Distributed locks with fencing tokens.

pub mod clock;
mod error;
mod name;
pub mod node;
pub mod state;
mod token;
mod ttl;
mod value;

pub use error::{Error, LossReason, NodeError, NodeOutcome, NodeReport};
pub use name::LockName;
pub use token::FencingToken;
pub use ttl::{Drift, Ttl};
pub use value::{AttemptValue, Owner};
