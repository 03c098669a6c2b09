//! A holder that lost its lock without noticing cannot write. `cargo run --example fenced_write`

use std::time::Duration;

use fencepost::fence::{Gate, Stale};
use fencepost::{Client, Error, FencingToken};

/// The resource checks the token itself. In a database this is a condition of the UPDATE.
fn write(gate: &Gate, token: FencingToken, text: &str) -> Result<(), Stale> {
    gate.admit(token)?;
    println!("token {token} wrote {text:?}");
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let (locks, gate) = (Client::memory()?, Gate::new());
    let old = locks.lock("page").await?;
    write(&gate, old.token(), "draft").expect("the newest so far");

    // The old holder is paused for longer than its TTL; here, an operator steals the lock.
    let new = locks.steal("page", Duration::from_secs(10)).await?.lease;
    write(&gate, new.token(), "final").expect("the newest so far");

    let refused = write(&gate, old.token(), "draft, again");
    println!("{}", refused.expect_err("a newer token was here"));
    Ok(())
}
