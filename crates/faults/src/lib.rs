//! Faults on real servers: `redis-server` processes and client processes that are killed, stopped,
//! cut off, made to forget and given wrong clocks, and checkers of what the clients saw.
//!
//! ```text
//! cargo run --release -p fencepost-faults -- [--row NAME] [--nodes 3,5] [--seconds S] [--report FILE]
//! cargo test -p fencepost-faults          # every row, for a second or two
//! ```
//!
//! Nothing here is a mock, and nothing here may decide whether a history is right: that is
//! [`fencepost_checks`]' business. What is promised under which fault is said in each row's own file.
//!
//! # The map
//! | module | what it is |
//! | --- | --- |
//! | [`rows`] | the table of all faults, one file for each group |
//! | [`row`] | what a row is |
//! | [`run`] | one row, from the start of its servers to the verdict |
//! | [`scene`] | a run under way: servers, clients, and how to get at them |
//! | [`client`] | the process that wants the lock |
//! | [`resource`] | what the lock guards |
//! | [`cluster`], [`node`] | the servers |
//! | [`service`] | replicas of the lock service over them |
//! | [`net`] | namespaces, and silent cuts between them |
//! | [`proxy`] | what can be done to a connection |
//! | [`clock`] | what can be done to a clock |
//! | [`process`], [`reaper`], [`program`] | processes, and that nothing is left of them |
//! | [`progress`], [`report`] | looking on, and telling |
//! | [`now`], [`random`] | the time that all share, and numbers that can be had again |

pub mod client;
pub mod clock;
pub mod cluster;
pub mod net;
pub mod node;
pub mod now;
pub mod process;
pub mod program;
pub mod progress;
pub mod proxy;
pub mod random;
pub mod reaper;
pub mod report;
pub mod resource;
pub mod row;
pub mod rows;
pub mod run;
pub mod scene;
pub mod service;
