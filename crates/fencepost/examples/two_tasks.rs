//! Two tasks want the same lock. One has it at a time, and each turn has a larger token.
//!
//! `cargo run --example two_tasks` needs nothing; with a URL behind it (`file:/tmp/locks.db`,
//! `redis://127.0.0.1`) it works there, and two of them in two terminals exclude each other.

use std::time::Duration;

use fencepost::{Client, Error};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let url = std::env::args().nth(1).unwrap_or("memory:".into());
    let locks = Client::connect(url).await?;
    tokio::try_join!(work(&locks, "anna"), work(&locks, "bert"))?;
    Ok(())
}

async fn work(locks: &Client, who: &str) -> Result<(), Error> {
    for turn in 1..=3 {
        let lease = locks.lock("the-one-job").await?;
        println!("{who} begins turn {turn} with token {}", lease.token());
        tokio::time::sleep(Duration::from_millis(20)).await;
        println!("{who} ends   turn {turn}");
        lease.release().await?;
    }
    Ok(())
}
