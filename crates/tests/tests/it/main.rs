//! Behaviour on real servers, real files and real processes: one program of all tests, because each
//! further one would be linked anew and would wait for the slowest test of the one before it.
//!
//! So a test shares its process with all others. What belongs to the process (the environment, the
//! handling of signals, limits) is for a process of the test's own: see `src/bin`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

// What the tests share.
mod attempt;
mod engines;
mod file_place;
mod on_redis;
mod random_commands;

// The tests.
mod bad_input;
mod blocking;
mod conformance;
mod conformance_calls;
mod conformance_names;
mod conformance_queue;
mod conformance_steal;
mod dropped_attempts;
mod election;
mod events;
mod fence_recipes;
mod file_disk;
mod file_store;
mod file_users;
mod following;
mod foreign_clients;
mod forgotten_data;
mod fork;
mod gathering;
mod hearing;
mod hostile_replies;
mod idle_cost;
mod init_crash;
mod late_extension;
mod lease_lost;
mod lease_renewal;
mod membership;
mod multi;
mod mutual_exclusion;
mod names_with_braces;
mod plain_acquire;
mod quorum_faults;
mod read_write;
mod redis_cluster;
mod redis_cluster_wakes;
mod redis_connection;
mod redis_kinds;
mod redis_login;
mod redis_matches_state;
mod redis_tls;
mod redisson;
mod reentrant;
mod refusals;
mod replace;
mod replicas;
mod scope;
mod semaphore;
mod semaphore_looks;
mod sentinel;
mod short_acquire;
mod short_release;
mod sqlite_processes;
mod waiting;
mod waiting_fair;
mod waiting_file;
mod waiting_foreign;
mod who_may_vote;
