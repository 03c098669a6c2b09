//! The keeper: one task for each node that connects, shakes hands, watches, and connects again.
//!
//! It must never repeat a command, and never let a call wait while the server is known to be away:
//! calls wait for an attempt that is under way after a connection was lost, and fail at once while
//! the keeper waits to try again.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{Instant, sleep, timeout};

use super::gate::LinkGate;
use super::link::{Connection, Link};
use crate::error::{Error, NodeError};
use crate::events;
use crate::runtime::clock::Clock;
use crate::runtime::randomness::{Direct, Randomness as _};
use crate::store::open::is_group;
use crate::store::redis::address::stream::Route;
use crate::store::redis::address::url::Login;
use crate::store::redis::address::url::Target;
use crate::store::redis::encoding::plain::{self, ServerClock};
use crate::store::redis::encoding::scripts::Site;
use crate::store::redis::observe::retention;
use crate::store::redis::options::RedisOptions;
use crate::store::redis::protocol::reader::{Driver, Reader};
use crate::store::redis::protocol::wire::{OnPush, Push, Wire};
use crate::store::redis::sentinel::{GroupSpec, Named, WatchedGroup};
use crate::store::redis::voting::handshake::{self, Memory};
use crate::store::redis::voting::membership::{
    Alarm, Guard, LOOK_EVERY, Member, Server, check_outside,
};
use crate::store::redis::voting::replicas::Replicas;
use crate::store::redis::voting::roster::RosterEntry;

/// The first and the longest pause between two attempts.
const SHORTEST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// A connection that lived this long was a good one: the pauses begin again from the shortest.
const STEADY_AFTER: Duration = Duration::from_secs(1);

/// Where connections come from.
pub(crate) enum Source {
    /// We make them.
    Url { route: Arc<Route>, login: Login },
    /// We make them, to the master that its Sentinels name.
    Group(WatchedGroup),
    /// We make them, to any of these: the next one each time.
    AnyOf {
        routes: Vec<Arc<Route>>,
        login: Login,
        next: AtomicUsize,
    },
}

impl Source {
    /// The server or the Sentinel group at that URL, and its address in the form that all clients share.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidUrl`](crate::ErrorKind::InvalidUrl) and
    /// [`ErrorKind::InvalidOption`](crate::ErrorKind::InvalidOption) say what would be right.
    pub(crate) fn open(
        url: &str,
        options: &RedisOptions,
        clock: &Arc<dyn Clock>,
        runtime: &Handle,
    ) -> Result<Opened, Error> {
        if url
            .split_once(':')
            .is_some_and(|(scheme, _)| is_group(scheme))
        {
            let spec = GroupSpec::parse(url)?;
            let (label, replicas) = (spec.label.clone(), spec.replicas);
            let group = WatchedGroup::start(spec, options, Arc::clone(clock), runtime)?;
            return Ok(Opened {
                source: Self::Group(group),
                label,
                replicas,
            });
        }
        let Target {
            place,
            login,
            label,
            replicas,
        } = Target::parse(url)?;
        let route = Arc::new(Route::new(place, &options.tls)?);
        Ok(Opened {
            source: Self::Url { route, login },
            label,
            replicas,
        })
    }

    /// The way to the server as of now, how to log in there, and the name that it has from its Sentinels.
    pub(crate) async fn locate(&self, limit: Duration) -> Result<Way<'_>, NodeError> {
        Ok(match self {
            Self::Url { route, login } => Way {
                route: Arc::clone(route),
                login,
                named: None,
            },
            Self::AnyOf {
                routes,
                login,
                next,
            } => {
                let next = next.fetch_add(1, Ordering::Relaxed);
                Way {
                    route: Arc::clone(&routes[next % routes.len()]),
                    login,
                    named: None,
                }
            }
            Self::Group(group) => {
                let named = group.locate(limit).await?;
                Way {
                    route: Arc::new(named.route()?),
                    login: group.login(),
                    named: Some(named),
                }
            }
        })
    }
}

/// What a URL says.
pub(crate) struct Opened {
    pub(crate) source: Source,
    /// The address in the form that all clients share.
    pub(crate) label: String,
    /// How many replicas must have a vote before it counts.
    pub(crate) replicas: u32,
}

/// How a server is reached.
pub(crate) struct Way<'s> {
    pub(crate) route: Arc<Route>,
    pub(crate) login: &'s Login,
    pub(crate) named: Option<Named>,
}

impl Way<'_> {
    /// Makes a connection and logs in. May take for ever: the caller bounds it with the same `limit`.
    pub(crate) async fn dial(
        &self,
        limit: Duration,
        on_push: Option<OnPush>,
        reader: Reader,
    ) -> Result<(Connection, Driver), NodeError> {
        let dialed = dial(&self.route, self.login, limit, on_push, reader).await;
        dialed.map_err(|error| match &self.named {
            Some(named) => named.explained(error),
            None => error,
        })
    }

    /// Resolves when its Sentinels name it no longer. Never for a server of a fixed address.
    pub(crate) async fn until_moved(&self) -> NodeError {
        until_moved(self.named.as_ref()).await
    }
}

async fn until_moved(named: Option<&Named>) -> NodeError {
    match named {
        Some(named) => named.until_unnamed().await,
        None => std::future::pending().await,
    }
}

/// What the task works with.
pub(crate) struct Keeper {
    pub(crate) source: Arc<Source>,
    pub(crate) label: String,
    pub(crate) options: RedisOptions,
    /// How many replicas must have a vote before it counts.
    pub(crate) replicas: u32,
    pub(crate) entry: Arc<RosterEntry>,
    /// Where the server votes only under the marker of its cluster.
    pub(crate) member: Option<Member>,
    pub(crate) clock: Arc<dyn Clock>,
    /// What the server's own clock says.
    pub(crate) server_clock: Arc<ServerClock>,
    pub(crate) gate: Arc<LinkGate>,
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // Aborted, or gone with its runtime: no call may wait for it any more.
        self.gate.abandoned();
    }
}

/// What an attempt gave.
struct Up {
    link: Arc<Link>,
    connection: Connection,
    driver: Driver,
    named: Option<Named>,
}

/// Makes a connection and logs in. May take for ever: the caller bounds it with the same `limit`.
pub(crate) async fn dial(
    route: &Route,
    login: &Login,
    limit: Duration,
    on_push: Option<OnPush>,
    reader: Reader,
) -> Result<(Connection, Driver), NodeError> {
    let unreachable = |error: std::io::Error| NodeError::Unreachable(error.to_string());
    let stream = route.open(limit).await.map_err(unreachable)?;
    let (wire, task) = Wire::over(stream, on_push);
    let driver = reader.run(task);
    let connection = Connection::new(wire);
    handshake::log_in(&connection, login).await?;
    Ok((connection, driver))
}

/// What a command connection does with what it hears.
fn ring(alarm: &Arc<Alarm>) -> OnPush {
    let alarm = Arc::clone(alarm);
    Box::new(move |heard| {
        if heard == Push::Invalidation {
            alarm.ring();
        }
    })
}

impl Keeper {
    /// Keeps the node connected until the task is aborted.
    pub(crate) async fn run(self) {
        let mut memory = Memory::default();
        let mut pauses = Pauses::default();
        let mut last_failure = None;
        loop {
            match self.attempt(&mut memory).await {
                Ok(Up {
                    link,
                    connection,
                    mut driver,
                    named,
                }) => {
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
                        reason = self.until_outside(&connection) => reason,
                        reason = until_moved(named.as_ref()) => reason,
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
                    // Before the driver goes, so that a call after the loss waits.
                    match pauses.none_yet() {
                        true => self.gate.connecting(),
                        false => self.gate.down(&lost),
                    }
                }
                Err(failure) => {
                    if !matches!(failure, NodeError::NoCluster(_)) {
                        self.lost_sight();
                    }
                    self.report(&failure, &mut last_failure);
                    events::node_up(&self.label, false);
                    self.gate.down(&failure);
                    pauses.skip_first();
                }
            }
            sleep(pauses.next()).await;
        }
    }

    /// One attempt, within its time.
    async fn attempt(&self, memory: &mut Memory) -> Result<Up, NodeError> {
        let limit = self.options.connect_timeout;
        let attempt = async {
            // Half of the time, so that the Sentinels that name no master can be named.
            let way = self.source.locate(limit / 2).await?;
            let outcome = self.connect(memory, limit, &way).await;
            outcome.map_err(|error| way.route.explained(error))
        };
        let outcome = timeout(limit, attempt).await;
        outcome.unwrap_or(Err(NodeError::Timeout(limit)))
    }

    async fn connect(
        &self,
        memory: &mut Memory,
        limit: Duration,
        way: &Way<'_>,
    ) -> Result<Up, NodeError> {
        let alarm = Arc::new(Alarm::default());
        let on_push = self.member.is_some().then(|| ring(&alarm));
        let (connection, driver) = way
            .dial(limit, on_push, self.entry.reader().clone())
            .await?;
        let named = way.named.clone();
        let facts = handshake::ask(&connection, Site::Server).await?;
        let now = self.clock.now();
        facts.admit_loudly(&self.label, &self.options)?;
        let born_after = memory.meet(facts.run_id.as_deref(), now);
        self.entry
            .claim(facts.run_id.as_deref())
            .map_err(NodeError::SameServer)?;
        if self.entry.is_alone() {
            connection.is_alone();
        }
        // Before anything is sent for a lock: what the connection before may still bring has to be over.
        let before = &mut memory.before;
        let (server_clock, clock) = (&self.server_clock, &*self.clock);
        let is_plain = !self.options.scripts_only
            && plain::prepare(&connection, &facts, before, server_clock, clock).await?;
        let kept = connection.clone();
        let link = match &self.member {
            Some(member) => {
                let member = member.named(named.clone());
                let tracks = handshake::start_tracking(&connection).await?;
                let server = Server {
                    connection: &connection,
                    options: &self.options,
                    tracks,
                };
                let rung = alarm.count();
                let (marker, left) = member.enter(&self.label, &server, limit / 2).await?;
                let now = self.clock.now();
                let guard = Guard::new(member, alarm, rung, tracks, marker);
                Link::new(connection, left.map(|left| now + left), now).guarded(guard)
            }
            None => {
                if let Some(terms) = self.entry.outside() {
                    check_outside(&connection, terms, &self.label).await?;
                }
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
        let link = match self.replicas {
            0 => link,
            1.. => {
                let run_id = facts.run_id.as_deref();
                link.waiting_for(self.replicas(way, limit, run_id).await?)
            }
        };
        let link = Arc::new(link);
        Ok(Up {
            link,
            connection: kept,
            driver,
            named,
        })
    }

    /// Resolves when the server belongs to a cluster on other terms, which a client without a marker
    /// learns by looking only.
    async fn until_outside(&self, connection: &Connection) -> NodeError {
        let Some(terms) = self.entry.outside() else {
            return std::future::pending().await;
        };
        loop {
            sleep(LOOK_EVERY).await;
            if let Err(why) = check_outside(connection, terms, &self.label).await {
                return why;
            }
        }
    }

    /// A second connection to the same server, to wait for its replicas.
    async fn replicas(
        &self,
        way: &Way<'_>,
        limit: Duration,
        run_id: Option<&str>,
    ) -> Result<Replicas, NodeError> {
        let (connection, driver) = way.dial(limit, None, self.entry.reader().clone()).await?;
        if handshake::run_id(&connection).await?.as_deref() != run_id {
            let why = "two connections to this address lead to two servers";
            return Err(NodeError::Disconnected(why.to_owned()));
        }
        // Below the time-out of a node, so that the error has the reason and not the time.
        let within = self.options.mute_timeout * 2 / 5;
        Replicas::open(connection, driver, self.replicas, within).await
    }

    fn lost_sight(&self) {
        if let Some(member) = &self.member {
            member.lost_sight();
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
pub(crate) struct Pauses(u32);

impl Pauses {
    /// Whether the next attempt follows at once.
    fn none_yet(&self) -> bool {
        self.0 == 0
    }

    /// After a failed attempt there is always a pause.
    pub(crate) fn skip_first(&mut self) {
        self.0 = self.0.max(1);
    }

    pub(crate) fn next(&mut self) -> Duration {
        let n = self.0;
        self.0 = n.saturating_add(1);
        if n == 0 {
            return Duration::ZERO;
        }
        let longest = SHORTEST_PAUSE
            .saturating_mul(2_u32.saturating_pow(n - 1))
            .min(LONGEST_PAUSE);
        longest.mul_f64(Direct.share())
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
