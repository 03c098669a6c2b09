//! [`Told`]: what is known of a lock while we wait for it.
//!
//! It is for people only: nothing may be decided by it.

use std::time::{Duration, SystemTime};

use fencepost::Progress;

use crate::exit::Failure;

/// Who has the lock, and when it may be ours. Of a semaphore it is the slot whose holder's time ends
/// first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Told {
    /// `None` while it passes from one to the next.
    pub(super) by: Option<String>,
    /// Who has it on some nodes, where nobody is known to have it on a majority.
    pub(super) split: Vec<String>,
    /// Since when, about.
    pub(super) since: Option<SystemTime>,
    /// How long still, if it is not renewed. `None` when it never expires.
    pub(super) remaining: Option<Duration>,
    /// Our place in the queue; 1 is next. `None` while we have none.
    pub(super) place: Option<usize>,
}

impl Told {
    /// What an attempt that failed has told.
    pub(super) fn by(why: &Failure) -> Option<Self> {
        let holder = why.holder.as_ref()?;
        Some(Self {
            by: Some(holder.by.clone()),
            split: Vec::new(),
            since: holder.since,
            remaining: holder.remaining,
            place: None,
        })
    }
}

impl From<Progress> for Told {
    fn from(progress: Progress) -> Self {
        Self {
            since: progress.since(),
            by: progress.holder.map(|holder| holder.to_string()),
            split: progress.split.iter().map(ToString::to_string).collect(),
            remaining: progress.remaining,
            place: progress.place,
        }
    }
}
