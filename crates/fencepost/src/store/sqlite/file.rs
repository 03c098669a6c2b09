//! Opens a lock file, or creates it, once it is known to be ours.
//!
//! It must never change a file that is another program's, not even its journal mode.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use rusqlite::{Connection, OpenFlags, TransactionBehavior};
use rustix::fs::FlockOperation;
use rustix::io::Errno;

use super::busy::{self, Waits};
use super::fault::{LOOK_ONLY, READ_ONLY, explain, is_busy};
use super::files::{self, FileId, Files};
use super::fork::Open;
use super::place::{FileSpec, Rights};
use crate::error::NodeError;

/// The application id of our files: "fpst".
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

/// How long to wait, when a store is opened, for others to close what was deleted under them:
/// longer than they take to notice it.
pub(super) const WHEN_OPENED: Duration = Duration::from_secs(4);
/// The same when it is reopened for a command, whose caller will not wait that long.
pub(super) const WHEN_REOPENED: Duration = Duration::from_millis(100);
/// How long to wait for processes that open the file at the same time.
const LONGEST_TURN: Duration = Duration::from_millis(500);
/// How often a check restarts because files came and went.
const MOST_LOOKS: usize = 100;
/// The pause in between.
const BETWEEN_LOOKS: Duration = Duration::from_millis(5);

/// Who the file belongs to.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    Ours,
    Empty,
}

/// An open database, and its files.
pub(super) struct OpenFile {
    pub(super) connection: Connection,
    /// After the connection: it counts the connection.
    _open: Open,
    files: Files,
    /// The path as configured, if it goes through links: it may lead elsewhere one day.
    given: Option<PathBuf>,
    path: PathBuf,
}

/// What happened to the files of an open database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    None,
    /// The log or the index was replaced.
    SideFiles,
    /// The database itself was replaced.
    Database,
}

impl OpenFile {
    pub(super) fn change(&self) -> Change {
        let now = Files::at(&self.path);
        let leads_elsewhere = |given: &PathBuf| FileId::at(given) != self.files.main;
        if now.main != self.files.main || self.given.as_ref().is_some_and(leads_elsewhere) {
            Change::Database
        } else if now != self.files {
            Change::SideFiles
        } else {
            Change::None
        }
    }

    /// Checkpoints the log into the database: needed before closing a file whose log or index was
    /// deleted, or it would be lost with the last process that has them open.
    pub(super) fn save_log(&self) -> Result<(), NodeError> {
        let is_busy = |row: &rusqlite::Row<'_>| row.get::<_, bool>(0);
        let checkpoint = "PRAGMA wal_checkpoint(FULL)";
        match self.connection.query_row(checkpoint, [], is_busy) {
            Ok(false) => Ok(()),
            Ok(true) => Err(deleted(self.files.main)),
            Err(error) => Err(explain(&error)),
        }
    }
}

/// Opens the file, and creates it and its table if missing.
///
/// If the log or the index is missing, no other process may have the file open: it would keep using
/// the deleted ones, and we new ones, and neither would see the other's locks.
pub(super) fn open(spec: &FileSpec, patience: Duration) -> Result<OpenFile, NodeError> {
    let open = Open::register()?;
    let path = spec.prepare()?;
    let mut waits = Waits::new();
    let begun = Instant::now();
    for looks in 0.. {
        let mut before = Files::at(&path);
        let mut turn = None;
        if !before.are_all_there() {
            turn = wait_for_turn(&path);
            before = Files::at(&path);
        }
        if before.main.is_none() && (before.log.is_some() || before.index.is_some()) {
            return Err(NodeError::Store(format!(
                "{} or {} exists without the file itself, which may have been deleted while in \
                 use; stop all programs that use it, and delete these too",
                files::log(&path).display(),
                files::index(&path).display()
            )));
        }
        spec.make(&path)?;
        if Rights::of(&path)? == Rights::Read {
            return Err(NodeError::ReadOnly(LOOK_ONLY.into()));
        }
        let may_join = before.are_all_there();
        if may_join || have_to_ourselves(&path)? {
            let connection = connect(&path)?;
            let files = Files::at(&path);
            let is_as_before = match may_join {
                true => files == before,
                false => files.are_all_there(),
            };
            // A hard link may have been created in between.
            if is_as_before && spec.prepare()? == path {
                return Ok(OpenFile {
                    connection,
                    _open: open,
                    files,
                    given: (spec.path != path).then(|| spec.path.clone()),
                    path,
                });
            }
        }
        drop(turn);
        if begun.elapsed() >= patience {
            return Err(deleted(Files::at(&path).main));
        }
        waits.look_again(looks);
    }
    Err(deleted(None))
}

fn deleted(main: Option<FileId>) -> NodeError {
    let users = main.map(files::users_of).unwrap_or_default();
    let who = match &users[..] {
        [] => String::new(),
        users => {
            let users: Vec<_> = users.iter().map(u32::to_string).collect();
            format!(" (process {})", users.join(", "))
        }
    };
    NodeError::Store(format!(
        "its -wal or -shm file was deleted while in use{who}; it votes again once those processes \
         have noticed or exited: look for a stopped process"
    ))
}

/// One process at a time: if many tried for exclusive access at once, none would get it.
///
/// The lock is on the directory, because SQLite has its own on the file. If another program uses
/// that one, we continue without.
fn wait_for_turn(path: &Path) -> Option<std::fs::File> {
    let directory = std::fs::File::open(path.parent()?).ok()?;
    let (mut waits, begun) = (Waits::new(), Instant::now());
    for looks in 0.. {
        match rustix::fs::flock(&directory, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Some(directory),
            Err(Errno::WOULDBLOCK) if begun.elapsed() < LONGEST_TURN => waits.look_again(looks),
            Err(_) => return None,
        };
    }
    None
}

/// Whether no other process has the file open. If so, everything is checkpointed into the database,
/// and the log is gone.
fn have_to_ourselves(path: &Path) -> Result<bool, NodeError> {
    let mut connection = connection(path)?;
    let exclusive = "PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE";
    let asked = connection
        // SQLite would retry for seconds: a process that has it open keeps it open for long.
        .busy_timeout(Duration::ZERO)
        .and_then(|()| connection.execute_batch(exclusive));
    match asked {
        Err(error) if is_busy(&error) => return Ok(false),
        Err(error) => return Err(explain(&error)),
        Ok(()) => {}
    }
    let found = whose(&connection)?;
    connection
        .execute_batch("COMMIT")
        .map_err(|error| explain(&error))?;
    if found == Found::Empty {
        use_wal(&connection)?;
        make_table(&mut connection)?;
    }
    Ok(true)
}

fn connection(path: &Path) -> Result<Connection, NodeError> {
    // Without OPEN_URI: a path that starts with `file:` is a path.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags(path, flags).map_err(|error| explain(&error))
}

/// Opens the file beside others.
fn connect(path: &Path) -> Result<Connection, NodeError> {
    let mut connection = connection(path)?;
    wait_while_busy(&mut connection)?;
    // In one transaction: another process may be creating the table.
    let found = connection
        .transaction()
        .map_err(|error| explain(&error))
        .and_then(|transaction| whose(&transaction))?;
    // SQLite silently opens a file read-only if it may not write it.
    if connection.is_readonly("main").unwrap_or(false) {
        return Err(NodeError::Store(READ_ONLY.into()));
    }
    use_wal(&connection)?;
    if found == Found::Empty {
        make_table(&mut connection)?;
    }
    Ok(connection)
}

fn wait_while_busy(connection: &mut Connection) -> Result<(), NodeError> {
    let mut waits = Waits::new();
    connection
        .busy_handler(Some(move |looks| waits.look_again(looks)))
        .map_err(|error| explain(&error))
}

/// Opens a file read-only that this process may not write. Creates and changes nothing.
pub(super) fn look<T>(
    spec: &FileSpec,
    read: impl Fn(&Connection) -> rusqlite::Result<T>,
) -> Result<T, NodeError> {
    let _open = Open::register()?;
    let path = spec.prepare()?;
    for _ in 0..MOST_LOOKS {
        let before = (Files::at(&path), modified(&path));
        let connection = match before.0 {
            Files {
                log: None,
                index: None,
                main: Some(main),
            } => {
                // SQLite would have to create the side files, which are not needed while nothing
                // writes.
                match files::users_of(main)[..] {
                    [] => Some(open_unchanging(&path)?),
                    _ => None,
                }
            }
            files if files.are_all_there() => Some(open_to_read(&path)?),
            _ => None,
        };
        let seen = connection.map(|connection| {
            whose(&connection)?;
            read(&connection).map_err(|error| explain(&error))
        });
        let after = (Files::at(&path), modified(&path));
        if after.0 != before.0 {
            remove_ours(&path, before.0, after.0);
        }
        match seen {
            // A writer does not disturb readers of a log.
            Some(seen) if after.0 == before.0 && (after.1 == before.1 || after.0.log.is_some()) => {
                return seen;
            }
            _ => std::thread::sleep(BETWEEN_LOOKS),
        }
    }
    Err(deleted(FileId::at(&path)))
}

fn modified(path: &Path) -> Option<SystemTime> {
    path.metadata().ok()?.modified().ok()
}

fn open_to_read(path: &Path) -> Result<Connection, NodeError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection =
        Connection::open_with_flags(path, flags).map_err(|error| explain(&error))?;
    wait_while_busy(&mut connection)?;
    Ok(connection)
}

fn open_unchanging(path: &Path) -> Result<Connection, NodeError> {
    use std::os::unix::ffi::OsStrExt;
    let path = path.as_os_str().as_bytes().iter();
    let path: String = path
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' => {
                char::from(*byte).to_string()
            }
            other => format!("%{other:02X}"),
        })
        .collect();
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_URI;
    Connection::open_with_flags(format!("file:{path}?immutable=1"), flags)
        .map_err(|error| explain(&error))
}

/// The last writer has gone while we opened the file, and SQLite created side files for us that
/// other users could not write. A process that uses them anyway notices that they are gone.
fn remove_ours(path: &Path, before: Files, after: Files) {
    let us = rustix::process::geteuid().as_raw();
    let made = [
        (before.log, after.log, files::log(path)),
        (before.index, after.index, files::index(path)),
    ];
    for (before, after, path) in made {
        let is_ours = path.metadata().is_ok_and(|file| file.uid() == us);
        if before != after && after.is_some() && is_ours {
            let _ = std::fs::remove_file(path);
        }
    }
}

fn whose(connection: &Connection) -> Result<Found, NodeError> {
    let number = |sql| connection.query_row(sql, [], |row| row.get::<_, i32>(0));
    let application = number("PRAGMA application_id").map_err(|error| explain(&error))?;
    let version = number("PRAGMA user_version").map_err(|error| explain(&error))?;
    let tables = number("SELECT count(*) FROM sqlite_schema").map_err(|error| explain(&error))?;
    match (application, version, tables) {
        (0, 0, 0) => Ok(Found::Empty),
        (APPLICATION_ID, SCHEMA_VERSION, _) => Ok(Found::Ours),
        (APPLICATION_ID, newer, _) if newer > SCHEMA_VERSION => Err(NodeError::Store(format!(
            "it was created by a newer fencepost (file version {newer}, supported \
             {SCHEMA_VERSION}); update this program, or use another path"
        ))),
        _ => Err(NodeError::Store(
            "it is another program's SQLite database; use another path".into(),
        )),
    }
}

/// In WAL mode readers and the writer do not block each other, and a commit needs no fsync: it
/// survives the death of any process, and a power cut ends every holder anyway.
fn use_wal(connection: &Connection) -> Result<(), NodeError> {
    let mut waits = Waits::new();
    let begun = Instant::now();
    let mut looks = 0;
    let mode: String = loop {
        let asked = connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0));
        match asked {
            // SQLite does not call its busy handler when two processes change the mode at once.
            Err(error) if is_busy(&error) && begun.elapsed() < busy::LIMIT => {
                waits.look_again(looks);
                looks += 1;
            }
            other => break other.map_err(|error| explain(&error))?,
        }
    };
    if mode != "wal" {
        return Err(NodeError::Store(format!(
            "its file system does not support shared memory (journal mode {mode}); use a path on a \
             local disk"
        )));
    }
    connection
        .execute_batch("PRAGMA synchronous = NORMAL")
        .map_err(|error| explain(&error))
}

fn make_table(connection: &mut Connection) -> Result<(), NodeError> {
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
