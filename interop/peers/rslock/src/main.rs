//! rslock behind the line protocol of `interop/README.md`. It gets `TCP_NODELAY`, which its Redis client leaves
//! off, so that no socket option decides who is ahead.

use std::time::Duration;

use fencepost_interop::lines::{self, Locks};
use redis::io::tcp::TcpSettings;
use redis::{Client, IntoConnectionInfo};
use rslock::{Lock, LockError, LockManager};

/// Its default.
const RETRY: Duration = Duration::from_millis(200);

#[derive(Clone)]
struct Rslock(LockManager);

impl Locks for Rslock {
    type Held = Lock;

    fn version(&self) -> String {
        // The version that Cargo.lock has; cargo does not tell it to us.
        let lock = include_str!("../../../../Cargo.lock");
        let entry = lock.split("name = \"rslock\"\nversion = \"").nth(1);
        let version = entry.and_then(|rest| rest.split('"').next());
        version.unwrap_or("unknown").to_owned()
    }

    async fn acquire(
        &self,
        name: &str,
        ttl: Duration,
        wait: Duration,
    ) -> Result<Option<Lock>, String> {
        let mut manager = self.0.clone();
        // It pauses for half of the delay on the average.
        let tries = 1 + wait.as_millis() / (RETRY.as_millis() / 2);
        manager.set_retry(tries as u32, RETRY);
        match manager.lock(name, ttl).await {
            Ok(lock) => Ok(Some(lock)),
            Err(LockError::Unavailable) => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    }

    async fn extend(&self, held: &mut Lock, ttl: Duration) -> Result<bool, String> {
        match self.0.extend(held, ttl).await {
            Ok(lock) => {
                *held = lock;
                Ok(true)
            }
            Err(_) => Ok(false),
        }
    }

    /// It does not say whether it was held until now.
    async fn release(&self, held: Lock) -> Result<bool, String> {
        held.release().await;
        Ok(true)
    }
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let urls = std::env::args().nth(1).expect("usage: peer URLS");
    let servers = urls.split(',').map(|url| {
        let info = url.into_connection_info().expect("a good URL");
        let settings = TcpSettings::default().set_nodelay(true);
        Client::open(info.set_tcp_settings(settings)).expect("a good URL")
    });
    let manager = LockManager::from_clients(servers.collect());
    let first = urls.split(',').next().unwrap_or(&urls);
    lines::serve(Rslock(manager), first).await;
}
