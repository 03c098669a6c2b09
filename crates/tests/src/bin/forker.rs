//! A process that forks while it holds a lock.
//!
//! `forker URLS NAME TAKEN FORKS` holds NAME and forks so often. Each child drops the lease, tries
//! to acquire a lock with the client that it inherited, and drops that and the runtime; meanwhile the parent tries to
//! acquire TAKEN, which somebody else holds. It prints one line: how many children were granted something, how often
//! the parent was, whether the lease is still there, and whether one with a short TTL is still renewed.

use std::error::Error;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use fencepost::{Client, RestartPolicy};
use fork::Fork;

const TTL: Duration = Duration::from_secs(30);
/// That of a lease which is lost soon unless it is renewed.
const SHORT: Duration = Duration::from_secs(3);

/// What is there at the first poll. A child must not run the runtime that it shares with its parent.
fn at_once<T>(future: impl Future<Output = T>) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => Some(outcome),
        Poll::Pending => None,
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [urls, name, taken, forks] = &words[..] else {
        return Err("see the head of forker.rs".into());
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()?;
    let (locks, lease, renewed) = runtime.block_on(async {
        let builder = Client::builder().url(urls);
        let builder = builder.restart_policy(RestartPolicy::Trust);
        let locks = builder.connect().await?;
        let lease = locks.lock(name).ttl(TTL).await?;
        let renewed = locks.lock(format!("{name}-renewed")).ttl(SHORT).await?;
        Ok::<_, fencepost::Error>((locks, lease, renewed))
    })?;
    let (mut by_children, mut by_parent) = (0, 0);
    for n in 0..forks.parse()? {
        match fork::fork()? {
            Fork::Child => {
                let _guard = runtime.enter();
                drop((lease, renewed));
                let name = format!("child-{n}");
                let own = locks.try_lock(name).ttl(TTL).renew(false);
                let code = match at_once(own.into_future()) {
                    Some(Ok(_)) => 1,
                    // Only a refusal at once shows that nothing was sent.
                    None => 2,
                    Some(Err(_)) => 0,
                };
                drop((locks, _guard));
                drop(runtime);
                std::process::exit(code);
            }
            Fork::Parent(child) => {
                runtime.block_on(async {
                    if let Ok(granted) = locks.try_lock(taken).ttl(TTL).renew(false).await {
                        by_parent += 1;
                        let _ = granted.release().await;
                    }
                });
                let status = fork::waitpid(child)?;
                by_children += i32::from(status != 0);
            }
        }
    }
    let (kept, renewed) = runtime.block_on(async {
        tokio::time::sleep(SHORT * 3 / 2).await;
        (lease.extend().await.is_ok(), renewed.is_valid())
    });
    println!("children {by_children} parent {by_parent} kept {kept} renewed {renewed}");
    Ok(())
}
