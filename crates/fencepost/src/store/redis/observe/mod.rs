//! Observing a server.
//!
//! `survey`, `rights`: facts about it, and what its user may not do; `list`: the locks it knows, `retention`: until
//! when; `queue`: who waits.

pub(super) mod list;
pub(super) mod queue;
pub(super) mod retention;
pub(super) mod rights;
pub(super) mod survey;
