//! The protocol: what is written, and what is read.
//!
//! `command`: a command, encoded; `value`: a reply; `resp`: the parser; `wire`: a connection that sends and matches
//! replies; `reader`: the task that runs all connections of a client.

pub(super) mod command;
pub(super) mod reader;
pub(super) mod resp;
pub(super) mod value;
pub(super) mod wire;
