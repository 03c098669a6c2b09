//! The service over real HTTP, on memory and on real Redis servers.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod access;
mod attempts;
mod bad_input;
mod client;
mod events;
mod hostile;
mod leases;
mod limits;
mod metrics;
mod quorum;
mod schemathesis;
mod service;
mod several;
mod shared;
mod slots;
mod spans;
mod steal;
mod timeline;
mod trace;
mod values;
mod wire;
