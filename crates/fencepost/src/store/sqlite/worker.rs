//! The thread that owns the connection, and the way to it: a queue in, an answer back.
//!
//! It must never block the caller's runtime, and never leave a caller without an answer: whatever
//! happens to the thread, a waiting call ends with an error.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};

use super::fork::FORKED;
use super::holder::{Bond, Holder, HolderProcess};
use super::store::Store;
use super::watch::Watch;
use crate::error::NodeError;
use crate::runtime::clock::Clock;
use crate::store::{Listener, WakeSink};
use fencepost_core::lock::{Command, Reply};
use fencepost_core::name::LockName;
use fencepost_core::ticket::ClientId;

/// How many commands may wait in the queue. More are refused; it takes a disk that hangs to have
/// so many.
///
/// They are not made to wait for room: a call gets its place when it is first polled, and one that
/// is not polled again would keep those behind it from theirs for ever.
const QUEUE: usize = 1 << 16;

/// A handle to the thread. The thread ends when the last one is dropped and the queue is empty; it
/// does not keep the process alive.
#[derive(Clone)]
pub(super) struct Worker {
    queue: mpsc::Sender<Job>,
    /// The process that the thread runs in.
    pid: u32,
    watch: Watch,
}

struct Job {
    name: LockName,
    command: Command,
    bond: Bond,
    answer: oneshot::Sender<Result<Reply, NodeError>>,
}

impl Worker {
    /// Opens the file and starts the thread.
    pub(super) fn start(
        path: &Path,
        clock: Arc<dyn Clock>,
        holder: HolderProcess,
    ) -> Result<Self, String> {
        let store = Store::open_for(path, Arc::clone(&clock), Holder::find(holder)?)?;
        let (queue, jobs) = mpsc::channel(QUEUE);
        let watch = Watch::new(path.to_owned(), clock);
        let watching = watch.clone();
        std::thread::Builder::new()
            .name("fencepost-file".into())
            .spawn(move || work(store, jobs, &watching))
            .map_err(|error| format!("no thread can be started ({error})"))?;
        Ok(Self {
            queue,
            pid: std::process::id(),
            watch,
        })
    }

    /// Tells the waiters of that client whose turn it is.
    pub(super) fn listen(&self, client: &ClientId, ear: Arc<dyn WakeSink>) -> Listener {
        self.watch.listen(client, ear)
    }

    /// Queues the command when first polled, and waits for the answer.
    pub(super) async fn call(
        &self,
        name: LockName,
        command: Command,
        bond: Bond,
    ) -> Result<Reply, NodeError> {
        if std::process::id() != self.pid {
            // The thread was not forked with us: nobody would answer.
            return Err(NodeError::Store(FORKED.into()));
        }
        let (answer, answered) = oneshot::channel();
        let job = Job {
            name,
            command,
            bond,
            answer,
        };
        self.queue.try_send(job).map_err(|refused| match refused {
            TrySendError::Full(_) => {
                NodeError::Store(format!("{QUEUE} commands are waiting for the disk already"))
            }
            TrySendError::Closed(_) => ended(),
        })?;
        answered.await.unwrap_or_else(|_| Err(ended()))
    }
}

fn ended() -> NodeError {
    NodeError::Store("its thread has ended".into())
}

fn work(mut store: Store, mut jobs: mpsc::Receiver<Job>, watch: &Watch) {
    while let Some(job) = jobs.blocking_recv() {
        // The caller has given up. To give a lock back is still right; to take one would be for
        // nobody.
        if job.answer.is_closed()
            && !matches!(job.command, Command::Release { .. } | Command::Leave { .. })
        {
            continue;
        }
        if let Command::Enqueue { lease, .. } = &job.command {
            watch.is_waited_for(&job.name, *lease);
        }
        // A panic rolls the transaction back on its way, so the store can be used again.
        let apply = || store.apply(&job.name, &job.command, job.bond);
        let done = catch_unwind(AssertUnwindSafe(apply));
        let reply = done.unwrap_or_else(|panic| Err(format!("panicked: {}", message(&*panic))));
        // Nobody may be waiting for it any more.
        let _ = job.answer.send(reply.map_err(NodeError::Store));
        // The other tasks of this process need not wait for the watch to notice.
        store.take_woken().for_each(|wake| watch.tell(wake));
    }
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    let string = || panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(string).unwrap_or("no message")
}
