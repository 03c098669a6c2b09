//! How a command for a lock becomes commands for a server.
//!
//! `keys`: its keys; `scripts`: by a Lua script; `plain`: without one; `prepared`: encoded once for all nodes;
//! `released`: what must not be sent again.

pub(super) mod keys;
pub(super) mod plain;
pub(super) mod prepared;
pub(super) mod released;
pub(super) mod scripts;
