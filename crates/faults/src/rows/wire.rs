//! What a proxy that knows RESP does to the wire: replies that are lost after the request was
//! carried out, messages that are late, torn or cut in the middle.
//!
//! A client cannot tell a request that was carried out from one that was not; it must take both for
//! possible. Nor can it trust a reply to have an end. Everything is promised.

use std::io;
use std::time::Duration;

use crate::proxy::Rules;
use crate::row::Row;
use crate::scene::Scene;

const fn row(
    name: &'static str,
    what: &'static str,
    hurt: fn(&mut Scene) -> io::Result<usize>,
) -> Row {
    Row {
        lay_out: |layout| layout.proxied = true,
        ..Row::new(name, what, hurt)
    }
}

pub(super) const ROWS: &[Row] = &[
    row(
        "lost-replies",
        "servers carry a script out and its reply is lost; the connection closes or goes mute",
        |scene| {
            let rules = |_: usize| Rules {
                lose_reply_of_one_in: Some(25),
                ..Rules::default()
            };
            for_a_while(scene, rules)
        },
    ),
    row(
        "delays",
        "every message is late, by up to half of what a node may take, or by much more",
        |scene| {
            let slow = scene.few_nodes();
            let rules = |node: usize| Rules {
                delay: match slow.contains(&node) {
                    true => Duration::from_millis(300),
                    false => Duration::from_millis(30),
                },
                ..Rules::default()
            };
            for_a_while(scene, rules)?;
            Ok(scene.cluster.nodes.len())
        },
    ),
    row(
        "torn-writes",
        "messages arrive in pieces, and some end in the middle with their connection",
        |scene| {
            let rules = |_: usize| Rules {
                torn: true,
                cut_one_in: Some(60),
                ..Rules::default()
            };
            for_a_while(scene, rules)
        },
    ),
    row(
        "endless-replies",
        "a minority of the servers answers with lists of hundreds of millions of numbers",
        |scene| {
            let hostile = scene.few_nodes();
            let rules = |node: usize| Rules {
                endless_one_in: hostile.contains(&node).then_some(5),
                ..Rules::default()
            };
            for_a_while(scene, rules)
        },
    ),
];

/// Sets these rules for a while. How often something was lost by them, or late.
pub(super) fn for_a_while(scene: &mut Scene, rules: impl Fn(usize) -> Rules) -> io::Result<usize> {
    let lost = |scene: &Scene| scene.cluster.proxies.iter().map(|p| p.lost()).sum::<u64>();
    let before = lost(scene);
    for (node, proxy) in scene.cluster.proxies.iter().enumerate() {
        proxy.set(rules(node));
    }
    scene.pass(300..=900);
    for proxy in &scene.cluster.proxies {
        proxy.set(Rules::default());
    }
    scene.pass(10..=80);
    usize::try_from(lost(scene) - before).map_err(io::Error::other)
}
