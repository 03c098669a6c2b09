//! `Tasks`: background tasks, and the runtime that they run on.
//!
//! Every task of a client is spawned here and nowhere else, so that a simulation can stop all of
//! them at once, as a stopped process would. Stores have connections and files of their own, which
//! no simulation has: their tasks and threads begin here too.

#![allow(clippy::disallowed_methods)]

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use tokio::runtime::Handle;
#[cfg(feature = "sqlite")]
use tokio::task::JoinError;
#[cfg(feature = "redis")]
use tokio::task::JoinHandle;

/// A task that runs to its end without being awaited.
pub type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Wraps every task before it is spawned.
pub type Around = Arc<dyn Fn(Task) -> Task + Send + Sync>;

/// Where a client spawns its tasks.
#[derive(Clone)]
pub(crate) struct Tasks {
    runtime: Handle,
    around: Option<Around>,
}

impl Tasks {
    pub(crate) fn new(runtime: Handle, around: Option<Around>) -> Self {
        Self { runtime, around }
    }

    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        match &self.around {
            Some(around) => drop(self.runtime.spawn(around(Box::pin(task)))),
            None => drop(self.runtime.spawn(task)),
        }
    }
}

/// A task of a store, on the runtime of the caller.
#[cfg(feature = "redis")]
pub(crate) fn spawn(task: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
    tokio::spawn(task)
}

/// A task of a store, on its client's runtime.
#[cfg(feature = "redis")]
pub(crate) fn spawn_on(
    runtime: &Handle,
    task: impl Future<Output = ()> + Send + 'static,
) -> JoinHandle<()> {
    runtime.spawn(task)
}

/// Work of a store that blocks, on the runtime's threads for that. Its error is a panic in it, or the end of
/// the runtime.
#[cfg(feature = "sqlite")]
pub(crate) async fn block<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, JoinError> {
    tokio::task::spawn_blocking(work).await
}

/// A thread of its own.
#[cfg(any(feature = "sqlite", feature = "blocking"))]
pub(crate) fn thread(
    name: &str,
    work: impl FnOnce() + Send + 'static,
) -> std::io::Result<std::thread::JoinHandle<()>> {
    std::thread::Builder::new().name(name.into()).spawn(work)
}
