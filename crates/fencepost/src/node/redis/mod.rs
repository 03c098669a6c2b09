//! A node that is a Redis or Valkey server: one connection, one Lua script for each command.
//!
//! - `scripts`, `keys`: the commands and where they work. The scripts are the second
//!   implementation of [`state`](crate::state).
//! - `url`, `stream`, `tls`: from a URL to a byte stream.
//! - `handshake`, `roster`: who may vote.
//! - `keeper`, `link`: connecting, watching, connecting again; one connection's calls.
//! - `fault`: errors in the words of a node.
//!
//! Any Redlock client excludes us and is excluded by us: a lock is the plain key that they all set
//! with `NX PX`. A command must never be sent twice, unless the server has said that it did not
//! have the script.

mod fault;
mod handshake;
mod keeper;
mod keys;
mod link;
mod options;
mod roster;
mod scripts;
mod stream;
#[cfg(feature = "tls")]
mod tls;
mod url;

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use ::redis::aio::MultiplexedConnection;
use tokio::runtime::Handle;
use tokio::sync::{Mutex, MutexGuard, watch};
use tokio::task::AbortHandle;

pub use options::{Eviction, RedisOptions, TlsOptions};
pub use roster::Roster;

use super::{Call, Node};
use crate::clock::Clock;
use crate::error::{Error, NodeError};
use crate::name::LockName;
use crate::state::{Command, Reply};
use keeper::{Keeper, Source, State};
use keys::Prefix;
use link::Link;
use roster::Seat;
use stream::Route;
use url::Target;

/// A Redis or Valkey server. Dropping it ends its task and its connection.
pub struct RedisNode {
    shared: Arc<Shared>,
    seat: Arc<Seat>,
    keeper: AbortHandle,
}

/// What a call needs, also when the node itself is gone.
struct Shared {
    label: String,
    prefix: Result<Prefix, NodeError>,
    clock: Arc<dyn Clock>,
    state: watch::Receiver<State>,
    line: Line,
}

impl RedisNode {
    /// Takes a server by its URL: `redis://[user][:password]@host[:port][/db]`, `rediss://` for
    /// TLS, `redis+unix:///path?db=N&user=U&pass=P`, each with `protocol=resp3` if you like.
    /// Connects in a task on `runtime` and does not wait for it.
    ///
    /// # Errors
    /// [`Error::InvalidUrl`] and [`Error::InvalidOption`] say what would be right.
    pub fn open(
        url: &str,
        options: RedisOptions,
        roster: &Roster,
        clock: Arc<dyn Clock>,
        runtime: &Handle,
    ) -> Result<Self, Error> {
        let Target {
            place,
            login,
            label,
        } = Target::parse(url)?;
        let prefix = Ok(Prefix::new(&options.prefix)?);
        let route = Route::new(place, &options.tls)?;
        let source = Source::Url { route, login };
        Ok(Self::start(
            source, label, prefix, options, roster, clock, runtime,
        ))
    }

    /// Takes a connection that you made, which is never made again when it is lost. `label` stands
    /// for its address. The server is checked as for [`open`](Self::open). With a prefix that
    /// [`open`](Self::open) refuses, every call fails.
    #[must_use]
    pub fn over(
        connection: MultiplexedConnection,
        label: &str,
        options: RedisOptions,
        roster: &Roster,
        clock: Arc<dyn Clock>,
        runtime: &Handle,
    ) -> Self {
        let prefix =
            Prefix::new(&options.prefix).map_err(|error| NodeError::Other(error.to_string()));
        let source = Source::Given(connection);
        let label = label.to_owned();
        Self::start(source, label, prefix, options, roster, clock, runtime)
    }

    fn start(
        source: Source,
        label: String,
        prefix: Result<Prefix, NodeError>,
        options: RedisOptions,
        roster: &Roster,
        clock: Arc<dyn Clock>,
        runtime: &Handle,
    ) -> Self {
        let (sender, state) = watch::channel(State::Connecting);
        let seat = Arc::new(roster.seat(&label));
        let keeper = Keeper {
            source,
            label: label.clone(),
            options,
            seat: Arc::clone(&seat),
            clock: Arc::clone(&clock),
            state: sender,
        };
        Self {
            shared: Arc::new(Shared {
                label,
                prefix,
                clock,
                state,
                line: Line::default(),
            }),
            seat,
            keeper: runtime.spawn(keeper.run()).abort_handle(),
        }
    }
}

impl Shared {
    /// The connection, if it is known whether there is one.
    fn link(&self) -> Option<Result<Arc<Link>, NodeError>> {
        match &*self.state.borrow() {
            State::Connecting => None,
            State::Up(link) => Some(Ok(Arc::clone(link))),
            State::Down(reason) => Some(Err(reason.clone())),
        }
    }

    /// The same, once the attempt that is under way has ended.
    async fn settled(&self) -> Result<Arc<Link>, NodeError> {
        let mut state = self.state.clone();
        let settled = |state: &State| !matches!(state, State::Connecting);
        // The keeper only goes with its runtime; nothing will change any more.
        if state.wait_for(settled).await.is_err() {
            return Err(gone());
        }
        self.link().unwrap_or_else(|| Err(gone()))
    }

    async fn perform(&self, name: &LockName, command: &Command) -> Result<Reply, NodeError> {
        let keys = self.prefix.as_ref().map_err(Clone::clone)?.keys(name)?;
        let link = self.line.is_empty().then(|| self.link()).flatten();
        if let Some(link) = link {
            return link?.perform(&keys, command, &*self.clock).await;
        }
        let place = self.line.join().await;
        let link = self.settled().await?;
        let mut answer = pin!(link.perform(&keys, command, &*self.clock));
        // Polled once, it is on its way: the next in line comes behind it.
        let sent = poll_fn(|cx| Poll::Ready(answer.as_mut().poll(cx))).await;
        drop(place);
        match sent {
            Poll::Ready(reply) => reply,
            Poll::Pending => answer.await,
        }
    }
}

fn gone() -> NodeError {
    NodeError::Disconnected("the runtime that kept the connection is gone".to_owned())
}

impl Drop for RedisNode {
    fn drop(&mut self) {
        self.keeper.abort();
        self.seat.leave();
    }
}

impl Node for RedisNode {
    fn call(&self, name: &LockName, command: Command) -> Call {
        let (shared, name) = (Arc::clone(&self.shared), name.clone());
        Box::pin(async move { shared.perform(&name, &command).await })
    }

    fn address(&self) -> &str {
        &self.shared.label
    }

    fn hello(&self) -> Pin<Box<dyn Future<Output = Result<(), NodeError>> + Send + '_>> {
        Box::pin(async {
            match self
                .shared
                .settled()
                .await?
                .quarantine_left(&*self.shared.clock)
            {
                Some(left) => Err(NodeError::Quarantined(left)),
                None => Ok(()),
            }
        })
    }

    fn ready(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async {
            let mut state = self.shared.state.clone();
            if state
                .wait_for(|state| matches!(state, State::Up(_)))
                .await
                .is_err()
            {
                std::future::pending().await
            }
        })
    }
}

/// Calls that wait for a connection, in the order in which they came: they are sent in that order
/// when it is there, and none that comes later overtakes them.
#[derive(Default)]
struct Line {
    length: AtomicUsize,
    head: Mutex<()>,
}

/// A place in the line.
struct Place<'a> {
    line: &'a Line,
    head: Option<MutexGuard<'a, ()>>,
}

impl Line {
    fn is_empty(&self) -> bool {
        self.length.load(Ordering::SeqCst) == 0
    }

    /// Waits until all who came before have been sent, or have gone.
    async fn join(&self) -> Place<'_> {
        self.length.fetch_add(1, Ordering::SeqCst);
        let mut place = Place {
            line: self,
            head: None,
        };
        // A tokio mutex is fair.
        place.head = Some(self.head.lock().await);
        place
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.head = None;
        self.line.length.fetch_sub(1, Ordering::SeqCst);
    }
}
