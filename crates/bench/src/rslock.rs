//! The crate `rslock`, as a user would use it, but for one thing: it gets `TCP_NODELAY`, which its
//! Redis client leaves off, so that no socket option decides who is ahead.

use redis::{Client as Server, IntoConnectionInfo, io::tcp::TcpSettings};
use rslock::{Lock, LockManager};

use crate::contender::{Contender, TTL};

pub(crate) struct Rslock {
    manager: LockManager,
    name: String,
}

pub(crate) fn manager(urls: &[String]) -> LockManager {
    let servers = urls.iter().map(|url| {
        let info = url.as_str().into_connection_info().expect("a good URL");
        let settings = TcpSettings::default().set_nodelay(true);
        Server::open(info.set_tcp_settings(settings)).expect("a good URL")
    });
    LockManager::from_clients(servers.collect())
}

pub(crate) fn clients(urls: &[String], tasks: usize) -> Vec<Rslock> {
    let manager = manager(urls);
    (0..tasks)
        .map(|task| Rslock {
            manager: manager.clone(),
            name: format!("rslock-{}-{task:04}", urls.len()),
        })
        .collect()
}

impl Contender for Rslock {
    type Held = Lock;

    async fn acquire(&mut self) -> Lock {
        let lock = self.manager.lock(self.name.as_str(), TTL).await;
        lock.expect("nobody else wants it")
    }

    async fn release(&mut self, held: Lock) {
        held.release().await;
    }
}
