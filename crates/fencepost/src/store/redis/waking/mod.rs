//! What wakes those who wait.
//!
//! `listener`: published by other clients of ours; `tracker`: told by the server of a foreign client's release.

pub(super) mod listener;
pub(super) mod tracker;
