//! Observing locks from outside: one ([`status`]), all ([`list`]), or several at once, for code
//! that decides by it ([`look`]).

pub(crate) mod list;
pub(crate) mod look;
pub(crate) mod queue;
pub(crate) mod status;
