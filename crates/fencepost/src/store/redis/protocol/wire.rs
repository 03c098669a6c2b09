//! [`Wire`]: one connection of our own making; commands out, answers in, in the same order.
//!
//! While few commands are in flight, the sender writes its command to the socket itself: no other task
//! has to wake up for it. Under load the connection's own task does: it lets all runnable tasks run first,
//! and then writes what they have sent with one system call. A command that another follows at once is
//! written together with that one.
//!
//! Why not the connection of the `redis` crate: it sends every command by way of a task, which is a
//! wake-up, often on another core, before the first byte leaves. What this one costs today is in
//! `docs/figures/table.md`, beside requests written by hand.
//!
//! Pushes (messages on subscribed channels, invalidations) arrive among the answers. The task that has
//! read one calls the handler itself: no other task delays it.
//!
//! It must never send a command twice, and never give an answer to another command than the one it
//! belongs to, nor a push to a command: what it cannot read ends the connection.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;

use super::command::Cmd;
use super::resp::{self, Frame, Message, Nonsense, Said};
use super::value::Value;
use crate::runtime::clock::Moment;
use crate::store::redis::address::stream::{Process, Stream};
use crate::store::redis::connection::link::Posted;
use crate::store::redis::fault::{RedisError, RedisResult};

type Answer = oneshot::Receiver<Value>;

/// What commands were answered.
#[derive(Debug)]
pub(crate) enum Answers {
    /// One of those that their sender has named.
    Usual,
    /// As a list, if they are more than one.
    Other(Value),
}

/// Where an answer goes.
enum Receiver {
    Awaited(oneshot::Sender<Value>),
    /// Takes it in the connection's own task, and is dropped when none will come. Not boxed: there is one for each command
    /// and node.
    Posted {
        /// Answers that need not be read: their bytes say it all.
        usual: &'static [&'static [u8]],
        posted: Posted,
    },
}

impl Receiver {
    /// Whether it was waited for. The answers have come about at that time, once somebody has asked for it.
    fn take(self, answers: Answers, come: &mut Option<Moment>) -> bool {
        match (self, answers) {
            // The caller may have stopped waiting.
            (Self::Awaited(sender), Answers::Other(answer)) => sender.send(answer).is_ok(),
            (Self::Posted { posted, .. }, answers) => posted.answered(answers, come),
            // It has named none.
            (Self::Awaited(_), Answers::Usual) => false,
        }
    }

    /// How many bytes at the beginning are an answer that it has named.
    fn usual_prefix(&self, bytes: &[u8]) -> Option<usize> {
        match self {
            Self::Awaited(_) => None,
            Self::Posted { usual, .. } => {
                let usual = usual.iter().find(|usual| bytes.starts_with(usual));
                usual.map(|usual| usual.len())
            }
        }
    }
}

/// Who waits for the answers of what was written as one.
struct Waiting {
    receiver: Receiver,
    /// How many answers are due, and those that have come while there are more.
    due: usize,
    come: Vec<Value>,
}

impl Waiting {
    /// Takes the next answer. Whether it was the last.
    fn takes(&mut self, value: Value) -> Option<Value> {
        if self.due == 1 && self.come.is_empty() {
            return Some(value);
        }
        self.come.push(value);
        (self.come.len() == self.due).then(|| Value::Array(std::mem::take(&mut self.come)))
    }
}

/// What comes beside answers. Each before whatever the connection brings later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Push<'b> {
    /// Published on a channel.
    Message(Message<'b>),
    /// A key that the server was to watch was changed, or is watched no longer.
    Invalidation,
}

/// Hears what comes beside answers. It must not block: all that the connection brings waits for it.
pub(crate) type OnPush = Box<dyn FnMut(Push<'_>) + Send>;

/// With so many commands under way, the next one waits for the connection's task.
const MANY: usize = 4;
/// To a server that is alone, at least so many commands are written together, or a quarter of what those send
/// who were answered together: it is to work while the others are sent. Of several servers one works while the
/// others are written to, and what is answered together wakes its caller once, so there all go together.
/// Measured with 64 tasks: 1.4 times the cycles on one server, and it would be 0.85 times on five.
const TOGETHER: usize = 4;
/// So many answers at once may be one caller's: to what it asks now, and to what it asked before and did not wait for.
const ONE_CALLER: usize = 2;
/// How much is read at once.
const READ: usize = 4 * 1024;
/// How often one connection is read in a turn: the others wait for their own meanwhile.
const READS: usize = 8;
/// A buffer that had to grow beyond that is not kept.
const KEPT: usize = 64 * 1024;

/// When the connection's task writes what was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flush {
    /// Nothing was left to it.
    Idle,
    /// It has been woken. The runtime puts a task that is woken before all others, so it goes behind them
    /// first: those that were woken with the sender are about to send too.
    Asked,
    /// It is behind the others, and writes at its next turn.
    Due,
}

/// When a command is to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Urgency {
    /// At once.
    Now,
    /// With the one that follows it at once; soon, if none does.
    WithNext,
}

/// One connection. Clones share it.
#[derive(Clone)]
pub(crate) struct Wire {
    shared: Arc<Shared>,
}

/// What senders and the task share.
struct Shared {
    outgoing: Mutex<Outgoing>,
    /// Apart from the rest: others go on sending while one writes.
    socket: Mutex<Socket>,
    /// The child of a fork must not use the connection, nor wait for a lock that a thread of its parent had.
    process: Process,
}

/// What is being written. Only whoever has set [`Outgoing::is_being_written`] may use it.
struct Socket {
    stream: Box<dyn AsyncWrite + Unpin + Send>,
    /// Of these so many bytes are written.
    bytes: Vec<u8>,
    written: usize,
}

impl Wire {
    /// Takes a stream over. The task must be [run](super::reader::Reader): it reads the answers, and ends with the
    /// connection. On one that hears news, each command must have one answer: a command for each
    /// channel.
    pub(crate) fn over(stream: Stream, on_push: Option<OnPush>) -> (Self, Task) {
        let shared = Arc::new(Shared {
            outgoing: Mutex::new(Outgoing {
                unwritten: Vec::new(),
                is_held: false,
                is_being_written: false,
                is_full: false,
                is_urgent: false,
                flush: Flush::Idle,
                gathered: 0,
                together: usize::MAX,
                is_alone: false,
                waiting: VecDeque::new(),
                answers: 0,
                task: Waker::noop().clone(),
                is_closed: false,
            }),
            socket: Mutex::new(Socket {
                stream: stream.outgoing,
                bytes: Vec::new(),
                written: 0,
            }),
            process: Process::this(),
        });
        let task = Task {
            incoming: stream.incoming,
            shared: Arc::clone(&shared),
            on_push,
            buffer: Vec::new(),
            filled: 0,
            frame: Frame::default(),
            complete: Vec::new(),
        };
        (Self { shared }, task)
    }

    /// Its client has no other server to write to meanwhile.
    pub(crate) fn is_alone(&self) {
        let mut outgoing = self.shared.outgoing();
        outgoing.is_alone = true;
        outgoing.together = TOGETHER;
    }

    /// Sends one command when first polled, and waits for its answer.
    pub(crate) async fn send(&self, cmd: &Cmd, urgency: Urgency) -> RedisResult<Value> {
        let append = |unwritten: &mut Vec<u8>| cmd.write_to(unwritten);
        self.shared.send(1, urgency, append).await.map_err(closed)
    }

    /// Sends commands that were encoded before, so many, with nothing of anybody between them; and waits
    /// for their answers, as a list.
    pub(crate) async fn send_encoded(
        &self,
        commands: &[u8],
        count: usize,
        urgency: Urgency,
    ) -> RedisResult<Value> {
        let append = |unwritten: &mut Vec<u8>| unwritten.extend_from_slice(commands);
        let answer = self.shared.send(count, urgency, append);
        answer.await.map_err(closed)
    }

    /// The same at once, and the answers are handed over. For a caller that has asked whose process this is.
    pub(crate) fn post(
        &self,
        commands: &[u8],
        count: usize,
        usual: &'static [&'static [u8]],
        posted: Posted,
    ) {
        let append = |unwritten: &mut Vec<u8>| unwritten.extend_from_slice(commands);
        let receiver = Receiver::Posted { usual, posted };
        let mut outgoing = self.shared.outgoing();
        let must_write = outgoing.add(receiver, count, Urgency::Now, append);
        drop(outgoing);
        if must_write {
            self.shared.write();
        }
    }

    /// Sends two commands with nothing of anybody between them, and waits for the second's answer.
    pub(crate) async fn send_behind(&self, first: &Cmd, second: &Cmd) -> RedisResult<Value> {
        let append = |unwritten: &mut Vec<u8>| {
            first.write_to(unwritten);
            second.write_to(unwritten);
        };
        let answers = self.shared.send(2, Urgency::Now, append);
        Ok(match answers.await.map_err(closed)? {
            // It shows all that the first's would.
            Value::Array(mut answers) => answers.pop().unwrap_or(Value::Nil),
            answer => answer,
        })
    }

    /// How many answers have come, whether or not anybody waited for them.
    pub(crate) fn answers(&self) -> u64 {
        self.shared.outgoing().answers
    }
}

fn closed<T>(_: T) -> RedisError {
    io::Error::new(io::ErrorKind::BrokenPipe, "the connection was closed").into()
}

struct Outgoing {
    /// What has been sent and is not being written yet.
    unwritten: Vec<u8>,
    /// It is unwritten only because it waits for the next command.
    is_held: bool,
    /// A thread is at the socket. It comes back for what is urgent.
    is_being_written: bool,
    is_urgent: bool,
    /// The socket took no more: the task goes on when it does.
    is_full: bool,
    flush: Flush,
    /// How many commands are unwritten, and how many may be.
    gathered: usize,
    together: usize,
    /// Its client has no other server.
    is_alone: bool,
    /// Who waits for an answer, in the order of the commands.
    waiting: VecDeque<Waiting>,
    /// How many have come.
    answers: u64,
    task: Waker,
    is_closed: bool,
}

impl Outgoing {
    /// Adds so many commands, or drops the receiver when the connection is closed. Whether the caller has to write now.
    #[must_use]
    fn add(
        &mut self,
        receiver: Receiver,
        due: usize,
        urgency: Urgency,
        append: impl FnOnce(&mut Vec<u8>),
    ) -> bool {
        if self.is_closed {
            return false;
        }
        let is_first = self.flush == Flush::Idle
            && self.waiting.len() < MANY
            && (self.unwritten.is_empty() || self.is_held);
        self.is_held = is_first && urgency == Urgency::WithNext;
        self.waiting.push_back(Waiting {
            receiver,
            due,
            come: Vec::new(),
        });
        append(&mut self.unwritten);
        self.gathered += 1;
        let is_enough = self.gathered >= self.together && self.flush != Flush::Idle;
        let is_due = is_enough || is_first && !self.is_held;
        let must_write = is_due && self.begins_to_write();
        match self.flush {
            // By the next command, or soon: that must not wait for others.
            _ if self.is_held => self.task.wake_by_ref(),
            Flush::Idle if !is_first => {
                self.flush = Flush::Asked;
                self.task.wake_by_ref();
            }
            _ => {}
        }
        must_write
    }

    /// Whether the caller has to write now. Otherwise another thread does, or the task once the socket takes more.
    fn begins_to_write(&mut self) -> bool {
        if self.is_being_written || self.is_full {
            self.is_urgent = true;
            return false;
        }
        self.is_being_written = true;
        true
    }

    /// Every pending command learns that there will be no answer.
    fn close(&mut self) {
        self.is_closed = true;
        self.waiting.clear();
        self.unwritten = Vec::new();
    }
}

impl Shared {
    /// Sends so many commands, whose answers come as a list if they are more than one. They are sent when this returns.
    fn send(&self, due: usize, urgency: Urgency, append: impl FnOnce(&mut Vec<u8>)) -> Answer {
        let (sender, answer) = oneshot::channel();
        let mut outgoing = self.outgoing();
        let must_write = outgoing.add(Receiver::Awaited(sender), due, urgency, append);
        drop(outgoing);
        if must_write {
            match self.process.is_this() {
                true => self.write(),
                false => self.close_in_child(),
            }
        }
        answer
    }

    /// Writes what there is, for a sender that [has begun to](Outgoing::begins_to_write), in its own process.
    fn write(&self) {
        let mut context = Context::from_waker(Waker::noop());
        if !self.write_all(&mut lock(&self.socket), &mut context) {
            // The task goes on when the socket takes more, or ends with the connection.
            self.outgoing().task.wake_by_ref();
        }
    }

    /// False when the socket takes no more for now, or the connection is closed.
    fn write_all(&self, socket: &mut Socket, cx: &mut Context<'_>) -> bool {
        loop {
            {
                let mut outgoing = self.outgoing();
                if socket.bytes.is_empty() {
                    std::mem::swap(&mut socket.bytes, &mut outgoing.unwritten);
                    outgoing.is_held = false;
                    outgoing.is_urgent = false;
                    outgoing.gathered = 0;
                }
            }
            let written = socket.poll_write_all(cx);
            let mut outgoing = self.outgoing();
            match written {
                Poll::Ready(Ok(())) if outgoing.is_urgent && !outgoing.is_closed => {}
                written => {
                    outgoing.is_being_written = false;
                    outgoing.is_full = written.is_pending();
                    if matches!(written, Poll::Ready(Err(_))) {
                        outgoing.close();
                    }
                    return matches!(written, Poll::Ready(Ok(()))) && !outgoing.is_closed;
                }
            }
        }
    }

    fn close_in_child(&self) {
        if let Ok(mut outgoing) = self.outgoing.try_lock() {
            outgoing.close();
        }
    }

    fn outgoing(&self) -> MutexGuard<'_, Outgoing> {
        lock(&self.outgoing)
    }
}

impl Socket {
    fn poll_write_all(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.written < self.bytes.len() {
            let rest = &self.bytes[self.written..];
            match ready!(Pin::new(&mut self.stream).poll_write(cx, rest))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                bytes => self.written += bytes,
            }
        }
        if self.bytes.capacity() > KEPT {
            self.bytes = Vec::new();
        }
        self.bytes.clear();
        self.written = 0;
        Pin::new(&mut self.stream).poll_flush(cx)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic while it was locked cannot have left it half changed: the buffers only grow there.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What reads the answers of a connection, and writes what its senders could not.
pub(crate) struct Task {
    incoming: Box<dyn AsyncRead + Unpin + Send>,
    shared: Arc<Shared>,
    /// Without it there are only answers.
    on_push: Option<OnPush>,
    /// What was read, of which so many bytes are filled.
    buffer: Vec<u8>,
    filled: usize,
    /// How much of the first reply has come.
    frame: Frame,
    /// The answers of one read, and those who wait for them: kept for its memory.
    complete: Vec<(Receiver, Answers)>,
}

/// What a task does first.
enum ToDo {
    Write,
    Read,
    /// The connection is closed.
    End,
}

impl Task {
    /// Reads and writes what can be. Ready when the connection has ended. For a caller that has asked whose process
    /// this is, and what time it is, which is read at most once a turn: that takes as long as to read an answer.
    pub(crate) fn turn(&mut self, cx: &mut Context<'_>, now: &mut Option<Moment>) -> Poll<()> {
        match self.to_do(cx) {
            ToDo::End => return Poll::Ready(()),
            ToDo::Write => {
                let shared = &self.shared;
                let is_written = shared.write_all(&mut lock(&shared.socket), cx);
                if !is_written && shared.outgoing().is_closed {
                    return Poll::Ready(());
                }
            }
            ToDo::Read => {}
        }
        // Whether all is written or the rest waits for the socket: now there is time to read.
        for _ in 0..READS {
            if !ready!(self.read(cx)) || !self.hand_out(cx.waker(), now) {
                return Poll::Ready(());
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn to_do(&self, cx: &mut Context<'_>) -> ToDo {
        let mut outgoing = self.shared.outgoing();
        if outgoing.is_closed {
            return ToDo::End;
        }
        outgoing.task.clone_from(cx.waker());
        if outgoing.flush == Flush::Asked {
            outgoing.flush = Flush::Due;
            cx.waker().wake_by_ref();
            return ToDo::Read;
        }
        outgoing.flush = Flush::Idle;
        // It may be woken because it is not any more.
        let was_full = std::mem::take(&mut outgoing.is_full);
        match (was_full || !outgoing.unwritten.is_empty()) && outgoing.begins_to_write() {
            true => ToDo::Write,
            false => ToDo::Read,
        }
    }

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

    /// Hands each complete answer to its command, and each push to the handler. False when one cannot be
    /// read, or an answer belongs to no command.
    fn hand_out(&mut self, task: &Waker, now: &mut Option<Moment>) -> bool {
        let mut taken = 0;
        let is_sane = loop {
            taken += self.take_usual(taken);
            match self.read_first(taken) {
                Ok(0) => break true,
                Ok(bytes) => taken += bytes,
                Err(Nonsense) => break false,
            }
        };
        self.buffer.copy_within(taken..self.filled, 0);
        self.filled -= taken;
        if self.filled == 0 && self.buffer.capacity() > KEPT {
            self.buffer = Vec::new();
        }
        // After all pushes that came with them: what must not count any more after one does not.
        self.answer(task, now);
        is_sane
    }

    /// Takes the answers that their senders have named. How many bytes those are.
    fn take_usual(&mut self, from: usize) -> usize {
        let mut taken = 0;
        let mut outgoing = self.shared.outgoing();
        while let Some(waiting) = outgoing.waiting.front()
            && waiting.come.is_empty()
            && let unread = &self.buffer[from + taken..self.filled]
            && let Some(bytes) = waiting.receiver.usual_prefix(unread)
            && let Some(waiting) = outgoing.waiting.pop_front()
        {
            taken += bytes;
            outgoing.answers += waiting.due as u64;
            self.complete.push((waiting.receiver, Answers::Usual));
        }
        if taken > 0 {
            self.frame = Frame::default();
        }
        taken
    }

    /// Takes the first answer or push. How many bytes that took: none while it is not complete.
    fn read_first(&mut self, taken: usize) -> Result<usize, Nonsense> {
        let unread = &self.buffer[taken..self.filled];
        let Some(bytes) = self.frame.end(unread)? else {
            return Ok(0);
        };
        self.frame = Frame::default();
        let reply = &unread[..bytes];
        let answer = match &mut self.on_push {
            None => resp::read(reply)?.ok_or(Nonsense)?.0,
            Some(hear) => match resp::read_with_pushes(reply)?.ok_or(Nonsense)?.0 {
                Said::Answer(value) => value,
                Said::Message(news) => {
                    hear(Push::Message(news));
                    return Ok(bytes);
                }
                Said::Invalidation => {
                    hear(Push::Invalidation);
                    return Ok(bytes);
                }
            },
        };
        let mut outgoing = self.shared.outgoing();
        outgoing.answers += 1;
        // One that belongs to no command is as bad as one that cannot be read.
        let waiting = outgoing.waiting.front_mut().ok_or(Nonsense)?;
        if let Some(answers) = waiting.takes(answer)
            && let Some(waiting) = outgoing.waiting.pop_front()
        {
            let answers = Answers::Other(answers);
            self.complete.push((waiting.receiver, answers));
        }
        Ok(bytes)
    }

    /// Hands the answers to their senders.
    fn answer(&mut self, task: &Waker, now: &mut Option<Moment>) {
        let (all, mut awaited) = (self.complete.len(), 0);
        for (receiver, answers) in self.complete.drain(..) {
            awaited += usize::from(receiver.take(answers, now));
        }
        let mut outgoing = self.shared.outgoing();
        if outgoing.is_alone {
            outgoing.together = (all / 4).max(TOGETHER);
        }
        // Several go on by them: what those send next goes together.
        if (awaited > 1 || all > ONE_CALLER) && outgoing.flush == Flush::Idle {
            outgoing.flush = Flush::Due;
            task.wake_by_ref();
        }
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        if !self.shared.process.is_this() {
            return self.shared.close_in_child();
        }
        // Dropped with its runtime, it takes nothing along that was sent: a lease that is released
        // at that moment must not stay until it expires. A thread that is writing is waited for.
        let mut socket = lock(&self.shared.socket);
        let mut context = Context::from_waker(Waker::noop());
        for _ in 0..2 {
            // What that thread had no time for, and then what was sent since.
            let _ = self.shared.write_all(&mut socket, &mut context);
        }
        self.shared.outgoing().close();
    }
}

#[cfg(test)]
mod tests;
