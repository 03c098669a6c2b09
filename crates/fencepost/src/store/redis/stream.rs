//! The byte stream to a server: TCP, TLS over TCP, or a Unix socket, set so that a dead peer is
//! noticed.
//!
//! It must never leave Nagle's algorithm on: that costs a lock 40 ms.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::options::TlsOptions;
use super::url::Place;
use crate::error::{Error, NodeError};

/// After that much silence the kernel asks whether the peer is still there, and how often.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(10);
const KEEPALIVE_EVERY: Duration = Duration::from_secs(5);
/// How long the kernel keeps sending to a peer that acknowledges nothing.
const UNACKNOWLEDGED: Duration = Duration::from_secs(20);

/// What a connection is made of.
pub(super) trait Duplex: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Duplex for T {}

/// A stream that only the process uses that opened it.
///
/// The child of a fork inherits the descriptor: what it writes there, the server takes for its
/// parent's, and what it reads, its parent misses. So each read and write asks for the process id (one
/// cheap system call beside the expensive one). In another process both fail, and dropping the stream
/// leaves the descriptor open: closing it would take it out of the `epoll` that is shared with the
/// parent. `fork` and `exec` is harmless: descriptors are closed on `exec`.
pub(super) struct OwnStream<S> {
    /// Empty only while it is being dropped.
    stream: Option<S>,
    process: u32,
}

impl<S> OwnStream<S> {
    pub(super) fn new(stream: S) -> Self {
        Self {
            stream: Some(stream),
            process: std::process::id(),
        }
    }

    fn own(&mut self) -> io::Result<&mut S> {
        if self.process != std::process::id() {
            return Err(io::Error::other(
                "the connection is that of the process before the fork",
            ));
        }
        self.stream
            .as_mut()
            .ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

impl<S> Drop for OwnStream<S> {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            std::mem::forget(self.stream.take());
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for OwnStream<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut().own() {
            Ok(stream) => Pin::new(stream).poll_read(cx, buf),
            Err(error) => Poll::Ready(Err(error)),
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for OwnStream<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut().own() {
            Ok(stream) => Pin::new(stream).poll_write(cx, buf),
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut().own() {
            Ok(stream) => Pin::new(stream).poll_flush(cx),
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut().own() {
            Ok(stream) => Pin::new(stream).poll_shutdown(cx),
            Err(error) => Poll::Ready(Err(error)),
        }
    }
}

/// The way to a server, with everything that can be checked beforehand checked.
pub(super) struct Route {
    place: Place,
    #[cfg(feature = "tls")]
    tls: Option<super::tls::Tls>,
}

impl Route {
    /// # Errors
    /// [`ErrorKind::InvalidOption`](crate::ErrorKind::InvalidOption) for certificates that cannot be read.
    pub(super) fn new(place: Place, options: &TlsOptions) -> Result<Self, Error> {
        #[cfg(not(feature = "tls"))]
        let _ = options;
        #[cfg(feature = "tls")]
        let tls = match &place {
            Place::Tcp {
                host, tls: true, ..
            } => Some(super::tls::Tls::new(host, options)?),
            _ => None,
        };
        Ok(Self {
            place,
            #[cfg(feature = "tls")]
            tls,
        })
    }

    /// Where it leads.
    pub(super) fn place(&self) -> &Place {
        &self.place
    }

    /// Makes a connection. May take for ever: the caller bounds it with the same `limit`, of which
    /// no single address of a host with several gets all.
    pub(super) async fn open(&self, limit: Duration) -> io::Result<Box<dyn Duplex>> {
        match &self.place {
            Place::Tcp { host, port, .. } => {
                let stream = tcp(host, *port, limit).await?;
                #[cfg(feature = "tls")]
                if let Some(tls) = &self.tls {
                    return Ok(Box::new(OwnStream::new(tls.over(stream).await?)));
                }
                Ok(Box::new(OwnStream::new(stream)))
            }
            #[cfg(unix)]
            Place::Unix(path) => {
                let stream = tokio::net::UnixStream::connect(path).await?;
                Ok(Box::new(OwnStream::new(stream)))
            }
            #[cfg(not(unix))]
            Place::Unix(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Why a new connection could not be used, with what may be the cause if it was closed.
    pub(super) fn explained(&self, error: NodeError) -> NodeError {
        #[cfg(feature = "tls")]
        if let NodeError::Disconnected(why) = &error
            && let Some(hint) = self.tls.as_ref().and_then(super::tls::Tls::why_closed)
        {
            return NodeError::Disconnected(format!("{why}; {hint}"));
        }
        error
    }
}

async fn tcp(host: &str, port: u16, limit: Duration) -> io::Result<TcpStream> {
    let addresses: Vec<_> = tokio::net::lookup_host((host, port)).await?.collect();
    let share = limit / u32::try_from(addresses.len().max(1)).unwrap_or(u32::MAX);
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for address in addresses {
        match tokio::time::timeout(share, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                settle(&stream)?;
                return Ok(stream);
            }
            Ok(Err(error)) => last = error,
            Err(_) => last = io::ErrorKind::TimedOut.into(),
        }
    }
    Err(last)
}

fn settle(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE_AFTER)
        .with_interval(KEEPALIVE_EVERY);
    socket.set_tcp_keepalive(&keepalive)?;
    #[cfg(any(target_os = "linux", target_os = "android"))]
    socket.set_tcp_user_timeout(Some(UNACKNOWLEDGED))?;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    let _ = UNACKNOWLEDGED;
    Ok(())
}
