//! Servers that forget while they run.
//!
//! A script that was flushed is brought along by the next command: nothing is lost.
//!
//! `FLUSHALL` and a change of role are seen by clients that watch the marker of a server, which is all
//! that do not trust restarted servers: it does not vote for `max_ttl`, and everything is promised.
//!
//! With the policy `trust` no quarantine follows, because nobody watches. The lock of a
//! holder stands while more nodes have it than a contender can do without: with one node flushed of
//! n, if the holder has it on all others, which it has after its first renewal in a healthy cluster.
//! But a holder that has it on just a majority (A and B of three, because C was away or was another's
//! at that moment) shares it with the next one as soon as A forgets: two holders, each with a
//! majority. That is **not promised** to be prevented, here or by any Redlock; `tests/not_promised.rs`
//! shows it. What is promised is what tokens are for: they stay unique and in order, and a resource
//! that checks them loses nothing that it acknowledged.

use fencepost::RestartPolicy;

use crate::row::{Promise, Row};

pub(super) const ROWS: &[Row] = &[
    Row {
        promise: Promise::AllButExclusion,
        ..Row::new(
            "flushall",
            "a minority of the servers forgets everything in mid-course (FLUSHALL)",
            |scene| {
                let nodes = scene.few_nodes();
                for node in &nodes {
                    scene.cluster.nodes[*node].tell(&["FLUSHALL"])?;
                }
                scene.pass(20..=150);
                Ok(nodes.len())
            },
        )
    },
    Row {
        lay_out: |layout| layout.policy = RestartPolicy::Delay,
        ..Row::new(
            "flush-watched",
            "servers forget everything in mid-course (FLUSHALL), and are watched",
            |scene| {
                let nodes = scene.few_nodes();
                for node in &nodes {
                    scene.cluster.nodes[*node].tell(&["FLUSHALL"])?;
                }
                scene.pass(100..=1500);
                Ok(nodes.len())
            },
        )
    },
    Row {
        lay_out: |layout| layout.policy = RestartPolicy::Delay,
        ..Row::new(
            "role-flip",
            "servers become replicas and masters again (REPLICAOF and back)",
            |scene| {
                let nodes = scene.few_nodes();
                for node in &nodes {
                    scene.cluster.nodes[*node].tell(&["REPLICAOF", "127.0.0.1", "1"])?;
                }
                scene.pass(10..=100);
                for node in &nodes {
                    scene.cluster.nodes[*node].tell(&["REPLICAOF", "NO", "ONE"])?;
                }
                scene.pass(100..=1500);
                Ok(nodes.len())
            },
        )
    },
    Row::new(
        "script-flush",
        "all servers forget their scripts (SCRIPT FLUSH)",
        |scene| {
            for node in &scene.cluster.nodes {
                node.tell(&["SCRIPT", "FLUSH"])?;
            }
            scene.pass(2..=40);
            Ok(scene.cluster.nodes.len())
        },
    ),
];
