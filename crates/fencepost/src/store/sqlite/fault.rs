//! What SQLite's errors mean for people, and what to do about them.

use rusqlite::{Error, ErrorCode};

use super::busy;
use fencepost_core::ttl::Readable;

/// One sentence on what went wrong, and one on what to do.
pub(super) fn explain(error: &Error) -> String {
    match error.sqlite_error_code() {
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
        Some(ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => format!(
            "this process may not open it ({error}); it needs to read and write the file and to \
             make files in its directory"
        ),
        Some(ErrorCode::DiskFull) => "the disk is full; make room on it".into(),
        Some(ErrorCode::SystemIoFailure) => {
            format!("reading or writing it failed ({error}); check the disk, and that it has room")
        }
        _ => error.to_string(),
    }
}

/// What to say of a file that may be read and not be written.
pub(super) const READ_ONLY: &str = "it is read-only; this process needs to write the file and to \
                                    make files in its directory";
