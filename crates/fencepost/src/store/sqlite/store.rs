//! One command, one transaction: reads the lock's row, runs the state machine, and writes the row
//! if it changed.
//!
//! It must never read the clock before it has read the row: time passes while a command waits for
//! its turn, and with an old time a new holder's TTL would seem longer than it is.

use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Connection, TransactionBehavior};

use super::boot::{self, Boot};
use super::fault::{LOOK_ONLY, explain};
use super::file::{self, Change, OpenFile};
use super::holder::{Bond, Holder};
use super::place::FileSpec;
use super::process::Process;
use super::row::Row;
use crate::error::NodeError;
use crate::runtime::clock::Clock;
use fencepost_core::lock::{Command, LockState, Now, REGISTER_RETENTION, Reply};
use fencepost_core::name::LockName;
use fencepost_core::ticket::Wake;
use fencepost_core::ttl::Readable;

/// After this many changes, a few rows are checked, to sweep unused names.
const SWEEP_EVERY: u32 = 16;
/// How many rows: as many as changes, so that the sweep keeps up with new names.
const SWEEP_ROWS: u32 = SWEEP_EVERY;

/// A lock file.
pub(super) struct Store {
    spec: FileSpec,
    file: State,
    here: Here,
    /// Changes since the last sweep.
    changes: u32,
    /// The name up to which the last sweep came.
    swept_to: String,
    /// The waiters to wake after the last command.
    woken: Vec<Wake>,
}

/// The state of the file.
enum State {
    Open(Box<OpenFile>),
    /// This process may read it but not write it. It is opened for each query.
    LookOnly,
    /// Closed because its log or index was deleted; reopened for the next command.
    Closed,
    /// It was deleted or replaced. Until this time locks may be held that only the old file knew.
    Replaced(Duration),
}

/// What rows are judged by: this machine, this boot, this process.
struct Here {
    clock: Arc<dyn Clock>,
    boot: Boot,
    /// This process. It never changes: a store belongs to a thread, and threads do not survive a
    /// fork.
    process: Option<Process>,
    /// The process that acquired locks are tied to: this one, unless configured.
    holder: Holder,
}

impl Store {
    /// Opens the file for voting.
    pub(super) fn open(
        spec: FileSpec,
        clock: Arc<dyn Clock>,
        holder: Holder,
    ) -> Result<Self, NodeError> {
        boot::check_time_namespace().map_err(NodeError::Store)?;
        let spec = spec.made_absolute();
        let file = file::open(&spec, file::WHEN_OPENED)?;
        Ok(Self::new(spec, State::Open(Box::new(file)), clock, holder))
    }

    /// Opens the file for voting, or read-only if this process may not write it.
    pub(super) fn open_or_look(
        spec: FileSpec,
        clock: Arc<dyn Clock>,
        holder: Holder,
    ) -> Result<Self, NodeError> {
        match Self::open(spec.clone(), Arc::clone(&clock), holder) {
            Err(NodeError::ReadOnly(_)) => Ok(Self::new(
                spec.made_absolute(),
                State::LookOnly,
                clock,
                holder,
            )),
            other => other,
        }
    }

    fn new(spec: FileSpec, file: State, clock: Arc<dyn Clock>, holder: Holder) -> Self {
        Self {
            spec,
            file,
            here: Here {
                clock,
                boot: Boot::current(),
                process: Process::current(),
                holder,
            },
            changes: 0,
            swept_to: String::new(),
            woken: Vec::new(),
        }
    }

    /// Whether it can never vote.
    pub(super) fn is_look_only(&self) -> bool {
        matches!(self.file, State::LookOnly)
    }

    /// Runs one command.
    pub(super) fn apply(
        &mut self,
        name: &LockName,
        command: &Command,
        bond: Bond,
    ) -> Result<Reply, NodeError> {
        self.woken.clear();
        let done = match (command, &self.file) {
            (Command::Inspect, State::LookOnly) => {
                return file::look(&self.spec, |file| self.here.look(file, name));
            }
            (_, State::LookOnly) => return Err(NodeError::ReadOnly(LOOK_ONLY.into())),
            (Command::Inspect, _) => {
                self.ready()?;
                self.here.look(self.connection()?, name)
            }
            _ => {
                self.ready()?;
                self.change(name, command, bond)
            }
        };
        done.map_err(|error| match error {
            rusqlite::Error::FromSqlConversionFailure(..)
            | rusqlite::Error::IntegralValueOutOfRange(..)
            | rusqlite::Error::InvalidColumnType(..) => NodeError::Store(format!(
                "the row of lock \"{name}\" is corrupt ({error}); delete it once no client holds \
                 the lock"
            )),
            other => explain(&other),
        })
    }

    /// The waiters to wake after the last command.
    pub(super) fn take_woken(&mut self) -> impl Iterator<Item = Wake> + use<> {
        std::mem::take(&mut self.woken).into_iter()
    }

    /// A number that changes when another connection has changed the file. `None` if unknown.
    pub(super) fn version(&mut self) -> Option<i64> {
        self.ready().ok()?;
        let connection = self.connection().ok()?;
        let statement = connection.prepare_cached("PRAGMA data_version");
        statement.ok()?.query_row([], |columns| columns.get(0)).ok()
    }

    /// The next waiters, if the lock is free.
    pub(super) fn next_waiters(&mut self, name: &LockName) -> Result<Vec<Wake>, NodeError> {
        self.ready()?;
        let next = self.here.next_waiters(self.connection()?, name);
        next.map_err(|error| explain(&error))
    }

    /// Writes a row and rolls back, to check that writing is possible.
    pub(super) fn probe(&mut self, name: &LockName) -> Result<(), NodeError> {
        self.ready()?;
        let State::Open(file) = &mut self.file else {
            return Err(NodeError::ReadOnly(LOOK_ONLY.into()));
        };
        let row = self
            .here
            .row(LockState::default(), None, self.here.now().elapsed);
        let mut write = || -> rusqlite::Result<()> {
            let transaction = file
                .connection
                .transaction_with_behavior(TransactionBehavior::Immediate)?;
            // Not over a lock that happens to have this name.
            if Row::read(&transaction, name.as_str())?.is_none() {
                row.write(&transaction, name.as_str())?;
                Row::delete(&transaction, name.as_str())?;
            }
            transaction.commit()
        };
        write().map_err(|error| explain(&error))
    }

    fn connection(&self) -> Result<&Connection, NodeError> {
        match &self.file {
            State::Open(file) => Ok(&file.connection),
            _ => Err(NodeError::Store("it is not open".into())),
        }
    }

    /// Ensures that our open files are the ones that all others see.
    fn ready(&mut self) -> Result<(), NodeError> {
        self.notice_changes()?;
        match &self.file {
            State::Open(_) | State::LookOnly => return Ok(()),
            State::Replaced(until) => {
                let left = until.saturating_sub(self.here.now().elapsed);
                if !left.is_zero() {
                    return Err(NodeError::Store(format!(
                        "it was deleted or replaced while in use, and its locks with it; it votes \
                         again in {}, when the last of them has expired",
                        Readable(left)
                    )));
                }
            }
            State::Closed => {}
        }
        let file = file::open(&self.spec, file::WHEN_REOPENED)?;
        self.file = State::Open(Box::new(file));
        Ok(())
    }

    /// Closes files that others no longer see.
    ///
    /// Call before each vote, and now and then while idle: no other process can vote while we have
    /// a deleted file open.
    pub(super) fn notice_changes(&mut self) -> Result<(), NodeError> {
        let State::Open(file) = &self.file else {
            return Ok(());
        };
        let path = self.spec.path.display();
        match file.change() {
            Change::None => {}
            Change::Database => {
                // The others no longer see what we write, nor we what they write.
                tracing::warn!(%path, "the lock file was deleted or replaced: its locks are lost");
                let until = self.here.last_expiry(&file.connection);
                self.file = State::Replaced(until.map_err(|error| explain(&error))?);
            }
            Change::SideFiles => {
                tracing::warn!(%path, "the -wal or -shm file of the lock file was deleted");
                file.save_log()?;
                self.file = State::Closed;
            }
        }
        Ok(())
    }

    /// Limits the file to this many pages, as a full disk would.
    #[cfg(test)]
    pub(super) fn limit_pages(&self, pages: u32) {
        let limit = format!("PRAGMA max_page_count = {pages}");
        self.connection()
            .expect("it is open")
            .query_row(&limit, [], |_| Ok(()))
            .expect("a limit");
    }

    fn change(
        &mut self,
        name: &LockName,
        command: &Command,
        bond: Bond,
    ) -> rusqlite::Result<Reply> {
        let State::Open(file) = &mut self.file else {
            return Err(rusqlite::Error::InvalidQuery);
        };
        let transaction = file
            .connection
            .transaction_with_behavior(TransactionBehavior::Immediate)?;
        let before = Row::read(&transaction, name.as_str())?;
        let queue = name.queue();
        let queued = match name.slot() {
            Some(_) => Row::read(&transaction, queue.as_str())?,
            None => None,
        };
        let now = self.here.now();
        let (mut state, holder) = self.here.brought_up_to_date(before.as_ref(), now.elapsed);
        let woken = &mut self.woken;
        let wake = |wake| woken.push(wake);
        let reply = match name.slot() {
            None => state.apply_and_wake(command, now, wake),
            Some(slot) => {
                let (mut whole, _) = self.here.brought_up_to_date(queued.as_ref(), now.elapsed);
                let reply = state.apply_to_slot(&mut whole, slot, command, now, wake);
                if queued.map(|row| row.state).unwrap_or_default() != whole {
                    let row = self.here.row(whole, None, now.elapsed);
                    row.write(&transaction, queue.as_str())?;
                }
                reply
            }
        };
        let process = match (&reply, state.holder()) {
            (_, None) => None,
            (reply, Some(_)) => self.here.holder.after(bond, reply, holder),
        };
        let changed = match &before {
            Some(row) => row.state != state || row.process != process,
            None => state != LockState::default(),
        };
        if changed {
            let row = self.here.row(state, process, now.elapsed);
            row.write(&transaction, name.as_str())?;
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

    /// [`Command::Inspect`] needs no turn: it neither waits for a writer nor delays one.
    fn look(&self, connection: &Connection, name: &LockName) -> rusqlite::Result<Reply> {
        let row = Row::read(connection, name.as_str())?;
        let queued = match name.slot() {
            Some(_) => Row::read(connection, name.queue().as_str())?,
            None => None,
        };
        let now = self.now();
        let (mut state, _) = self.brought_up_to_date(row.as_ref(), now.elapsed);
        let (mut whole, _) = self.brought_up_to_date(queued.as_ref(), now.elapsed);
        Ok(match name.slot() {
            None => state.apply(&Command::Inspect, now),
            Some(slot) => state.apply_to_slot(&mut whole, slot, &Command::Inspect, now, |_| {}),
        })
    }

    /// The next waiters, if the lock is free; for a semaphore's queue, at each free slot.
    fn next_waiters(
        &self,
        connection: &Connection,
        name: &LockName,
    ) -> rusqlite::Result<Vec<Wake>> {
        let row = Row::read(connection, name.as_str())?;
        let now = self.now().elapsed;
        let (queue, _) = self.brought_up_to_date(row.as_ref(), now);
        let next = queue.next_waiters(now);
        if !name.is_queue_for_slots() || next.is_empty() {
            return Ok(next);
        }
        let mut told = Vec::new();
        let mut after = format!("{name}:");
        loop {
            let names = Row::names_after(connection, &after, SWEEP_ROWS)?;
            let slots = names.iter().filter_map(|other| LockName::new(other).ok());
            for other in slots.filter(|other| other.queue() == *name) {
                let slot = other.slot();
                let row = Row::read(connection, other.as_str())?;
                let (state, _) = self.brought_up_to_date(row.as_ref(), now);
                if slot.is_some() && state.is_free(now) {
                    told.extend(next.iter().cloned().map(|wake| Wake { slot, ..wake }));
                }
            }
            match names.last() {
                Some(last) if last.starts_with(&format!("{name}:")) => after.clone_from(last),
                _ => return Ok(told),
            }
        }
    }

    fn row(&self, state: LockState, process: Option<Process>, now: Duration) -> Row {
        Row {
            state,
            process,
            boot: self.boot.clone(),
            written: now,
        }
    }

    /// When the last held lock has expired.
    fn last_expiry(&self, connection: &Connection) -> rusqlite::Result<Duration> {
        let mut last = self.now().elapsed;
        let mut name = String::new();
        loop {
            let names = Row::names_after(connection, &name, SWEEP_ROWS)?;
            let Some(end) = names.last() else {
                return Ok(last);
            };
            name.clone_from(end);
            for name in &names {
                let Ok(name) = LockName::new(name) else {
                    continue;
                };
                let Reply::Snapshot(seen) = self.look(connection, &name)? else {
                    continue;
                };
                let now = self.now().elapsed;
                for held in seen.holder.iter().chain(&seen.readers) {
                    let left = held.remaining.unwrap_or(REGISTER_RETENTION);
                    last = last.max(now + left);
                }
            }
        }
    }

    /// The state of a lock since its row was written, and the holder's process if it is alive.
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

    /// Checks the next few rows, deletes unused ones, and returns how far it came.
    fn sweep(
        &self,
        connection: &Connection,
        from: &str,
        now: Duration,
    ) -> rusqlite::Result<String> {
        let names = Row::names_after(connection, from, SWEEP_ROWS)?;
        for name in &names {
            // A corrupt row is reported by its own lock's command.
            let Ok(Some(row)) = Row::read(connection, name) else {
                continue;
            };
            let forgettable = if self.is_of_earlier_boot(&row, now) {
                now >= REGISTER_RETENTION
            } else {
                row.state.is_forgettable(now)
            };
            if forgettable {
                Row::delete(connection, name)?;
            }
        }
        // Fewer rows than requested: that was the end, and the next sweep starts over.
        let at_end = names.len() < SWEEP_ROWS as usize;
        Ok(names
            .into_iter()
            .next_back()
            .filter(|_| !at_end)
            .unwrap_or_default())
    }
}
