//! Threads without an async runtime. `cargo run --example blocking`

use std::thread;
use std::time::Duration;

use fencepost::Error;
use fencepost::blocking::Client;

fn main() -> Result<(), Error> {
    let locks = Client::connect("memory:")?;
    thread::scope(|scope| {
        let workers = ["anna", "bert"].map(|who| scope.spawn(|| work(&locks, who)));
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().expect("no panic"))
    })
}

fn work(locks: &Client, who: &str) -> Result<(), Error> {
    let lease = locks
        .lock("the-one-job")
        .timeout(Duration::from_secs(10))
        .acquire()?;
    println!("{who} works with token {}", lease.token());
    lease.release()
}
