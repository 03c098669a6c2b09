//! A node that is a table in memory: for one process, and for tests.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::{Call, Node};
use crate::clock::{Clock, SystemClock};
use crate::name::LockName;
use crate::state::{Command, LockState, Now, Reply};

/// Below this many names, nothing is swept.
const FIRST_SWEEP: usize = 1024;

/// A table of locks in this process. Clones share it.
#[derive(Clone)]
pub struct MemoryNode {
    table: Arc<Mutex<Table>>,
    clock: Arc<dyn Clock>,
}

struct Table {
    locks: HashMap<LockName, LockState>,
    /// The size at which names that nobody needs any more are swept out.
    sweep_at: usize,
}

impl MemoryNode {
    /// An empty table on the machine's clock.
    #[must_use]
    pub fn new() -> Self {
        Self::with_clock(Arc::new(SystemClock))
    }

    /// An empty table on a clock of your own.
    #[must_use]
    pub fn with_clock(clock: Arc<dyn Clock>) -> Self {
        let table = Table {
            locks: HashMap::new(),
            sweep_at: FIRST_SWEEP,
        };
        Self {
            table: Arc::new(Mutex::new(table)),
            clock,
        }
    }

    fn apply(&self, name: &LockName, command: &Command) -> Reply {
        // A panic cannot leave a half-made change behind that matters: `apply` has none to make.
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Now {
            elapsed: self.clock.now().since_start(),
            wall_micros: self.clock.wall_micros(),
        };
        if table.locks.len() >= table.sweep_at {
            table
                .locks
                .retain(|_, lock| !lock.is_forgettable(now.elapsed));
            table.sweep_at = FIRST_SWEEP.max(2 * table.locks.len());
        }
        match table.locks.get_mut(name) {
            Some(lock) => lock.apply(command, now),
            None => table
                .locks
                .entry(name.clone())
                .or_default()
                .apply(command, now),
        }
    }
}

impl Default for MemoryNode {
    fn default() -> Self {
        Self::new()
    }
}

impl Node for MemoryNode {
    fn call<'a>(&'a self, name: &'a LockName, command: Command) -> Call<'a> {
        // Inside the future, so that one that is never polled does nothing.
        Box::pin(async move { Ok(self.apply(name, &command)) })
    }

    fn address(&self) -> &str {
        "memory:"
    }
}
