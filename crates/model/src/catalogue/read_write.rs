//! Readers and writers.

use super::{Subject, Variant};
use crate::read_write::{ALONE, ReadWrite};

pub(super) fn sound() -> Vec<Variant> {
    let shared = |name, about, nodes, writers, readers| {
        let model = ReadWrite {
            nodes,
            writers,
            readers,
            readers_ask: nodes,
        };
        Variant::sound(name, about, Subject::ReadWrite(model))
    };
    vec![
        shared(
            "read-write",
            "1 writer, which may become a reader, and 1 reader on 3 nodes",
            3,
            1,
            1,
        )
        .quick(),
        shared(
            "read-write-one-node",
            "2 writers and 2 readers on 1 node",
            1,
            2,
            2,
        )
        .quick(),
        shared(
            "read-write-read",
            "1 writer and 2 readers on 3 nodes",
            3,
            1,
            2,
        )
        .within(14),
        shared(
            "write-write-read",
            "2 writers and 1 reader on 3 nodes",
            3,
            2,
            1,
        )
        .within(14),
    ]
}

pub(super) fn broken() -> Vec<Variant> {
    vec![Variant::broken(
        "read-one",
        "readers ask 1 of 3 nodes, and writers a majority",
        ALONE,
        Subject::ReadWrite(ReadWrite {
            nodes: 3,
            writers: 1,
            readers: 1,
            readers_ask: 1,
        }),
    )]
}
