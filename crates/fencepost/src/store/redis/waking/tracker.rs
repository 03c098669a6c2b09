//! Notifies when the key of a lock changes that a client of another library holds, which wakes no
//! waiter: `CLIENT TRACKING`, on a separate connection, opened for the first such lock and closed
//! after the last.
//!
//! A notification is a hint and may be lost: a waiter behind such a holder also polls.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use crate::error::NodeError;
use crate::runtime::tasks;
use crate::store::redis::connection::keeper::Source;
use crate::store::redis::connection::link::Connection;
use crate::store::redis::fault;
use crate::store::redis::protocol::command::Cmd;
use crate::store::redis::protocol::reader::Reader;
use crate::store::redis::protocol::value::Value;
use crate::store::redis::protocol::wire::{OnPush, Push};
use crate::store::redis::voting::handshake;
use crate::store::{Notice, WakeSink};
use fencepost_core::name::LockName;

/// How long an unused connection is kept.
const IDLE: Duration = Duration::from_secs(10);
/// The pause after a connection was lost or refused.
const AFTER_FAILURE: Duration = Duration::from_millis(500);
/// The maximum number of pending requests.
const MOST_ASKING: usize = 1024;

/// Sends requests to the task.
pub(crate) struct Tracker {
    requests: mpsc::Sender<Request>,
    task: AbortHandle,
}

struct Request {
    key: String,
    whom: Whom,
}

/// The lock, and the sink to notify.
type Whom = (LockName, Arc<dyn WakeSink>);

/// The keys that the server tracks for us.
#[derive(Clone, Default)]
struct Armed(Arc<Mutex<BTreeMap<String, Vec<Whom>>>>);

impl Tracker {
    pub(crate) fn start(
        source: Arc<Source>,
        label: String,
        limit: Duration,
        runtime: &tokio::runtime::Handle,
    ) -> Self {
        let (requests, asked) = mpsc::channel(MOST_ASKING);
        let work = Work {
            source,
            label,
            limit,
            armed: Armed::default(),
        };
        let task = tasks::spawn_on(runtime, work.run(asked)).abort_handle();
        Self { requests, task }
    }

    /// Notifies once when this key changes, or at once if it does not exist.
    pub(crate) fn track(&self, key: String, name: &LockName, sink: Arc<dyn WakeSink>) {
        let whom = (name.clone(), sink);
        // When the queue is full, the waiter polls.
        let _ = self.requests.try_send(Request { key, whom });
    }
}

impl Drop for Tracker {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Work {
    source: Arc<Source>,
    label: String,
    /// The timeout of every step.
    limit: Duration,
    armed: Armed,
}

impl Work {
    async fn run(self, mut asked: mpsc::Receiver<Request>) {
        while let Some(first) = asked.recv().await {
            if let Err(reason) = self.serve(first, &mut asked).await {
                tracing::debug!(node = self.label, %reason, "cannot track foreign releases");
                // Changes in between may have been missed.
                self.armed.tell_all();
                sleep(AFTER_FAILURE).await;
            }
        }
    }

    /// Connects, and tracks the requested keys until none is left.
    async fn serve(
        &self,
        first: Request,
        asked: &mut mpsc::Receiver<Request>,
    ) -> Result<(), NodeError> {
        let way = self.source.locate(self.limit).await?;
        let dial = way.dial(self.limit, Some(self.on_push()), Reader::default());
        let (connection, mut driver) = self.within_time(dial).await?;
        let tracks = self.within_time(handshake::start_tracking(&connection));
        if !tracks.await? {
            return Err(NodeError::Other("the server cannot track keys".to_owned()));
        }
        let mut next = Some(first);
        loop {
            if let Some(request) = next.take() {
                self.within_time(self.arm(&connection, request)).await?;
            }
            let asked = tokio::select! {
                biased;
                () = driver.ended() => return Err(NodeError::Disconnected("closed".to_owned())),
                reason = way.until_moved() => return Err(reason),
                asked = timeout(IDLE, asked.recv()) => asked,
            };
            next = match asked {
                Ok(None) => return Ok(()),
                Ok(request) => request,
                Err(_) if self.armed.is_empty() => return Ok(()),
                Err(_) => None,
            };
        }
    }

    /// The connection does not say which key it was. With several, all are notified: a useless
    /// attempt is refused, and that is rare.
    fn on_push(&self) -> OnPush {
        let armed = self.armed.clone();
        Box::new(move |push| {
            if push == Push::Invalidation {
                armed.tell_all();
            }
        })
    }

    /// `SET NX GET` would not arm it.
    async fn arm(&self, connection: &Connection, request: Request) -> Result<(), NodeError> {
        let Request { key, whom } = request;
        if !self.armed.put(&key, whom) {
            return Ok(());
        }
        let mut caching = Cmd::new("CLIENT");
        caching.arg("CACHING").arg("YES");
        let mut get = Cmd::new("GET");
        get.arg(&key);
        match connection.send_behind(&caching, &get).await {
            // Released since it was last read.
            Ok(Value::Nil) => self.armed.tell(&key),
            Ok(_) => {}
            // A hash, or a missing permission.
            Err(error) if fault::is_answer(&error) => self.armed.forget(&key),
            Err(error) => return Err(fault::node_error(&error)),
        }
        Ok(())
    }

    async fn within_time<T>(
        &self,
        answer: impl Future<Output = Result<T, NodeError>>,
    ) -> Result<T, NodeError> {
        let answer = timeout(self.limit, answer).await;
        answer.unwrap_or(Err(NodeError::Timeout(self.limit)))
    }
}

impl Armed {
    fn keys(&self) -> MutexGuard<'_, BTreeMap<String, Vec<Whom>>> {
        // A panic while it was locked cannot have left it half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_empty(&self) -> bool {
        self.keys().is_empty()
    }

    /// Whether the server does not track it yet.
    fn put(&self, key: &str, whom: Whom) -> bool {
        let mut keys = self.keys();
        let is_new = !keys.contains_key(key);
        let all = keys.entry(key.to_owned()).or_default();
        if !all.iter().any(|(_, sink)| Arc::ptr_eq(sink, &whom.1)) {
            all.push(whom);
        }
        is_new
    }

    fn forget(&self, key: &str) {
        self.keys().remove(key);
    }

    fn tell(&self, key: &str) {
        let told = self.keys().remove(key);
        told.into_iter().flatten().for_each(tell);
    }

    fn tell_all(&self) {
        let told = std::mem::take(&mut *self.keys());
        told.into_values().flatten().for_each(tell);
    }
}

fn tell((name, sink): Whom) {
    sink.notify(Notice::Changed(name));
}
