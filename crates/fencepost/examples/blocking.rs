//! Threads without an async runtime. `cargo run --example blocking`

use std::thread;
use std::time::Duration;

use fencepost::{Client, Error, blocking};

fn main() -> Result<(), Error> {
    let locks = blocking::connect("memory:")?;
    thread::scope(|scope| {
        let workers = ["anna", "bert"].map(|who| scope.spawn(|| work(&locks, who)));
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().expect("no panic"))
    })
}

fn work(locks: &Client, who: &str) -> Result<(), Error> {
    let request = locks.lock("the-one-job").timeout(Duration::from_secs(10));
    let lease = locks.block(request)?;
    println!("{who} works with token {}", lease.token());
    locks.block(lease.release())
}
