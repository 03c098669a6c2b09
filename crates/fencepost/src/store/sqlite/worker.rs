//! The thread that owns the connection, and the queue to it.
//!
//! It must never block the caller's runtime, and never leave a caller without a reply: whatever
//! happens to the thread, a pending call ends with an error.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};

use super::fault::LOOK_ONLY;
use super::fork::forked;
use super::holder::Bond;
use super::store::Store;
use super::watch::Watch;
use crate::error::NodeError;
use crate::runtime::tasks;
use crate::store::{Listener, WakeSink};
use fencepost_core::lock::{Command, Reply};
use fencepost_core::name::LockName;
use fencepost_core::ticket::ClientId;

/// The maximum number of queued commands. More are refused; only a hanging disk causes that many.
///
/// Callers do not wait for room: a call is queued when it is first polled, and one that is never
/// polled again would block those behind it forever.
const QUEUE: usize = 1 << 16;

/// How often an idle thread checks whether its files still exist. Until it has closed deleted ones,
/// no new process can vote.
const IDLE_LOOK: Duration = Duration::from_secs(1);

/// A handle to the thread. The thread ends when the last one is dropped and the queue is empty; it
/// does not keep the process alive.
#[derive(Clone)]
pub(super) struct Worker {
    queue: mpsc::Sender<Job>,
    /// The process of the thread.
    pid: u32,
    is_look_only: bool,
    watch: Watch,
}

struct Job {
    name: LockName,
    command: Command,
    bond: Bond,
    answer: oneshot::Sender<Result<Reply, NodeError>>,
}

impl Worker {
    /// Starts the thread.
    pub(super) fn start(store: Store, watch: Watch) -> Result<Self, String> {
        let (queue, jobs) = mpsc::channel(QUEUE);
        let is_look_only = store.is_look_only();
        let watching = watch.clone();
        tasks::thread("fencepost-file", move || work(store, jobs, &watching))
            .map_err(|error| format!("cannot start a thread ({error})"))?;
        Ok(Self {
            queue,
            pid: std::process::id(),
            is_look_only,
            watch,
        })
    }

    /// Why it cannot vote, if it never can.
    pub(super) fn hello(&self) -> Result<(), NodeError> {
        match self.is_look_only {
            true => Err(NodeError::ReadOnly(LOOK_ONLY.into())),
            false => Ok(()),
        }
    }

    /// Wakes the waiters of this client when it is their turn.
    pub(super) fn listen(&self, client: &ClientId, sink: Arc<dyn WakeSink>) -> Listener {
        match self.is_forked() {
            // The threads did not survive the fork, and what they had locked stays locked.
            true => Listener::deaf(),
            false => self.watch.listen(client, sink),
        }
    }

    fn is_forked(&self) -> bool {
        std::process::id() != self.pid
    }

    /// Queues the command when first polled, and waits for the reply.
    pub(super) async fn call(
        &self,
        name: LockName,
        command: Command,
        bond: Bond,
    ) -> Result<Reply, NodeError> {
        if self.is_forked() {
            // The thread did not survive the fork: it would never reply.
            return Err(forked());
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
                NodeError::Store(format!("{QUEUE} commands are already waiting for the disk"))
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
    loop {
        let job = match next(&mut jobs, IDLE_LOOK) {
            Next::Job(job) => job,
            Next::Nothing => {
                // The next command reports what is wrong.
                let _ = catch_unwind(AssertUnwindSafe(|| store.notice_changes()));
                continue;
            }
            Next::End => return,
        };
        // The caller is gone. A release is still right; an acquire would leave a lock that no lease
        // holds.
        if job.answer.is_closed()
            && !matches!(
                job.command,
                Command::Release { .. } | Command::ReleaseLease { .. } | Command::Leave { .. }
            )
        {
            continue;
        }
        if let Command::Enqueue { lease, .. } = &job.command {
            watch.is_waited_for(&job.name, *lease);
        }
        // A panic rolls the transaction back, so the store stays usable.
        let apply = || store.apply(&job.name, &job.command, job.bond);
        let done = catch_unwind(AssertUnwindSafe(apply));
        let reply = done.unwrap_or_else(|panic| {
            Err(NodeError::Store(format!("panicked: {}", message(&*panic))))
        });
        // The caller may be gone.
        let _ = job.answer.send(reply);
        // The other tasks of this process need not wait for the watch to notice.
        store.take_woken().for_each(|wake| watch.tell(wake));
    }
}

enum Next {
    Job(Job),
    /// No job in time.
    Nothing,
    /// No more jobs.
    End,
}

/// Waits for the next job, with a limit.
fn next(jobs: &mut mpsc::Receiver<Job>, limit: Duration) -> Next {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let end = Instant::now() + limit;
    loop {
        match jobs.poll_recv(&mut context) {
            Poll::Ready(Some(job)) => return Next::Job(job),
            Poll::Ready(None) => return Next::End,
            Poll::Pending => {}
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Next::Nothing;
        }
        std::thread::park_timeout(left);
    }
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    let string = || panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(string).unwrap_or("no message")
}
