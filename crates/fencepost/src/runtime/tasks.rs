//! `Tasks`: background tasks, and the runtime that they run on.
//!
//! Every task of a client is spawned here and nowhere else, so that a simulation can stop all of
//! them at once, as a stopped process would.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use tokio::runtime::Handle;

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
