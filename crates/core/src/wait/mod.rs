//! Waiting for a lock.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`queue`] | the waiters of one client for one lock: when they look, and who makes an attempt |
//! | [`view`] | what the nodes' answers mean for those who queue |
//! | [`budget`] | how long to go on waiting |
//! | [`crowd`] | for which locks a request queues without an attempt |
//! | [`backoff`] | ever longer pauses between tries |

pub mod backoff;
pub mod budget;
pub mod crowd;
pub mod queue;
pub mod view;
