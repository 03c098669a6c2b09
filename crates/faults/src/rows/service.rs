//! Replicas of the lock service that die, stand still, or are cut off from the servers.
//!
//! Clients have two of them, and know no server. An acquire whose answer is lost is sent again as the next
//! attempt of the same lease, to the other replica; a lease that is renewed at one was often granted by the other. A
//! replica that stood still past the end of a lease may answer then: the client counts from when it sent its
//! request. Everything is promised.

use std::io;

use crate::cluster::Layout;
use crate::net::{End, Link};
use crate::row::{Needs, Row};
use crate::scene::Scene;
use crate::service::Replica;

const REPLICAS: usize = 2;

const SERVED: Row = Row {
    lay_out,
    prepare,
    ..Row::new("", "", |_| Ok(0))
};

pub(super) const ROWS: &[Row] = &[
    Row {
        name: "service-kill",
        what: "replicas of the lock service are killed with -9 and started again",
        hurt: |scene| {
            let replicas = some_replicas(scene);
            for replica in &replicas {
                scene.replicas[*replica].kill()?;
            }
            scene.pass(0..=300);
            for replica in &replicas {
                scene.replicas[*replica].restart(&scene.cluster)?;
            }
            scene.pass(20..=300);
            Ok(replicas.len())
        },
        ..SERVED
    },
    Row {
        name: "service-stop",
        what: "replicas of the lock service are stopped (SIGSTOP) and continued",
        hurt: |scene| {
            let replicas = some_replicas(scene);
            for replica in &replicas {
                scene.replicas[*replica].freeze()?;
            }
            scene.pass(50..=1200);
            for replica in &replicas {
                scene.replicas[*replica].thaw()?;
            }
            scene.pass(20..=300);
            Ok(replicas.len())
        },
        ..SERVED
    },
    Row {
        name: "service-cut",
        what: "a replica of the lock service is cut off from most servers, and clients are not",
        needs: Needs::Namespaces,
        hurt: cut_off,
        ..SERVED
    },
];

fn lay_out(layout: &mut Layout) {
    layout.replicas = REPLICAS;
}

fn prepare(scene: &mut Scene) -> io::Result<()> {
    let urls = scene.cluster.urls();
    for number in 0..REPLICAS {
        let replica = Replica::start(&scene.cluster, number, &urls)?;
        scene.replicas.push(replica);
    }
    let urls: Vec<String> = scene.replicas.iter().map(Replica::url).collect();
    scene.cluster.is_reached_by(urls.join(","));
    Ok(())
}

/// One of them, and now and then both.
fn some_replicas(scene: &mut Scene) -> Vec<usize> {
    let many = match scene.random.one_in(4) {
        true => REPLICAS,
        false => 1,
    };
    scene.random.some_of(many, REPLICAS)
}

fn cut_off(scene: &mut Scene) -> io::Result<usize> {
    let replica = scene.random.place(REPLICAS);
    let replica = scene.replicas[replica].end();
    let all = scene.cluster.layout.nodes;
    let most = scene.cluster.minority() + 1;
    let nodes = scene.random.some_of(most, all);
    let links: Vec<(End, End)> = nodes
        .iter()
        .flat_map(|node| [(replica, End::Node(*node)), (End::Node(*node), replica)])
        .collect();
    scene.cluster.network.set_links(&links, Link::Cut)?;
    scene.pass(200..=1200);
    scene.cluster.network.set_links(&links, Link::Whole)?;
    scene.pass(50..=300);
    Ok(1)
}
