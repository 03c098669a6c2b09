//! What the tests of a Redis node share: a node on a server, and one attempt on one lock.

use std::future::Future;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fencepost::internals::clock::SystemClock;
use fencepost::internals::redis::{RedisNode, RedisOptions, Roster};
use fencepost::internals::{Call, Listener, Node, Notice, WakeSink};
use fencepost::{AttemptValue, Error, FencingToken, LockName, NodeError, Owner};
use fencepost_core::Ttl;
use fencepost_core::lock::{Command, Repair, Reply};
use fencepost_core::ticket::{ClientId, TicketId, Wake};
use fencepost_tests::RedisServer;
use tokio::runtime::Handle;
use tokio::sync::mpsc;

/// Options for tests that propose small tokens. A token is a time in microseconds, and retention goes by
/// it: a small one is decades old, and would be forgotten at any moment.
pub(crate) fn for_small_tokens() -> RedisOptions {
    RedisOptions {
        retention: Duration::from_secs(200 * 366 * 24 * 60 * 60),
        ..RedisOptions::default()
    }
}

/// A node for small tokens.
pub(crate) fn open(url: &str) -> RedisNode {
    open_with(url, for_small_tokens(), &Roster::default())
}

/// A node.
pub(crate) fn open_with(url: &str, options: RedisOptions, roster: &Roster) -> RedisNode {
    let clock = Arc::new(SystemClock);
    RedisNode::open(url, options, roster, clock, &Handle::current()).unwrap()
}

/// A node, or why not.
pub(crate) fn try_open(url: &str) -> Result<RedisNode, Error> {
    let clock = Arc::new(SystemClock);
    let options = for_small_tokens();
    RedisNode::open(url, options, &Roster::default(), clock, &Handle::current())
}

/// A node that acquires by scripts, whatever the server can.
pub(crate) fn by_scripts(url: &str) -> RedisNode {
    let options = RedisOptions {
        scripts_only: true,
        ..for_small_tokens()
    };
    open_with(url, options, &Roster::default())
}

/// The result, which has to be there in time.
pub(crate) async fn within<T>(limit: Duration, future: impl Future<Output = T>) -> T {
    let result = tokio::time::timeout(limit, future).await;
    result.unwrap_or_else(|_| panic!("not within {limit:?}"))
}

pub(crate) fn name(name: &str) -> LockName {
    LockName::new(name).unwrap()
}

/// One attempt on one lock, with a TTL of a minute.
pub(crate) struct Lock {
    name: LockName,
    value: AttemptValue,
}

impl Lock {
    pub(crate) fn new(lock: &str) -> Self {
        let owner = Owner::new("tester").unwrap();
        Self {
            name: name(lock),
            value: AttemptValue::labelled(fencepost_tests::random_number(), &owner),
        }
    }

    /// As one who may enter again.
    pub(crate) fn reentrant(lock: &str) -> Self {
        Self {
            name: name(lock),
            value: AttemptValue::reentrant(fencepost_tests::random_number(), std::process::id()),
        }
    }

    pub(crate) fn name(&self) -> &str {
        self.name.as_str()
    }

    pub(crate) fn value(&self) -> &str {
        self.value.as_str()
    }

    fn ttl() -> Ttl {
        Ttl::new(Duration::from_secs(60)).unwrap()
    }

    pub(crate) fn acquire(&self, node: &impl Node) -> Call {
        let command = Command::Acquire {
            value: self.value.clone(),
            ttl: Self::ttl(),
            proposed: FencingToken::new(1).unwrap(),
            turn: Default::default(),
        };
        node.call(&self.name, command)
    }

    pub(crate) fn steal(&self, node: &impl Node) -> Call {
        let command = Command::Steal {
            value: self.value.clone(),
            ttl: Self::ttl(),
            proposed: FencingToken::new(1).unwrap(),
            from: Vec::new(),
        };
        node.call(&self.name, command)
    }

    pub(crate) fn raise(&self, node: &impl Node) -> Call {
        let command = Command::Raise {
            value: self.value.clone(),
            to: FencingToken::new(9).unwrap(),
        };
        node.call(&self.name, command)
    }

    pub(crate) fn extend(&self, node: &impl Node) -> Call {
        let command = Command::Extend {
            value: self.value.clone(),
            ttl: Self::ttl(),
            token: FencingToken::new(1).unwrap(),
            entries: NonZeroU32::MIN,
            repair: Repair::UnlessOvertaken,
        };
        node.call(&self.name, command)
    }

    pub(crate) fn release(&self, node: &impl Node) -> Call {
        let command = Command::Release {
            value: self.value.clone(),
            tombstone: None,
            ticket: Default::default(),
            follower: None,
            is_lease: false,
        };
        node.call(&self.name, command)
    }

    pub(crate) fn inspect(&self, node: &impl Node) -> Call {
        node.call(&self.name, Command::Inspect)
    }

    /// Acquires, and is granted.
    pub(crate) async fn granted(&self, node: &impl Node) -> FencingToken {
        match within(Duration::from_secs(5), self.acquire(node)).await {
            Ok(Reply::Granted { register, .. }) => register,
            // It is held all the same: the register was there already, since each proposes the same token.
            Ok(Reply::NotRaised(register)) => register,
            other => panic!("not granted: {other:?}"),
        }
    }
}

/// Whether that is a refusal for the time being after a restart.
pub(crate) fn quarantined<T: std::fmt::Debug>(reply: Result<T, NodeError>) -> Duration {
    match reply {
        Err(NodeError::Quarantined(left)) => left,
        other => panic!("not in quarantine: {other:?}"),
    }
}

/// How late a notice may come on a busy machine.
const LATE: Duration = Duration::from_secs(20);

/// What a node says to one client, in order.
pub(crate) struct Hearing {
    _listener: Listener,
    notices: mpsc::UnboundedReceiver<Notice>,
}

struct Recorder(mpsc::UnboundedSender<Notice>);

impl WakeSink for Recorder {
    fn notify(&self, notice: Notice) {
        // Whoever does not look any more does not care.
        let _ = self.0.send(notice);
    }
}

impl Hearing {
    /// Listens, and waits until nothing is missed.
    pub(crate) async fn of(node: &impl Node) -> Self {
        let (said, notices) = mpsc::unbounded_channel();
        let mut hearing = Self {
            _listener: node.listen(&ClientId::of(1), Arc::new(Recorder(said))),
            notices,
        };
        assert_eq!(hearing.next().await, Notice::Listening);
        hearing
    }

    /// Where the client is told.
    pub(crate) fn channel() -> String {
        format!("fencepost:wake:{}", ClientId::of(1).as_str())
    }

    pub(crate) async fn next(&mut self) -> Notice {
        within(LATE, self.notices.recv()).await.unwrap()
    }

    /// Whether something was said that has not been looked at.
    pub(crate) fn has_more(&self) -> bool {
        !self.notices.is_empty()
    }

    /// Hears one wake-up, and nothing else before it.
    pub(crate) async fn is_woken_by(&mut self, server: &RedisServer) {
        let told = server.cli(&["PUBLISH", &Self::channel(), "1ticket"]);
        assert_eq!(told, "1");
        assert_eq!(self.next().await, wake_up("ticket"));
    }
}

/// That it is the turn of that ticket.
pub(crate) fn wake_up(ticket: &str) -> Notice {
    let ticket = TicketId::reported(ticket);
    Notice::Wake(Wake {
        ticket,
        first: true,
        everywhere: false,
        slot: None,
    })
}

/// Waits until the node fails at once, and tells why.
pub(crate) async fn down(node: &impl Node, lock: &Lock) -> NodeError {
    let end = Instant::now() + LATE;
    loop {
        match within(LATE, lock.acquire(node)).await {
            Err(NodeError::Disconnected(_)) | Ok(_) if Instant::now() < end => {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            Err(error) => return error,
            Ok(reply) => panic!("still up: {reply:?}"),
        }
    }
}
