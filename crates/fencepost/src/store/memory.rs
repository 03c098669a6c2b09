//! A node that is a table in memory: for one process, and for tests.

mod list;

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

use super::notice::Audience;
use super::{Call, Listener, Names, Node, Queued, WakeSink};
use crate::error::NodeError;
use crate::runtime::clock::{Clock, SystemClock};
use fencepost_core::lock::{Command, LockState, Now, Reply};
use fencepost_core::name::LockName;
use fencepost_core::pattern::NamePattern;
use fencepost_core::ticket::{ClientId, Wake};

/// No sweep below this many names.
const FIRST_SWEEP: usize = 1024;

/// A table of locks in this process. Clones share it.
#[derive(Clone)]
pub struct MemoryNode {
    table: Arc<Mutex<Table>>,
    clock: Arc<dyn Clock>,
    address: Arc<str>,
}

/// The named tables of URLs, for as long as they are in use.
static NAMED: LazyLock<Mutex<HashMap<String, Weak<Mutex<Table>>>>> = LazyLock::new(Mutex::default);

struct Table {
    locks: HashMap<LockName, LockState>,
    /// The size at which unused names are swept.
    sweep_at: usize,
    /// The clients to wake.
    audience: Audience,
}

impl Table {
    fn new() -> Arc<Mutex<Self>> {
        Arc::new(Mutex::new(Self {
            locks: HashMap::new(),
            sweep_at: FIRST_SWEEP,
            audience: Audience::default(),
        }))
    }
}

impl Table {
    fn apply(
        &mut self,
        name: &LockName,
        command: &Command,
        now: Now,
        wake: impl FnMut(Wake),
    ) -> Reply {
        let Some(slot) = name.slot() else {
            return self.lock(name).apply_and_wake(command, now, wake);
        };
        let queue = name.queue();
        let mut whole = self.locks.remove(&queue).unwrap_or_default();
        let reply = self
            .lock(name)
            .apply_to_slot(&mut whole, slot, command, now, wake);
        if whole != LockState::default() {
            self.locks.insert(queue, whole);
        }
        reply
    }

    fn lock(&mut self, name: &LockName) -> &mut LockState {
        self.locks.entry(name.clone()).or_default()
    }
}

impl MemoryNode {
    /// An empty table on the machine's clock.
    #[must_use]
    pub fn new() -> Self {
        Self::with_clock(Arc::new(SystemClock))
    }

    /// An empty table on a clock of your own.
    #[must_use]
    pub(crate) fn with_clock(clock: Arc<dyn Clock>) -> Self {
        Self {
            table: Table::new(),
            clock,
            address: "memory:".into(),
        }
    }

    /// The table with this name, shared within this process.
    pub(super) fn named(name: &str, clock: Arc<dyn Clock>) -> Self {
        let mut tables = NAMED.lock().unwrap_or_else(PoisonError::into_inner);
        let shared = tables.get(name).and_then(Weak::upgrade);
        let table = shared.unwrap_or_else(|| {
            let table = Table::new();
            tables.retain(|_, other| other.strong_count() > 0);
            tables.insert(name.to_owned(), Arc::downgrade(&table));
            table
        });
        Self {
            table,
            clock,
            address: format!("memory:{name}").into(),
        }
    }

    fn apply(&self, name: &LockName, command: &Command) -> Reply {
        // A panic cannot leave a half-made change: `apply` makes none.
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
        let mut next = Vec::new();
        let reply = table.apply(name, command, now, |wake| next.push(wake));
        if !next.is_empty() {
            let audience = table.audience.clone();
            drop(table);
            next.into_iter().for_each(|wake| audience.tell(wake));
        }
        reply
    }
}

impl Default for MemoryNode {
    fn default() -> Self {
        Self::new()
    }
}

impl Node for MemoryNode {
    fn call(&self, name: &LockName, command: Command) -> Call {
        let (node, name) = (self.clone(), name.clone());
        // Inside the future, so that a future that is never polled does nothing.
        Box::pin(async move { Ok(node.apply(&name, &command)) })
    }

    fn listen(&self, client: &ClientId, sink: Arc<dyn WakeSink>) -> Listener {
        let table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        table.audience.join(client, sink)
    }

    fn address(&self) -> &str {
        &self.address
    }

    fn names<'a>(
        &'a self,
        wanted: &'a NamePattern,
    ) -> Pin<Box<dyn Future<Output = Result<Names, NodeError>> + Send + 'a>> {
        Box::pin(async { Ok(self.known_names(wanted)) })
    }

    fn queue<'a>(
        &'a self,
        name: &'a LockName,
    ) -> Pin<Box<dyn Future<Output = Result<Vec<Queued>, NodeError>> + Send + 'a>> {
        Box::pin(async { Ok(self.known_waiters(name)) })
    }
}
