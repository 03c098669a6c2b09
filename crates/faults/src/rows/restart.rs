//! Servers that die and come back: with all they had, with nothing, or with less.
//!
//! A server that keeps every write before it acknowledges it votes as soon as it is back. Any other
//! does not vote for `max_ttl` after it was started, so that whatever it forgot has expired: then
//! everything is promised, whichever servers die, and however many.
//!
//! Not promised: a server that *says* that it keeps every write, and was put back to an older copy
//! all the same. See `tests/not_promised.rs`.

use std::io;

use fencepost::RestartPolicy;

use crate::node::{Node, Persistence};
use crate::row::Row;
use crate::scene::Scene;

pub(super) const ROWS: &[Row] = &[
    Row {
        lay_out: |layout| {
            layout.options.persistence = Persistence::EveryWrite;
            layout.policy = RestartPolicy::Delay;
        },
        ..Row::new(
            "kill-aof-always",
            "servers that keep every write are killed with -9 and started again",
            |scene| {
                let hurt = restart_some(scene, 50..=400, |_| Ok(()))?;
                scene.pass(50..=250);
                Ok(hurt)
            },
        )
    },
    Row {
        lay_out: |layout| layout.policy = RestartPolicy::Delay,
        ..Row::new(
            "restart-empty",
            "servers that keep nothing are killed with -9 and come back empty",
            |scene| {
                let hurt = restart_some(scene, 0..=100, |_| Ok(()))?;
                scene.pass(100..=1500);
                Ok(hurt)
            },
        )
    },
    Row {
        lay_out: |layout| layout.policy = RestartPolicy::Delay,
        ..Row::new(
            "restart-changed",
            "servers that kept nothing are killed with -9 and come back empty, keeping every write from then on",
            |scene| {
                let hurt = restart_some(scene, 0..=100, |node| {
                    node.keep(Persistence::EveryWrite);
                    node.empty_disk()
                })?;
                scene.pass(100..=1500);
                Ok(hurt)
            },
        )
    },
    Row {
        lay_out: |layout| {
            layout.options.persistence = Persistence::EverySecond;
            layout.policy = RestartPolicy::Delay;
        },
        ..Row::new(
            "restart-older-aof",
            "servers are killed with -9 and come back with an older copy of their disk",
            |scene| {
                for node in &scene.cluster.nodes {
                    node.back_up()?;
                }
                scene.pass(50..=300);
                let hurt = restart_some(scene, 0..=100, |node| node.restore_backup())?;
                scene.pass(100..=1500);
                Ok(hurt)
            },
        )
    },
];

/// Kills some servers, does something to their disks, and starts them again.
fn restart_some(
    scene: &mut Scene,
    away: std::ops::RangeInclusive<u64>,
    meanwhile: fn(&mut Node) -> io::Result<()>,
) -> io::Result<usize> {
    let nodes = scene.some_nodes();
    for node in &nodes {
        scene.cluster.nodes[*node].kill()?;
    }
    scene.pass(away);
    for node in &nodes {
        meanwhile(&mut scene.cluster.nodes[*node])?;
        scene.cluster.nodes[*node].restart(&scene.cluster.network)?;
    }
    Ok(nodes.len())
}
