//! A node that is a SQLite file, shared by all processes of one machine.
//!
//! | file | what it answers |
//! | --- | --- |
//!
//! `place`
//! may a lock file be here?
//!
//! | `files` | which three files are these? |
//!
//! `file`
//! is this file ours, and do all processes see the same? Opens or creates it
//!
//! | `store` | one command, one transaction |
//!
//! `row`
//! how is a lock stored?
//!
//! | `boot` | was a row written before the last reboot? |
//! | `process` | is the holder's process gone? |
//!
//! `holder`
//! which process is a lock tied to?
//!
//!
//! `survey`
//! facts about the file
//!
//! | `list` | which locks are there? |
//! | `fork` | was this process forked with a file open? |
//! | `busy` | how long to wait while another process writes |
//! | `worker` | the thread that owns the connection |
//!
//! `watch`
//! wakes waiters after changes of other processes
//!
//!
//! `fault`
//! turns SQLite's errors into messages
//!
//!
//! The rules of a lock are those of [the core](fencepost_core::lock); none of them may be repeated
//! here. Nothing may open the file other than through SQLite: closing any handle to it would drop
//! the locks that SQLite holds on it for this process.

use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;

use self::fault::{READ_ONLY, sentence};
use self::holder::{Bond, Holder};
use self::store::Store;
use self::watch::Watch;
use self::worker::Worker;
use super::{Call, Listener, Names, Node, Queued, WakeSink};
use crate::error::{Cause, Error, NodeError};
use crate::runtime::clock::Clock;
use crate::runtime::tasks;
use fencepost_core::lock::Command;
use fencepost_core::name::LockName;
use fencepost_core::pattern::NamePattern;
use fencepost_core::ticket::ClientId;

mod boot;
mod busy;
mod fault;
mod file;
mod files;
mod fork;
mod holder;
mod list;
mod place;
mod process;
mod row;
mod store;
mod survey;
mod watch;
mod worker;

pub use holder::HolderProcess;
pub(crate) use place::FileSpec;
pub(crate) use survey::survey;

/// A lock file, shared by all processes of one machine. Clones share the connection; any number of
/// nodes in any number of processes may have the same file open.
///
/// What it adds to the [state machine](fencepost_core::lock):
/// - **A holder whose process is gone** loses its lock at once, not after its TTL. The holder is
///   the process that was last told that it has the lock. One that runs in another pid namespace
///   (a container), or whose `/proc` cannot be read, is left to its TTL.
/// - **A reboot** frees every lock and keeps the registers.
/// - **The wall clock** neither expires nor prolongs anything.
///
/// Tested on Linux. Elsewhere a holder is left to its TTL, also after a reboot.
///
/// A process that is stopped in the middle of a transaction (some ten microseconds) makes the
/// others wait; they fail with an error after a few seconds.
#[derive(Clone)]
pub struct SqliteNode {
    worker: Worker,
    address: Arc<str>,
    spec: Arc<FileSpec>,
}

impl SqliteNode {
    /// Opens the file, or creates it and its directories, and starts the thread that works on it.
    /// The thread ends with the last clone of the node.
    ///
    /// This accesses the disk, and waits while another process has exclusive access.
    ///
    /// # Errors
    /// [`ErrorKind::Store`](crate::ErrorKind::Store) says why the file cannot be used, and what to
    /// do about it.
    pub fn open(path: impl AsRef<Path>, clock: Arc<dyn Clock>) -> Result<Self, Error> {
        Self::open_for(path, clock, HolderProcess::This)
    }

    /// The same, with its locks tied to another process.
    ///
    /// # Errors
    /// As [`open`](Self::open), and when that process does not exist.
    pub(crate) fn open_for(
        path: impl AsRef<Path>,
        clock: Arc<dyn Clock>,
        holder: HolderProcess,
    ) -> Result<Self, Error> {
        let spec = FileSpec::new(path.as_ref());
        let store = Holder::find(holder)
            .map_err(NodeError::Store)
            .and_then(|holder| Store::open(spec.clone(), Arc::clone(&clock), holder));
        Self::over(store, spec, clock)
    }

    /// As [`open_for`](Self::open_for). If this process may read the file but not write it, the
    /// node can be inspected, and reports why it does not vote.
    pub(crate) fn open_or_look(
        spec: FileSpec,
        clock: Arc<dyn Clock>,
        holder: HolderProcess,
    ) -> Result<Self, Error> {
        let store = Holder::find(holder)
            .map_err(NodeError::Store)
            .and_then(|holder| Store::open_or_look(spec.clone(), Arc::clone(&clock), holder));
        Self::over(store, spec, clock)
    }

    fn over(
        store: Result<Store, NodeError>,
        spec: FileSpec,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, Error> {
        let address = spec.address();
        let store = store.map_err(|error| match error {
            NodeError::ReadOnly(_) => READ_ONLY.into(),
            other => sentence(other),
        });
        let node = store.and_then(|store| Self::with(store, spec, clock));
        node.map_err(|why| {
            Error::from(Cause::Store {
                store: address,
                why,
            })
        })
    }

    fn with(store: Store, spec: FileSpec, clock: Arc<dyn Clock>) -> Result<Self, String> {
        let address = spec.address().into();
        let spec = spec.made_absolute();
        Ok(Self {
            worker: Worker::start(store, Watch::new(spec.clone(), clock))?,
            address,
            spec: Arc::new(spec),
        })
    }
}

impl Node for SqliteNode {
    fn call(&self, name: &LockName, command: Command) -> Call {
        let (worker, name) = (self.worker.clone(), name.clone());
        Box::pin(async move { worker.call(name, command, Bond::OfThisNode).await })
    }

    fn call_unbound(&self, name: &LockName, command: Command) -> Call {
        let (worker, name) = (self.worker.clone(), name.clone());
        Box::pin(async move { worker.call(name, command, Bond::None).await })
    }

    fn listen(&self, client: &ClientId, sink: Arc<dyn WakeSink>) -> Listener {
        self.worker.listen(client, sink)
    }

    fn address(&self) -> &str {
        &self.address
    }

    fn hello(&self) -> Pin<Box<dyn Future<Output = Result<(), NodeError>> + Send + '_>> {
        Box::pin(std::future::ready(self.worker.hello()))
    }

    fn names<'a>(
        &'a self,
        wanted: &'a NamePattern,
    ) -> Pin<Box<dyn Future<Output = Result<Names, NodeError>> + Send + 'a>> {
        let (spec, wanted) = (Arc::clone(&self.spec), wanted.clone());
        let look = move || list::names(&spec, &wanted);
        Box::pin(async {
            let looked = tasks::block(look).await;
            looked.unwrap_or_else(|error| Err(NodeError::Store(error.to_string())))
        })
    }

    fn queue<'a>(
        &'a self,
        name: &'a LockName,
    ) -> Pin<Box<dyn Future<Output = Result<Vec<Queued>, NodeError>> + Send + 'a>> {
        let (spec, name) = (Arc::clone(&self.spec), name.clone());
        let look = move || list::queue(&spec, &name);
        Box::pin(async {
            let looked = tasks::block(look).await;
            looked.unwrap_or_else(|error| Err(NodeError::Store(error.to_string())))
        })
    }
}

#[cfg(test)]
mod tests;
