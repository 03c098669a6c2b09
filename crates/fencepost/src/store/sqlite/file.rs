//! Opens a lock file, or makes it, once it is known to be ours.
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

/// How long to wait for others to close what was deleted under them, when a store is opened:
/// longer than they take to notice it by themselves.
pub(super) const WHEN_OPENED: Duration = Duration::from_secs(4);
/// The same when it is opened again for a command, whose caller will not wait for that long.
pub(super) const WHEN_REOPENED: Duration = Duration::from_millis(100);
/// How long one waits for those who open the file at the same time.
const LONGEST_TURN: Duration = Duration::from_millis(500);
/// How often a look begins again because files came and went.
const MOST_LOOKS: usize = 100;
/// The pause in between.
const BETWEEN_LOOKS: Duration = Duration::from_millis(5);

/// Whose file it is.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    Ours,
    Empty,
}

/// A database that is open, and the files that it consists of.
pub(super) struct OpenFile {
    pub(super) connection: Connection,
    /// After the connection: it says that there is one.
    _open: Open,
    files: Files,
    /// As the user gave it, if it leads there by links: it may lead elsewhere one day.
    given: Option<PathBuf>,
    path: PathBuf,
}

/// What became of the files of an open database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    None,
    /// The log or the index is not the one that we use.
    SideFiles,
    /// The database itself is not.
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

    /// Writes all that the log says into the database: to be done before a file is closed whose log
    /// or index was deleted, or it would be lost with the last process that has them open.
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

/// Opens the file, and makes it and its table if there is none.
///
/// Where the log or the index is missing, no other process may have the file open: it would go on
/// with those that were deleted, and we with new ones, and neither would see the other's locks.
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
                "{} or {} is there without the file itself, which may still be in use though it \
                 was deleted; stop all programs that use it, and delete these, too",
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
            // A second name may have come in between, too.
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
        "its -wal or -shm file was deleted while processes use it{who}; it votes again once they \
         have noticed or ended: look for one that is stopped"
    ))
}

/// One after the other: of many who try at once to have the file to themselves, none would.
///
/// The lock is one on the directory, because SQLite has its own on the file. If another program uses
/// that one, we try without.
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

/// Whether no other process has the file open. If so, all that there is to know is in the database
/// afterwards, and there is no log any more.
fn have_to_ourselves(path: &Path) -> Result<bool, NodeError> {
    let mut connection = connection(path)?;
    let exclusive = "PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE";
    let asked = connection
        // SQLite would try for seconds: who has it open has it open for long.
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
    // Without OPEN_URI: a path that begins with `file:` is a path.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags(path, flags).map_err(|error| explain(&error))
}

/// Opens the file beside others.
fn connect(path: &Path) -> Result<Connection, NodeError> {
    let mut connection = connection(path)?;
    wait_while_busy(&mut connection)?;
    // In one transaction: while we look, another process may be making the table.
    let found = connection
        .transaction()
        .map_err(|error| explain(&error))
        .and_then(|transaction| whose(&transaction))?;
    // SQLite opens what it may not write for reading, without a word.
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

/// Reads a file that this process may not write. Nothing is made or changed.
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
                // SQLite would have to make the side files, which are not needed while nothing writes.
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
            // A writer does not disturb the readers of a log.
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

/// The last process that wrote has gone while we opened the file, and SQLite has made side files
/// for us: other users could not write them. A process that uses them all the same notices that they are gone.
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
            "a newer fencepost made it (version {newer} of the file, this one knows \
             {SCHEMA_VERSION}); update this program, or give another path"
        ))),
        _ => Err(NodeError::Store(
            "it is another program's SQLite database; give another path".into(),
        )),
    }
}

/// Readers and the writer do not block each other in WAL mode, and a commit needs no fsync: it
/// survives the death of any process, and a power cut ends every holder anyway.
fn use_wal(connection: &Connection) -> Result<(), NodeError> {
    let mut waits = Waits::new();
    let begun = Instant::now();
    let mut looks = 0;
    let mode: String = loop {
        let asked = connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0));
        match asked {
            // SQLite does not ask its busy handler when two processes change the mode at once.
            Err(error) if is_busy(&error) && begun.elapsed() < busy::LIMIT => {
                waits.look_again(looks);
                looks += 1;
            }
            other => break other.map_err(|error| explain(&error))?,
        }
    };
    if mode != "wal" {
        return Err(NodeError::Store(format!(
            "its file system cannot share memory between processes (journal mode {mode}); give a \
             path on a local disk"
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
