//! The program as users run it: real processes, real stores. Everything goes through `bench`.

mod bad_input;
mod bench;
mod contention;
mod doctor;
mod exit_codes;
mod loss;
mod signals;
mod status;
