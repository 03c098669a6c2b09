//! A replica that lags behind takes the place of its dead master.
//!
//! Clients that knew the master see that another process answers at its address, and do not let it
//! vote for `max_ttl` after they last saw the other, however long the replica has been up. For them
//! everything is promised.
//!
//! A master that becomes a replica and a master again has other data, and says so: it does not vote for
//! `max_ttl`. Everything is promised.
//!
//! Not promised: a client that was not there before the change knows the replica only by its uptime,
//! and trusts it if that is long. See `tests/not_promised.rs`.

use std::io;
use std::time::{Duration, Instant};

use fencepost::RestartPolicy;

use crate::node::{Node, NodeOptions};
use crate::row::Row;
use crate::scene::Scene;

/// How long a replica may take to have what its master has.
const SYNC_LIMIT: Duration = Duration::from_secs(10);

pub(super) const ROWS: &[Row] = &[
    Row {
        lay_out: |layout| {
            layout.policy = RestartPolicy::Delay;
            layout.proxied = true;
            let at_once = ["--repl-diskless-sync-delay", "0"];
            layout.options.words = at_once.map(str::to_owned).to_vec();
        },
        prepare: |scene| {
            for node in 0..scene.cluster.nodes.len() {
                let spare = follow(scene, node, "spare")?;
                scene.spares.push(spare);
            }
            scene.spares.iter().try_for_each(until_in_step)
        },
        ..Row::new(
            "stale-replica",
            "a master is killed, and its lagging replica is promoted at the same address",
            promote,
        )
    },
    Row {
        lay_out: |layout| {
            layout.policy = RestartPolicy::Delay;
            let at_once = ["--repl-diskless-sync-delay", "0"];
            layout.options.words = at_once.map(str::to_owned).to_vec();
        },
        prepare: |scene| {
            for node in 0..scene.cluster.nodes.len() {
                let spare = beside(scene, node, "empty", &[])?;
                scene.spares.push(spare);
            }
            Ok(())
        },
        ..Row::new(
            "replaced-data",
            "a server becomes the replica of an empty one and a master again, without a restart",
            replace_data,
        )
    },
];

/// A replica of that node, soon in step with it.
fn follow(scene: &Scene, node: usize, name: &str) -> io::Result<Node> {
    let master = scene.cluster.nodes[node].address();
    let (host, port) = (master.ip().to_string(), master.port().to_string());
    beside(scene, node, name, &["--replicaof", &host, &port])
}

/// A server that only that node reaches.
fn beside(scene: &Scene, node: usize, name: &str, words: &[&str]) -> io::Result<Node> {
    let cluster = &scene.cluster;
    let mut options = NodeOptions {
        hidden: true,
        ..cluster.layout.options.clone()
    };
    options
        .words
        .extend(words.iter().map(|word| (*word).to_owned()));
    let folder = cluster.folder().join(format!("{name}{node}"));
    Node::start(&cluster.network, node, &folder, options)
}

fn until_in_step(replica: &Node) -> io::Result<()> {
    let end = Instant::now() + SYNC_LIMIT;
    loop {
        let info: String = replica
            .ask(&["INFO", "replication"])
            .map_err(io::Error::other)?;
        if info.contains("master_link_status:up") {
            return Ok(());
        }
        if Instant::now() >= end {
            return Err(io::Error::other("the replica does not get in step"));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn replace_data(scene: &mut Scene) -> io::Result<usize> {
    let node = scene.random.place(scene.cluster.nodes.len());
    let empty = scene.spares[node].address();
    let (host, port) = (empty.ip().to_string(), empty.port().to_string());
    let server = &scene.cluster.nodes[node];
    server.tell(&["REPLICAOF", &host, &port])?;
    until_in_step(server)?;
    server.tell(&["REPLICAOF", "NO", "ONE"])?;
    scene.pass(100..=1500);
    Ok(1)
}

fn promote(scene: &mut Scene) -> io::Result<usize> {
    let node = scene.random.place(scene.cluster.nodes.len());
    // It hears no more of its master. To stop it would not do: what it was sent meanwhile waits in
    // its socket.
    scene.spares[node].tell(&["REPLICAOF", "127.0.0.1", "1"])?;
    scene.pass(50..=300);
    scene.cluster.nodes[node].kill()?;
    scene.spares[node].tell(&["REPLICAOF", "NO", "ONE"])?;
    scene.cluster.proxies[node].lead_to(&scene.spares[node].socket());
    std::mem::swap(&mut scene.cluster.nodes[node], &mut scene.spares[node]);
    scene.pass(100..=600);
    // The next to take its place. The dead one's folder must not be in the way.
    let name = format!("heir{}-", scene.random.below(1 << 30));
    scene.spares[node] = follow(scene, node, &name)?;
    until_in_step(&scene.spares[node])?;
    scene.pass(100..=900);
    Ok(1)
}
