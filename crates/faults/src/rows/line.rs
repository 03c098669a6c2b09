//! Those who wait in line: they die there, and in fair mode nobody may pass them.
//!
//! A dead waiter costs the others one ticket lease at the most, not one each. Safety never depends on
//! the line: everything is promised, with and without `fair`.

use std::io;

use crate::row::Row;
use crate::scene::Scene;

pub(super) const ROWS: &[Row] = &[
    Row::new(
        "kill-waiters",
        "processes that wait for the lock are killed with -9, and others begin",
        |scene| {
            kill_a_waiter(scene)?;
            scene.pass(200..=900);
            Ok(1)
        },
    ),
    Row {
        lay_out: |layout| layout.fair = true,
        ..Row::new(
            "fair-line",
            "all ask in fair mode; those who wait are stopped and killed, servers are stopped",
            |scene| {
                // A server that stands still cannot tell who holds the lock.
                kill_a_waiter(scene)?;
                let waiter = a_waiter(scene);
                let nodes = scene.some_nodes();
                for node in &nodes {
                    scene.cluster.nodes[*node].freeze()?;
                }
                scene.clients[waiter].process.freeze()?;
                scene.pass(50..=500);
                for node in &nodes {
                    scene.cluster.nodes[*node].thaw()?;
                }
                scene.pass(50..=500);
                scene.clients[waiter].process.thaw()?;
                scene.pass(100..=900);
                Ok(nodes.len() + 2)
            },
        )
    },
];

fn a_waiter(scene: &mut Scene) -> usize {
    let many = scene.clients.len();
    let one = scene.random.place(many);
    match scene.holder() == Some(one) {
        true => (one + 1) % many,
        false => one,
    }
}

fn kill_a_waiter(scene: &mut Scene) -> io::Result<()> {
    let waiter = a_waiter(scene);
    scene.replace_client(waiter)
}
