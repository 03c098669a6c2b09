//! Waiting for a lock: what the nodes' answers mean for those who queue.

pub mod backoff;
pub mod view;
