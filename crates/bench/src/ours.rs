//! The library itself, as a user would use it. One client for all tasks.

use fencepost::{Client, Lease, RestartPolicy};

use crate::contender::{Contender, TTL};

pub(crate) struct Ours {
    locks: Client,
    name: String,
}

/// A client of these servers, which have just been started and would otherwise not vote yet.
pub(crate) async fn connect(urls: &[String]) -> Client {
    let builder = Client::builder().url(urls.join(","));
    let locks = builder.restart_policy(RestartPolicy::Trust).connect().await;
    locks.expect("our own servers")
}

pub(crate) async fn clients(urls: &[String], tasks: usize) -> Vec<Ours> {
    let locks = connect(urls).await;
    (0..tasks)
        .map(|task| Ours {
            locks: locks.clone(),
            name: format!("ours-{}-{task:04}", urls.len()),
        })
        .collect()
}

impl Contender for Ours {
    type Held = Lease;

    async fn acquire(&mut self) -> Lease {
        let lease = self.locks.try_lock(&self.name).ttl(TTL).renew(false).await;
        lease.expect("nobody else wants it")
    }

    async fn release(&mut self, held: Lease) {
        held.release().await.expect("nobody else took it");
    }
}
