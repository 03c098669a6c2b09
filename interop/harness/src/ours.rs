//! The library behind the line protocol of `interop/README.md`: `fencepost-peer URLS [KIND]`, where KIND is
//! `plain`, `fair`, `reentrant`, `read` or `write`.
//!
//! Every use of the library's API in `interop` is here.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fencepost::{
    Client, Error, Lease, ReadLease, ReentrantGuard, ReentrantLock, RestartPolicy, WriteLease,
};
use fencepost_interop::lines::{self, Locks};

#[derive(Clone)]
struct Ours {
    client: Client,
    kind: Kind,
    /// One owner for each name: the peer enters again what it holds.
    owners: Arc<Mutex<HashMap<String, ReentrantLock>>>,
}

impl Ours {
    fn owner(&self, name: &str) -> ReentrantLock {
        let mut owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
        let owner = owners.entry(name.to_owned());
        owner.or_insert_with(|| self.client.reentrant(name)).clone()
    }
}

#[derive(Clone, Copy)]
enum Kind {
    Plain,
    Fair,
    Reentrant,
    Read,
    Write,
}

enum Held {
    Lease(Lease),
    Reader(ReadLease),
    Writer(WriteLease),
    Reentrant(ReentrantGuard),
}

impl Locks for Ours {
    type Held = Held;

    fn version(&self) -> String {
        env!("CARGO_PKG_VERSION").to_owned()
    }

    async fn acquire(
        &self,
        name: &str,
        ttl: Duration,
        wait: Duration,
    ) -> Result<Option<Held>, String> {
        let plain = self.client.lock(name);
        let acquired = match self.kind {
            Kind::Reentrant => {
                let entered = self.owner(name).lock().ttl(ttl).timeout(wait).await;
                entered.map(Held::Reentrant)
            }
            Kind::Plain => plain.ttl(ttl).timeout(wait).await.map(Held::Lease),
            Kind::Fair => plain
                .fair(true)
                .ttl(ttl)
                .timeout(wait)
                .await
                .map(Held::Lease),
            Kind::Read => {
                let read = self.client.read_write(name).read();
                read.ttl(ttl).timeout(wait).await.map(Held::Reader)
            }
            Kind::Write => {
                let write = self.client.read_write(name).write();
                write.ttl(ttl).timeout(wait).await.map(Held::Writer)
            }
        };
        match acquired {
            Ok(held) => Ok(Some(held)),
            Err(error) if is_held(&error) => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    }

    /// By the TTL that it was acquired with.
    async fn extend(&self, held: &mut Held, _ttl: Duration) -> Result<bool, String> {
        let extended = match held {
            Held::Lease(lease) => lease.extend().await,
            Held::Reader(lease) => lease.extend().await,
            Held::Writer(lease) => lease.extend().await,
            Held::Reentrant(guard) => guard.extend().await,
        };
        Ok(extended.is_ok())
    }

    async fn release(&self, held: Held) -> Result<bool, String> {
        let released = match held {
            Held::Lease(lease) => lease.release().await,
            Held::Reader(lease) => lease.release().await,
            Held::Writer(lease) => lease.release().await,
            Held::Reentrant(guard) => guard.release().await,
        };
        Ok(released.is_ok())
    }

    fn token(&self, held: &Held) -> Option<u64> {
        Some(match held {
            Held::Lease(lease) => lease.token().get(),
            Held::Reader(lease) => lease.token().get(),
            Held::Writer(lease) => lease.token().get(),
            Held::Reentrant(guard) => guard.token().get(),
        })
    }
}

fn is_held(error: &Error) -> bool {
    error.is_held() || error.is_timeout()
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let words: Vec<_> = std::env::args().skip(1).collect();
    let kind = match words.get(1).map_or("plain", String::as_str) {
        "plain" => Kind::Plain,
        "fair" => Kind::Fair,
        "reentrant" => Kind::Reentrant,
        "read" => Kind::Read,
        "write" => Kind::Write,
        other => panic!("no such kind: {other}"),
    };
    let urls = words.first().expect("usage: fencepost-peer URLS [KIND]");
    // The servers have just been started, and would not vote yet otherwise.
    let builder = Client::builder()
        .url(urls)
        .restart_policy(RestartPolicy::Trust);
    let client = builder.connect().await.expect("servers that answer");
    let first = urls.split(',').next().unwrap_or(urls);
    lines::serve(
        Ours {
            client,
            kind,
            owners: Arc::default(),
        },
        first,
    )
    .await;
}
