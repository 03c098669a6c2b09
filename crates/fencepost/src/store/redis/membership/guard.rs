//! Watches the marker of a connection as long as it lives.
//!
//! A vote must never be counted that a server gave after it forgot. The server watches the marker
//! for us (`CLIENT TRACKING`): what it says when the marker goes comes before every later reply on that
//! connection. A connection that cannot do that reads the marker behind each vote.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::from_redis_value;
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};

use super::member::Standing;
use super::{KEY, Member, Server};
use crate::error::NodeError;
use crate::store::redis::fault;
use crate::store::redis::link::Connection;
use fencepost_core::quorum::membership::is_same_data;

/// How often a node is looked at that votes: what no server tells by itself is seen by then.
const LOOK_EVERY: Duration = Duration::from_secs(3);

/// Counts what a server says of the marker that it watches.
#[derive(Default)]
pub(in crate::store::redis) struct Alarm {
    count: AtomicU64,
    bell: Notify,
}

impl Alarm {
    /// Before any later reply of the connection is handed out.
    pub(in crate::store::redis) fn ring(&self) {
        self.count.fetch_add(1, Ordering::SeqCst);
        self.bell.notify_one();
    }

    /// Resolves when it rings, or has rung since this last resolved.
    pub(in crate::store::redis) async fn rung(&self) {
        self.bell.notified().await;
    }

    /// How often it has rung.
    pub(in crate::store::redis) fn count(&self) -> u64 {
        self.count.load(Ordering::SeqCst)
    }
}

/// Watches the marker of one connection.
pub(in crate::store::redis) struct Guard {
    member: Member,
    alarm: Arc<Alarm>,
    tracks: bool,
    marker: Mutex<String>,
    /// So many alarms were false.
    cleared: watch::Sender<u64>,
    /// The server has forgotten, or is watched no more: no vote counts.
    is_revoked: AtomicBool,
}

/// A call was carried out by a server that had forgotten.
fn forgot() -> NodeError {
    NodeError::Disconnected("its data were replaced while the command was in flight".to_owned())
}

impl Guard {
    /// `rung` is how often the alarm had rung before the marker was read.
    pub(in crate::store::redis) fn new(
        member: Member,
        alarm: Arc<Alarm>,
        rung: u64,
        tracks: bool,
        marker: String,
    ) -> Self {
        Self {
            member,
            alarm,
            tracks,
            marker: Mutex::new(marker),
            cleared: watch::Sender::new(rung),
            is_revoked: AtomicBool::new(false),
        }
    }

    fn marker(&self) -> MutexGuard<'_, String> {
        self.marker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why nothing is to be sent at all.
    pub(in crate::store::redis) fn refusal(&self) -> Option<NodeError> {
        self.member.refusal()
    }

    pub(in crate::store::redis) fn tracks(&self) -> bool {
        self.tracks
    }

    /// Whether a vote counts whose reply has come, where that is known at once: nearly always.
    pub(in crate::store::redis) fn knows(&self) -> Option<Result<(), NodeError>> {
        let is_cleared = self.tracks && *self.cleared.borrow() >= self.alarm.count();
        // Behind that: what is revoked is cleared too, but afterwards.
        let counts = is_cleared && !self.is_revoked.load(Ordering::SeqCst);
        counts.then(|| self.refusal().map_or(Ok(()), Err))
    }

    /// Whether a vote counts whose reply has come: waits while that is being found out.
    pub(in crate::store::redis) async fn confirm(
        &self,
        connection: &Connection,
    ) -> Result<(), NodeError> {
        self.confirm_data(connection).await?;
        // Last of all: it may have taken long to find out.
        self.refusal().map_or(Ok(()), Err)
    }

    async fn confirm_data(&self, connection: &Connection) -> Result<(), NodeError> {
        if let Some(why) = self.member.refusal() {
            return Err(why);
        }
        if !self.tracks {
            let mut get = redis::cmd("GET");
            let answer = connection.send(get.arg(KEY)).await;
            let answer = answer.map_err(|error| fault::node_error(&error))?;
            let marker: Option<String> = from_redis_value(answer).unwrap_or_default();
            if marker.as_deref() != Some(&*self.marker()) {
                self.alarm.ring();
                return Err(forgot());
            }
        }
        let rung = self.alarm.count();
        let is_cleared = *self.cleared.borrow() >= rung;
        // Behind that: what is revoked is cleared too, but afterwards.
        if self.is_revoked.load(Ordering::SeqCst) {
            return Err(forgot());
        }
        if is_cleared {
            return Ok(());
        }
        let mut cleared = self.cleared.subscribe();
        // The sender is in this very guard: it cannot be gone.
        let _ = cleared.wait_for(|cleared| *cleared >= rung).await;
        match self.is_revoked.load(Ordering::SeqCst) {
            true => Err(forgot()),
            false => Ok(()),
        }
    }

    /// From now on no vote counts.
    pub(in crate::store::redis) fn revoke(&self) {
        self.is_revoked.store(true, Ordering::SeqCst);
        self.cleared.send_replace(u64::MAX);
    }

    /// Resolves when the server has forgotten, or may not vote any more; and tells of each end of a
    /// quarantine.
    pub(in crate::store::redis) async fn until_forgotten(
        &self,
        node: &str,
        server: &Server<'_>,
        quarantine_left: impl Fn() -> Option<Duration>,
        votes_after: impl Fn(Option<Duration>),
    ) -> NodeError {
        let mut casts_no_vote = quarantine_left().is_some();
        loop {
            let pause = match casts_no_vote {
                true => quarantine_left().unwrap_or_default().min(LOOK_EVERY),
                false => LOOK_EVERY,
            };
            tokio::select! {
                biased;
                () = self.alarm.bell.notified() => {}
                () = sleep(pause) => {}
            }
            let rung = self.alarm.count();
            let vetted = timeout(server.options.mute_timeout, self.member.vet(node, server)).await;
            let standing = match vetted {
                Ok(Ok(standing)) => standing,
                Ok(Err(error)) => return error,
                Err(_) => {
                    let why = "the server has stopped answering";
                    return NodeError::Disconnected(why.to_owned());
                }
            };
            match standing {
                // What casts no vote cannot have cast a wrong one.
                Standing::In(marker, wait)
                    if casts_no_vote || is_same_data(&self.marker(), &marker) =>
                {
                    *self.marker() = marker;
                    casts_no_vote = wait.is_some();
                    votes_after(wait);
                    self.cleared.send_replace(rung);
                }
                Standing::In(..) => return forgot(),
                Standing::Waiting(why) => return why,
            }
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.revoke();
    }
}
