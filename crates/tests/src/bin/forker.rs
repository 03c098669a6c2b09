//! A process that forks while it holds a lock.
//!
//! `forker URLS NAME TAKEN FORKS` holds NAME and forks so often. Each child drops the lease, and tries
//! to acquire a lock with the client that it inherited; meanwhile the parent tries to acquire TAKEN,
//! which somebody else holds. It prints one line: how many children were granted something, how often
//! the parent was, and whether the lease is still there.

use std::error::Error;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use fencepost::{Client, RestartPolicy};
use fork::Fork;

const TTL: Duration = Duration::from_secs(30);

/// What is there at the first poll. A child must not run the runtime that it shares with its parent.
fn at_once<T>(future: impl Future<Output = T>) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => Some(outcome),
        Poll::Pending => None,
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [urls, name, taken, forks] = &words[..] else {
        return Err("see the head of forker.rs".into());
    };
    let locks = Client::builder()
        .url(urls)
        .restart_policy(RestartPolicy::Trust)
        .connect()
        .await?;
    let mut lease = Some(locks.lock(name).ttl(TTL).await?);
    let (mut by_children, mut by_parent) = (0, 0);
    for n in 0..forks.parse()? {
        match fork::fork()? {
            Fork::Child => {
                drop(lease.take());
                let own = at_once(
                    locks
                        .try_lock(format!("child-{n}"))
                        .ttl(TTL)
                        .renew(false)
                        .into_future(),
                );
                std::process::exit(match own {
                    Some(Ok(_)) => 1,
                    // Only a refusal at once shows that nothing was sent.
                    None => 2,
                    Some(Err(_)) => 0,
                });
            }
            Fork::Parent(child) => {
                if let Ok(granted) = locks.try_lock(taken).ttl(TTL).renew(false).await {
                    by_parent += 1;
                    let _ = granted.release().await;
                }
                let status = fork::waitpid(child)?;
                by_children += i32::from(status != 0);
            }
        }
    }
    let kept = match lease {
        Some(lease) => lease.extend().await.is_ok(),
        None => false,
    };
    println!("children {by_children} parent {by_parent} kept {kept}");
    Ok(())
}
