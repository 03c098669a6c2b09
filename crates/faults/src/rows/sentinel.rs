//! Sentinel groups that fail over, and masters that are cut off together with a client.
//!
//! A group is a master, a replica that may be promoted, and one that never is: that one keeps a master
//! writing that is cut off with it. A promoted replica may lack what its master granted last, and does not
//! vote for `max_ttl` and two failover times. A client that is cut off with a majority of the old masters
//! finds them willing, and nobody there tells it of the new ones; its votes count no longer than the
//! failover time after a majority of the Sentinels named these masters. Everything is promised.

use std::io;
use std::time::{Duration, Instant};

use fencepost::RestartPolicy;

use super::until;
use crate::cluster::{CLIENTS, Layout};
use crate::net::{End, Link};
use crate::node::{Node, NodeOptions};
use crate::row::{Needs, Row};
use crate::scene::{MAX_TTL, Scene};

/// How many Sentinels there are, and how many have to agree on a failover.
const SENTINELS: usize = 3;
const QUORUM: usize = 2;
/// The servers of a group.
const SERVERS: usize = 3;
/// How long a master is silent until a Sentinel takes it for down.
const DOWN_AFTER_MS: u64 = 1000;
/// The Sentinels' own limit for a failover; twice as long they wait for the next.
const FAILOVER_LIMIT_MS: u64 = 2000;
/// The failover time of the clients.
const FAILOVER: Duration = Duration::from_secs(2);

const GROUPS: Row = Row {
    // A failover just before the healing: `max_ttl` and two failover times, and what others need, too.
    settled_after: Duration::from_secs(10),
    lay_out,
    prepare,
    ..Row::new("", "", |_| Ok(0))
};

pub(super) const ROWS: &[Row] = &[
    Row {
        name: "sentinel-failover",
        what: "Sentinels are told to promote a replica in one group after the other",
        hurt: fail_over,
        ..GROUPS
    },
    Row {
        name: "sentinel-isolated",
        what: "the masters of most groups are cut off with a replica each and with the holder",
        needs: Needs::Namespaces,
        hurt: isolate,
        ..GROUPS
    },
];

fn lay_out(layout: &mut Layout) {
    layout.extra = (SERVERS - 1) * layout.nodes;
    layout.sentinels = SENTINELS;
    layout.policy = RestartPolicy::Delay;
    let lag = FAILOVER.as_secs();
    let words = format!(
        "--repl-diskless-sync-delay 0 --repl-ping-replica-period 1 \
         --min-replicas-to-write 1 --min-replicas-max-lag {lag}"
    );
    layout.options.words = words.split_whitespace().map(str::to_owned).collect();
}

/// The servers of a group: its first master, what may be promoted, and what never is.
fn servers(scene: &Scene, group: usize) -> [usize; SERVERS] {
    let groups = scene.cluster.layout.nodes;
    [group, groups + group, 2 * groups + group]
}

fn never_promoted(scene: &Scene, group: usize) -> usize {
    servers(scene, group)[SERVERS - 1]
}

fn name(group: usize) -> String {
    format!("m{group}")
}

fn prepare(scene: &mut Scene) -> io::Result<()> {
    let groups = scene.cluster.layout.nodes;
    for group in 0..groups {
        let loyal = never_promoted(scene, group);
        scene.cluster.nodes[loyal].tell(&["CONFIG", "SET", "replica-priority", "0"])?;
        follow(scene, group, group)?;
    }
    let mut config = String::new();
    for group in 0..groups {
        let (name, master) = (name(group), scene.cluster.nodes[group].address());
        let (host, port) = (master.ip(), master.port());
        config += &format!(
            "sentinel monitor {name} {host} {port} {QUORUM}\n\
             sentinel down-after-milliseconds {name} {DOWN_AFTER_MS}\n\
             sentinel failover-timeout {name} {FAILOVER_LIMIT_MS}\n"
        );
    }
    for sentinel in 0..SENTINELS {
        let options = NodeOptions {
            config: Some(config.clone()),
            words: vec!["--sentinel".to_owned()],
            ..NodeOptions::default()
        };
        let folder = scene.cluster.folder().join(format!("sentinel{sentinel}"));
        let number = SERVERS * groups + sentinel;
        let sentinel = Node::start(&scene.cluster.network, number, &folder, options)?;
        scene.sentinels.push(sentinel);
    }
    until("the Sentinels know everybody", || {
        for sentinel in &scene.sentinels {
            for group in 0..groups {
                let others = says(sentinel, group, "num-other-sentinels")?;
                let replicas = says(sentinel, group, "num-slaves")?;
                if others != (SENTINELS - 1).to_string() || replicas != (SERVERS - 1).to_string() {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    })?;
    let sentinels = scene.sentinels.iter();
    let sentinels: Vec<_> = sentinels.map(|node| node.address().to_string()).collect();
    let (sentinels, failover) = (sentinels.join(","), FAILOVER.as_secs());
    let url = |group| {
        let name = name(group);
        format!("redis+sentinel://{sentinels}/{name}?failover={failover}s")
    };
    let urls: Vec<_> = (0..groups).map(url).collect();
    scene.cluster.is_reached_by(urls.join(","));
    Ok(())
}

/// Has all other servers of a group follow that one, and waits until they do.
fn follow(scene: &Scene, group: usize, master: usize) -> io::Result<()> {
    let nodes = &scene.cluster.nodes;
    let address = nodes[master].address();
    let (host, port) = (address.ip().to_string(), address.port().to_string());
    let replicas = servers(scene, group).into_iter();
    for replica in replicas.filter(|server| *server != master) {
        nodes[replica].tell(&["REPLICAOF", &host, &port])?;
    }
    until("the replicas are attached", || {
        let info: String = nodes[master]
            .ask(&["INFO", "replication"])
            .map_err(io::Error::other)?;
        Ok(info.matches("state=online").count() == SERVERS - 1)
    })
}

/// What a Sentinel says of a group's master.
fn says(sentinel: &Node, group: usize, field: &str) -> io::Result<String> {
    let all: Vec<String> = sentinel
        .ask(&["SENTINEL", "MASTER", &name(group)])
        .map_err(io::Error::other)?;
    let found = all.chunks(2).find(|pair| pair[0] == field);
    Ok(found.map_or(String::new(), |pair| pair[1].clone()))
}

/// The server that all Sentinels name, if they agree.
fn named(scene: &Scene, group: usize) -> io::Result<Option<usize>> {
    let mut named = None;
    for sentinel in &scene.sentinels {
        let host = says(sentinel, group, "ip")?;
        let address = format!("{host}:{}", says(sentinel, group, "port")?);
        let is_it = |server: &usize| scene.cluster.nodes[*server].address().to_string() == address;
        let server = servers(scene, group).into_iter().find(is_it);
        if server.is_none() || (named.is_some() && named != server) {
            return Ok(None);
        }
        named = server;
    }
    Ok(named)
}

/// Waits until the Sentinels agree on another server than that one.
fn until_moved(scene: &Scene, group: usize, from: usize) -> io::Result<usize> {
    let mut to = from;
    until("a failover", || {
        to = named(scene, group)?.unwrap_or(from);
        Ok(to != from)
    })?;
    Ok(to)
}

fn fail_over(scene: &mut Scene) -> io::Result<usize> {
    let group = scene.random.place(scene.cluster.layout.nodes);
    let sentinel = scene.random.place(SENTINELS);
    let Some(from) = named(scene, group)? else {
        return Ok(0);
    };
    let sentinel = &scene.sentinels[sentinel];
    if sentinel
        .tell(&["SENTINEL", "FAILOVER", &name(group)])
        .is_err()
    {
        // The last one is still under way, or it does not know yet that a replica is back.
        scene.pass(100..=300);
        return Ok(0);
    }
    let to = until_moved(scene, group, from)?;
    // The old one is a master for all who have not heard of it. The Sentinels would leave it so for
    // eight seconds.
    scene.pass(100..=2000);
    follow(scene, group, to)?;
    scene.pass(100..=1000);
    Ok(1)
}

fn isolate(scene: &mut Scene) -> io::Result<usize> {
    let groups = scene.cluster.layout.nodes;
    let Some(holder) = scene.wait_for_holder() else {
        return Ok(0);
    };
    let cut_groups = scene.random.some_of(groups / 2 + 1, groups);
    let mut masters = Vec::new();
    for group in &cut_groups {
        let Some(master) = named(scene, *group)? else {
            return Ok(0);
        };
        masters.push((*group, master));
    }
    let mut side = vec![End::Client(scene.clients[holder].place)];
    for (group, master) in &masters {
        side.extend([*master, never_promoted(scene, *group)].map(End::Node));
    }
    let servers = (0..SERVERS * groups + SENTINELS).map(End::Node);
    let others = servers.chain((0..CLIENTS).map(End::Client));
    let others: Vec<_> = others.filter(|end| !side.contains(end)).collect();
    let across = |one: &End| {
        others
            .iter()
            .flat_map(|other| [(*one, *other), (*other, *one)])
            .collect::<Vec<_>>()
    };
    let links: Vec<_> = side.iter().flat_map(across).collect();

    scene.cluster.network.set_links(&links, Link::Cut)?;
    let cut = Instant::now();
    let mut promoted = Vec::new();
    for (group, master) in &masters {
        promoted.push((*group, until_moved(scene, *group, *master)?));
    }
    // Until the new masters vote, and both sides could.
    let both = 3 * MAX_TTL + 2 * FAILOVER;
    std::thread::sleep(both.saturating_sub(cut.elapsed()));
    scene.pass(0..=2000);
    scene.cluster.network.set_links(&links, Link::Whole)?;
    for (group, master) in &promoted {
        follow(scene, *group, *master)?;
    }
    scene.pass(100..=1000);
    Ok(masters.len())
}
