//! The byte stream to a server: TCP, TLS over TCP, or a Unix socket, configured to notice a dead
//! peer.
//!
//! It must never leave Nagle's algorithm on: that costs a lock 40 ms.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::url::Place;
use crate::error::{Error, NodeError};
pub(crate) use crate::runtime::process::Process;
use crate::store::redis::options::TlsOptions;

/// TCP keep-alive: idle time and interval.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(10);
const KEEPALIVE_EVERY: Duration = Duration::from_secs(5);
/// `TCP_USER_TIMEOUT`: how long the kernel keeps sending to a peer that acknowledges nothing.
const UNACKNOWLEDGED: Duration = Duration::from_secs(20);

/// The two directions of a connection, which two threads may use at the same time.
pub(crate) struct Stream {
    pub(crate) incoming: Box<dyn AsyncRead + Unpin + Send>,
    pub(crate) outgoing: Box<dyn AsyncWrite + Unpin + Send>,
}

impl Stream {
    /// Of a stream that knows no directions: its halves take turns.
    #[cfg(any(test, feature = "tls"))]
    pub(crate) fn over(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Self {
        let (incoming, outgoing) = tokio::io::split(stream);
        Self {
            incoming: Box::new(incoming),
            outgoing: Box::new(outgoing),
        }
    }

    fn of_halves(
        incoming: impl AsyncRead + Unpin + Send + 'static,
        outgoing: impl AsyncWrite + Unpin + Send + 'static,
    ) -> Self {
        Self {
            incoming: Box::new(OwnStream::new(incoming)),
            outgoing: Box::new(OwnStream::new(outgoing)),
        }
    }
}

/// A stream that a forked child leaves open when it drops it: closing the descriptor would remove it
/// from the `epoll` that is shared with the parent. Reads and writes are not checked: see [`Process`].
struct OwnStream<S> {
    /// Empty only while it is being dropped.
    stream: Option<S>,
    process: Process,
}

impl<S> OwnStream<S> {
    fn new(stream: S) -> Self {
        Self {
            stream: Some(stream),
            process: Process::this(),
        }
    }

    fn open(&mut self) -> io::Result<&mut S> {
        self.stream
            .as_mut()
            .ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

impl<S> Drop for OwnStream<S> {
    fn drop(&mut self) {
        if !self.process.is_this() {
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
        match self.get_mut().open() {
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
        match self.get_mut().open() {
            Ok(stream) => Pin::new(stream).poll_write(cx, buf),
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut().open() {
            Ok(stream) => Pin::new(stream).poll_flush(cx),
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut().open() {
            Ok(stream) => Pin::new(stream).poll_shutdown(cx),
            Err(error) => Poll::Ready(Err(error)),
        }
    }
}

/// The route to a server, with everything checked that can be checked beforehand.
pub(crate) struct Route {
    place: Place,
    #[cfg(feature = "tls")]
    tls: Option<super::tls::Tls>,
}

impl Route {
    /// # Errors
    /// [`ErrorKind::InvalidOption`](crate::ErrorKind::InvalidOption) for unreadable certificates.
    pub(crate) fn new(place: Place, options: &TlsOptions) -> Result<Self, Error> {
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

    /// The target.
    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    /// Opens a connection. May take forever: the caller bounds it with the same `limit`, of which
    /// no single address of a host with several gets all.
    pub(crate) async fn open(&self, limit: Duration) -> io::Result<Stream> {
        match &self.place {
            Place::Tcp { host, port, .. } => {
                let stream = tcp(host, *port, limit).await?;
                #[cfg(feature = "tls")]
                if let Some(tls) = &self.tls {
                    return Ok(Stream::over(OwnStream::new(tls.over(stream).await?)));
                }
                let (incoming, outgoing) = stream.into_split();
                Ok(Stream::of_halves(incoming, outgoing))
            }
            #[cfg(unix)]
            Place::Unix(path) => {
                let stream = tokio::net::UnixStream::connect(path).await?;
                let (incoming, outgoing) = stream.into_split();
                Ok(Stream::of_halves(incoming, outgoing))
            }
            #[cfg(not(unix))]
            Place::Unix(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Why a new connection could not be used, with the likely cause if it was closed.
    pub(crate) fn explained(&self, error: NodeError) -> NodeError {
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
