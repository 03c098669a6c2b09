//! The floor: the fastest plausible client, written by hand. The library's own scripts by EVALSHA,
//! raw RESP on plain sockets with `TCP_NODELAY`, to all nodes at once, on when a majority has
//! answered. It has no time-outs, no reconnect, no cleanup and no errors: what those cost is what
//! the ratio to it tells.
//!
//! There are two, and each row takes the faster:
//! - [`direct`], one connection per task and node, no other task involved: the better one at one
//!   task, where every hop between tasks is a wake-up.
//! - [`shared`], one pipelined connection per node for all tasks: the better one at many tasks,
//!   where one system call carries many commands.
//!
//! [`hand_off`] is the same for a lock that passes from one to another.
//!
//! Both also run [`Bare`](Kind::Bare): a lock without a token, as `rslock` has it. Between it and
//! the floor lies what the token costs on the server, which no client can win back.

pub(crate) mod direct;
pub(crate) mod hand_off;
pub(crate) mod resp;
pub(crate) mod shared;

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use resp::{Request, Script};
use tokio::net::TcpStream;

use crate::contender::TTL;

/// One of the library's scripts, of these files.
macro_rules! lua {
    ($($file:literal),+) => {
        concat!($(include_str!(concat!(
            "../../../fencepost/src/store/redis/scripts/",
            $file,
            ".lua"
        ))),+)
    };
}

const ACQUIRE: &str = lua!(
    "mark/take",
    "plain/mine",
    "kinds",
    "plain/take",
    "register",
    "line",
    "acquire"
);
const RELEASE: &str = lua!(
    "mark/keep",
    "plain/mine",
    "plain/release",
    "hash",
    "holder",
    "plain/keep",
    "line",
    "stand",
    "readers",
    "release"
);
const QUEUE: &str = lua!(
    "hash", "holder", "register", "line", "stand", "readers", "queue"
);

/// Compare and delete, as everybody does it who keeps no tokens.
const BARE_RELEASE: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then \
                            return redis.call('DEL', KEYS[1]) else return 0 end";

/// The fence register of all locks.
const REGISTER: &str = "fencepost:fences";
const HOUR_MICROS: u64 = 60 * 60 * 1_000_000;
const TICKET_LEASE_MILLIS: u64 = 3000;
/// As long as the label that the library makes of host, pid and program.
const LABEL: &str = "host-of-this-test:12345:fencepost-bench";

/// What the floor asks of a server.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The library's scripts.
    Fenced,
    /// `SET NX PX` and compare-and-delete.
    Bare,
}

/// The two requests of one lock name. The buffer is used again and again.
pub(crate) struct Lock {
    kind: Kind,
    name: String,
    line_key: String,
    leases_key: String,
    gone_key: String,
    readers_key: String,
    value: String,
    acquire: Script,
    release: Script,
    request: Request,
}

impl Lock {
    fn new(place: &str, task: usize, scripts: &Scripts) -> Self {
        let name = match scripts.kind {
            Kind::Fenced => format!("floor-{place}-{task:04}"),
            Kind::Bare => format!("bare-{place}-{task:04}"),
        };
        Self {
            kind: scripts.kind,
            line_key: format!("{{{name}}}:queue"),
            leases_key: format!("{{{name}}}:leases"),
            readers_key: format!("{{{name}}}:readers"),
            name,
            gone_key: String::new(),
            value: String::new(),
            acquire: scripts.acquire.clone(),
            release: scripts.release.clone(),
            request: Request::default(),
        }
    }

    /// The acquire of a fresh attempt. Fresh is enough here: nobody tries to guess the value.
    fn acquire(&mut self) -> &[u8] {
        self.acquire_in_turn(None)
    }

    /// Gets in line.
    fn queue(&mut self, script: &Script, ticket: &str) -> &[u8] {
        let keys = [&*self.name, &self.line_key, &self.leases_key, REGISTER];
        self.request
            .begin(script, &keys, 5)
            .number(TICKET_LEASE_MILLIS)
            .number(HOUR_MICROS)
            .text(ticket)
            .number(now_micros())
            .text("proposed")
            .bytes()
    }

    /// The same, by one whose ticket it is the turn of.
    fn acquire_in_turn(&mut self, ticket: Option<&str>) -> &[u8] {
        static ATTEMPTS: AtomicU64 = AtomicU64::new(0);
        let attempt = ATTEMPTS.fetch_add(1, Ordering::Relaxed);
        self.value.clear();
        let _ = write!(self.value, "{attempt:032x}:{LABEL}");
        self.gone_key.clear();
        let _ = write!(
            self.gone_key,
            "{{{}}}:gone:{}",
            self.name,
            &self.value[..32]
        );
        let ttl = TTL.as_millis() as u64;
        if self.kind == Kind::Bare {
            return self.request.set_nx(&self.name, &self.value, ttl).bytes();
        }
        let request = self
            .request
            .begin(
                &self.acquire,
                &[
                    &self.name,
                    REGISTER,
                    &self.gone_key,
                    &self.line_key,
                    &self.leases_key,
                ],
                4 + usize::from(ticket.is_some()),
            )
            .text(&self.value)
            .number(ttl)
            .number(now_micros())
            .number(HOUR_MICROS);
        match ticket {
            Some(ticket) => request.text(ticket).bytes(),
            None => request.bytes(),
        }
    }

    /// The release of the attempt that was made last.
    fn release(&mut self) -> &[u8] {
        if self.kind == Kind::Bare {
            let request = self.request.begin(&self.release, &[&self.name], 1);
            return request.text(&self.value).bytes();
        }
        self.request
            .begin(
                &self.release,
                &[
                    &self.name,
                    &self.line_key,
                    &self.leases_key,
                    &self.gone_key,
                    &self.readers_key,
                ],
                4,
            )
            .text(&self.value)
            .number(0)
            .text("")
            .text("stays")
            .bytes()
    }
}

/// The token and the number to propose.
fn now_micros() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |time| time.as_micros() as u64)
}

fn majority(nodes: usize) -> usize {
    nodes / 2 + 1
}

async fn connect(port: u16) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", port)).await;
    let stream = stream.expect("our own server");
    stream.set_nodelay(true).expect("a TCP socket");
    stream
}

/// The scripts of one kind of lock, which all servers know.
struct Scripts {
    kind: Kind,
    acquire: Script,
    release: Script,
}

impl Scripts {
    async fn load(kind: Kind, ports: &[u16]) -> Self {
        let release = match kind {
            Kind::Fenced => RELEASE,
            Kind::Bare => BARE_RELEASE,
        };
        let mut loaded = None;
        for port in ports {
            let mut stream = connect(*port).await;
            loaded = Some(Self {
                kind,
                acquire: Script::load(&mut stream, ACQUIRE).await,
                release: Script::load(&mut stream, release).await,
            });
        }
        loaded.expect("at least one node")
    }
}
