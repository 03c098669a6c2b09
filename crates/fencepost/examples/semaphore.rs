//! Of ten workers, three at a time. `cargo run --example semaphore`

use std::time::Duration;

use fencepost::{Client, Error, Semaphore};
use tokio::task::JoinSet;

#[tokio::main]
async fn main() -> Result<(), Error> {
    let locks = Client::memory()?;
    let pool = locks.semaphore("api-calls", 3);
    let mut workers: JoinSet<_> = (0..10).map(|n| call(pool.clone(), n)).collect();
    while let Some(worker) = workers.join_next().await {
        worker.expect("no panic")?;
    }
    Ok(())
}

async fn call(pool: Semaphore, worker: usize) -> Result<(), Error> {
    let permit = pool.acquire().await?;
    println!("worker {worker} has slot {} of 0, 1, 2", permit.slot());
    tokio::time::sleep(Duration::from_millis(20)).await;
    permit.release().await
}
