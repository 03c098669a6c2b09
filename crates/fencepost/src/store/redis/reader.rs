//! [`Reader`]: one task that runs the connections to all servers of a client.
//!
//! Why one, and not one for each connection: a majority of the replies to a command come within microseconds of each
//! other, and each would wake a task of its own, often on the other core. Measured on five servers with 16 tasks: 1.15
//! times the cycles.
//!
//! What one server sends must not keep the others waiting: every turn begins with another connection, so that one
//! which uses up the turn is last in the next.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use tokio::sync::oneshot;

use super::stream::Process;
use super::wire::Task;

/// Runs connections. Clones share it.
#[derive(Clone, Default)]
pub(super) struct Reader(Arc<Mutex<Shared>>);

#[derive(Default)]
struct Shared {
    /// To be taken over by the task.
    new: Vec<Open>,
    /// Whether there is a task. It ends with its last connection.
    is_running: bool,
    task: Option<Waker>,
}

/// One connection.
struct Open {
    task: Task,
    is_dropped: Arc<AtomicBool>,
    /// Dropped with the connection, which tells its [`Driver`].
    _end: oneshot::Sender<()>,
}

/// A connection that is being run, gone with this handle.
pub(super) struct Driver {
    end: Option<oneshot::Receiver<()>>,
    is_dropped: Arc<AtomicBool>,
    reader: Reader,
    process: Process,
}

impl Reader {
    /// Runs a connection from now on. Called on the runtime.
    pub(super) fn run(&self, task: Task) -> Driver {
        let (sender, end) = oneshot::channel();
        let is_dropped = Arc::<AtomicBool>::default();
        let mut shared = self.lock();
        shared.new.push(Open {
            task,
            is_dropped: Arc::clone(&is_dropped),
            _end: sender,
        });
        if !std::mem::replace(&mut shared.is_running, true) {
            let mut running = Running {
                reader: self.clone(),
                open: Vec::new(),
                first: 0,
                is_over: false,
                process: Process::this(),
            };
            tokio::spawn(poll_fn(move |cx| running.turn(cx)));
        }
        shared.wake();
        Driver {
            end: Some(end),
            is_dropped,
            reader: self.clone(),
            process: Process::this(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        // A panic while it was locked cannot have left it half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    fn wake(&self) {
        if let Some(task) = &self.task {
            task.wake_by_ref();
        }
    }
}

impl Driver {
    /// Resolves when the connection is closed, once.
    pub(super) async fn ended(&mut self) {
        match &mut self.end {
            Some(end) => {
                let _ = end.await;
                self.end = None;
            }
            None => std::future::pending().await,
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.is_dropped.store(true, Ordering::SeqCst);
        // In the child of a fork a thread of the parent may hold the lock for ever.
        if self.process.is_this() {
            self.reader.lock().wake();
        }
    }
}

/// What the task works with.
struct Running {
    reader: Reader,
    open: Vec<Open>,
    /// The connection whose turn it is to be first.
    first: usize,
    /// It has ended by itself: another may run by now.
    is_over: bool,
    process: Process,
}

impl Running {
    fn turn(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        // Once for all of them. No other thread exists in the child of a fork, and this one does not fork here.
        if !self.process.is_this() {
            return Poll::Ready(());
        }
        {
            let mut shared = self.reader.lock();
            self.open.append(&mut shared.new);
            match &mut shared.task {
                Some(task) => task.clone_from(cx.waker()),
                none => *none = Some(cx.waker().clone()),
            }
        }
        let count = self.open.len();
        self.first = (self.first + 1) % count.max(1);
        let mut ended = false;
        for place in (self.first..count).chain(0..self.first) {
            let open = &mut self.open[place];
            let is_over = open.is_dropped.load(Ordering::SeqCst) || open.task.turn(cx).is_ready();
            if is_over {
                open.is_dropped.store(true, Ordering::SeqCst);
                ended = true;
            }
        }
        if ended {
            self.open
                .retain(|open| !open.is_dropped.load(Ordering::SeqCst));
        }
        if !self.open.is_empty() {
            return Poll::Pending;
        }
        let mut shared = self.reader.lock();
        if !shared.new.is_empty() {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        *shared = Shared::default();
        self.is_over = true;
        Poll::Ready(())
    }
}

impl Drop for Running {
    /// With its runtime, or after a panic: nobody is left waiting for connections that nothing runs.
    fn drop(&mut self) {
        if !self.is_over && self.process.is_this() {
            let left = std::mem::take(&mut *self.reader.lock());
            drop(left);
        }
    }
}
