//! The shard of a Redis Cluster that has the lock fails over, or its master is cut off.
//!
//! *Fails over:* its replica is told to take over when it has everything; or it has lost touch with its master for a
//! while and lacks what was granted meanwhile, and then that is killed, or the replica is promoted at once. Only the last is faster
//! than a lease ends: that is what shows a promoted master that votes too early. It does not vote for `max_ttl` and two
//! failover times.
//!
//! *Cut off:* the master of the lock's shard is alone with the holder, which goes on renewing there. As a rule such a
//! master finds the Cluster down after `cluster-node-timeout`. This one takes ever so long for that, so that
//! only the client's own rule is left: a majority of the listed nodes has to name the owner. Each time a naive
//! client, which only follows the owner, gets its lock on both sides.
//!
//! Everything is promised.

use std::io;
use std::time::{Duration, Instant};

use fencepost::RestartPolicy;

use super::until;
use crate::cluster::{CLIENTS, Layout};
use crate::net::{End, Link};
use crate::node::Node;
use crate::row::{Needs, Row};
use crate::scene::{LOCK, MAX_TTL, Scene};

const SLOTS: usize = 16_384;
/// `cluster-node-timeout`: how long a master is silent until the others take it for down.
const NODE_TIMEOUT_MS: u64 = 1000;
/// The same of a master that is to go on when it is cut off.
const NEVER_MS: u64 = 600_000;
/// The naive client's lock, in the slot of ours. It is gone after a while.
const NAIVE: &str = "{job}naive";
const NAIVE_MS: u64 = 20_000;
/// The failover time of the clients.
const FAILOVER: Duration = Duration::from_secs(2);
/// The fewest shards of which the others can outvote one that is gone.
const FEWEST_VOTERS: usize = 3;

const CLUSTER: Row = Row {
    // A failover just before the healing: `max_ttl` and two failover times, and what others need, too.
    settled_after: Duration::from_secs(10),
    lay_out,
    prepare,
    ..Row::new("", "", |_| Ok(0))
};

pub(super) const ROWS: &[Row] = &[
    Row {
        name: "cluster-failover",
        what: "the shard of the lock fails over, with what its replica has or without the last of it",
        hurt: fail_over,
        ..CLUSTER
    },
    Row {
        name: "cluster-isolated",
        what: "the master of the lock's shard is cut off with the holder, and does not notice",
        needs: Needs::Namespaces,
        hurt: isolate,
        ..CLUSTER
    },
];

fn lay_out(layout: &mut Layout) {
    layout.extra = layout.nodes;
    layout.policy = RestartPolicy::Delay;
    layout.options.clustered = true;
    // Replicas log in as a user of their own, so that they can be cut off.
    let words = format!(
        "--cluster-node-timeout {NODE_TIMEOUT_MS} --cluster-require-full-coverage no \
         --cluster-allow-replica-migration no --cluster-replica-validity-factor 0 \
         --repl-diskless-sync-delay 0 --repl-ping-replica-period 1 \
         --masteruser replica --masterauth x --user replica on >x ~* &* +@all"
    );
    layout.options.words = words.split_whitespace().map(str::to_owned).collect();
}

fn prepare(scene: &mut Scene) -> io::Result<()> {
    let shards = scene.cluster.layout.nodes;
    let nodes = &scene.cluster.nodes;
    for (shard, master) in nodes[..shards].iter().enumerate() {
        let (first, last) = (SLOTS * shard / shards, SLOTS * (shard + 1) / shards - 1);
        master.tell(&["CLUSTER", "SET-CONFIG-EPOCH", &(shard + 1).to_string()])?;
        let (first, last) = (first.to_string(), last.to_string());
        master.tell(&["CLUSTER", "ADDSLOTSRANGE", &first, &last])?;
    }
    for other in &nodes[1..] {
        let (address, bus) = (other.address(), other.bus().unwrap_or_default());
        let (host, port) = (address.ip().to_string(), address.port().to_string());
        nodes[0].tell(&["CLUSTER", "MEET", &host, &port, &bus.to_string()])?;
    }
    let known = format!("cluster_known_nodes:{}\r", nodes.len());
    until("all nodes know each other", || all_say(nodes, &known))?;
    for (shard, replica) in nodes[shards..].iter().enumerate() {
        let master: String = nodes[shard]
            .ask(&["CLUSTER", "MYID"])
            .map_err(io::Error::other)?;
        until("it may be a replica", || {
            Ok(replica.tell(&["CLUSTER", "REPLICATE", &master]).is_ok())
        })?;
    }
    until("the Cluster is up", || all_say(nodes, "cluster_state:ok"))?;
    for replica in &nodes[shards..] {
        until("the replica is attached", || is_attached(replica))?;
    }
    let listed = nodes[..shards]
        .iter()
        .map(|node| node.address().to_string());
    let (listed, failover) = (listed.collect::<Vec<_>>().join(","), FAILOVER.as_secs());
    let store = format!("redis+cluster://{listed}?failover={failover}s");
    scene.cluster.is_reached_by(store);
    Ok(())
}

fn all_say(nodes: &[Node], words: &str) -> io::Result<bool> {
    for node in nodes {
        let info: String = node.ask(&["CLUSTER", "INFO"]).map_err(io::Error::other)?;
        if !info.contains(words) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn replication(node: &Node) -> io::Result<String> {
    node.ask(&["INFO", "replication"]).map_err(io::Error::other)
}

fn is_master(node: &Node) -> io::Result<bool> {
    Ok(replication(node)?.contains("role:master"))
}

fn is_attached(replica: &Node) -> io::Result<bool> {
    Ok(replication(replica)?.contains("master_link_status:up"))
}

/// The master of the lock's shard, and its replica.
fn shard_of_the_lock(scene: &Scene) -> io::Result<[usize; 2]> {
    let (nodes, shards) = (&scene.cluster.nodes, scene.cluster.layout.nodes);
    let slot: usize = nodes[0]
        .ask(&["CLUSTER", "KEYSLOT", LOCK])
        .map_err(io::Error::other)?;
    let owns =
        |shard: &usize| (SLOTS * shard / shards..SLOTS * (shard + 1) / shards).contains(&slot);
    let shard = (0..shards).find(owns).unwrap_or_default();
    Ok(match is_master(&nodes[shard])? {
        true => [shard, shards + shard],
        false => [shards + shard, shard],
    })
}

/// How a shard fails over.
#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    /// The replica has everything.
    Planned,
    /// The replica lacks the last grants, and its master is killed.
    Crash,
    /// The replica lacks the last grants, and is promoted without asking the others.
    Takeover,
}

fn fail_over(scene: &mut Scene) -> io::Result<usize> {
    let shards = scene.cluster.layout.nodes;
    let how = match scene.random.one_in(2) {
        true => How::Takeover,
        false if scene.random.one_in(2) && shards >= FEWEST_VOTERS => How::Crash,
        false => How::Planned,
    };
    let [old, new] = shard_of_the_lock(scene)?;
    let nodes = &scene.cluster.nodes;
    if how != How::Planned {
        nodes[old].tell(&["ACL", "SETUSER", "replica", "off"])?;
        nodes[old].tell(&["CLIENT", "KILL", "USER", "replica"])?;
        scene.pass(50..=500);
    }
    match how {
        How::Planned => scene.cluster.nodes[new].tell(&["CLUSTER", "FAILOVER"])?,
        How::Crash => scene.cluster.nodes[old].kill()?,
        How::Takeover => scene.cluster.nodes[new].tell(&["CLUSTER", "FAILOVER", "TAKEOVER"])?,
    }
    let nodes = &scene.cluster.nodes;
    until("the replica is promoted", || is_master(&nodes[new]))?;
    scene.pass(100..=2000);
    match how {
        How::Planned => {}
        How::Crash => scene.cluster.nodes[old].restart(&scene.cluster.network)?,
        // It is to be followed again when its turn comes.
        How::Takeover => scene.cluster.nodes[old].tell(&["ACL", "SETUSER", "replica", "on"])?,
    }
    let nodes = &scene.cluster.nodes;
    until("the old master follows", || is_attached(&nodes[old]))?;
    until("all agree", || all_say(nodes, "cluster_state:ok"))?;
    scene.pass(100..=1000);
    Ok(1)
}

/// Sets how long a master is silent until this node takes it for down.
fn set_node_timeout(node: &Node, millis: u64) -> io::Result<()> {
    let millis = millis.to_string();
    node.tell(&["CONFIG", "SET", "cluster-node-timeout", &millis])
}

/// Sets the naive client's lock. Whether nobody had it there.
fn set_naive(node: &Node) -> io::Result<bool> {
    let set = ["SET", NAIVE, "", "NX", "PX", &NAIVE_MS.to_string()];
    let answer: Option<String> = node.ask(&set).map_err(io::Error::other)?;
    Ok(answer.is_some())
}

fn isolate(scene: &mut Scene) -> io::Result<usize> {
    let Some(holder) = scene.wait_for_holder() else {
        return Ok(0);
    };
    let [old, new] = shard_of_the_lock(scene)?;
    let side = [End::Node(old), End::Client(scene.clients[holder].place)];
    let nodes = (0..scene.cluster.nodes.len()).map(End::Node);
    let others = nodes.chain((0..CLIENTS).map(End::Client));
    let others = others.filter(|end| !side.contains(end));
    let links: Vec<_> = others
        .flat_map(|other| side.map(|one| [(one, other), (other, one)]))
        .flatten()
        .collect();

    set_node_timeout(&scene.cluster.nodes[old], NEVER_MS)?;
    scene.cluster.network.set_links(&links, Link::Cut)?;
    let cut = Instant::now();
    let nodes = &scene.cluster.nodes;
    until("the replica is promoted", || is_master(&nodes[new]))?;
    for node in [old, new] {
        let is_set = || set_naive(&nodes[node]);
        until("the naive client has its lock on both sides", is_set)?;
    }
    // Until the new master votes, and both sides could.
    let both = 3 * MAX_TTL + 2 * FAILOVER;
    std::thread::sleep(both.saturating_sub(cut.elapsed()));
    scene.pass(0..=2000);
    scene.cluster.network.set_links(&links, Link::Whole)?;
    let nodes = &scene.cluster.nodes;
    set_node_timeout(&nodes[old], NODE_TIMEOUT_MS)?;
    nodes[new].tell(&["DEL", NAIVE])?;
    until("the old master follows", || is_attached(&nodes[old]))?;
    until("all agree", || all_say(nodes, "cluster_state:ok"))?;
    scene.pass(100..=1000);
    Ok(1)
}
