//! Faults on real servers, in one program of all tests.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod critique;
mod forgetful_restarts;
mod guarantees;
mod not_promised;
mod proxy;
mod rule_off;
mod short_rows;
mod stage;
