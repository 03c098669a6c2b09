//! Wait for a lock, but not for ever. `cargo run --example timeout`

use std::time::Duration;

use fencepost::{Client, Error};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let locks = Client::memory()?;
    let lease = locks.lock("report").await?;

    // One attempt, without waiting.
    let busy = locks.try_lock("report").await;
    println!("{}", busy.expect_err("it is held"));

    // At most a tenth of a second.
    let limit = Duration::from_millis(100);
    let late = locks.lock("report").timeout(limit).await;
    println!("{}", late.expect_err("it is still held"));

    // The release wakes the waiter.
    let request = locks.lock("report").timeout(Duration::from_secs(10));
    let waiter = tokio::spawn(request.into_future());
    lease.release().await?;
    let lease = waiter.await.expect("no panic")?;
    println!("got it with token {}", lease.token());
    Ok(())
}
