//! Requests to one replica over HTTP/1.1, with reused connections.
//!
//! A connection is driven by the request that uses it, not by a task: dropping the request closes
//! the connection, which tells the replica that no client waits any more.

use std::pin::{Pin, pin};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::address::Address;
use crate::error::NodeError;
#[cfg(feature = "tls")]
use crate::store::redis::Tls;
use fencepost_core::Readable;

/// The maximum size of a response: a page of a listing is the largest.
const MOST_BYTES: usize = 8 << 20;
/// The maximum number of idle connections.
const MOST_IDLE: usize = 64;

/// A response of a replica.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    /// `Null` if it was not JSON.
    pub(super) body: Value,
}

/// One replica.
pub(super) struct Replica {
    pub(super) address: Address,
    connect_timeout: Duration,
    bearer: Option<HeaderValue>,
    #[cfg(feature = "tls")]
    tls: Option<Tls>,
    idle: Mutex<Vec<Connection>>,
}

struct Connection {
    sender: SendRequest<Full<Bytes>>,
    driver: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl Replica {
    pub(super) fn new(
        address: Address,
        connect_timeout: Duration,
        bearer: Option<HeaderValue>,
        #[cfg(feature = "tls")] tls: Option<Tls>,
    ) -> Self {
        Self {
            address,
            connect_timeout,
            bearer,
            #[cfg(feature = "tls")]
            tls,
            idle: Mutex::default(),
        }
    }

    /// Sends one request, and reads its response.
    ///
    /// # Errors
    /// [`NodeError::Unreachable`] when nothing was sent. After any other error it may have taken
    /// effect.
    pub(super) async fn send(
        &self,
        path: &str,
        body: Option<Value>,
        limit: Duration,
    ) -> Result<Answer, NodeError> {
        let request = self.request(path, body)?;
        let mut connection = match self.idle_one() {
            Some(connection) => connection,
            None => match timeout(self.connect_timeout, self.connect()).await {
                Ok(connected) => connected.map_err(NodeError::Unreachable)?,
                Err(_) => {
                    let why = format!("no connection within {}", Readable(self.connect_timeout));
                    return Err(NodeError::Unreachable(why));
                }
            },
        };
        let answer = match timeout(limit, connection.exchange(request)).await {
            Ok(answer) => answer.map_err(NodeError::Disconnected),
            Err(_) => Err(NodeError::Timeout(limit)),
        };
        match &answer {
            Ok(_) => {
                let mut idle = self.idle();
                if idle.len() < MOST_IDLE && !connection.sender.is_closed() {
                    idle.push(connection);
                }
            }
            // The others are older, and are likely to be broken too.
            Err(_) => self.idle().clear(),
        }
        answer
    }

    fn request(&self, path: &str, body: Option<Value>) -> Result<Request<Full<Bytes>>, NodeError> {
        let method = match body {
            Some(_) => Method::POST,
            None => Method::GET,
        };
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.address.base))
            .header(HOST, self.address.authority())
            .header(ACCEPT, "application/json");
        if body.is_some() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        if let Some(bearer) = &self.bearer {
            request = request.header(AUTHORIZATION, bearer.clone());
        }
        let bytes = body.map(|body| body.to_string()).unwrap_or_default();
        request
            .body(Full::new(Bytes::from(bytes)))
            .map_err(|error| NodeError::Unreachable(error.to_string()))
    }

    async fn connect(&self) -> Result<Connection, String> {
        let Address { host, port, .. } = &self.address;
        let stream = TcpStream::connect((host.as_str(), *port)).await;
        let stream = stream.map_err(|error| error.to_string())?;
        // Requests are small, and a caller waits for each.
        let _ = stream.set_nodelay(true);
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.tls {
            let stream = tls.over(stream).await.map_err(|error| error.to_string())?;
            return Connection::over(stream).await;
        }
        Connection::over(stream).await
    }

    /// A connection of an earlier request that the replica has not closed.
    fn idle_one(&self) -> Option<Connection> {
        loop {
            let mut connection = self.idle().pop()?;
            // Checks for input: between two requests that can only be the end.
            let ended = connection.driver.as_mut().now_or_never().is_some();
            if !ended && connection.sender.is_ready() {
                return Some(connection);
            }
        }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Connection>> {
        // A panic while it was locked cannot have left it half changed.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Connection {
    async fn over(
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) -> Result<Self, String> {
        let (sender, driver) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| error.to_string())?;
        Ok(Self {
            sender,
            // The request reports its own outcome.
            driver: Box::pin(driver.map(drop)),
        })
    }

    async fn exchange(&mut self, request: Request<Full<Bytes>>) -> Result<Answer, String> {
        let Self { sender, driver } = self;
        let mut answer = pin!(async {
            let answer = sender.send_request(request).await;
            let answer = answer.map_err(|error| error.to_string())?;
            let status = answer.status().as_u16();
            let body = Limited::new(answer.into_body(), MOST_BYTES).collect().await;
            let body = body.map_err(|error| error.to_string())?.to_bytes();
            let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
            Ok(Answer { status, body })
        });
        tokio::select! {
            biased;
            answer = &mut answer => answer,
            // What it read before it ended is still available.
            () = driver => answer.await,
        }
    }
}

impl std::fmt::Debug for Replica {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Not the token.
        f.debug_tuple("Replica").field(&self.address).finish()
    }
}
