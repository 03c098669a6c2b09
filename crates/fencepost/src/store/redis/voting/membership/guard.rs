//! Watches the marker for the lifetime of a connection.
//!
//! A vote that a server gave after it forgot must never count. The server watches the marker for us
//! (`CLIENT TRACKING`): its notification comes before every later reply on that connection. A
//! connection without tracking reads the marker after each vote.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};

use super::member::Standing;
use super::{KEY, Member, Server};
use crate::error::NodeError;
use crate::store::redis::connection::link::Connection;
use crate::store::redis::fault;
use crate::store::redis::protocol::command::Cmd;
use fencepost_core::quorum::membership::is_same_data;

/// How often a voting node is checked: what a server does not report by itself is noticed by then.
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(3);

/// Counts the invalidations of the watched marker.
#[derive(Default)]
pub(crate) struct Alarm {
    count: AtomicU64,
    bell: Notify,
}

impl Alarm {
    /// Runs before any later reply of the connection is delivered.
    pub(crate) fn ring(&self) {
        self.count.fetch_add(1, Ordering::SeqCst);
        self.bell.notify_one();
    }

    /// Resolves when it rings, or has rung since this last resolved.
    pub(crate) async fn rung(&self) {
        self.bell.notified().await;
    }

    /// How often it has rung.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::SeqCst)
    }
}

/// Watches the marker of one connection.
pub(crate) struct Guard {
    member: Member,
    alarm: Arc<Alarm>,
    tracks: bool,
    marker: Mutex<String>,
    /// The number of alarms that were false.
    cleared: watch::Sender<u64>,
    /// The server has forgotten, or is no longer watched: no vote counts.
    is_revoked: AtomicBool,
}

/// The error of a call that ran on a server which had forgotten.
fn forgot() -> NodeError {
    NodeError::Disconnected("its data was replaced while the command was in flight".to_owned())
}

impl Guard {
    /// `rung` is how often the alarm had rung before the marker was read.
    pub(crate) fn new(
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

    /// Why nothing may be sent at all.
    pub(crate) fn refusal(&self) -> Option<NodeError> {
        self.member.refusal()
    }

    pub(crate) fn tracks(&self) -> bool {
        self.tracks
    }

    /// Whether a vote with this reply counts, if that is known at once: almost always.
    pub(crate) fn knows(&self) -> Option<Result<(), NodeError>> {
        let is_cleared = self.tracks && *self.cleared.borrow() >= self.alarm.count();
        // In this order: a revoked guard is cleared too, but afterwards.
        let counts = is_cleared && !self.is_revoked.load(Ordering::SeqCst);
        counts.then(|| self.refusal().map_or(Ok(()), Err))
    }

    /// Whether a vote with this reply counts: waits until that is known.
    pub(crate) async fn confirm(&self, connection: &Connection) -> Result<(), NodeError> {
        self.confirm_data(connection).await?;
        // Last: finding out may have taken long.
        self.refusal().map_or(Ok(()), Err)
    }

    async fn confirm_data(&self, connection: &Connection) -> Result<(), NodeError> {
        if let Some(why) = self.member.refusal() {
            return Err(why);
        }
        if !self.tracks {
            let mut get = Cmd::new("GET");
            let answer = connection.send(get.arg(KEY)).await;
            let answer = answer.map_err(|error| fault::node_error(&error))?;
            let marker: Option<String> = answer.read().unwrap_or_default();
            if marker.as_deref() != Some(&*self.marker()) {
                self.alarm.ring();
                return Err(forgot());
            }
        }
        let rung = self.alarm.count();
        let is_cleared = *self.cleared.borrow() >= rung;
        // In this order: a revoked guard is cleared too, but afterwards.
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
    pub(crate) fn revoke(&self) {
        self.is_revoked.store(true, Ordering::SeqCst);
        self.cleared.send_replace(u64::MAX);
    }

    /// Resolves when the server has forgotten, or may no longer vote. Reports each end of a
    /// quarantine.
    pub(crate) async fn until_forgotten(
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
                // Without a vote there is no wrong vote.
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
