//! fencepost beside locks in other languages.
//!
//! | file | what it is |
//! | --- | --- |
//! | `lines` | the line protocol, served: for the peers that are written in Rust |
//! | `peer` | the line protocol, driven: a peer's process, its questions and answers |
//! | `program` | the program `fencepost`, as a script would call it |
//! | `scene` | servers, and who meets on them |
//! | `classic` | what is checked with every peer that keeps the classical key |
//! | `redisson` | what is checked with Redisson |
//! | `monitor` | what a server is told |
//! | `guides` | the blocks of `docs/migrate` in Rust, for rustdoc |
//! | `revision` | of what a report was made |
//! | `table` | rows of text, aligned |
//! | `ours.rs` | the library behind the same protocol: the only use of its API here |
//! | `main.rs` | the harness |

pub mod classic;
mod guides;
pub mod lines;
pub mod monitor;
pub mod peer;
pub mod program;
pub mod redisson;
pub mod revision;
pub mod scene;
pub mod table;
