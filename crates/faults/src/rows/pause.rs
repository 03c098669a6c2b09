//! Processes that stand still or die: servers, the holder, those who wait.
//!
//! A holder that stood still past its end finds its lease lost before anything else, but what it
//! had decided before it was stopped it may still do: most of the clients write to the resource
//! without a look at their lease, and only the token stops them. Everything is promised.

use crate::row::Row;
use crate::scene::TTL;

pub(super) const ROWS: &[Row] = &[
    Row::new(
        "stop-nodes",
        "servers are stopped (SIGSTOP) and continued",
        |scene| {
            let nodes = scene.some_nodes();
            for node in &nodes {
                scene.cluster.nodes[*node].freeze()?;
            }
            scene.pass(30..=700);
            for node in &nodes {
                scene.cluster.nodes[*node].thaw()?;
            }
            scene.pass(20..=200);
            Ok(nodes.len())
        },
    ),
    Row::new(
        "stop-holder",
        "the process that holds the lock is stopped for longer than its TTL, and goes on",
        |scene| {
            let Some(holder) = scene.wait_for_holder() else {
                return Ok(0);
            };
            scene.clients[holder].process.freeze()?;
            std::thread::sleep(TTL);
            scene.pass(50..=400);
            scene.clients[holder].process.thaw()?;
            scene.pass(20..=150);
            Ok(1)
        },
    ),
    Row::new(
        "stop-waiters",
        "processes that wait for the lock are stopped and continued",
        |scene| {
            let holder = scene.holder();
            let first = scene.random.place(scene.clients.len());
            let many = scene.clients.len();
            let stopped: Vec<usize> = (first..first + 2)
                .map(|client| client % many)
                .filter(|client| Some(*client) != holder)
                .collect();
            for client in &stopped {
                scene.clients[*client].process.freeze()?;
            }
            scene.pass(100..=1200);
            for client in &stopped {
                scene.clients[*client].process.thaw()?;
            }
            scene.pass(20..=200);
            Ok(stopped.len())
        },
    ),
    Row::new(
        "kill-holder",
        "the process that holds the lock is killed with -9, and another begins",
        |scene| {
            let Some(holder) = scene.wait_for_holder() else {
                return Ok(0);
            };
            scene.replace_client(holder)?;
            scene.pass(300..=900);
            Ok(1)
        },
    ),
];
