//! The floor: the fastest plausible client, written by hand. Raw RESP on plain sockets with
//! `TCP_NODELAY`, to all nodes at once, on when a majority has answered. It has no time-outs, no
//! reconnect, no cleanup and no errors: what those cost is what the ratio to it tells.
//!
//! There are two clients, and each row takes the faster:
//! - [`direct`], one connection per task and node, no other task involved: the better one at one
//!   task, where every hop between tasks is a wake-up.
//! - [`shared`], one pipelined connection per node for all tasks: the better one at many tasks,
//!   where one system call carries many commands.
//!
//! Each runs two kinds of lock ([`Kind`]). Between them lies what the token costs on the server,
//! which no client can win back.
//!
//! [`hand_off`] is the same for a lock that passes from one to another.

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

/// Compare and delete, as every client does it that keeps no tokens.
const BARE_RELEASE: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then \
                            return redis.call('DEL', KEYS[1]) else return 0 end";

/// The same, with a look at the queue behind it.
const FENCED_RELEASE: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then \
                              redis.call('DEL', KEYS[1]) \
                              return 1 + redis.call('EXISTS', KEYS[2]) else return 0 end";

/// The fence register: one sorted set for all locks.
const FENCES: &str = "fencepost:fences";
/// As long as the label that the library makes of host, pid and program.
const LABEL: &str = "host-of-this-test:12345:fencepost-bench";

/// What the floor asks of a server.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A lock with a fencing token, without Lua in its acquire: `SET NX GET PX`, `ZADD GT CH`, and a
    /// look at the head of the queue.
    Fenced,
    /// A lock without a token, as `rslock` has it: `SET NX PX`.
    Bare,
}

/// The two requests of one lock name. The buffer is used again and again.
pub(crate) struct Lock {
    kind: Kind,
    name: String,
    queue_key: String,
    value: String,
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
            queue_key: format!("{{{name}}}:queue"),
            name,
            value: String::new(),
            release: scripts.release.clone(),
            request: Request::default(),
        }
    }

    /// The acquire of a fresh attempt. Fresh is enough here: nobody tries to guess the value.
    fn acquire(&mut self) -> &Request {
        static ATTEMPTS: AtomicU64 = AtomicU64::new(0);
        let attempt = ATTEMPTS.fetch_add(1, Ordering::Relaxed);
        self.value.clear();
        let _ = write!(self.value, "{attempt:032x}:{LABEL}");
        let ttl = TTL.as_millis() as u64;
        let request = self.request.clear();
        match self.kind {
            Kind::Bare => {
                request.command(6).text("SET");
                request.text(&self.name).text(&self.value);
                request.text("NX").text("PX").number(ttl)
            }
            Kind::Fenced => {
                request.command(7).text("SET");
                request.text(&self.name).text(&self.value);
                request.text("NX").text("GET").text("PX").number(ttl);
                request.command(6).text("ZADD").text(FENCES);
                request.text("GT").text("CH").number(now_micros());
                request.text(&self.name);
                request.command(4).text("ZRANGE").text(&self.queue_key);
                request.number(0).number(0)
            }
        }
    }

    /// The release of the attempt that was made last.
    fn release(&mut self) -> &Request {
        let keys = match self.kind {
            Kind::Fenced => &[&*self.name, &self.queue_key][..],
            Kind::Bare => &[&*self.name],
        };
        let request = self.request.clear();
        request.script(&self.release, keys, 1).text(&self.value)
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
    release: Script,
}

impl Scripts {
    async fn load(kind: Kind, ports: &[u16]) -> Self {
        let source = match kind {
            Kind::Fenced => FENCED_RELEASE,
            Kind::Bare => BARE_RELEASE,
        };
        let mut release = None;
        for port in ports {
            release = Some(Script::load(&mut connect(*port).await, source).await);
        }
        let release = release.expect("at least one node");
        Self { kind, release }
    }
}
