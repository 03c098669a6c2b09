//! One leader among many candidates. `cargo run --example election`

use fencepost::{Client, Error};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let locks = Client::memory()?;
    let election = locks.election("scheduler");

    // What a candidate proclaims is seen by all: usually, where to reach it.
    let first = election.campaign("10.0.0.7:8080").await?;
    let second = tokio::spawn(election.campaign("10.0.0.8:8080").into_future());

    let leader = election.leader().await?.expect("a leader");
    println!("{} leads with token {}", leader.value, leader.token);
    first.resign().await?;

    let second = second.await.expect("no panic")?;
    let leader = election.leader().await?.expect("a leader");
    println!("{} leads with token {}", leader.value, leader.token);
    second.resign().await
}
