//! The program as users run it: real processes, real stores. Everything goes through `bench`.

mod bad_input;
mod bench;
mod by_hand;
mod config;
mod contention;
mod docs;
mod doctor;
mod elect;
mod exit_codes;
mod flock;
mod looking;
mod loss;
mod names;
mod nested;
mod pages;
mod pty;
mod shared;
mod sights;
mod signals;
mod slots;
mod speed;
mod start;
mod status;
mod steal;
mod terminal;
mod tls;
