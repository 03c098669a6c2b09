//! [`Reader`]: one task that runs the connections to all servers of a client.
//!
//! Why one, and not one for each connection: a majority of the replies to a command come within microseconds of each
//! other, and each would wake a task of its own, often on the other core. Measured on five servers with 16 tasks: 1.15
//! times the cycles.
//!
//! What one server sends must not keep the others waiting: a connection is read only so often in a turn.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use tokio::sync::oneshot;

use super::wire::Task;
use crate::runtime::tasks;
use crate::store::redis::address::stream::Process;

/// Runs connections. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct Reader(Arc<Mutex<Shared>>);

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
pub(crate) struct Driver {
    end: Option<oneshot::Receiver<()>>,
    is_dropped: Arc<AtomicBool>,
    reader: Reader,
    process: Process,
}

impl Reader {
    /// Runs a connection from now on. Called on the runtime.
    pub(crate) fn run(&self, task: Task) -> Driver {
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
                is_over: false,
                process: Process::this(),
            };
            tasks::spawn(poll_fn(move |cx| running.turn(cx)));
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
    pub(crate) async fn ended(&mut self) {
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
        let mut now = None;
        self.open.retain_mut(|open| {
            !open.is_dropped.load(Ordering::SeqCst) && open.task.turn(cx, &mut now).is_pending()
        });
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::redis::address::stream::Stream;
    use crate::store::redis::protocol::command::Cmd;
    use crate::store::redis::protocol::value::Value;
    use crate::store::redis::protocol::wire::{OnPush, Urgency, Wire};
    use std::io;
    use std::pin::Pin;
    use std::time::Duration;
    use tokio::io::{
        AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf, duplex,
    };
    use tokio::time::timeout;

    async fn within_time<T>(outcome: impl Future<Output = T>) -> T {
        timeout(Duration::from_secs(10), outcome).await.unwrap()
    }

    /// A connection that the reader runs, and the server's end of it.
    fn connection(reader: &Reader) -> (Wire, Driver, DuplexStream) {
        let (ours, server) = duplex(1024);
        let (wire, task) = Wire::over(Stream::over(ours), None);
        (wire, reader.run(task), server)
    }

    async fn is_answered(wire: &Wire, server: &mut DuplexStream) {
        let ping = Cmd::new("PING");
        let answered = async {
            let mut bytes = vec![0; ping.encoded().len()];
            server.read_exact(&mut bytes).await.unwrap();
            server.write_all(b"+PONG\r\n").await.unwrap();
        };
        let both = async { tokio::join!(wire.send(&ping, Urgency::Now), answered) };
        let (answer, ()) = within_time(both).await;
        assert_eq!(answer.unwrap(), Value::SimpleString("PONG".into()));
    }

    /// A server that says the same for ever, without being asked.
    struct Endless(usize);

    const NEWS: &[u8] = b">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nx\r\n";

    impl AsyncRead for Endless {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            space: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            while space.remaining() > 0 {
                space.put_slice(&[NEWS[self.0 % NEWS.len()]]);
                self.0 += 1;
            }
            Poll::Ready(Ok(()))
        }
    }

    impl AsyncWrite for Endless {
        fn poll_write(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test]
    async fn a_server_that_sends_without_an_end_keeps_no_other_waiting() {
        let reader = Reader::default();
        let unheard: OnPush = Box::new(|_| {});
        let (_wire, task) = Wire::over(Stream::over(Endless(0)), Some(unheard));
        let _endless = reader.run(task);
        let (wire, _driver, mut server) = connection(&reader);
        for _ in 0..3 {
            is_answered(&wire, &mut server).await;
        }
    }

    #[tokio::test]
    async fn a_connection_ends_with_its_handle_and_the_others_go_on() {
        let reader = Reader::default();
        let (_, dropped, mut closed) = connection(&reader);
        let (wire, mut driver, mut server) = connection(&reader);
        is_answered(&wire, &mut server).await;
        drop(dropped);
        let end = within_time(closed.read(&mut [0])).await;
        assert_eq!(end.unwrap(), 0, "closed");
        is_answered(&wire, &mut server).await;
        // The last one ends by itself, and with it the task; the next one has another.
        drop(server);
        within_time(driver.ended()).await;
        let (wire, _driver, mut server) = connection(&reader);
        is_answered(&wire, &mut server).await;
    }

    #[test]
    fn a_runtime_that_ends_leaves_nothing_that_waits_for_it() {
        let runtime = || {
            let mut builder = tokio::runtime::Builder::new_current_thread();
            builder.enable_time().build().unwrap()
        };
        let reader = Reader::default();
        let first = runtime();
        let (_, mut driver, _server) = first.block_on(async { connection(&reader) });
        drop(first);
        let next = runtime();
        next.block_on(async {
            within_time(driver.ended()).await;
            let (wire, _driver, mut server) = connection(&reader);
            is_answered(&wire, &mut server).await;
        });
    }
}
