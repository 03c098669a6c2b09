//! The blocks of `docs/migrate` that are written in Rust, for rustdoc to run.

#![cfg(doctest)]

#[doc = include_str!("../../../docs/migrate/redsync.md")]
struct FromRedsync;

#[doc = include_str!("../../../docs/migrate/redisson.md")]
struct FromRedisson;
