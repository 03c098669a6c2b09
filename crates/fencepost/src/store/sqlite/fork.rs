//! Detects that this process forked while it had a file open.
//!
//! SQLite keeps a list of the files and locks of its process, and a fork copies the list but not
//! the locks. A child that opens the file by that list works without locks, and may destroy it.
//! There is no way to clear the list, so such a child is refused.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::NodeError;

/// The error in such a child. Nothing ran, and nothing ever will.
pub(super) fn forked() -> NodeError {
    NodeError::Unusable(
        "this process forked while the file was open, which SQLite does not support; open it after \
         the fork"
            .into(),
    )
}

/// The number of open files in the lower half, and their process in the upper half. Not a mutex: a
/// fork may copy a locked one.
static OPEN: AtomicU64 = AtomicU64::new(0);

/// An open file that is counted.
#[derive(Debug)]
pub(super) struct Open(());

impl Open {
    /// Counts one more, or fails in a forked child.
    pub(super) fn register() -> Result<Self, NodeError> {
        let pid = std::process::id();
        OPEN.fetch_update(Ordering::AcqRel, Ordering::Acquire, |open| {
            one_more(open, pid)
        })
        .map(|_| Self(()))
        .map_err(|_| forked())
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let pid = u64::from(std::process::id());
        // In a forked child the count is the parent's.
        let _ = OPEN.fetch_update(Ordering::AcqRel, Ordering::Acquire, |open| {
            (open >> 32 == pid).then(|| open - 1)
        });
    }
}

fn one_more(open: u64, pid: u32) -> Option<u64> {
    let (opened_by, count) = (open >> 32, open & u64::from(u32::MAX));
    let pid = u64::from(pid);
    match count {
        0 => Some(pid << 32 | 1),
        _ => (opened_by == pid).then_some(open + 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_forked_with_a_file_open_may_open_none() {
        let one = one_more(0, 7).unwrap();
        let two = one_more(one, 7).unwrap();
        assert_eq!(two & 0xff, 2);
        assert_eq!(one_more(two, 8), None);
        assert_eq!(one_more(7 << 32, 8), Some(8 << 32 | 1), "all were closed");
    }
}
