//! What a Cluster is like, for people. It must never write: it reads the markers, and makes none.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::runtime::Handle;

use super::map::{Map, WatchedMap, send, within};
use super::shard::places;
use super::url::ClusterSpec;
use crate::error::{Error, NodeError};
use crate::runtime::clock::Clock;
use crate::store::facts::{ClusterFacts, ShardFacts, ShardedFacts};
use crate::store::redis::address::stream::Route;
use crate::store::redis::address::url::Login;
use crate::store::redis::connection::keeper;
use crate::store::redis::encoding::keys::{of_slot, slot_of};
use crate::store::redis::options::RedisOptions;
use crate::store::redis::protocol::command::Cmd;
use crate::store::redis::protocol::reader::Reader;
use crate::store::redis::voting::handshake::Facts;
use fencepost_core::quorum::failover::quarantine;
use fencepost_core::quorum::membership::{Marker, Sight, Stage, Terms, Verdict, judge};
use fencepost_core::quorum::slots::SLOTS;

/// A Cluster whose nodes are being asked.
pub(in super::super) struct WatchedCluster(WatchedMap);

impl WatchedCluster {
    /// # Errors
    /// [`ErrorKind::InvalidUrl`](crate::ErrorKind::InvalidUrl) and
    /// [`ErrorKind::InvalidOption`](crate::ErrorKind::InvalidOption) say what would be right.
    pub(in super::super) fn start(
        url: &str,
        options: &RedisOptions,
        clock: Arc<dyn Clock>,
        runtime: &Handle,
    ) -> Result<Self, Error> {
        let spec = ClusterSpec::parse(url)?;
        WatchedMap::start(spec, options, clock, runtime).map(Self)
    }

    fn map(&self) -> &Map {
        &self.0.map
    }

    /// The address in the form that all clients share.
    pub(in super::super) fn label(&self) -> &str {
        &self.map().spec.label
    }

    /// How to log in at every node.
    pub(in super::super) fn login(&self) -> &Login {
        self.map().login()
    }

    /// How many replicas must have a vote before it counts.
    pub(in super::super) fn replicas(&self) -> u32 {
        self.map().spec.replicas
    }

    /// The way to the server that has this key.
    pub(in super::super) async fn route_of(
        &self,
        key: &str,
        limit: Duration,
    ) -> Result<Route, NodeError> {
        let owner = self.map().locate(slot_of(key), limit).await?;
        self.map().route(&owner)
    }

    /// What all shards are like.
    pub(in super::super) async fn facts(
        &self,
        options: &RedisOptions,
        max_ttl: Duration,
    ) -> Result<Surveyed, NodeError> {
        let map = self.map();
        let failover = map.failover()?;
        // It connects, and asks twice.
        let limit = 3 * options.connect_timeout;
        let asked = map.owners().into_iter().map(async |owner| {
            let outcome = within(limit, look(map, &owner, failover)).await;
            let slots = map.slots_of(&owner).len();
            let fault = outcome.as_ref().err().map(ToString::to_string);
            let seen = outcome.unwrap_or_default();
            let facts = ShardFacts {
                master: map.address(&owner),
                slots,
                fault,
                promotable: seen.promotable,
                min_replicas: seen.min_replicas,
                max_lag: seen.max_lag,
                quarantine: seen.left,
            };
            (facts, (seen.left, seen.terms))
        });
        let (shards, seen): (Vec<_>, Vec<_>) = join_all(asked).await.into_iter().unzip();
        let (answering, others) = map.asked();
        let served: usize = shards.iter().map(|shard| shard.slots).sum();
        let facts = ShardedFacts {
            listed: answering + others.len(),
            answering,
            others,
            node_timeout: map.node_timeout(),
            shortest_node_timeout: map.shortest_timeout(),
            failover,
            quarantine: quarantine(max_ttl, failover),
            unserved: usize::from(SLOTS).saturating_sub(served),
            shards,
        };
        // Where a shard has no marker, the first client makes it.
        let terms: Option<Vec<_>> = seen.iter().map(|(_, terms)| terms.as_ref()).collect();
        let cluster = match terms.as_deref() {
            Some([terms, ..]) => ClusterFacts::Member {
                nodes: terms.nodes().to_vec(),
                max_ttl: terms.max_ttl,
            },
            _ if facts.shards.iter().any(|shard| shard.fault.is_some()) => ClusterFacts::Unknown,
            _ => ClusterFacts::None,
        };
        Ok(Surveyed {
            facts,
            quarantine: seen.iter().filter_map(|(left, _)| *left).max(),
            cluster,
        })
    }
}

/// What was seen.
pub(in super::super) struct Surveyed {
    pub(in super::super) facts: ShardedFacts,
    /// For how long some shard does not vote.
    pub(in super::super) quarantine: Option<Duration>,
    /// By whom it is used.
    pub(in super::super) cluster: ClusterFacts,
}

#[derive(Default)]
struct Seen {
    promotable: Option<usize>,
    min_replicas: Option<u64>,
    max_lag: Option<Duration>,
    /// What its markers say: how long it does not vote, and on which terms it is used.
    left: Option<Duration>,
    terms: Option<Terms>,
}

/// Looks at one shard's master.
async fn look(map: &Map, owner: &str, failover: Duration) -> Result<Seen, NodeError> {
    let route = map.route(owner)?;
    let limit = Duration::from_secs(1);
    let dialed = keeper::dial(&route, map.login(), limit, None, Reader::default()).await;
    let (connection, _driver) = dialed.map_err(|error| route.explained(error))?;
    let mut config = Cmd::new("CONFIG");
    config.arg("GET").arg("min-replicas-*");
    let mut nodes = Cmd::new("CLUSTER");
    nodes.arg("NODES");
    let (info, time) = (Cmd::new("INFO"), Cmd::new("TIME"));
    let (info, time, config, nodes) = tokio::join!(
        send(&connection, &info),
        send(&connection, &time),
        send(&connection, &config),
        send(&connection, &nodes),
    );
    let config: HashMap<String, String> = config
        .ok()
        .and_then(|config| config.read().ok())
        .unwrap_or_default();
    let number = |name: &str| config.get(name).and_then(|text| text.parse::<u64>().ok());
    let nodes: Option<String> = nodes.ok().and_then(|nodes| nodes.read().ok());
    let mut seen = Seen {
        promotable: nodes.map(|nodes| promotable(&nodes, owner)),
        min_replicas: number("min-replicas-to-write"),
        max_lag: number("min-replicas-max-lag").map(Duration::from_secs),
        ..Seen::default()
    };
    let facts = Facts::read(&info?.read::<String>().unwrap_or_default());
    let (seconds, micros): (u64, u64) = time?.read().unwrap_or_default();
    let sight = Sight {
        run_id: facts.run_id.ok_or(NodeError::HidesInfo)?,
        history: facts.history,
        now_us: seconds.saturating_mul(1_000_000).saturating_add(micros),
        syncs: None,
        grace: quarantine(Duration::ZERO, failover),
    };
    let slots = map.slots_of(owner);
    let places = slots.first().map(|first| places(&slots, *first));
    let markers = places.into_iter().flatten().map(async |place| {
        let mut get = Cmd::new("GET");
        let found = send(&connection, get.arg(of_slot::marker(place))).await;
        let found: Option<String> = found.ok().and_then(|found| found.read().ok());
        found.and_then(|text| text.parse::<Marker>().ok())
    });
    let markers: Vec<Marker> = join_all(markers).await.into_iter().flatten().collect();
    // Where there is none yet, nobody knows from when it will count.
    let left = markers.iter().map(|marker| {
        // By its own terms: whether they are the client's is for others to judge.
        match judge(&marker.terms, marker.node, marker, &sight) {
            Verdict::Waits(left) => Some(left),
            Verdict::Rewrite(Stage::Quarantine, _) => Some(marker.terms.max_ttl + sight.grace),
            _ => None,
        }
    });
    seen.left = left.min().flatten();
    seen.terms = markers.into_iter().next().map(|marker| marker.terms);
    Ok(seen)
}

/// How many replicas of a master may be promoted, by what `CLUSTER NODES` says.
fn promotable(nodes: &str, master: &str) -> usize {
    let is_fit = |line: &&str| {
        let words: Vec<&str> = line.split(' ').collect();
        let [_, _, flags, of, ..] = words.as_slice() else {
            return false;
        };
        let mut flags = flags.split(',');
        *of == master
            && flags.clone().any(|flag| flag == "slave")
            && !flags
                .any(|flag| ["fail", "fail?", "noaddr", "handshake", "nofailover"].contains(&flag))
    };
    nodes.lines().filter(is_fit).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_that_fails_or_must_not_is_not_promoted() {
        let nodes = "a 127.0.0.1:1@2 myself,master - 0 0 1 connected 0-16383\n\
                     b 127.0.0.1:3@4 slave a 0 1 1 connected\n\
                     c 127.0.0.1:5@6 slave,fail a 0 1 1 disconnected\n\
                     d 127.0.0.1:7@8 slave,nofailover a 0 1 1 connected\n\
                     e 127.0.0.1:9@1 slave x 0 1 1 connected\n";
        assert_eq!(promotable(nodes, "a"), 1);
    }
}
