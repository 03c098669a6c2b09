//! Clients whose lists of nodes differ: a rolling change from n servers to those and two more, and back.
//!
//! {1, 2} is a majority of three servers and {3, 4, 5} of five, with no server in common. So a server belongs
//! to one list, which its marker names, and a client with another list is refused, whoever was there first.
//! `init --replace` changes the list: it closes the old cluster and waits for `max_ttl`. Meanwhile clients of
//! both lists ask. Everything is promised; a client with the wrong list has to be started anew with the
//! right one, as all are in the end.
//!
//! With the policy `trust` nobody looks, and two hold the lock: `tests/it/rule_off.rs`.

use std::io;
use std::time::Duration;

use fencepost::RestartPolicy;

use crate::net::End;
use crate::process::Process;
use crate::program;
use crate::row::Row;
use crate::scene::{MAX_TTL, Scene};

/// How long a change of the list may take, on a busy machine.
const CHANGE_LIMIT: Duration = Duration::from_secs(30);

pub(super) const ROWS: &[Row] = &[Row {
    lay_out: |layout| {
        layout.policy = RestartPolicy::Delay;
        layout.extra = 2;
    },
    ..Row::new(
        "other-lists",
        "the list of servers grows by two and shrinks again, while clients of both lists ask",
        |scene| {
            let (few, more) = (scene.cluster.urls(), scene.cluster.more_urls());
            let there = change(scene, &few, &more)?;
            let back = change(scene, &more, &few)?;
            // Servers that join are new; these have the marker of a cluster that is gone.
            for node in scene.cluster.layout.nodes..scene.cluster.nodes.len() {
                scene.cluster.nodes[node].tell(&["FLUSHALL"])?;
            }
            Ok(there + back)
        },
    )
}];

/// Gives one client after the other the new list, the first of them before it is the list of the servers.
fn change(scene: &mut Scene, old: &str, new: &str) -> io::Result<usize> {
    let many = scene.clients.len();
    let order = scene.random.some_of(many, many);
    let early = 1 + scene.random.place(many - 1);
    for client in &order[..early] {
        scene.replace_client_by(*client, new)?;
        scene.pass(50..=400);
    }
    // Longer than it takes a server that has no marker yet to vote for whoever claims it.
    scene.pass(500..=3000);
    let is_watched = scene.cluster.layout.policy == RestartPolicy::Delay;
    let init = is_watched.then(|| init(scene, old, new)).transpose()?;
    for client in &order[early..] {
        scene.pass(50..=400);
        scene.replace_client_by(*client, new)?;
    }
    if let Some(mut init) = init {
        let status = init.wait(CHANGE_LIMIT)?;
        if !status.success() {
            let said = std::fs::read_to_string(scene.cluster.folder().join("init.log"));
            let why = format!("init ended with {status}: {}", said.unwrap_or_default());
            return Err(io::Error::other(why));
        }
    }
    scene.pass(200..=900);
    Ok(many)
}

/// Replaces the cluster of one list by that of another, from where the first client is.
fn init(scene: &Scene, old: &str, new: &str) -> io::Result<Process> {
    let network = &scene.cluster.network;
    let mut command = network.command(End::Client(0), &program::path()?);
    let log = std::fs::File::create(scene.cluster.folder().join("init.log"))?;
    command
        .args(["init", "--urls", new, "--replace", old])
        .args(["--max-ttl", &MAX_TTL.as_millis().to_string()])
        .stderr(log);
    Process::start(&mut command)
}
