//! Acquire a lock, work under it, release it. `cargo run --example lock`

use fencepost::{Client, Error};

#[tokio::main]
async fn main() -> Result<(), Error> {
    // Or "file:/var/lib/app/locks.db", or "redis://a,redis://b,redis://c".
    let locks = Client::connect("memory:").await?;

    // By a guard. It is renewed as long as it lives, and released when it is dropped.
    let lease = locks.lock("invoice-42").await?;
    println!("charging with token {}", lease.token());
    lease.release().await?;

    // Around a body, which is stopped should the lock be lost.
    let charged = locks
        .lock("invoice-42")
        .run(async |lease| {
            println!("charging with token {}", lease.token());
            42
        })
        .await?;
    println!("charged {charged}");
    Ok(())
}
