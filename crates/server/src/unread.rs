//! [`Unread`]: a grant whose answer has not left this process. If the connection breaks before it does,
//! the locks are released, by exactly the values of this attempt.
//!
//! What has left may still be lost on its way: then the locks end by their TTL, or a later attempt of the
//! same lease takes them over.
//!
//! [`Watched`] is the connection that tells it. It also gives up on a client that takes nothing, and on
//! one that went away while its request is under way.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use fencepost::Lease;
use futures_util::FutureExt as _;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// How much is read ahead of what a client has sent behind a request that is under way. Its end is not
/// noticed behind more than that.
const AHEAD: usize = 4096;
/// hyper reads before it writes, and flushes at most twice before it reads again.
const PATIENCE: u8 = 3;

use crate::leases::Counted;
use crate::pace::Pace;
use crate::problem::Problem;
use crate::service::Service;

/// What one connection has granted and not sent yet.
#[derive(Clone, Default)]
pub(crate) struct Unread(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    leases: Vec<Lease>,
    counted: Vec<Counted>,
    /// Whether something was written since.
    is_written: bool,
}

impl Unread {
    /// The answer that tells of these follows.
    pub(crate) fn put(&self, leases: Vec<Lease>) {
        let mut state = self.state();
        state.leases.extend(leases);
        state.is_written = false;
    }

    /// These are counted once the answer is out.
    pub(crate) fn count(&self, counted: Counted) {
        self.state().counted.push(counted);
    }

    /// Whether nothing of an answer that grants something was written yet. Afterwards its client may have
    /// read it and gone, as it should.
    fn is_granting(&self) -> bool {
        let state = self.state();
        !state.leases.is_empty() && !state.is_written
    }

    fn wrote(&self) {
        self.state().is_written = true;
    }

    /// The answer is out: the locks are the client's.
    fn sent(&self) {
        let mut state = self.state();
        if !state.is_written || state.leases.is_empty() {
            return;
        }
        let leases = std::mem::take(&mut state.leases);
        let counted = std::mem::take(&mut state.counted);
        drop(state);
        let mut kept = Vec::new();
        for lease in leases {
            let lease = match lease.keep() {
                Ok(lease) => {
                    kept.push(lease);
                    continue;
                }
                Err(lease) => lease,
            };
            // A lease that is over by now is released by that.
            let mut detached = Box::pin(async move { drop(lease.detach().await) });
            // It takes time only while nodes have not answered. A task for each grant would cost more
            // than the rest of it.
            if (&mut detached).now_or_never().is_none() {
                tokio::spawn(detached);
            }
        }
        for counted in counted {
            counted.keep(std::mem::take(&mut kept));
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic while it was locked cannot have left it half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FromRequestParts<Service> for Unread {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Service) -> Result<Self, Problem> {
        // Every connection has one.
        Ok(parts.extensions.get::<Self>().cloned().unwrap_or_default())
    }
}

/// A connection that tells when an answer is out.
pub(crate) struct Watched<S> {
    stream: S,
    unread: Unread,
    pace: Pace,
    /// Whether no request came in time.
    pub(crate) timed_out: bool,
    write_timeout: Duration,
    /// Since the client has taken nothing.
    stalled: Option<Pin<Box<Sleep>>>,
    /// What was read and not asked for yet.
    ahead: Vec<u8>,
    end: End,
}

/// Whether the client has closed its side.
///
/// hyper reads on while a request is under way, and so notices it, but only while it has nothing left to
/// parse: behind a request, a line break is enough to hide that its client is gone.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Open,
    /// It lies ahead, and so often has all been written since somebody has read.
    Ahead(u8),
    /// It was read.
    Read,
}

impl<S> Watched<S> {
    pub(crate) fn new(stream: S, unread: Unread, pace: Pace, write_timeout: Duration) -> Self {
        Self {
            stream,
            unread,
            pace,
            timed_out: false,
            write_timeout,
            stalled: None,
            ahead: Vec::new(),
            end: End::Open,
        }
    }

    /// What came of a write or a flush, unless nothing came of it for too long.
    fn within_limit<T>(
        &mut self,
        context: &mut Context<'_>,
        outcome: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if outcome.is_ready() {
            self.stalled = None;
            return outcome;
        }
        let limit = self.write_timeout;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(limit)));
        stalled.as_mut().poll(context).map(|()| {
            let why = "the client takes nothing (limit write_timeout)";
            Err(io::Error::new(io::ErrorKind::TimedOut, why))
        })
    }
}

impl<S: AsyncRead + Unpin> Watched<S> {
    /// Reads ahead, so that the end is seen. Whoever might read on is woken for what is found.
    fn look_ahead(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        while self.end == End::Open && self.ahead.len() < AHEAD {
            let mut bytes = [MaybeUninit::uninit(); AHEAD];
            let room = AHEAD - self.ahead.len();
            let mut buffer = ReadBuf::uninit(&mut bytes[..room]);
            match Pin::new(&mut self.stream).poll_read(context, &mut buffer) {
                Poll::Pending => break,
                Poll::Ready(read) => read?,
            }
            match buffer.filled() {
                [] => self.end = End::Ahead(0),
                found => self.ahead.extend_from_slice(found),
            }
            context.waker().wake_by_ref();
        }
        Ok(())
    }

    /// Whoever reads was woken for the end and does not read: a request is under way, and its client is
    /// gone. What it is granted is not even sent.
    fn is_there(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        let is_granting = self.unread.is_granting();
        if is_granting {
            self.look_ahead(context)?;
        }
        match self.end {
            End::Ahead(flushes) if is_granting || flushes >= PATIENCE => {
                let why = "the client went away";
                Err(io::Error::new(io::ErrorKind::ConnectionAborted, why))
            }
            End::Open | End::Ahead(_) | End::Read => Ok(()),
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let End::Ahead(flushes) = &mut self.end {
            *flushes = 0;
        }
        if !self.ahead.is_empty() {
            let most = self.ahead.len().min(buffer.remaining());
            buffer.put_slice(&self.ahead[..most]);
            self.ahead.drain(..most);
            self.pace.read();
            return Poll::Ready(Ok(()));
        }
        if self.end != End::Open {
            self.end = End::Read;
            return Poll::Ready(Ok(()));
        }
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if read.is_ready() {
            self.pace.read();
            return read;
        }
        let error = ready!(self.pace.wait(context));
        self.timed_out = true;
        Poll::Ready(Err(error))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.is_there(context)?;
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        if matches!(written, Poll::Ready(Ok(_))) {
            self.unread.wrote();
            self.pace.wrote();
        }
        self.within_limit(context, written)
    }

    /// hyper calls it whenever it has done what it can, also while a request is under way.
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.is_there(context)?;
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        if matches!(flushed, Poll::Ready(Ok(()))) {
            self.unread.sent();
        }
        self.look_ahead(context)?;
        if let End::Ahead(flushes) = &mut self.end {
            *flushes = flushes.saturating_add(1);
            context.waker().wake_by_ref();
        }
        self.within_limit(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.is_there(context)?;
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        if matches!(written, Poll::Ready(Ok(_))) {
            self.unread.wrote();
            self.pace.wrote();
        }
        self.within_limit(context, written)
    }
}
