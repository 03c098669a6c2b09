//! Opens a lock file, or makes it, once it is known to be ours.
//!
//! It must never change a file that is another program's, not even its journal mode.

use std::path::Path;
use std::time::Instant;

use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior};

use super::busy::{self, Waits};
use super::fault::{READ_ONLY, explain};

/// What tells our files from other SQLite databases: "fpst".
const APPLICATION_ID: i32 = 0x6670_7374;

/// The version of the table below.
const SCHEMA_VERSION: i32 = 1;

/// One row per lock. `state` is the [`LockState`](fencepost_core::lock::LockState) as JSON, `boot` and
/// `written_us` say what its times are counted from, the rest is the holder's process.
const SCHEMA: &str = "
    CREATE TABLE locks (
        name       TEXT PRIMARY KEY NOT NULL,
        state      TEXT NOT NULL,
        boot       TEXT,
        written_us INTEGER NOT NULL,
        pid        INTEGER,
        started    INTEGER,
        pid_ns     INTEGER
    ) STRICT, WITHOUT ROWID";

/// Whose file it is.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    Ours,
    Empty,
}

/// Opens the file and makes the table if it is new.
pub(super) fn open(path: &Path) -> Result<Connection, String> {
    // Without OPEN_URI: a path that begins with `file:` is a path.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection =
        Connection::open_with_flags(path, flags).map_err(|error| explain(&error))?;
    let mut waits = Waits::new();
    connection
        .busy_handler(Some(move |looks| waits.look_again(looks)))
        .map_err(|error| explain(&error))?;
    // In one transaction: while we look, another process may be making the table.
    let found = connection
        .transaction()
        .map_err(|error| explain(&error))
        .and_then(|transaction| whose(&transaction))?;
    // SQLite opens what it may not write for reading, without a word.
    if connection.is_readonly("main").unwrap_or(false) {
        return Err(READ_ONLY.into());
    }
    use_wal(&connection)?;
    if found == Found::Empty {
        make_table(&mut connection)?;
    }
    Ok(connection)
}

fn whose(connection: &Connection) -> Result<Found, String> {
    let number = |sql| connection.query_row(sql, [], |row| row.get::<_, i32>(0));
    let application = number("PRAGMA application_id").map_err(|error| explain(&error))?;
    let version = number("PRAGMA user_version").map_err(|error| explain(&error))?;
    let tables = number("SELECT count(*) FROM sqlite_schema").map_err(|error| explain(&error))?;
    match (application, version, tables) {
        (0, 0, 0) => Ok(Found::Empty),
        (APPLICATION_ID, SCHEMA_VERSION, _) => Ok(Found::Ours),
        (APPLICATION_ID, newer, _) if newer > SCHEMA_VERSION => Err(format!(
            "a newer fencepost made it (version {newer} of the file, this one knows \
             {SCHEMA_VERSION}); update this program, or give another path"
        )),
        _ => Err("it is another program's SQLite database; give another path".into()),
    }
}

/// Readers and the writer do not block each other in WAL mode, and a commit needs no fsync: it
/// survives the death of any process, and a power cut ends every holder anyway.
fn use_wal(connection: &Connection) -> Result<(), String> {
    let mut waits = Waits::new();
    let begun = Instant::now();
    let mut looks = 0;
    let mode: String = loop {
        let asked = connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0));
        match asked {
            // SQLite does not ask its busy handler when two processes change the mode at once.
            Err(error)
                if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
                    && begun.elapsed() < busy::LIMIT =>
            {
                waits.look_again(looks);
                looks += 1;
            }
            other => break other.map_err(|error| explain(&error))?,
        }
    };
    if mode != "wal" {
        return Err(format!(
            "its file system cannot share memory between processes (journal mode {mode}); give a \
             path on a local disk"
        ));
    }
    connection
        .execute_batch("PRAGMA synchronous = NORMAL")
        .map_err(|error| explain(&error))
}

fn make_table(connection: &mut Connection) -> Result<(), String> {
    let transaction = connection
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .map_err(|error| explain(&error))?;
    // Another process may have been first.
    if whose(&transaction)? == Found::Empty {
        transaction
            .execute_batch(&format!(
                "PRAGMA application_id = {APPLICATION_ID};
                 PRAGMA user_version = {SCHEMA_VERSION};
                 {SCHEMA}"
            ))
            .map_err(|error| explain(&error))?;
    }
    transaction.commit().map_err(|error| explain(&error))
}
