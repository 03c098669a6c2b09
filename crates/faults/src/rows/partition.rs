//! Links that are silently cut, in one direction or both, and mended.
//!
//! Between namespaces a cut is one client's from one node. On plain loopback a proxy holds back what
//! passes, and a node is cut off from all clients. Either way what was sent before the cut may arrive
//! after it: a request that nobody waits for any more is carried out, and must do no harm.
//! Everything is promised.

use std::io;

use crate::net::{End, Link};
use crate::proxy::Rules;
use crate::row::{Needs, Row};
use crate::scene::Scene;

const fn row(
    name: &'static str,
    what: &'static str,
    hurt: fn(&mut Scene) -> io::Result<usize>,
) -> Row {
    Row {
        needs: Needs::Cuts,
        ..Row::new(name, what, hurt)
    }
}

pub(super) const ROWS: &[Row] = &[
    row(
        "cut-requests",
        "what clients send to some nodes does not arrive",
        |scene| some_links(scene, Direction::Requests),
    ),
    row(
        "cut-replies",
        "what some nodes send to clients does not arrive",
        |scene| some_links(scene, Direction::Replies),
    ),
    row(
        "cut-both",
        "nodes, or a whole client, are cut off in both directions",
        |scene| {
            let clients = scene.clients.len();
            let (ends, nodes) = match scene.random.one_in(3) {
                true => {
                    let alone = scene.random.place(clients);
                    (vec![alone], (0..scene.cluster.nodes.len()).collect())
                }
                false => ((0..clients).collect(), scene.some_nodes()),
            };
            cut(scene, &ends, &nodes, Direction::Both)?;
            scene.pass(200..=1200);
            mend(scene)?;
            scene.pass(50..=300);
            Ok(nodes.len())
        },
    ),
    row("flap", "links come and go many times a second", |scene| {
        let clients: Vec<usize> = (0..scene.clients.len()).collect();
        let nodes = scene.some_nodes();
        let both = [Direction::Requests, Direction::Replies, Direction::Both];
        let direction = both[scene.random.place(both.len())];
        cut(scene, &clients, &nodes, direction)?;
        scene.pass(5..=80);
        mend(scene)?;
        scene.pass(5..=80);
        Ok(nodes.len())
    }),
];

/// Which way nothing gets through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Requests,
    Replies,
    Both,
}

fn some_links(scene: &mut Scene, direction: Direction) -> io::Result<usize> {
    let clients = scene.clients.len();
    let many = 1 + scene.random.place(clients);
    let clients = scene.random.some_of(many, clients);
    let nodes = scene.some_nodes();
    cut(scene, &clients, &nodes, direction)?;
    scene.pass(100..=900);
    mend(scene)?;
    scene.pass(50..=300);
    Ok(clients.len() * nodes.len())
}

fn cut(scene: &Scene, clients: &[usize], nodes: &[usize], direction: Direction) -> io::Result<()> {
    if !scene.cluster.network.can_cut() {
        for node in nodes {
            scene.cluster.proxies[*node].set(Rules {
                hold_requests: direction != Direction::Replies,
                hold_replies: direction != Direction::Requests,
                ..Rules::default()
            });
        }
        return Ok(());
    }
    let links = links(clients, nodes, direction);
    scene.cluster.network.set_links(&links, Link::Cut)
}

fn mend(scene: &Scene) -> io::Result<()> {
    if !scene.cluster.network.can_cut() {
        for proxy in &scene.cluster.proxies {
            proxy.set(Rules::default());
        }
        return Ok(());
    }
    let clients: Vec<usize> = (0..scene.clients.len()).collect();
    let nodes: Vec<usize> = (0..scene.cluster.nodes.len()).collect();
    let links = links(&clients, &nodes, Direction::Both);
    scene.cluster.network.set_links(&links, Link::Whole)
}

fn links(clients: &[usize], nodes: &[usize], direction: Direction) -> Vec<(End, End)> {
    let mut links = Vec::new();
    for client in clients.iter().map(|client| End::Client(*client)) {
        for node in nodes.iter().map(|node| End::Node(*node)) {
            if direction != Direction::Replies {
                links.push((client, node));
            }
            if direction != Direction::Requests {
                links.push((node, client));
            }
        }
    }
    links
}
