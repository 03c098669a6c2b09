//! The keeper: one task for each node that connects, shakes hands, watches, and connects again.
//!
//! It must never repeat a command, and never let a call wait while the server is known to be away:
//! calls wait for an attempt that is under way after a connection was lost, and fail at once while
//! the keeper waits to try again.

use std::sync::Arc;
use std::time::Duration;

use redis::RedisConnectionInfo;
use redis::aio::MultiplexedConnection;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::fault;
use super::gate::Gate;
use super::handshake::{self, Maker, Memory};
use super::link::{Connection, Link};
use super::membership::{Alarm, Guard, Member, Server};
use super::options::RedisOptions;
use super::plain::{self, ServerClock};
use super::retention;
use super::roster::RosterEntry;
use super::stream::Route;
use super::wire::{Heard, OnNews, Wire};
use crate::error::NodeError;
use crate::events;
use crate::runtime::clock::Clock;

/// The first and the longest pause between two attempts.
const SHORTEST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// A connection that lived this long was a good one: the pauses begin again from the shortest.
const STEADY_AFTER: Duration = Duration::from_secs(1);

/// Where connections come from.
pub(super) enum Source {
    /// We make them.
    Url {
        route: Route,
        login: RedisConnectionInfo,
    },
    /// The user made it; there is no other.
    Given(MultiplexedConnection),
}

/// What the task works with.
pub(super) struct Keeper {
    pub(super) source: Arc<Source>,
    pub(super) label: String,
    pub(super) options: RedisOptions,
    pub(super) seat: Arc<RosterEntry>,
    /// Where the server votes only under the marker of its cluster.
    pub(super) member: Option<Member>,
    pub(super) clock: Arc<dyn Clock>,
    /// What the server's own clock says.
    pub(super) server_clock: Arc<ServerClock>,
    pub(super) gate: Arc<Gate>,
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // Aborted, or gone with its runtime: nobody may wait for it any more.
        self.gate.abandoned();
    }
}

/// A connection's own task, gone with this handle.
pub(super) struct Driver(Option<JoinHandle<()>>);

impl Driver {
    /// Resolves when the connection is closed. Never for one that is not ours.
    pub(super) async fn ended(&mut self) {
        match &mut self.0 {
            Some(task) => {
                // Whether it ended or panicked: the connection is gone.
                let _ = task.await;
                self.0 = None;
            }
            None => std::future::pending().await,
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if let Some(task) = &self.0 {
            task.abort();
        }
    }
}

/// Makes a connection and logs in. May take for ever: the caller bounds it with the same `limit`.
pub(super) async fn dial(
    route: &Route,
    login: &RedisConnectionInfo,
    limit: Duration,
    on_news: Option<OnNews>,
) -> Result<(Connection, Driver), NodeError> {
    let unreachable = |error: std::io::Error| NodeError::Unreachable(error.to_string());
    let stream = route.open(limit).await.map_err(unreachable)?;
    let (wire, task) = Wire::over(stream, on_news);
    let driver = Driver(Some(tokio::spawn(task)));
    let connection = Connection::Ours(wire);
    handshake::log_in(&connection, login).await?;
    Ok((connection, driver))
}

/// What a command connection does with what it hears.
fn ring(alarm: &Arc<Alarm>) -> OnNews {
    let alarm = Arc::clone(alarm);
    Box::new(move |heard| {
        if heard == Heard::Invalidation {
            alarm.ring();
        }
    })
}

impl Keeper {
    /// Keeps the node connected until the task is aborted.
    pub(super) async fn run(self) {
        let mut memory = Memory::default();
        let mut pauses = Pauses::default();
        let mut last_failure = None;
        loop {
            let failure = match self.attempt(&mut memory).await {
                Ok((link, mut driver)) => {
                    tracing::debug!(node = self.label, "connected");
                    events::node_up(&self.label, true);
                    last_failure = None;
                    self.gate.up(&link);
                    let since = Instant::now();
                    let limit = self.options.mute_timeout;
                    let lost = tokio::select! {
                        () = driver.ended() => NodeError::Disconnected("closed".to_owned()),
                        reason = link.until_useless(limit, &*self.clock) => reason,
                        reason = link.until_forgotten(&self.label, &self.options, &*self.clock) => reason,
                        never = retention::enforce(&link, &self.label, self.options.retention, &*self.clock) => match never {},
                    };
                    // First of all: what the calls in flight bring from now on does not count.
                    link.revoke();
                    self.lost_sight();
                    memory.saw(link.seen_alive());
                    tracing::debug!(node = self.label, reason = %lost, "connection lost");
                    events::node_up(&self.label, false);
                    if since.elapsed() >= STEADY_AFTER {
                        pauses = Pauses::default();
                    }
                    // Before the driver goes, so that whoever asks again after the loss waits.
                    match pauses.none_yet() {
                        true => self.gate.connecting(),
                        false => self.gate.down(&lost),
                    }
                    lost
                }
                Err(failure) => {
                    if !matches!(failure, NodeError::NoCluster(_)) {
                        self.lost_sight();
                    }
                    self.report(&failure, &mut last_failure);
                    events::node_up(&self.label, false);
                    self.gate.down(&failure);
                    pauses.skip_first();
                    failure
                }
            };
            let closed = matches!(failure, NodeError::Disconnected(_));
            if closed && matches!(&*self.source, Source::Given(_)) && !self.given_answers().await {
                self.gate.down(&failure);
                return std::future::pending().await;
            }
            sleep(pauses.next()).await;
        }
    }

    /// One attempt, within its time.
    async fn attempt(&self, memory: &mut Memory) -> Result<(Arc<Link>, Driver), NodeError> {
        let limit = self.options.connect_timeout;
        match timeout(limit, self.connect(memory, limit)).await {
            Ok(outcome) => outcome.map_err(|error| match &*self.source {
                Source::Url { route, .. } => route.explained(error),
                Source::Given(_) => error,
            }),
            Err(_) => Err(NodeError::Timeout(limit)),
        }
    }

    async fn connect(
        &self,
        memory: &mut Memory,
        limit: Duration,
    ) -> Result<(Arc<Link>, Driver), NodeError> {
        let alarm = Arc::new(Alarm::default());
        let (connection, driver, maker) = match &*self.source {
            Source::Given(connection) => {
                let connection = Connection::Given(connection.clone());
                (connection, Driver(None), Maker::User)
            }
            Source::Url { route, login } => {
                let on_news = self.member.is_some().then(|| ring(&alarm));
                let (connection, driver) = dial(route, login, limit, on_news).await?;
                (connection, driver, Maker::Ourselves)
            }
        };
        let facts = handshake::ask(&connection, maker).await?;
        let now = self.clock.now();
        facts.admit_loudly(&self.label, &self.options)?;
        let born_after = memory.meet(facts.run_id.as_deref(), now);
        self.seat
            .claim(facts.run_id.as_deref())
            .map_err(NodeError::SameServer)?;
        // Before anything is sent for a lock: what the connection before may still bring has to be over.
        let before = &mut memory.before;
        let (server_clock, clock) = (&self.server_clock, &*self.clock);
        let is_plain = plain::prepare(&connection, &facts, before, server_clock, clock).await?;
        let link = match &self.member {
            Some(member) => {
                let tracks =
                    maker == Maker::Ourselves && handshake::start_tracking(&connection).await?;
                let server = Server {
                    connection: &connection,
                    options: &self.options,
                    tracks,
                };
                let rung = alarm.count();
                let (marker, left) = member.enter(&self.label, &server, limit / 2).await?;
                let now = self.clock.now();
                let guard = Guard::new(member.clone(), alarm, rung, tracks, marker);
                Link::new(connection, left.map(|left| now + left), now).guarded(guard)
            }
            None => {
                let max_ttl = self.options.quarantine;
                let quarantine =
                    max_ttl.and_then(|max_ttl| facts.quarantine(max_ttl, born_after, now));
                Link::new(connection, quarantine, now)
            }
        };
        let link = match is_plain {
            true => link.by_plain_commands(Arc::clone(&self.server_clock)),
            false => link,
        };
        if let Some(left) = link.quarantine_left(&*self.clock) {
            tracing::warn!(
                node = self.label,
                reason = %NodeError::Quarantined(left),
                "this server does not vote yet"
            );
        }
        Ok((Arc::new(link), driver))
    }

    fn lost_sight(&self) {
        if let Some(member) = &self.member {
            member.lost_sight();
        }
    }

    /// Whether the user's connection is only mute, and not closed.
    async fn given_answers(&self) -> bool {
        let Source::Given(connection) = &*self.source else {
            return true;
        };
        let connection = Connection::Given(connection.clone());
        let ping = redis::cmd("PING");
        match timeout(self.options.mute_timeout, connection.send(&ping)).await {
            Ok(Err(error)) => fault::is_answer(&error) || error.is_timeout(),
            Ok(Ok(_)) | Err(_) => true,
        }
    }

    /// Warns of each new reason once: the keeper goes on trying, and a log is no clock.
    fn report(&self, failure: &NodeError, last: &mut Option<NodeError>) {
        let kind = std::mem::discriminant(failure);
        if last.as_ref().map(std::mem::discriminant) == Some(kind) {
            tracing::debug!(node = self.label, reason = %failure, "cannot be used");
        } else {
            tracing::warn!(node = self.label, reason = %failure, "cannot be used");
        }
        *last = Some(failure.clone());
    }
}

/// The pauses between attempts: none, then doubling up to a bound, each a random part of that.
#[derive(Default)]
pub(super) struct Pauses(u32);

impl Pauses {
    /// Whether the next attempt follows at once.
    fn none_yet(&self) -> bool {
        self.0 == 0
    }

    /// After a failed attempt there is always a pause.
    pub(super) fn skip_first(&mut self) {
        self.0 = self.0.max(1);
    }

    pub(super) fn next(&mut self) -> Duration {
        let n = self.0;
        self.0 = n.saturating_add(1);
        if n == 0 {
            return Duration::ZERO;
        }
        let longest = SHORTEST_PAUSE
            .saturating_mul(2_u32.saturating_pow(n - 1))
            .min(LONGEST_PAUSE);
        // Without random numbers the pause is merely not spread.
        let share = getrandom::u32().unwrap_or(u32::MAX);
        longest.mul_f64(f64::from(share) / f64::from(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_from_none_to_their_bound() {
        let mut pauses = Pauses::default();
        assert!(pauses.none_yet());
        assert_eq!(pauses.next(), Duration::ZERO);
        assert!(pauses.next() <= SHORTEST_PAUSE);
        assert!(pauses.next() <= 2 * SHORTEST_PAUSE);
        for _ in 0..100 {
            assert!(pauses.next() <= LONGEST_PAUSE);
        }
    }
}
