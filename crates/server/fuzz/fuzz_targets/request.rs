//! Reads bytes as a request, as the service does: headers, JSON or form.
//!
//! `cargo +nightly fuzz run request`, in `crates/server`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fencepost_server::fuzz::request(data));
