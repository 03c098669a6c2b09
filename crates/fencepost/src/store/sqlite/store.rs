//! One command, one transaction: reads the lock's row, lets the state machine decide, writes the
//! row if it changed.
//!
//! It must never read the clock before it has read the row: while a command waits for its turn
//! time passes, and by an old time a new holder's TTL would seem longer than it is.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Connection, TransactionBehavior};

use super::boot::{self, Boot};
use super::fault::explain;
use super::file;
use super::fork::Open;
use super::holder::{Bond, Holder};
use super::place::{self, FileId};
use super::process::Process;
use super::row::Row;
use crate::runtime::clock::Clock;
use fencepost_core::lock::{COUNTER_RETENTION, Command, LockState, Now, Reply};
use fencepost_core::name::LockName;
use fencepost_core::ticket::Wake;

/// After so many changes, a few rows are looked at, to sweep out names that nobody needs any more.
const SWEEP_EVERY: u32 = 16;
/// How many rows: as many as there were changes, so that sweeping keeps up with new names.
const SWEEP_ROWS: u32 = SWEEP_EVERY;

/// An open lock file.
pub(super) struct Store {
    connection: Connection,
    /// After the connection: it says that there is one.
    _open: Open,
    path: PathBuf,
    file: Option<FileId>,
    here: Here,
    /// Changes since the last sweep.
    changes: u32,
    /// The name up to which the last sweep came.
    swept_to: String,
    /// Whom the last command has woken.
    woken: Vec<Wake>,
}

/// What a row is judged by: this machine, this boot, this process.
struct Here {
    clock: Arc<dyn Clock>,
    boot: Boot,
    /// This process. It stays the same: a store belongs to a thread, and threads do not survive a
    /// fork.
    process: Option<Process>,
    /// Who holds what is taken here: this process, unless the user said otherwise.
    holder: Holder,
}

impl Store {
    /// With this process as the holder.
    pub(super) fn open(path: &Path, clock: Arc<dyn Clock>) -> Result<Self, String> {
        let us = super::holder::HolderProcess::This;
        Self::open_for(path, clock, Holder::find(us)?)
    }

    pub(super) fn open_for(
        path: &Path,
        clock: Arc<dyn Clock>,
        holder: Holder,
    ) -> Result<Self, String> {
        boot::check_time_namespace()?;
        let path = place::prepare(path)?;
        let open = Open::register()?;
        Ok(Self {
            connection: file::open(&path)?,
            _open: open,
            file: FileId::at(&path),
            path,
            here: Here {
                clock,
                boot: Boot::current(),
                process: Process::current(),
                holder,
            },
            changes: 0,
            swept_to: String::new(),
            woken: Vec::new(),
        })
    }

    /// Carries out one command.
    pub(super) fn apply(
        &mut self,
        name: &LockName,
        command: &Command,
        bond: Bond,
    ) -> Result<Reply, String> {
        if self.is_replaced() {
            // The others no longer see what we write, and we do not see what they write.
            let path = self.path.display();
            tracing::warn!(%path, "the lock file was deleted or replaced: all locks are lost");
            self.open_again()?;
        }
        self.woken.clear();
        let done = match command {
            Command::Inspect => self.look(name.as_str()),
            _ => self.change(name.as_str(), command, bond),
        };
        done.map_err(|error| match error {
            rusqlite::Error::FromSqlConversionFailure(..)
            | rusqlite::Error::IntegralValueOutOfRange(..)
            | rusqlite::Error::InvalidColumnType(..) => format!(
                "the row of lock \"{name}\" is damaged ({error}); delete it once nobody holds the \
                 lock"
            ),
            other => explain(&other),
        })
    }

    /// Whom the last command has woken.
    pub(super) fn take_woken(&mut self) -> impl Iterator<Item = Wake> + use<> {
        std::mem::take(&mut self.woken).into_iter()
    }

    /// A number that is another one after another connection has changed the file. `None` when
    /// that cannot be told.
    pub(super) fn version(&mut self) -> Option<i64> {
        if self.is_replaced() && self.open_again().is_err() {
            return None;
        }
        let statement = self.connection.prepare_cached("PRAGMA data_version");
        statement.ok()?.query_row([], |columns| columns.get(0)).ok()
    }

    /// Whose turn it is, if the lock is free.
    pub(super) fn next_in_line(&self, name: &LockName) -> rusqlite::Result<Vec<Wake>> {
        let row = Row::read(&self.connection, name.as_str())?;
        let now = self.here.now().elapsed;
        let (state, _) = self.here.brought_up_to_date(row.as_ref(), now);
        Ok(state.next_in_line(now))
    }

    fn is_replaced(&self) -> bool {
        FileId::at(&self.path) != self.file
    }

    fn open_again(&mut self) -> Result<(), String> {
        let clock = Arc::clone(&self.here.clock);
        *self = Self::open_for(&self.path, clock, self.here.holder)?;
        Ok(())
    }

    /// Lets the file grow to so many pages only, as a full disk would.
    #[cfg(test)]
    pub(super) fn limit_pages(&self, pages: u32) {
        let limit = format!("PRAGMA max_page_count = {pages}");
        self.connection
            .query_row(&limit, [], |_| Ok(()))
            .expect("a limit");
    }

    /// [`Command::Inspect`] needs no turn: it neither waits for a writer nor holds one up.
    fn look(&self, name: &str) -> rusqlite::Result<Reply> {
        let row = Row::read(&self.connection, name)?;
        let now = self.here.now();
        let (mut state, _) = self.here.brought_up_to_date(row.as_ref(), now.elapsed);
        Ok(state.apply(&Command::Inspect, now))
    }

    fn change(&mut self, name: &str, command: &Command, bond: Bond) -> rusqlite::Result<Reply> {
        let transaction = self
            .connection
            .transaction_with_behavior(TransactionBehavior::Immediate)?;
        let before = Row::read(&transaction, name)?;
        let now = self.here.now();
        let (mut state, holder) = self.here.brought_up_to_date(before.as_ref(), now.elapsed);
        let woken = &mut self.woken;
        let reply = state.apply_and_wake(command, now, |wake| woken.push(wake));
        let process = match (&reply, state.holder()) {
            (_, None) => None,
            (reply, Some(_)) => self.here.holder.after(bond, reply, holder),
        };
        let changed = match &before {
            Some(row) => row.state != state || row.process != process,
            None => state != LockState::default(),
        };
        if changed {
            let row = Row {
                state,
                process,
                boot: self.here.boot.clone(),
                written: now.elapsed,
            };
            row.write(&transaction, name)?;
            self.changes += 1;
            if self.changes >= SWEEP_EVERY {
                self.changes = 0;
                self.swept_to = self.here.sweep(&transaction, &self.swept_to, now.elapsed)?;
            }
        }
        transaction.commit()?;
        Ok(reply)
    }
}

impl Here {
    fn now(&self) -> Now {
        Now {
            elapsed: self.clock.now().since_start(),
            wall_micros: self.clock.wall_micros(),
        }
    }

    /// What became of a lock since its row was written, and the holder's process if it lives.
    fn brought_up_to_date(&self, row: Option<&Row>, now: Duration) -> (LockState, Option<Process>) {
        let Some(row) = row else {
            return (LockState::default(), None);
        };
        let mut state = row.state.clone();
        if self.is_of_earlier_boot(row, now) {
            state.after_reboot(now);
            return (state, None);
        }
        let gone = match (row.process, self.process) {
            (Some(holder), Some(us)) => holder.is_gone(&us),
            _ => false,
        };
        if gone {
            state.evict_holder();
            return (state, None);
        }
        (state, row.process)
    }

    fn is_of_earlier_boot(&self, row: &Row, now: Duration) -> bool {
        self.boot.is_after(&row.boot, row.written, now)
    }

    /// Looks at the next few rows, forgets those that nobody needs, and returns how far it came.
    fn sweep(
        &self,
        connection: &Connection,
        from: &str,
        now: Duration,
    ) -> rusqlite::Result<String> {
        let names = Row::names_after(connection, from, SWEEP_ROWS)?;
        for name in &names {
            // A damaged row is for its own lock's command to complain of.
            let Ok(Some(row)) = Row::read(connection, name) else {
                continue;
            };
            let forgettable = if self.is_of_earlier_boot(&row, now) {
                now >= COUNTER_RETENTION
            } else {
                row.state.is_forgettable(now)
            };
            if forgettable {
                Row::delete(connection, name)?;
            }
        }
        // Short of rows: that was the end, and the next sweep begins at the beginning.
        let at_end = names.len() < SWEEP_ROWS as usize;
        Ok(names
            .into_iter()
            .next_back()
            .filter(|_| !at_end)
            .unwrap_or_default())
    }
}
