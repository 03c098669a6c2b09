//! Two replicas over five real servers, killed again and again in the middle of acquires, waits and
//! extends, or behind proxies that send requests twice and hold answers back. Half of the clients are written by hand, as any language would write them; the others are the
//! library's.
//!
//! `FENCEPOST_KILLS=1000` makes it the long form.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fencepost::Client;
use fencepost_checks::{Bounds, ClientId, Event, History, LeaseId, LeaseRef, Outcome, Step, Time};
use fencepost_tests::{Cluster, eventually};
use serde_json::{Value, json};

use crate::bench::Bench;

/// What they contend for.
const LOCKS: [&str; 3] = ["jobs/a", "jobs/b", "jobs/c"];
const TTL: Duration = Duration::from_millis(1500);
/// Tombstones of released lease ids last that long.
const MAX_TTL: &str = "5s";
const BY_HAND: u32 = 4;
const BY_LIBRARY: u32 = 2;
/// The longest wait once nothing is killed any more: on a machine that has better things to do.
const SERVED: Duration = Duration::from_secs(40);

/// How long proxies may take to have made enough trouble.
const PROXIED: Duration = Duration::from_secs(60);

/// What all of them write to.
struct Record {
    start: Instant,
    events: Mutex<Vec<Event>>,
    over: AtomicBool,
    /// Acquires that were sent again and found that they had the lock.
    repeated: AtomicU64,
}

impl Record {
    fn now(&self) -> Time {
        Time(0).after(self.start.elapsed())
    }

    fn put(&self, of: &LeaseRef, step: Step) -> Time {
        let at = self.now();
        self.put_at(at, of, step);
        at
    }

    fn put_at(&self, at: Time, of: &LeaseRef, step: Step) {
        self.events.lock().unwrap().push(Event::lease(at, of, step));
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }
}

/// A random number below that.
fn below(most: u64) -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0) % most
}

fn lease_id() -> String {
    format!("{:016x}{:016x}", below(u64::MAX), below(u64::MAX))
}

struct Replica {
    address: SocketAddr,
    child: Child,
}

impl Replica {
    fn start(bench: &Bench, urls: &str, address: SocketAddr) -> Self {
        let listen = address.to_string();
        let mut command = bench.command(&["serve", "--listen", &listen, "--store", urls]);
        command.args(["--restart-policy", "trust", "--max-ttl", MAX_TTL]);
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let out = child.stdout.take().unwrap();
        BufReader::new(out).read_line(&mut line).unwrap();
        assert!(line.contains(&listen), "{line:?}");
        Self { address, child }
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        // -9.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One request on a connection of its own.
fn post(
    to: SocketAddr,
    path: &str,
    body: &Value,
    limit: Duration,
) -> std::io::Result<(u16, Value)> {
    let body = body.to_string();
    let mut stream = TcpStream::connect_timeout(&to, Duration::from_secs(1))?;
    stream.set_read_timeout(Some(limit))?;
    write!(
        stream,
        "POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let broken = || std::io::Error::from(std::io::ErrorKind::UnexpectedEof);
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(broken)?;
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    let body = serde_json::from_str(body).map_err(|_| broken())?;
    Ok((status.ok_or_else(broken)?, body))
}

/// A client that knows the API and nothing else.
struct ByHand {
    record: Arc<Record>,
    replicas: [SocketAddr; 2],
    id: u32,
    turn: usize,
}

impl ByHand {
    /// Asks one replica, and the other next time if this one cannot be asked.
    fn post(&mut self, path: &str, body: &Value, limit: Duration) -> Option<(u16, Value)> {
        let answer = post(self.replicas[self.turn % 2], path, body, limit).ok();
        let answer = answer.filter(|(status, _)| *status < 500);
        if answer.is_none() {
            self.turn += 1;
            std::thread::sleep(Duration::from_millis(20));
        }
        answer
    }

    fn work(mut self) {
        for round in 0.. {
            let last = self.record.is_over();
            self.once(round);
            if last {
                return;
            }
        }
    }

    fn once(&mut self, round: u64) {
        let record = Arc::clone(&self.record);
        // One that nobody else wants is acquired so often that a kill hits grants on their way.
        let own = format!("jobs/of-{}", self.id);
        let is_own = below(8) > 0;
        let (name, pause) = match is_own {
            true => (own.as_str(), 5),
            false => (LOCKS[below(LOCKS.len() as u64) as usize], 80),
        };
        let of = reference(self.id, name, round);
        let lease = lease_id();
        record.put(&of, Step::Asked);
        let ttl = format!("{}ms", TTL.as_millis());
        let mut attempt = 0;
        let (token, mut valid_until) = loop {
            attempt += 1;
            let sent = record.now();
            let body = json!({
                "name": name, "lease": lease, "attempt": attempt, "ttl": ttl, "wait": "3s",
                "fair": round.is_multiple_of(2),
            });
            let Some((status, answer)) = self.post("/v1/acquire", &body, Duration::from_secs(8))
            else {
                continue;
            };
            match status {
                200 => {
                    let valid = answer["valid_for_ms"].as_u64().unwrap();
                    let until = sent.after(Duration::from_millis(valid));
                    if answer["repeated"] == true {
                        record.repeated.fetch_add(1, Ordering::Relaxed);
                    }
                    // Too late by our own clock: the next attempt takes it over.
                    if record.now() < until {
                        break (answer["token"].as_u64().unwrap(), until);
                    }
                }
                409 => {}
                _ => panic!("{status}: {answer}"),
            }
        };
        record.put(&of, Step::Acquired { token, valid_until });
        let mut lost = false;
        for _ in 0..below(4) {
            std::thread::sleep(Duration::from_millis(below(pause)));
            if record.now() >= valid_until {
                break;
            }
            let sent = record.now();
            let body =
                json!({ "leases": [{ "name": name, "lease": lease, "token": token }], "ttl": ttl });
            let Some((200, answer)) = self.post("/v1/extend", &body, Duration::from_secs(1)) else {
                continue;
            };
            let one = &answer["leases"][0];
            match one["outcome"].as_str().unwrap() {
                "extended" => {
                    let valid = Duration::from_millis(one["valid_for_ms"].as_u64().unwrap());
                    if record.now() < valid_until {
                        valid_until = valid_until.max(sent.after(valid));
                        record.put(&of, Step::Extended { valid_until });
                    }
                }
                "no_quorum" => {}
                "lost" => {
                    // It may have come after the end of our own deadline, and never before.
                    let now = record.now();
                    assert!(now >= valid_until, "lost while valid: {of}: {answer}");
                    lost = true;
                    break;
                }
                other => panic!("{other}: {answer}"),
            }
        }
        if lost || record.now() >= valid_until {
            let reason = "expired".into();
            record.put_at(valid_until, &of, Step::LossTold { reason });
        }
        record.put(&of, Step::Releasing);
        let body = json!({ "name": name, "lease": lease });
        let outcome = loop {
            match self.post("/v1/release", &body, Duration::from_secs(4)) {
                Some((200, _)) => break Outcome::Released,
                Some((410, _)) => break Outcome::Lost,
                Some(other) => panic!("{other:?}"),
                None => {}
            }
        };
        record.put(&of, Step::Released { outcome });
    }
}

fn reference(client: u32, lock: &str, lease: u64) -> LeaseRef {
    LeaseRef {
        client: ClientId(client),
        lock: lock.to_owned(),
        lease: LeaseId(lease),
    }
}

/// The library's own client.
async fn by_library(record: Arc<Record>, id: u32, urls: String) {
    let locks = Client::connect(urls).await.unwrap();
    for round in 0.. {
        let last = record.is_over();
        let name = LOCKS[below(LOCKS.len() as u64) as usize];
        let of = reference(id, name, round);
        record.put(&of, Step::Asked);
        let lease = match locks.lock(name).ttl(TTL).await {
            Ok(lease) => lease,
            // Both are away for longer than a TTL: two that are killed in a row, on a slow machine.
            Err(error) => {
                assert!(error.is_retryable(), "{error}");
                let error = "no_quorum".into();
                record.put(&of, Step::Failed { error });
                continue;
            }
        };
        let until = |record: &Record| record.now().after(lease.remaining());
        let (token, valid_until) = (lease.token().get(), until(&record));
        record.put(&of, Step::Acquired { token, valid_until });
        let end = Instant::now() + Duration::from_millis(below(400));
        while Instant::now() < end && lease.is_valid() {
            tokio::time::sleep(Duration::from_millis(20)).await;
            if lease.is_valid() {
                let valid_until = until(&record);
                record.put(&of, Step::Extended { valid_until });
            }
        }
        if let Some(why) = lease.loss() {
            let reason = why.as_str().to_owned();
            record.put(&of, Step::LossTold { reason });
        }
        record.put(&of, Step::Releasing);
        let outcome = match lease.release().await {
            Ok(()) => Outcome::Released,
            Err(error) if error.is_lost() => Outcome::Lost,
            Err(_) => Outcome::Unknown,
        };
        record.put(&of, Step::Released { outcome });
        if last {
            return;
        }
    }
}

/// A proxy that passes each request on to its replica: some of them twice, and some answers when their lease
/// is over. It behaves once all is over.
struct Proxy {
    replica: SocketAddr,
    record: Arc<Record>,
    repeated: AtomicU64,
    delayed: AtomicU64,
}

impl Proxy {
    fn start(replica: SocketAddr, record: &Arc<Record>) -> (SocketAddr, Arc<Self>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let proxy = Arc::new(Self {
            replica,
            record: Arc::clone(record),
            repeated: AtomicU64::new(0),
            delayed: AtomicU64::new(0),
        });
        let shared = Arc::clone(&proxy);
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let proxy = Arc::clone(&shared);
                // A client that breaks off has nothing to be told.
                std::thread::spawn(move || drop(proxy.pass_on(client)));
            }
        });
        (address, proxy)
    }

    fn pass_on(&self, mut client: TcpStream) -> std::io::Result<()> {
        let request = request(&mut client)?;
        let behaves = self.record.is_over();
        if !behaves && below(3) == 0 {
            self.repeated.fetch_add(1, Ordering::Relaxed);
            let (replica, copy) = (self.replica, request.clone());
            let first = std::thread::spawn(move || send(replica, &copy));
            // Before the second is sent, or at the same time, or long after.
            if below(2) == 0 {
                let _ = first.join();
            }
        }
        let answer = send(self.replica, &request)?;
        if !behaves && below(12) == 0 {
            self.delayed.fetch_add(1, Ordering::Relaxed);
            std::thread::sleep(TTL + Duration::from_millis(below(500)));
        }
        client.write_all(&answer)
    }
}

/// A whole request.
fn request(from: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut from = BufReader::new(from);
    let (mut bytes, mut length) = (Vec::new(), 0);
    loop {
        let begin = bytes.len();
        from.read_until(b'\n', &mut bytes)?;
        let line = String::from_utf8_lossy(&bytes[begin..]).to_lowercase();
        if let Some(number) = line.strip_prefix("content-length:") {
            length = number.trim().parse().map_err(std::io::Error::other)?;
        }
        if line.trim().is_empty() {
            break;
        }
    }
    let head = bytes.len();
    bytes.resize(head + length, 0);
    from.read_exact(&mut bytes[head..])?;
    Ok(bytes)
}

/// Sends a request as it is, and returns the answer.
fn send(to: SocketAddr, request: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(to)?;
    stream.write_all(request)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(answer)
}

/// Two replicas over five servers, and those who use them.
struct Service {
    bench: Bench,
    cluster: Cluster,
    addresses: [SocketAddr; 2],
    replicas: [Option<Replica>; 2],
    record: Arc<Record>,
}

impl Service {
    fn start() -> Self {
        let (bench, cluster) = (Bench::new(), Cluster::start(5));
        let addresses = [(); 2].map(|()| {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            listener.local_addr().unwrap()
        });
        let start = |address| Replica::start(&bench, &cluster.urls(), address);
        let replicas = addresses.map(|address| Some(start(address)));
        let record = Arc::new(Record {
            start: Instant::now(),
            events: Mutex::default(),
            over: AtomicBool::new(false),
            repeated: AtomicU64::new(0),
        });
        Self {
            bench,
            cluster,
            addresses,
            replicas,
            record,
        }
    }

    fn kill_one(&mut self) {
        let which = below(2) as usize;
        let address = self.replicas[which].take().unwrap().address;
        let replica = Replica::start(&self.bench, &self.cluster.urls(), address);
        self.replicas[which] = Some(replica);
    }

    /// Lets all clients work while something is done. Those who know nothing but the API find the replicas at
    /// these addresses. How often a lock was acquired, when nothing was wrong with it.
    fn holds(&mut self, by_hand_at: [SocketAddr; 2], hurt: impl FnOnce(&mut Self)) -> usize {
        let record = Arc::clone(&self.record);
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let urls = self.addresses.map(|at| format!("http://{at}")).join(",");
        let by_hand: Vec<_> = (0..BY_HAND)
            .map(|id| {
                let client = ByHand {
                    record: Arc::clone(&record),
                    replicas: by_hand_at,
                    id,
                    turn: id as usize,
                };
                std::thread::spawn(move || client.work())
            })
            .collect();
        let by_library: Vec<_> = (BY_HAND..BY_HAND + BY_LIBRARY)
            .map(|id| runtime.spawn(by_library(Arc::clone(&record), id, urls.clone())))
            .collect();
        hurt(self);
        record.over.store(true, Ordering::Relaxed);
        let healed = Event::healed(record.now());
        record.events.lock().unwrap().push(healed);
        for client in by_hand {
            client.join().unwrap();
        }
        runtime.block_on(async {
            for client in by_library {
                client.await.unwrap();
            }
        });
        self.judge()
    }

    fn judge(&self) -> usize {
        let left = || -> Vec<(String, Vec<String>)> {
            let keys = self.cluster.servers.iter().map(|server| {
                let keys = server.cli(&["KEYS", "*jobs*"]);
                let keys = keys.lines().map(str::to_owned).collect();
                (server.url(), keys)
            });
            keys.collect()
        };
        let limit = Duration::from_secs(30);
        eventually("nothing is left after the TTL", limit, || {
            left().iter().all(|(_, keys)| keys.is_empty())
        });
        let record = &self.record;
        let mut events = std::mem::take(&mut *record.events.lock().unwrap());
        let at = record.now();
        events.extend(
            left()
                .into_iter()
                .map(|(node, keys)| Event::keys_left(at, node, keys)),
        );
        let history = History::new(events);
        let acquired = history
            .turns()
            .iter()
            .filter(|turn| turn.acquired.is_some());
        let (acquired, all) = (acquired.count(), history.turns().len());
        let repeated = record.repeated.load(Ordering::Relaxed);
        println!("{acquired} of {all} acquired, {repeated} taken over by a repeat");
        let bounds = Bounds {
            served_within: SERVED,
            settled_after: Duration::from_secs(5),
            told_within: Duration::from_millis(500),
            token_skew: Duration::ZERO,
        };
        let found = fencepost_checks::mutex(&history, &bounds);
        let found: Vec<_> = found.iter().map(ToString::to_string).collect();
        assert!(found.is_empty(), "{}", found.join("\n"));
        acquired
    }
}

#[test]
fn replicas_that_are_killed_in_the_middle_of_everything_break_no_promise() {
    let kills = std::env::var("FENCEPOST_KILLS").ok();
    let kills: usize = kills.map_or(12, |number| number.parse().unwrap());
    let mut service = Service::start();
    let acquired = service.holds(service.addresses, |service| {
        for _ in 0..kills {
            std::thread::sleep(Duration::from_millis(20 + below(300)));
            service.kill_one();
        }
    });
    println!("{kills} kills");
    assert!(acquired > kills, "they did their work");
}

#[test]
fn a_proxy_that_repeats_requests_and_holds_answers_back_past_the_ttl_breaks_no_promise() {
    let mut service = Service::start();
    let proxies = service
        .addresses
        .map(|replica| Proxy::start(replica, &service.record));
    let count = |of: fn(&Proxy) -> &AtomicU64| -> u64 {
        let counts = proxies.iter().map(|(_, proxy)| of(proxy));
        counts.map(|count| count.load(Ordering::Relaxed)).sum()
    };
    let counts = || (count(|it| &it.repeated), count(|it| &it.delayed));
    let acquired = service.holds(proxies.each_ref().map(|(at, _)| *at), |_| {
        eventually("they make trouble", PROXIED, || {
            let (repeated, delayed) = counts();
            repeated >= 30 && delayed >= 8
        });
    });
    let (repeated, delayed) = counts();
    println!("{repeated} requests repeated, {delayed} answers held back");
    assert!(acquired > 10, "they did their work");
}
