//! [`Unread`]: a grant whose answer has not left this process. If the connection breaks before it does,
//! the locks are released, by exactly the values of this attempt.
//!
//! What has left may still be lost on its way: then the locks end by their TTL, or a later attempt of the
//! same lease takes them over.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use fencepost::Lease;
use futures_util::FutureExt as _;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::problem::Problem;
use crate::service::Service;

/// What one connection has granted and not sent yet.
#[derive(Clone, Default)]
pub(crate) struct Unread(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    leases: Vec<Lease>,
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
        drop(state);
        for lease in leases {
            // A lease that is over by now is released by that.
            let mut detached = Box::pin(async move { drop(lease.detach().await) });
            // It takes time only while nodes have not answered. A task for each grant would cost more
            // than the rest of it.
            if (&mut detached).now_or_never().is_none() {
                tokio::spawn(detached);
            }
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
    pub(crate) stream: S,
    pub(crate) unread: Unread,
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        if matches!(written, Poll::Ready(Ok(_))) {
            self.unread.wrote();
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        if matches!(flushed, Poll::Ready(Ok(()))) {
            self.unread.sent();
        }
        flushed
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
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        if matches!(written, Poll::Ready(Ok(_))) {
            self.unread.wrote();
        }
        written
    }
}
