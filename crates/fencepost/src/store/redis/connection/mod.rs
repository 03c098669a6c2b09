//! One connection after its handshake.
//!
//! `gate`: where calls wait for it; `link`: carries them out; `keeper`: makes it, watches it, and replaces it.

pub(super) mod gate;
pub(super) mod keeper;
pub(super) mod link;
