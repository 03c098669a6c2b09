//! The Lua scripts and `LockState` are two implementations of one machine. Random sequences of
//! commands run through both, on a real server, and every reply is compared, and every wake-up. Half of
//! them acquire by plain commands where that can be: what these do is written down with the state machine.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fencepost::internals::redis::RedisNode;
use fencepost::internals::{Node, Request};
use fencepost::{AttemptValue, FencingToken, LockName, NodeError};
use fencepost_core::Ttl;
use fencepost_core::lock::plain::PlainAcquire;
use fencepost_core::lock::{Command, Holder, LockState, MAX_SKEW, Now, Repair, Reply, Snapshot};
use fencepost_core::ticket::{TicketId, Wake};
use fencepost_tests::RedisServer;
use futures_util::StreamExt;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use redis::aio::MultiplexedConnection;
use tokio::sync::{Mutex, mpsc};

use crate::random_commands::{Layout, Step, by_holder, layout, step};

/// How far the two may differ in what is left: real time passes on one of them.
const TOLERANCE: Duration = Duration::from_secs(20);
const MAX: u64 = FencingToken::MAX.get();

struct Both {
    /// Sends scripts only.
    by_scripts: RedisNode,
    /// Acquires by plain commands, if the server can.
    by_commands: RedisNode,
    has_commands: bool,
    raw: MultiplexedConnection,
    names: AtomicU64,
    /// What the server publishes.
    heard: Mutex<mpsc::UnboundedReceiver<String>>,
}

impl Both {
    async fn run(&self, layout: Layout, steps: Vec<(usize, Step)>) -> Result<(), TestCaseError> {
        let number = self.names.fetch_add(1, Ordering::Relaxed);
        let mut models = Models::of_case(number);
        let is_plain = self.has_commands && number % 8 < 4;
        let node = match is_plain {
            true => &self.by_commands,
            false => &self.by_scripts,
        };
        let begin = Instant::now();
        let mut advanced = Duration::ZERO;
        for (i, (which, step)) in steps.into_iter().enumerate() {
            let which = which % models.names.len();
            // The name by which one waits for all slots is only waited for: nobody holds it.
            let which = match &step {
                Step::Do(command) | Step::DoAsHolder(command)
                    if models.is_queue_alone(which) && !is_of_queue(command) =>
                {
                    0
                }
                _ => which,
            };
            let name = models.names[which].clone();
            let command = match step {
                Step::Advance(time) => {
                    advanced += time;
                    self.advance(&models.common, time).await;
                    let now = Now {
                        elapsed: advanced + begin.elapsed(),
                        wall_micros: 0,
                    };
                    // A server forgets by the score; how much later than that is no command's business.
                    for which in 0..models.names.len() {
                        if models.snapshot(which, now).register == FencingToken::ZERO {
                            self.forget(models.names[which].as_str()).await;
                        }
                    }
                    continue;
                }
                Step::Do(command) => command,
                Step::DoAsHolder(command) => {
                    let now = Now {
                        elapsed: advanced + begin.elapsed(),
                        wall_micros: 0,
                    };
                    by_holder(command, &models.snapshot(which, now))
                }
            };
            let before = self.server_micros().await;
            let head = self.head(&models.queue_key(which)).await;
            let now = Now {
                elapsed: advanced + begin.elapsed(),
                wall_micros: 0,
            };
            // What a holder knows who releases its lease.
            let token = models.snapshot(which, now).holder.and_then(|it| it.token);
            let request = Request::new(&name, command.clone()).held_with(token);
            let real = node.send(&request).await.unwrap();
            let after = self.server_micros().await;
            let now = Now {
                elapsed: advanced + begin.elapsed(),
                wall_micros: implied_time(&real, before, after),
            };
            let mut woken = Vec::new();
            let latest = before + MAX_SKEW.as_micros() as u64;
            let plain = PlainAcquire::of(&command)
                .filter(|plain| is_plain && plain.proposed.get() <= latest);
            let wake = |wake| woken.push(wake);
            let expected = match &plain {
                Some(plain) => {
                    let head = head.as_ref();
                    models.acquire_by_commands(which, plain, &command, head, now, wake)
                }
                None => models.apply(which, &command, now, wake),
            };
            prop_assert!(
                alike(&expected, &real),
                "step {i}, {name}, {command:?}: the state machine says {expected:?}, Redis {real:?}"
            );
            let mut heard = self.heard_up_to(&format!("{name} {i}")).await;
            let mut expected: Vec<_> = woken.iter().map(published).collect();
            if layout == Layout::Reentrant && real == Reply::Released {
                expected.push("0".to_owned());
            }
            // In which order is the server's affair.
            heard.sort();
            expected.sort();
            prop_assert_eq!(heard, expected, "step {}, {:?}", i, command);
            self.check_entries(&name, &command, &real).await?;
        }
        Ok(())
    }

    /// Who stands first in the queue, silent or not.
    async fn head(&self, queue_key: &str) -> Option<TicketId> {
        let head: Vec<String> = redis::cmd("ZRANGE")
            .arg(queue_key)
            .arg(0)
            .arg(0)
            .query_async(&mut self.raw.clone())
            .await
            .unwrap();
        head.first().map(|id| TicketId::reported(&**id))
    }

    /// The hash of a reentrant lock tells the number that its holder has sent, and nothing else.
    async fn check_entries(
        &self,
        name: &LockName,
        command: &Command,
        reply: &Reply,
    ) -> Result<(), TestCaseError> {
        let Command::Extend { value, entries, .. } = command else {
            return Ok(());
        };
        if value.is_reentrant() && matches!(reply, Reply::Extended | Reply::Repaired) {
            let fields: Vec<(String, String)> = redis::cmd("HGETALL")
                .arg(name.as_str())
                .query_async(&mut self.raw.clone())
                .await
                .unwrap();
            let [(field, stored)] = &fields[..] else {
                panic!("{fields:?}");
            };
            prop_assert_eq!(field, value.as_str());
            let counted = format!("{entries}:");
            prop_assert!(stored.starts_with(&counted), "{} of {}", stored, counted);
        }
        Ok(())
    }

    /// Everything that was published before this mark.
    async fn heard_up_to(&self, mark: &str) -> Vec<String> {
        let _: i64 = redis::cmd("PUBLISH")
            .arg("fencepost:wake:mark")
            .arg(mark)
            .query_async(&mut self.raw.clone())
            .await
            .unwrap();
        let mut heard = Vec::new();
        let mut messages = self.heard.lock().await;
        loop {
            match messages.recv().await.unwrap() {
                message if message == mark => return heard,
                message => heard.push(message),
            }
        }
    }

    async fn server_micros(&self) -> u64 {
        let time: (u64, u64) = redis::cmd("TIME")
            .query_async(&mut self.raw.clone())
            .await
            .unwrap();
        time.0 * 1_000_000 + time.1
    }

    /// Retention has come to this lock.
    async fn forget(&self, name: &str) {
        let _: i64 = redis::cmd("ZREM")
            .arg("fencepost:fences")
            .arg(name)
            .query_async(&mut self.raw.clone())
            .await
            .unwrap();
    }

    /// Lets that much time pass for the keys of one lock.
    async fn advance(&self, name: &str, time: Duration) {
        let mut raw = self.raw.clone();
        let pattern = format!("*{name}*");
        let keys: Vec<String> = redis::cmd("KEYS")
            .arg(pattern)
            .query_async(&mut raw)
            .await
            .unwrap();
        for key in keys {
            let left: i64 = redis::cmd("PTTL")
                .arg(&key)
                .query_async(&mut raw)
                .await
                .unwrap();
            assert!(left >= 0, "{key} never expires");
            if key.ends_with(":leases") || key.ends_with(":readers") {
                let waiting: Vec<String> = redis::cmd("ZRANGE")
                    .arg(&key)
                    .arg(0)
                    .arg(-1)
                    .query_async(&mut raw)
                    .await
                    .unwrap();
                for id in waiting {
                    let _: f64 = redis::cmd("ZINCRBY")
                        .arg(&key)
                        .arg(-i64::try_from(time.as_micros()).unwrap())
                        .arg(id)
                        .query_async(&mut raw)
                        .await
                        .unwrap();
                }
            }
            // Zero or less deletes it.
            let left = left - i64::try_from(time.as_millis()).unwrap();
            let _: i64 = redis::cmd("PEXPIRE")
                .arg(&key)
                .arg(left)
                .query_async(&mut raw)
                .await
                .unwrap();
        }
    }
}

/// The locks of one case: one alone, or two slots of a semaphore and the queue that they share.
struct Models {
    names: Vec<LockName>,
    states: Vec<LockState>,
    /// What all their keys have in common.
    common: String,
}

impl Models {
    fn of_case(number: u64) -> Self {
        let common = format!("case-{number}:");
        // Also with a tag of its own: its side keys are called otherwise.
        let names = match number % 4 {
            0 => vec![common.clone()],
            1 => vec![format!("{{case}}-{common}")],
            _ => [":0", ":1", ""]
                .map(|end| format!("{{{common}}}:semaphore{end}"))
                .into(),
        };
        Self {
            states: vec![LockState::default(); names.len()],
            names: names
                .into_iter()
                .map(|name| LockName::new(name).unwrap())
                .collect(),
            common,
        }
    }

    fn apply(
        &mut self,
        which: usize,
        command: &Command,
        now: Now,
        wake: impl FnMut(Wake),
    ) -> Reply {
        match (self.names[which].slot(), self.states.split_last_mut()) {
            (Some(slot), Some((whole, slots))) => {
                slots[which].apply_to_slot(whole, slot, command, now, wake)
            }
            _ => self.states[which].apply_and_wake(command, now, wake),
        }
    }

    /// Whether that is the queue which the others, all of them slots, share.
    fn is_queue_alone(&self, which: usize) -> bool {
        which > 0 && self.names[which].slot().is_none()
    }

    fn snapshot(&mut self, which: usize, now: Now) -> Snapshot {
        let Reply::Snapshot(seen) = self.apply(which, &Command::Inspect, now, |_| {}) else {
            panic!("no snapshot");
        };
        seen
    }

    /// The key of the queue in which one waits for that lock.
    fn queue_key(&self, which: usize) -> String {
        let queue = self.names[which].queue();
        match queue.as_str().contains('{') {
            true => format!("{queue}:queue"),
            false => format!("{{{queue}}}:queue"),
        }
    }

    /// What plain commands do to the same machine, one after the other.
    fn acquire_by_commands(
        &mut self,
        which: usize,
        plain: &PlainAcquire<'_>,
        command: &Command,
        head: Option<&TicketId>,
        now: Now,
        mut wake: impl FnMut(Wake),
    ) -> Reply {
        let state = &mut self.states[which];
        let holder = state.set_if_free(plain, now.elapsed);
        let verdict = state.follow_set(plain, holder.as_ref(), head);
        if verdict.is_undone() {
            self.apply(which, &plain.undo(), now, &mut wake);
        }
        match plain.reply(verdict, holder) {
            Some(reply) => reply,
            None => self.apply(which, command, now, wake),
        }
    }
}

fn is_of_queue(command: &Command) -> bool {
    matches!(
        command,
        Command::Enqueue { .. } | Command::Leave { .. } | Command::Inspect
    )
}

/// The time at which the server must have clamped a proposal, if it did so while we asked.
fn implied_time(reply: &Reply, before: u64, after: u64) -> u64 {
    let numbers = match reply {
        Reply::Granted { register, .. } => vec![register.get()],
        Reply::Queue(line) => line.places.iter().map(|place| place.number.get()).collect(),
        _ => Vec::new(),
    };
    let implied = |number: u64| number.saturating_sub(MAX_SKEW.as_micros() as u64);
    let mut implied = numbers.into_iter().map(implied);
    let while_we_asked = |time: &u64| (before..=after).contains(time);
    implied.find(while_we_asked).unwrap_or(before)
}

/// What the scripts publish for that.
fn published(wake: &Wake) -> String {
    let place = match (wake.first, wake.everywhere) {
        (true, true) => '0',
        (true, false) => '1',
        _ => '2',
    };
    let slot = wake.slot.map(|slot| format!(":{slot}:"));
    format!(
        "{place}{}{}",
        slot.unwrap_or_default(),
        wake.ticket.as_str()
    )
}

fn alike(model: &Reply, real: &Reply) -> bool {
    match (model, real) {
        (Reply::Held(a), Reply::Held(b)) => alike_holder(a, b),
        (Reply::NotHeld(a), Reply::NotHeld(b)) => alike_holders(a.as_ref(), b.as_ref()),
        (Reply::Snapshot(a), Reply::Snapshot(b)) => {
            let Snapshot {
                holder,
                readers,
                register,
                waiting,
            } = a;
            let same = *register == b.register && *waiting == b.waiting;
            let mut pairs = readers.iter().zip(&b.readers);
            let same = same && readers.len() == b.readers.len();
            same && pairs.all(|(a, b)| alike_holder(a, b))
                && alike_holders(holder.as_ref(), b.holder.as_ref())
        }
        (Reply::Queue(a), Reply::Queue(b)) => {
            let head = match (&a.head, &b.head) {
                (Some((a, left)), Some((b, right))) => a == b && left.abs_diff(*right) < TOLERANCE,
                (a, b) => a.is_none() && b.is_none(),
            };
            head && a.places == b.places && alike_holders(a.holder.as_ref(), b.holder.as_ref())
        }
        (a, b) => a == b,
    }
}

fn alike_holders(a: Option<&Holder>, b: Option<&Holder>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => alike_holder(a, b),
        (a, b) => a.is_none() && b.is_none(),
    }
}

fn alike_holder(a: &Holder, b: &Holder) -> bool {
    let (Some(left), Some(right)) = (a.remaining, b.remaining) else {
        return false;
    };
    a.value == b.value && a.token == b.token && left.abs_diff(right) < TOLERANCE
}

#[test]
fn the_scripts_and_the_plain_commands_answer_what_the_state_machine_answers() {
    let server = RedisServer::start();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let both = runtime.block_on(async {
        let client = redis::Client::open(server.url()).unwrap();
        let connection = client.get_multiplexed_async_connection().await.unwrap();
        Both {
            by_scripts: crate::on_redis::by_scripts(&server.url()),
            by_commands: open(&server),
            has_commands: server.has_plain_commands(),
            raw: connection,
            names: AtomicU64::new(0),
            heard: Mutex::new(listen(&client).await),
        }
    });
    let config = Config {
        cases: 600,
        failure_persistence: None,
        ..Config::default()
    };
    let case = layout().prop_flat_map(|layout| {
        let steps = prop::collection::vec((0..3_usize, step(layout)), 1..30);
        (Just(layout), steps)
    });
    TestRunner::new(config)
        .run(&case, |(layout, steps)| {
            runtime.block_on(both.run(layout, steps))
        })
        .unwrap();
}

/// What the server publishes to any waiter, of ours and of Redisson's.
async fn listen(client: &redis::Client) -> mpsc::UnboundedReceiver<String> {
    let mut connection = client.get_async_pubsub().await.unwrap();
    let channels = ["fencepost:wake:*", "redisson_lock__channel:*"];
    connection.psubscribe(&channels).await.unwrap();
    let (heard, messages) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        let mut stream = connection.into_on_message();
        while let Some(message) = stream.next().await {
            let text = message.get_payload().unwrap();
            if heard.send(text).is_err() {
                return;
            }
        }
    });
    messages
}

fn open(server: &RedisServer) -> RedisNode {
    crate::on_redis::open(&server.url())
}

fn acquire(value: &str, proposed: u64) -> Command {
    Command::Acquire {
        value: AttemptValue::reported(value),
        ttl: Ttl::new(Duration::from_secs(60)).unwrap(),
        proposed: FencingToken::new(proposed).unwrap(),
        turn: Default::default(),
    }
}

#[tokio::test]
async fn a_score_that_no_token_has_is_taken_for_the_one_below_it() {
    let server = RedisServer::start();
    let node = open(&server);
    let name = LockName::new("job").unwrap();
    for (score, token) in [("-1", 1), ("-inf", 1), ("7.9", 8), ("1e5", 100_001)] {
        server.cli(&["FLUSHALL"]);
        server.cli(&["ZADD", "fencepost:fences", score, "job"]);
        let reply = node.call(&name, acquire("a", 1)).await.unwrap();
        assert_eq!(granted_with(&reply), Some(token), "{score}");
    }
}

#[tokio::test]
async fn a_counter_that_is_used_up_grants_nothing() {
    let server = RedisServer::start();
    let node = open(&server);
    let name = LockName::new("job").unwrap();
    for full in [
        MAX.to_string(),
        format!("{MAX}0000000000000000"),
        "inf".into(),
    ] {
        server.cli(&["ZADD", "fencepost:fences", &full, "job"]);
        let reply = node.call(&name, acquire("a", 1)).await.unwrap();
        assert_eq!(reply, Reply::Exhausted);
        assert_eq!(server.cli(&["EXISTS", "job"]), "0");
    }
}

#[tokio::test]
async fn a_key_of_another_type_is_left_alone_and_reported() {
    let server = RedisServer::start();
    let node = open(&server);
    let name = LockName::new("job").unwrap();
    let value = AttemptValue::reported("a");
    let ttl = Ttl::new(Duration::from_secs(60)).unwrap();
    let token = FencingToken::new(1).unwrap();
    let all = [
        acquire("a", 1),
        Command::Raise {
            value: value.clone(),
            to: token,
        },
        Command::Extend {
            value: value.clone(),
            ttl,
            token,
            entries: NonZeroU32::MIN,
            repair: Repair::UnlessOvertaken,
        },
        Command::Release {
            value: value.clone(),
            tombstone: None,
            ticket: Default::default(),
            follower: None,
            is_lease: false,
        },
        Command::Inspect,
        Command::Steal {
            value: value.clone(),
            ttl,
            proposed: token,
            from: Vec::new(),
        },
        Command::Share {
            value: value.clone(),
            ttl,
            proposed: token,
            turn: Default::default(),
        },
        Command::ExtendShared { value, ttl, token },
    ];
    server.cli(&["RPUSH", "job", "x"]);
    for command in &all {
        let error = node.call(&name, command.clone()).await.unwrap_err();
        assert!(
            matches!(error, NodeError::WrongType(_)),
            "{command:?}: {error}"
        );
    }
    assert_eq!(server.cli(&["LRANGE", "job", "0", "-1"]), "x");

    server.cli(&["FLUSHALL"]);
    server.cli(&["RPUSH", "fencepost:fences", "x"]);
    for command in [&all[0], &all[2], &all[4], &all[5], &all[6], &all[7]] {
        let error = node.call(&name, command.clone()).await.unwrap_err();
        assert!(
            matches!(error, NodeError::WrongType(_)),
            "{command:?}: {error}"
        );
        assert!(error.to_string().contains("fencepost:fences"), "{error}");
        assert_eq!(server.cli(&["EXISTS", "job"]), "0");
    }
    assert_eq!(server.cli(&["LRANGE", "fencepost:fences", "0", "-1"]), "x");
}

fn granted_with(reply: &Reply) -> Option<u64> {
    match reply {
        Reply::Granted { register, .. } => Some(register.get()),
        _ => None,
    }
}
