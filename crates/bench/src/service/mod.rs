//! The lock service over HTTP, beside the library on the same store without it, and beside etcd's lock
//! API. All in turns, in one run.
//!
//! | file | what it is |
//! | --- | --- |
//! | this one | `service`: cycles and latency |
//! | `scale` | `service-scale`: many who wait and watch |
//! | `child` | a replica in a process of its own |
//! | `http` | a client that is as small as can be |
//! | `etcd` | etcd, where it is installed |
//!
//! The controls are HTTP by what the service is built on, with nothing behind it: what that and the library cost
//! together, no service on top of both can be below; and the two together without anything that makes it a service.

pub(crate) mod child;
mod etcd;
pub(crate) mod http;
pub(crate) mod scale;

use std::time::Duration;

use fencepost_tests::{EtcdServer, RedisServer};
use serde_json::{Value, json};

use self::child::{HTTP_ALONE, Replica};
use self::etcd::EtcdLock;
use self::http::Http;
use crate::contender::{Contender, TTL};
use crate::measure::{Seen, cycles};
use crate::ours::Ours;
use crate::{Effort, ours};

const TASKS: [usize; 2] = [1, 64];

/// A client of the service that knows nothing but the API, and lets the service make its lease ids.
struct Plain {
    http: Http,
    name: String,
}

impl Plain {
    async fn clients(address: &str, tasks: usize) -> Vec<Self> {
        let mut clients = Vec::new();
        for task in 0..tasks {
            clients.push(Self {
                http: Http::connect(address).await,
                name: format!("{address}-{task:04}"),
            });
        }
        clients
    }
}

impl Contender for Plain {
    type Held = Value;

    async fn acquire(&mut self) -> Value {
        let ttl = format!("{}s", TTL.as_secs());
        let body = json!({ "name": self.name, "ttl": ttl });
        let (status, answer) = self.http.post("/v1/acquire", &body).await;
        assert_eq!(status, 200, "{answer}");
        answer["lease"].clone()
    }

    async fn release(&mut self, lease: Value) {
        let body = json!({ "name": self.name, "lease": lease });
        let (status, answer) = self.http.post("/v1/release", &body).await;
        assert_eq!(status, 200, "{answer}");
    }
}

/// One contender, and what was seen of it at each number of tasks.
struct Lane<C> {
    what: String,
    clients: Vec<C>,
    seen: Vec<Seen>,
}

impl<C: Contender> Lane<C> {
    async fn new(what: String, mut clients: Vec<C>, warm_up: Duration) -> Self {
        let all = clients.len();
        cycles(&mut clients, all, warm_up, &mut Seen::new()).await;
        Self {
            what,
            clients,
            seen: TASKS.iter().map(|_| Seen::new()).collect(),
        }
    }

    async fn turn(&mut self, at: usize, time: Duration) {
        cycles(&mut self.clients, TASKS[at], time, &mut self.seen[at]).await;
    }

    fn print(&self) {
        let what = &self.what;
        let one = &self.seen[0];
        let (p50, p99) = (one.acquire_micros(0.5), one.acquire_micros(0.99));
        let many = self.seen[1].acquire_micros(0.99);
        let each = self.seen.iter().map(Seen::cycles_per_second);
        let each: Vec<_> = each.map(|figure| format!("{figure:>10.0}")).collect();
        println!(
            "{what:<42} {p50:>9.0} {p99:>9.0} {} {many:>12.0}",
            each.join(" ")
        );
    }
}

/// The same store for another server, and what has to live as long: a file is opened by one alone, as by the library.
fn aside(store: &str) -> (String, Option<tempfile::TempDir>) {
    if !store.starts_with("file:") {
        return (store.to_owned(), None);
    }
    let directory = tempfile::tempdir().expect("a directory");
    let url = format!("file:{}", directory.path().join("least.db").display());
    (url, Some(directory))
}

/// By which option they are asked for.
pub(crate) const STORES: [&str; 4] = ["memory", "file", "one", "five"];

/// On these [stores](STORES).
pub(crate) async fn run(effort: Effort, wanted: &[&str]) {
    let most = TASKS[TASKS.len() - 1];
    let time = effort.slice;
    let servers = RedisServer::start_many(5);
    let urls: Vec<_> = servers.iter().map(RedisServer::url).collect();
    let files = tempfile::tempdir().expect("a directory");
    let file = |name: &str| format!("file:{}", files.path().join(name).display());
    // The library on a table or a file of its own: one process cannot see another's table, and a file
    // is opened once by each side.
    let stores = [
        (
            "memory",
            "memory:bench".to_owned(),
            vec!["memory:bench".to_owned()],
        ),
        ("file", file("service.db"), vec![file("library.db")]),
        ("one Redis", urls[0].clone(), vec![urls[0].clone()]),
        ("five Redis", urls.join(","), urls.clone()),
    ];
    let etcd = EtcdServer::start();
    let mut beside: Option<Lane<EtcdLock>> = match &etcd {
        None => None,
        Some(etcd) => {
            let what = "etcd, v3/lock over HTTP".to_owned();
            Some(Lane::new(what, etcd::clients(etcd, most).await, time).await)
        }
    };
    let control = Replica::start(HTTP_ALONE);
    println!(
        "{:<42} {:>9} {:>9} {:>10} {:>10} {:>12}",
        "uncontended", "p50 us", "p99 us", "cycles/s 1", "at 64", "p99 us at 64"
    );
    let stores = STORES.iter().zip(stores);
    for (_, (word, store, library)) in stores.filter(|(word, _)| wanted.contains(word)) {
        let replica = Replica::start(&store);
        let through = vec![replica.url()];
        let what = |how: &str| format!("{word}: {how}");
        let direct = ours::clients(&library, most).await;
        let mut direct: Lane<Ours> = Lane::new(what("the library alone"), direct, time).await;
        let plain = Plain::clients(&replica.address, most).await;
        let mut plain = Lane::new(what("service, HTTP"), plain, time).await;
        let (aside, _file) = aside(&store);
        let control_of_store = Replica::least(&aside);
        let least = Plain::clients(&control_of_store.address, most).await;
        let mut least = Lane::new(what("HTTP and the library, no more"), least, time).await;
        let leased = ours::clients(&through, most).await;
        let mut leased = Lane::new(what("service, library with lease ids"), leased, time).await;
        let bare = Plain::clients(&control.address, most).await;
        let mut bare = Lane::new(what("HTTP with nothing behind it"), bare, time).await;
        for round in 0..effort.rounds {
            for at in 0..TASKS.len() {
                for turn in 0..6 {
                    match (round + turn) % 6 {
                        0 => direct.turn(at, time).await,
                        1 => plain.turn(at, time).await,
                        2 => leased.turn(at, time).await,
                        3 => bare.turn(at, time).await,
                        4 => least.turn(at, time).await,
                        _ => {
                            if let Some(etcd) = &mut beside {
                                etcd.turn(at, time).await;
                            }
                        }
                    }
                }
            }
        }
        direct.print();
        plain.print();
        leased.print();
        bare.print();
        least.print();
        let (alone, served, bare, least) = (&direct.seen, &plain.seen, &bare.seen, &least.seen);
        let p50 = |seen: &[Seen]| seen[0].acquire_micros(0.5);
        let rate = |seen: &[Seen]| seen[1].cycles_per_second();
        let ratios = |what: String, p50: f64, rate: f64| {
            println!("{what:<42} {p50:>8.2}x {rate:>29.2}x");
        };
        ratios(
            what("service beside library"),
            p50(served) / p50(alone),
            rate(served) / rate(alone),
        );
        ratios(
            what("the least beside library"),
            p50(least) / p50(alone),
            rate(least) / rate(alone),
        );
        ratios(
            what("service beside the least"),
            p50(served) / p50(least),
            rate(served) / rate(least),
        );
        // Time adds up, and at 64 tasks so does the processor time of all that shares these cores.
        let reachable = 1.0 / (1.0 / rate(alone) + 1.0 / rate(bare));
        ratios(
            what("the most that is left beside HTTP"),
            (p50(alone) + p50(bare)) / p50(alone),
            reachable / rate(alone),
        );
    }
    match beside {
        Some(etcd) => etcd.print(),
        None => println!(
            "etcd                                       skipped: not installed (Debian: etcd-server)"
        ),
    }
}
