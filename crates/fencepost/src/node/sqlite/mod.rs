//! A node that is a SQLite file, shared by all processes of one machine.
//!
//! | file | what it answers |
//! | --- | --- |
//! | `place` | may a lock file be here? |
//! | `file` | is this file ours? Opens it, or makes it |
//! | `store` | one command, one transaction |
//! | `row` | how is a lock written down? |
//! | `boot` | was a row written before the last reboot? |
//! | `process` | is the holder's process gone? |
//! | `fork` | was this process forked with a file open? |
//! | `busy` | how long to wait while another process writes |
//! | `worker` | the thread that owns the connection |
//! | `watch` | whose turn is it? What other processes have done |
//! | `fault` | what SQLite's errors mean for people |
//!
//! The rules of a lock are those of [`state`](crate::state); none of them may be written again
//! here. Nothing here may open the file other than through SQLite: closing any handle to it would
//! drop the locks that SQLite holds on it for this process.

use std::path::Path;
use std::sync::Arc;

use self::worker::Worker;
use super::{Call, Ear, Listener, Node};
use crate::clock::Clock;
use crate::error::Error;
use crate::name::LockName;
use crate::state::Command;
use crate::ticket::ClientId;

mod boot;
mod busy;
mod fault;
mod file;
mod fork;
mod place;
mod process;
mod row;
mod store;
mod watch;
mod worker;

/// A file of locks, shared by all processes of one machine. Clones share the connection; any
/// number of nodes in any number of processes may have the same file open.
///
/// What it adds to the [state machine](crate::state):
/// - **A holder whose process is gone** loses its lock at once, not after its TTL. The holder is
///   the process that was last told that it has the lock. One that runs in another pid namespace
///   (a container), or whose `/proc` cannot be read, is left to its TTL.
/// - **A reboot** frees every lock and keeps the counters.
/// - **The wall clock** neither expires nor prolongs anything.
///
/// Tested on Linux. Elsewhere a holder is left to its TTL, also after a reboot.
///
/// A process that is stopped in the middle of a transaction (some ten microseconds) makes the
/// others wait; they give up with an error after a few seconds.
#[derive(Clone)]
pub struct SqliteNode {
    worker: Worker,
    address: Arc<str>,
}

impl SqliteNode {
    /// Opens the file, or makes it and the directories that lead to it, and starts the thread that
    /// works on it. The thread ends with the last clone of the node.
    ///
    /// This looks at the disk, and waits while another process has the file to itself.
    ///
    /// # Errors
    /// [`Error::Store`] says why the file cannot be used, and what to do about it.
    pub fn open(path: impl AsRef<Path>, clock: Arc<dyn Clock>) -> Result<Self, Error> {
        let path = path.as_ref();
        let address = format!("file:{}", path.display());
        match Worker::start(path, clock) {
            Ok(worker) => Ok(Self {
                worker,
                address: address.into(),
            }),
            Err(why) => Err(Error::Store {
                store: address,
                why,
            }),
        }
    }
}

impl Node for SqliteNode {
    fn call(&self, name: &LockName, command: Command) -> Call {
        let (worker, name) = (self.worker.clone(), name.clone());
        Box::pin(async move { worker.call(name, command).await })
    }

    fn listen(&self, client: &ClientId, ear: Arc<dyn Ear>) -> Listener {
        self.worker.listen(client, ear)
    }

    fn address(&self) -> &str {
        &self.address
    }
}

#[cfg(test)]
mod tests;
