//! [`Wire`]: one connection of our own making; commands out, answers in, in the same order.
//!
//! Whoever sends a command while hardly anything else is under way writes it to the socket itself: no
//! other task has to wake up for it. Under load it leaves that to the connection's own task, which
//! writes all that has gathered with one system call.
//!
//! It must never send a command twice, and never give an answer to another command than the one it
//! belongs to: what it cannot read ends the connection.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use redis::{Cmd, RedisError, RedisResult, Value};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, ReadHalf, WriteHalf};
use tokio::sync::oneshot;

use super::resp;
use super::stream::Duplex;

type Stream = Box<dyn Duplex>;
type Answer = oneshot::Receiver<Value>;

/// With so many commands under way, the next one waits for the connection's task.
const MANY: usize = 4;
/// How much is read at once.
const READ: usize = 4 * 1024;
/// A buffer that had to grow beyond that is not kept.
const KEPT: usize = 64 * 1024;

/// One connection. Clones share it.
#[derive(Clone)]
pub(super) struct Wire {
    outgoing: Arc<Mutex<Outgoing>>,
}

impl Wire {
    /// Takes a stream over. The task must be spawned: it reads the answers, and ends with the
    /// connection.
    pub(super) fn over(stream: Stream) -> (Self, Task) {
        let (incoming, outgoing) = tokio::io::split(stream);
        let outgoing = Arc::new(Mutex::new(Outgoing {
            stream: outgoing,
            unwritten: Vec::new(),
            written: 0,
            waiting: VecDeque::new(),
            task: Waker::noop().clone(),
            is_closed: false,
        }));
        let task = Task {
            incoming,
            outgoing: Arc::clone(&outgoing),
            buffer: Vec::new(),
            filled: 0,
        };
        (Self { outgoing }, task)
    }

    /// Sends one command when first polled, and waits for its answer.
    pub(super) async fn send(&self, cmd: &Cmd) -> RedisResult<Value> {
        let answer = self.outgoing().send(cmd);
        match answer {
            Some(answer) => answer.await.map_err(|_| closed()),
            None => Err(closed()),
        }
    }

    fn outgoing(&self) -> MutexGuard<'_, Outgoing> {
        outgoing(&self.outgoing)
    }
}

fn outgoing(outgoing: &Mutex<Outgoing>) -> MutexGuard<'_, Outgoing> {
    // A panic while it was locked cannot have left it half changed: the buffer only grows there.
    outgoing.lock().unwrap_or_else(PoisonError::into_inner)
}

fn closed() -> RedisError {
    io::Error::new(io::ErrorKind::BrokenPipe, "the connection was closed").into()
}

struct Outgoing {
    stream: WriteHalf<Stream>,
    /// What has been sent and not been written yet, of which so many bytes have.
    unwritten: Vec<u8>,
    written: usize,
    /// Who waits for an answer, in the order of the commands.
    waiting: VecDeque<oneshot::Sender<Value>>,
    task: Waker,
    is_closed: bool,
}

impl Outgoing {
    /// `None` when the connection is closed.
    fn send(&mut self, cmd: &Cmd) -> Option<Answer> {
        if self.is_closed {
            return None;
        }
        let is_idle = self.waiting.len() < MANY && self.unwritten.is_empty();
        let (sender, answer) = oneshot::channel();
        self.waiting.push_back(sender);
        cmd.write_packed_command(&mut self.unwritten);
        let done = is_idle
            && self
                .write(&mut Context::from_waker(Waker::noop()))
                .is_ready();
        if !done || self.is_closed {
            self.task.wake_by_ref();
        }
        Some(answer)
    }

    /// Writes what there is. Pending when the socket takes no more for now.
    fn write(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while self.written < self.unwritten.len() {
            let rest = &self.unwritten[self.written..];
            match ready!(Pin::new(&mut self.stream).poll_write(cx, rest)) {
                Ok(bytes) if bytes > 0 => self.written += bytes,
                Ok(_) | Err(_) => return self.close(),
            }
        }
        if self.unwritten.capacity() > KEPT {
            self.unwritten = Vec::new();
        }
        self.unwritten.clear();
        self.written = 0;
        match ready!(Pin::new(&mut self.stream).poll_flush(cx)) {
            Ok(()) => Poll::Ready(()),
            Err(_) => self.close(),
        }
    }

    /// Whoever waits is told that there will be no answer.
    fn close(&mut self) -> Poll<()> {
        self.is_closed = true;
        self.waiting.clear();
        self.unwritten = Vec::new();
        self.written = 0;
        Poll::Ready(())
    }
}

/// What reads the answers of a connection, and writes what its senders could not.
pub(super) struct Task {
    incoming: ReadHalf<Stream>,
    outgoing: Arc<Mutex<Outgoing>>,
    /// What was read, of which so many bytes are filled.
    buffer: Vec<u8>,
    filled: usize,
}

impl Future for Task {
    type Output = ();

    /// Ends when the connection does.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        {
            let mut outgoing = outgoing(&this.outgoing);
            outgoing.task.clone_from(cx.waker());
            // Whether all is written or the rest waits for the socket: now there is time to read.
            let _ = outgoing.write(cx);
            if outgoing.is_closed {
                return Poll::Ready(());
            }
        }
        while ready!(this.read(cx)) {
            if !this.hand_out() {
                return Poll::Ready(());
            }
        }
        Poll::Ready(())
    }
}

impl Task {
    /// Reads what has come; false at the end.
    fn read(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        if self.buffer.len() - self.filled < READ / 2 {
            // Doubled, so that a long answer is not looked through again for each small part.
            self.buffer.resize(self.filled + self.filled.max(READ), 0);
        }
        let mut space = ReadBuf::new(&mut self.buffer[self.filled..]);
        let outcome = ready!(Pin::new(&mut self.incoming).poll_read(cx, &mut space));
        let bytes = space.filled().len();
        self.filled += bytes;
        Poll::Ready(outcome.is_ok() && bytes > 0)
    }

    /// Gives every answer that is complete to the one who waits for it. False when it cannot be
    /// read, or nobody has asked for it.
    fn hand_out(&mut self) -> bool {
        let mut taken = 0;
        let is_sane = loop {
            match resp::read(&self.buffer[taken..self.filled]) {
                Ok(Some((value, bytes))) => {
                    taken += bytes;
                    let waiting = outgoing(&self.outgoing).waiting.pop_front();
                    let Some(sender) = waiting else {
                        break false;
                    };
                    // Whoever does not wait any more does not care.
                    let _ = sender.send(value);
                }
                Ok(None) => break true,
                Err(resp::Nonsense) => break false,
            }
        };
        self.buffer.copy_within(taken..self.filled, 0);
        self.filled -= taken;
        if self.filled == 0 && self.buffer.capacity() > KEPT {
            self.buffer = Vec::new();
        }
        is_sane
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        let _ = outgoing(&self.outgoing).close();
    }
}
