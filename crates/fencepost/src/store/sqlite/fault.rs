//! Turns SQLite's errors into messages that say what to do.

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
            "busy: another process has locked it for {}; look for a stopped process",
            Readable(busy::LIMIT)
        ),
        Some(ErrorCode::NotADatabase) => {
            "it is not a SQLite database; give another path, or delete it if nothing needs it"
                .into()
        }
        Some(ErrorCode::DatabaseCorrupt) => format!(
            "it is corrupt ({error}); stop all programs that use it, delete it, and restart them"
        ),
        Some(ErrorCode::ReadOnly) => READ_ONLY.into(),
        Some(ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => MAY_NOT_OPEN.into(),
        Some(ErrorCode::SystemIoFailure) => {
            format!("I/O error ({error}); check the disk and its free space")
        }
        _ => error.to_string(),
    })
}

/// The same for errors outside of SQLite.
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

/// Whether another connection holds what was needed.
pub(super) fn is_busy(error: &Error) -> bool {
    let code = error.sqlite_error_code();
    matches!(
        code,
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)
    )
}

/// The message of an error about one file.
pub(super) fn sentence(error: NodeError) -> String {
    match error {
        NodeError::Store(why) | NodeError::Unusable(why) => why,
        other => other.to_string(),
    }
}

const DISK_FULL: &str = "the disk is full; free some space";

/// The message for a file that cannot even be read.
pub(super) const MAY_NOT_OPEN: &str = "permission denied; the process must be able to read and \
                                       write the file and create files in its directory";

/// The message for a file that can be read but not written.
pub(super) const READ_ONLY: &str = "it is read-only; the process must be able to write the file \
                                    and create files in its directory";

/// The same for a node that is open read-only.
pub(super) const LOOK_ONLY: &str = "read-only access; to acquire a lock the process must be able \
                                    to write the file and create files in its directory";
