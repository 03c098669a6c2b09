//! Servers that are there and say no: out of memory, read-only, loading, busy, without a password,
//! unable to save, full of clients, or set up to evict.
//!
//! A no is an answer: the server has done nothing. The others decide meanwhile. Everything is
//! promised.
//!
//! A server that evicts keys is not asked at all, once a connection to it is made. Not promised: one
//! that is *set* to evict while a connection stands is found out at the next connection only, and
//! until then an evicted lock is a forgotten one, as after FLUSHALL.

use std::io;
use std::time::{Duration, Instant};

use crate::node::{Node, Persistence};
use crate::row::Row;
use crate::scene::Scene;

/// How long a server may take to end a state that we put it in.
const PATIENCE: Duration = Duration::from_secs(10);

pub(super) const ROWS: &[Row] = &[
    Row {
        prepare: |scene| {
            for node in scene.fixed_minority() {
                let node = &scene.cluster.nodes[node];
                node.tell(&["CONFIG", "SET", "maxmemory", "3mb"])?;
                node.tell(&["CONFIG", "SET", "maxmemory-policy", "allkeys-random"])?;
            }
            Ok(())
        },
        ..Row::new(
            "eviction",
            "a minority of the servers evicts keys all the time: they have no vote",
            |scene| {
                let mut evicting = 0;
                for node in scene.fixed_minority() {
                    let node = &scene.cluster.nodes[node];
                    node.tell(&["EVAL", FILL, "0", "1000"])?;
                    let evicted = info(node, "stats", "evicted_keys")?;
                    evicting += usize::from(evicted != "0");
                    node.tell(&["CONFIG", "RESETSTAT"])?;
                }
                scene.pass(10..=100);
                Ok(evicting)
            },
        )
    },
    Row::new("oom", "servers have no memory left (-OOM)", |scene| {
        let nodes = scene.some_nodes();
        tell(scene, &nodes, &["CONFIG", "SET", "maxmemory", "1"])?;
        scene.pass(50..=700);
        tell(scene, &nodes, &["CONFIG", "SET", "maxmemory", "0"])?;
        scene.pass(20..=200);
        Ok(nodes.len())
    }),
    Row::new(
        "readonly",
        "servers become replicas of nobody (-READONLY) and masters again",
        |scene| {
            let nodes = scene.some_nodes();
            tell(scene, &nodes, &["REPLICAOF", "127.0.0.1", "1"])?;
            scene.pass(50..=700);
            tell(scene, &nodes, &["REPLICAOF", "NO", "ONE"])?;
            scene.pass(20..=200);
            Ok(nodes.len())
        },
    ),
    Row {
        lay_out: |layout| {
            layout.options.persistence = Persistence::EveryWrite;
            // Slowly, and with an ear for questions.
            layout.options.words = [
                "--key-load-delay",
                "2000",
                "--loading-process-events-interval-bytes",
                "1024",
            ]
            .map(str::to_owned)
            .to_vec();
        },
        prepare: |scene| {
            for node in &scene.cluster.nodes {
                node.tell(&["EVAL", FILL, "0", "200"])?;
                node.tell(&["BGREWRITEAOF"])?;
                until(|| Ok(info(node, "persistence", "aof_rewrite_in_progress")? == "0"))?;
            }
            Ok(())
        },
        ..Row::new(
            "loading",
            "servers are killed and take their time to load what they had (-LOADING)",
            |scene| {
                let nodes = scene.some_nodes();
                for node in &nodes {
                    scene.cluster.nodes[*node].restart(&scene.cluster.network)?;
                }
                let mut loading = 0;
                for node in &nodes {
                    let node = &scene.cluster.nodes[*node];
                    loading += usize::from(info(node, "persistence", "loading")? == "1");
                    until(|| Ok(info(node, "persistence", "loading")? == "0"))?;
                }
                scene.pass(50..=300);
                Ok(loading)
            },
        )
    },
    Row {
        lay_out: |layout| {
            let soon = ["--busy-reply-threshold", "20"];
            layout.options.words = soon.map(str::to_owned).to_vec();
        },
        ..Row::new(
            "busy",
            "a script that does not end keeps servers busy (-BUSY)",
            |scene| {
                let nodes = scene.some_nodes();
                for node in &nodes {
                    let mut control = scene.cluster.nodes[*node]
                        .control()
                        .map_err(io::Error::other)?;
                    std::thread::spawn(move || {
                        // It ends when it is killed.
                        let _ = control.ask::<()>(&["EVAL", "while true do end", "0"]);
                    });
                }
                scene.pass(80..=500);
                for node in &nodes {
                    let node = &scene.cluster.nodes[*node];
                    until(|| Ok(node.tell(&["SCRIPT", "KILL"]).is_ok()))?;
                }
                scene.pass(20..=200);
                Ok(nodes.len())
            },
        )
    },
    Row::new(
        "noauth",
        "servers want a password, and throw everybody out (-NOAUTH)",
        |scene| {
            let set = |on| {
                [
                    "CONFIG",
                    "SET",
                    "requirepass",
                    if on { "secret" } else { "" },
                ]
            };
            shut_out(scene, set)
        },
    ),
    Row {
        prepare: |scene| {
            for node in &scene.cluster.nodes {
                node.tell(&["CONFIG", "SET", "save", "3600 1"])?;
            }
            Ok(())
        },
        ..Row::new(
            "misconf",
            "servers cannot save, and take no writes for that reason (-MISCONF)",
            |scene| {
                let nodes = scene.some_nodes();
                for node in &nodes {
                    let node = &scene.cluster.nodes[*node];
                    // A folder where the file should go: not even root can save there.
                    let file = node.data().join("dump.rdb");
                    if file.is_file() {
                        std::fs::remove_file(&file)?;
                    }
                    std::fs::create_dir_all(file.join("x"))?;
                    save(node, "err")?;
                }
                scene.pass(50..=700);
                for node in &nodes {
                    let node = &scene.cluster.nodes[*node];
                    std::fs::remove_dir_all(node.data().join("dump.rdb"))?;
                    save(node, "ok")?;
                }
                scene.pass(20..=200);
                Ok(nodes.len())
            },
        )
    },
    Row::new(
        "maxclients",
        "servers take no more clients, and throw everybody out",
        |scene| {
            let set = |on| {
                [
                    "CONFIG",
                    "SET",
                    "maxclients",
                    if on { "1" } else { "10000" },
                ]
            };
            shut_out(scene, set)
        },
    ),
];

/// Writes so many keys of a kilobyte each.
const FILL: &str = "for i = 1, ARGV[1] do \
    redis.call('SET', 'filler:' .. i .. ':' .. math.random(1000000), string.rep('x', 1000)) end";

fn tell(scene: &Scene, nodes: &[usize], words: &[&str]) -> io::Result<()> {
    for node in nodes {
        scene.cluster.nodes[*node].tell(words)?;
    }
    Ok(())
}

fn info(node: &Node, section: &str, field: &str) -> io::Result<String> {
    let info: String = node.ask(&["INFO", section]).map_err(io::Error::other)?;
    let mut lines = info
        .lines()
        .filter_map(|line| line.trim_end().split_once(':'));
    let found = lines.find(|(name, _)| *name == field);
    Ok(found.map(|(_, value)| value.to_owned()).unwrap_or_default())
}

fn until(mut condition: impl FnMut() -> io::Result<bool>) -> io::Result<()> {
    let end = Instant::now() + PATIENCE;
    while !condition()? {
        if Instant::now() >= end {
            return Err(io::ErrorKind::TimedOut.into());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Lets a server save, and waits until it knows how that went.
fn save(node: &Node, outcome: &str) -> io::Result<()> {
    until(|| {
        // It may be saving already.
        let _ = node.tell(&["BGSAVE"]);
        Ok(info(node, "persistence", "rdb_last_bgsave_status")? == outcome)
    })
}

/// Sets something that keeps new connections out, and closes those that are there. The harness's own
/// stays, to set it back.
fn shut_out(scene: &mut Scene, set: impl Fn(bool) -> [&'static str; 4]) -> io::Result<usize> {
    let nodes = scene.some_nodes();
    let mut controls = Vec::new();
    for node in &nodes {
        let mut control = scene.cluster.nodes[*node]
            .control()
            .map_err(io::Error::other)?;
        control.ask::<()>(&set(true)).map_err(io::Error::other)?;
        let kill = ["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"];
        control.ask::<()>(&kill).map_err(io::Error::other)?;
        controls.push(control);
    }
    scene.pass(50..=700);
    for control in &mut controls {
        control.ask::<()>(&set(false)).map_err(io::Error::other)?;
    }
    scene.pass(20..=200);
    Ok(nodes.len())
}
