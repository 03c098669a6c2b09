//! [`Progress`]: what is known of a lock while we wait for it.
//!
//! It is for people only: nothing may be decided by it.

use std::convert::Infallible;
use std::time::Duration;

use fencepost::{Error, Fencepost, LockName};
use tokio::time::sleep;

/// How often the nodes are asked who has the lock: as often as people care, and no more.
const EVERY: Duration = Duration::from_secs(1);

/// Who has the lock, and when it may be ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Progress {
    pub(super) by: String,
    /// How long still, if it is not renewed. `None` when it never expires.
    pub(super) remaining: Option<Duration>,
    /// Our place in line; 1 is next. `None` where there is no line.
    pub(super) place: Option<usize>,
}

impl Progress {
    /// What an attempt that failed has told.
    pub(super) fn of(why: &Error) -> Option<Self> {
        match why {
            Error::Held { by, remaining, .. } => Some(Self {
                by: by.to_string(),
                remaining: *remaining,
                place: None,
            }),
            _ => None,
        }
    }
}

/// Tells again and again, until it is dropped.
pub(super) async fn look(
    locks: &Fencepost,
    name: &LockName,
    tell: impl Fn(Progress),
) -> Infallible {
    loop {
        sleep(EVERY).await;
        let status = locks.status(name.as_str()).await;
        if let Some(holder) = status.ok().and_then(|status| status.holder) {
            tell(Progress {
                by: holder.owner.to_string(),
                remaining: holder.remaining,
                place: None,
            });
        }
    }
}
