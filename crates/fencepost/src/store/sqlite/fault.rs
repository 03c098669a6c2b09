//! What SQLite's errors mean for people, and what to do about them.

use std::io::{self, ErrorKind};

use rusqlite::ffi::SQLITE_IOERR_SHMSIZE;
use rusqlite::{Error, ErrorCode};

use super::busy;
use crate::error::NodeError;
use fencepost_core::ttl::Readable;

/// One sentence on what went wrong, and one on what to do.
pub(super) fn explain(error: &Error) -> NodeError {
    if is_disk_full(error) {
        return NodeError::Unusable(DISK_FULL.into());
    }
    NodeError::Store(match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => format!(
            "busy: another process has kept it to itself for {}; look for one that is stopped",
            Readable(busy::LIMIT)
        ),
        Some(ErrorCode::NotADatabase) => {
            "it is not a SQLite database; give another path, or delete it if nothing needs it"
                .into()
        }
        Some(ErrorCode::DatabaseCorrupt) => format!(
            "it is damaged ({error}); stop all programs that use it, delete it, start them again"
        ),
        Some(ErrorCode::ReadOnly) => READ_ONLY.into(),
        Some(ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => MAY_NOT_OPEN.into(),
        Some(ErrorCode::SystemIoFailure) => {
            format!("reading or writing it failed ({error}); check the disk, and that it has room")
        }
        _ => error.to_string(),
    })
}

/// The same for what was done without SQLite.
pub(super) fn explain_io(error: &io::Error) -> NodeError {
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => NodeError::Unusable(DISK_FULL.into()),
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
            NodeError::Store(MAY_NOT_OPEN.into())
        }
        _ => NodeError::Store(error.to_string()),
    }
}

fn is_disk_full(error: &Error) -> bool {
    match error {
        // The index could not grow.
        Error::SqliteFailure(failure, _) if failure.extended_code == SQLITE_IOERR_SHMSIZE => true,
        _ => error.sqlite_error_code() == Some(ErrorCode::DiskFull),
    }
}

/// Whether another connection has what was needed.
pub(super) fn is_busy(error: &Error) -> bool {
    let code = error.sqlite_error_code();
    matches!(
        code,
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)
    )
}

/// The sentence in an error that is about one file.
pub(super) fn sentence(error: NodeError) -> String {
    match error {
        NodeError::Store(why) | NodeError::Unusable(why) => why,
        other => other.to_string(),
    }
}

const DISK_FULL: &str = "the disk is full; make room on it";

/// What to say of a file that may not even be read.
pub(super) const MAY_NOT_OPEN: &str = "this process may not open it; it needs to read and write \
                                       the file and to make files in its directory";

/// What to say of a file that may be read and not be written.
pub(super) const READ_ONLY: &str = "it is read-only; this process needs to write the file and to \
                                    make files in its directory";

/// The same of a node that is open for looking.
pub(super) const LOOK_ONLY: &str = "this process may look at its locks; to take one it needs to \
                                    write the file and to make files in its directory";
