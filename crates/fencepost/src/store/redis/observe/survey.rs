//! Facts about a server, queried on a separate connection, so that a server that may not vote is
//! covered too.
//!
//! It must never touch a lock: it writes only a key of its own, which it deletes.

use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use futures_util::future::Either;
use tokio::runtime::Handle;
use tokio::time::timeout;

use super::rights;
use crate::error::{Cause, Error, NodeError};
use crate::runtime::clock::Clock;
use crate::store::facts::{ClusterFacts, Facts, LinkKind, NodeSurvey, RedisFacts, median};
use crate::store::open::is_cluster;
use crate::store::redis::address::url::Place;
use crate::store::redis::cluster::WatchedCluster;
use crate::store::redis::connection::keeper::{self, Opened, Source};
use crate::store::redis::connection::link::Connection;
use crate::store::redis::encoding::scripts::Site;
use crate::store::redis::fault;
use crate::store::redis::fault::RedisError;
use crate::store::redis::options::RedisOptions;
use crate::store::redis::protocol::command::Cmd;
use crate::store::redis::protocol::reader::Reader;
use crate::store::redis::protocol::value::{FromValue, Value};
use crate::store::redis::sentinel::Named;
use crate::store::redis::voting::handshake::{self, Facts as Handshake};
use crate::store::redis::voting::info::Info;
use fencepost_core::quorum::failover::Fencing;
use fencepost_core::quorum::membership::{Marker, Stage, Verdict, judge};

/// The number of samples.
const PINGS: usize = 5;
/// The timeout of one reply.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);

/// Queries the server at this URL when awaited.
///
/// # Errors
/// [`ErrorKind::InvalidUrl`](crate::ErrorKind::InvalidUrl) and [`ErrorKind::InvalidOption`](crate::ErrorKind::InvalidOption), at once.
pub(crate) fn survey(
    url: &str,
    options: RedisOptions,
    max_ttl: Duration,
    clock: Arc<dyn Clock>,
) -> Result<impl Future<Output = NodeSurvey> + Send + 'static, Error> {
    let runtime = Handle::try_current().map_err(|_| Error::from(Cause::NoRuntime))?;
    if url.split_once(':').is_some_and(|(s, _)| is_cluster(s)) {
        let watched = WatchedCluster::start(url, &options, Arc::clone(&clock), &runtime)?;
        return Ok(Either::Left(survey_cluster(
            watched, options, max_ttl, clock,
        )));
    }
    let Opened {
        source,
        label,
        replicas,
    } = Source::open(url, &options, &clock, &runtime)?;
    Ok(Either::Right(async move {
        let limit = options.connect_timeout;
        let facts = async {
            let way = source.locate(limit).await?;
            // A connection of our own, so that a hostile server is bounded here too.
            let connected = timeout(limit, way.dial(limit, None, Reader::default())).await;
            let facts = match connected.unwrap_or(Err(NodeError::Timeout(limit))) {
                Err(error) => Err(error),
                Ok((connection, _driver)) => {
                    let server = Server(connection);
                    let user = way.login.user.as_deref().unwrap_or("default");
                    let link = kind(way.route.place());
                    let named = way.named.as_ref();
                    let facts = server.survey(link, user, max_ttl, named, replicas, &*clock);
                    match facts.await {
                        Ok((mut facts, fencing)) => {
                            if let Some(named) = named {
                                facts.group = Some(named.facts(fencing, max_ttl).await);
                            }
                            Ok(facts)
                        }
                        Err(error) => Err(error),
                    }
                }
            };
            facts.map_err(|error| way.route.explained(error))
        };
        let facts = facts.await;
        NodeSurvey {
            node: label,
            facts: facts.map(|facts| Facts::Redis(Box::new(facts))),
        }
    }))
}

/// One of the servers, the owner of the tried key, and facts about the shards.
async fn survey_cluster(
    cluster: WatchedCluster,
    options: RedisOptions,
    max_ttl: Duration,
    clock: Arc<dyn Clock>,
) -> NodeSurvey {
    let limit = options.connect_timeout;
    let facts = async {
        let route = cluster.route_of(rights::PROBE, limit).await?;
        let login = cluster.login();
        let dialed = timeout(
            limit,
            keeper::dial(&route, login, limit, None, Reader::default()),
        )
        .await;
        let dialed = dialed.unwrap_or(Err(NodeError::Timeout(limit)));
        let (connection, _driver) = dialed.map_err(|error| route.explained(error))?;
        let server = Server(connection);
        let (user, link) = (
            login.user.as_deref().unwrap_or("default"),
            kind(route.place()),
        );
        let replicas = cluster.replicas();
        let surveyed = server.survey(link, user, max_ttl, None, replicas, &*clock);
        let (mut facts, _) = surveyed.await?;
        let seen = cluster.facts(&options, max_ttl).await?;
        (facts.quarantine, facts.cluster) = (seen.quarantine, seen.cluster);
        facts.sharded = Some(seen.facts);
        Ok(facts)
    };
    let facts = facts.await;
    NodeSurvey {
        node: cluster.label().to_owned(),
        facts: facts.map(|facts| Facts::Redis(Box::new(facts))),
    }
}

fn kind(place: &Place) -> LinkKind {
    match place {
        Place::Unix(_) => LinkKind::Unix,
        Place::Tcp { tls: true, .. } => LinkKind::Tls,
        Place::Tcp { .. } if place.is_local() => LinkKind::Loopback,
        Place::Tcp { .. } => LinkKind::Plain,
    }
}

/// What a server's marker says.
struct Membership {
    cluster: ClusterFacts,
    /// How long it does not vote there.
    left: Option<Duration>,
    is_durable: Option<bool>,
}

impl Membership {
    fn of(cluster: ClusterFacts) -> Self {
        Self {
            cluster,
            left: None,
            is_durable: None,
        }
    }
}

/// A server that answers.
pub(crate) struct Server(Connection);

impl Server {
    /// One command, with a timeout.
    pub(crate) async fn ask(&self, cmd: &Cmd) -> Result<Value, RedisError> {
        match timeout(ANSWER_LIMIT, self.0.send(cmd)).await {
            Ok(answer) => answer,
            Err(_) => Err(io::Error::from(ErrorKind::TimedOut).into()),
        }
    }

    /// The reply, unless this user lacks the permission.
    async fn tell<T: FromValue>(&self, cmd: &Cmd) -> Result<Option<T>, NodeError> {
        match self.ask(cmd).await {
            Ok(value) => Ok(value.read().ok()),
            Err(RedisError::Io(error)) if error.kind() == ErrorKind::TimedOut => {
                Err(NodeError::Timeout(ANSWER_LIMIT))
            }
            Err(error) => match fault::node_error(&error) {
                NodeError::Permission(_) | NodeError::Unsuitable(_) | NodeError::Other(_) => {
                    Ok(None)
                }
                refused => Err(refused),
            },
        }
    }

    async fn survey(
        &self,
        link: LinkKind,
        user: &str,
        max_ttl: Duration,
        named: Option<&Named>,
        replicas: u32,
        clock: &dyn Clock,
    ) -> Result<(RedisFacts, Option<Fencing>), NodeError> {
        let info: Option<String> = self.tell(&Cmd::new("INFO")).await?;
        let now = clock.now();
        let info = info.unwrap_or_default();
        if Handshake::read(&info).is_sentinel() {
            return Err(NodeError::Sentinel);
        }
        let mut config = HashMap::<String, String>::new();
        let names = [
            "appendfsync",
            "no-appendfsync-on-rewrite",
            "save",
            "min-replicas-*",
        ];
        for name in names {
            let mut cmd = Cmd::new("CONFIG");
            cmd.arg("GET").arg(name);
            config.extend(self.tell::<HashMap<_, _>>(&cmd).await?.unwrap_or_default());
        }
        let mut whoami = Cmd::new("ACL");
        whoami.arg("WHOAMI");
        let user = self
            .tell::<String>(&whoami)
            .await?
            .unwrap_or(user.to_owned());
        let mut handshake = Handshake::read(&info);
        handshake.fsync = config.get("appendfsync").cloned();
        let info = Info::parse(&info);
        let site = match info.number("cluster_enabled") {
            Some(1) => Site::Cluster,
            _ => Site::Server,
        };
        let (product, version) = match info.text("valkey_version") {
            Some(version) => ("Valkey", Some(version)),
            None => ("Redis", info.text("redis_version")),
        };
        let Membership {
            cluster,
            left,
            is_durable,
        } = self.cluster(named).await?;
        let quarantine = match (&cluster, info.number("uptime_in_seconds")) {
            (ClusterFacts::Member { .. }, _) => left,
            // It may have been up for ever.
            (_, None) => None,
            (_, Some(_)) => {
                let until = handshake.quarantine(max_ttl, None, now);
                until.map(|until| until.since(now))
            }
        };
        let replication = |name: &str| config.get(name).and_then(|number| number.parse().ok());
        let min_replicas = replication("min-replicas-to-write");
        let fencing = min_replicas.zip(replication("min-replicas-max-lag"));
        let fencing = fencing.map(|(min_replicas, max_lag)| Fencing {
            min_replicas,
            max_lag,
        });
        let facts = RedisFacts {
            product,
            version,
            run_id: info.text("run_id"),
            role: info.text("role"),
            uptime: info.number("uptime_in_seconds").map(Duration::from_secs),
            loading: info.is_set("loading"),
            redis_cluster: site == Site::Cluster,
            append_only: info.number("aof_enabled").map(|n| n == 1),
            fsync: handshake.fsync.clone(),
            syncs_while_saving: config
                .get("no-appendfsync-on-rewrite")
                .map(|saving| saving == "no"),
            is_durable,
            snapshots: config.get("save").map(|save| !save.is_empty()),
            memory_limit: info.number("maxmemory"),
            eviction_policy: info.text("maxmemory_policy"),
            quarantine: quarantine.filter(|left| !left.is_zero()),
            cluster,
            clock_ahead_us: self.clock_ahead().await?,
            round_trip: self.round_trip().await?,
            link,
            missing: rights::missing(self, &user, site, replicas).await?,
            user,
            replicas: info.number("connected_slaves"),
            replicas_needed: replicas,
            group: None,
            sharded: None,
        };
        Ok((facts, fencing))
    }

    /// What its marker says.
    async fn cluster(&self, named: Option<&Named>) -> Result<Membership, NodeError> {
        let look = timeout(ANSWER_LIMIT, handshake::look(&self.0, false)).await;
        let look = match look.unwrap_or(Err(NodeError::Timeout(ANSWER_LIMIT))) {
            Ok(look) => look,
            Err(error @ (NodeError::Timeout(_) | NodeError::Disconnected(_))) => return Err(error),
            // It answers without telling: while it loads its data, or as part of a Redis Cluster.
            Err(_) => return Ok(Membership::of(ClusterFacts::Unknown)),
        };
        let Some(marker) = &look.marker else {
            return Ok(Membership::of(ClusterFacts::None));
        };
        let (Ok(marker), Ok(sight)) = (marker.parse::<Marker>(), look.sight()) else {
            return Ok(Membership::of(ClusterFacts::Unknown));
        };
        let sight = match named {
            Some(named) => named.sight(sight),
            None => sight,
        };
        // By its own settings: comparing them with the client's is for others.
        let left = match judge(&marker.terms, marker.node, &marker, &sight) {
            Verdict::Pending => return Ok(Membership::of(ClusterFacts::Pending)),
            Verdict::Refuse(_) => return Ok(Membership::of(ClusterFacts::Replaced)),
            Verdict::Votes | Verdict::Rewrite(Stage::Active, _) => None,
            Verdict::Waits(left) => Some(left),
            Verdict::Rewrite(..) => Some(marker.terms.max_ttl + sight.grace),
        };
        let member = ClusterFacts::Member {
            nodes: marker.terms.nodes().to_vec(),
            max_ttl: marker.terms.max_ttl,
        };
        Ok(Membership {
            cluster: member,
            left,
            is_durable: Some(marker.durable),
        })
    }

    async fn round_trip(&self) -> Result<Duration, NodeError> {
        let mut times = Vec::with_capacity(PINGS);
        for _ in 0..PINGS {
            let start = Instant::now();
            // A refusal takes as long as a reply.
            self.tell::<Value>(&Cmd::new("PING")).await?;
            times.push(start.elapsed());
        }
        Ok(median(times))
    }

    async fn clock_ahead(&self) -> Result<Option<i64>, NodeError> {
        let start = Instant::now();
        let before = SystemTime::now().duration_since(UNIX_EPOCH);
        let Some((seconds, micros)) = self.tell::<(i64, i64)>(&Cmd::new("TIME")).await? else {
            return Ok(None);
        };
        let ours = before.unwrap_or_default() + start.elapsed() / 2;
        let ours = i64::try_from(ours.as_micros()).unwrap_or(i64::MAX);
        let theirs = seconds.saturating_mul(1_000_000).saturating_add(micros);
        Ok(Some(theirs.saturating_sub(ours)))
    }
}
