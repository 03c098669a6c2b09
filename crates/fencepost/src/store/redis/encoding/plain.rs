//! The uncontended acquire without a script, three plain commands in one write; and the usual release, by a
//! short one.
//!
//! `SET key value NX GET PX ttl`, `ZADD fencepost:fences GT CH token key`, `ZRANGE queue 0 0`. Not inside
//! `MULTI`: that costs the server as much as two of the three, and what counts holds without it. What the
//! answers mean is decided in [the core](fencepost_core::lock::plain); whatever is unusual is asked again by
//! script.
//!
//! A script looks for a tombstone before it takes the lock. Plain commands cannot: a `SET` that arrives after
//! its own release, on a connection that was given up, would hold the lock without a holder. So before another
//! connection takes over, the server closes the one before ([`Predecessor`]); where it may not be asked to,
//! or hides what tells the two apart, scripts are used.
//!
//! A release stays a script also where the server compares and deletes by one command (`DELIFEQ` of Valkey 9,
//! `DELEX` of Redis 8.4). Such a command wakes nobody: the client would have to look at the queue in the same write,
//! and wake the waiters by another round, which it may not live to send.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use super::keys::{Keys, REGISTER};
use super::scripts;
use crate::error::NodeError;
use crate::runtime::clock::{Clock, Moment};
use crate::store::redis::connection::link::Connection;
use crate::store::redis::fault;
use crate::store::redis::fault::{RedisResult, ServerError};
use crate::store::redis::protocol::command::{Cmd, begin, text};
use crate::store::redis::protocol::value::{FromValue, Value};
use crate::store::redis::voting::handshake::Facts;
use fencepost_core::lock::plain::{PlainAcquire, Seen, Verdict};
use fencepost_core::lock::{Command, MAX_SKEW, TicketDisposition};
use fencepost_core::stored::Stored;
use fencepost_core::ticket::TicketId;
use fencepost_core::token::FencingToken;

/// The first Redis whose `SET` takes `NX` and `GET` together. Every Valkey calls itself a later one.
const SINCE_VERSION: u32 = 7;
/// How many commands a release is, an acquire, and one for a lease id that a client of the service chose.
const SHORT_SCRIPT: usize = 1;
const ACQUIRE: usize = 3;
const ACQUIRE_LEASED: usize = 4;
/// A connection that no server has, to ask whether it would close one.
const NO_CONNECTION: i64 = i64::MAX;

/// The connection that was used before, whose commands may still be in flight.
#[derive(Debug, Default)]
pub(crate) struct Predecessor(Option<Identity>);

/// A connection as its server knows it. Numbers begin again in another process.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Identity {
    run_id: String,
    connection: i64,
}

/// A server's wall clock, as its own `TIME` told it last: microseconds since 1970 less those of our boot
/// time. Zero while nothing is known.
#[derive(Debug, Default)]
pub(crate) struct ServerClock(AtomicI64);

impl ServerClock {
    fn set(&self, micros: u64, now: Moment) {
        let ahead = micros.saturating_sub(micros_of(now));
        let ahead = i64::try_from(ahead).unwrap_or(i64::MAX);
        self.0.store(ahead, Ordering::Relaxed);
    }

    /// What it says at that moment, about.
    pub(crate) fn at(&self, now: Moment) -> Option<u64> {
        let ahead = u64::try_from(self.0.load(Ordering::Relaxed)).ok()?;
        (ahead > 0).then(|| ahead.saturating_add(micros_of(now)))
    }
}

fn micros_of(now: Moment) -> u64 {
    u64::try_from(now.since_start().as_micros()).unwrap_or(u64::MAX)
}

/// Closes the connection that was used before, and finds out whether this one may use plain commands.
pub(crate) async fn prepare(
    connection: &Connection,
    facts: &Facts,
    before: &mut Predecessor,
    server: &ServerClock,
    clock: &dyn Clock,
) -> Result<bool, NodeError> {
    let Some(run_id) = &facts.run_id else {
        return Ok(false);
    };
    if facts.major_version < Some(SINCE_VERSION) {
        return Ok(false);
    }
    // In another process there is nothing left of it.
    let old = before.0.as_ref().filter(|old| old.run_id == *run_id);
    let old = old.map_or(NO_CONNECTION, |old| old.connection);
    let questions = [words(&["CLIENT", "ID"]), words(&["TIME"]), kill(old)];
    let answers = questions.iter().map(|question| connection.send(question));
    let [id, time, killed] = match futures_util::future::join_all(answers).await.try_into() {
        Ok(answers) => answers,
        Err(_) => return Ok(false),
    };
    let id = answered::<i64>(id)?;
    let time = answered::<(u64, u64)>(time)?;
    if answered::<i64>(killed)?.is_none() {
        tracing::debug!("this user may not close its own lost connections; grant +client|kill");
        return Ok(false);
    }
    let (Some(connection), Some((seconds, micros))) = (id, time) else {
        return Ok(false);
    };
    let now = seconds.saturating_mul(1_000_000).saturating_add(micros);
    server.set(now, clock.now());
    before.0 = Some(Identity {
        run_id: run_id.clone(),
        connection,
    });
    Ok(true)
}

fn words(words: &[&str]) -> Cmd {
    let mut cmd = Cmd::new(words[0]);
    cmd.args(&words[1..]);
    cmd
}

fn kill(connection: i64) -> Cmd {
    let mut cmd = words(&["CLIENT", "KILL", "ID"]);
    cmd.arg(connection);
    cmd
}

/// `None` for what this user may not ask.
fn answered<T: FromValue>(answer: RedisResult<Value>) -> Result<Option<T>, NodeError> {
    match answer {
        Ok(value) => Ok(value.read().ok()),
        Err(error) if fault::is_answer(&error) => Ok(None),
        Err(error) => Err(fault::node_error(&error)),
    }
}

/// Whether a server with that clock may be sent it as plain commands: a script bounds how far ahead a token
/// may be.
pub(crate) fn suits(command: &Command, server_now: Option<u64>) -> bool {
    let proposed = match command {
        Command::Acquire { proposed, .. } => proposed,
        Command::Release { .. } => return true,
        _ => return false,
    };
    let ahead = MAX_SKEW.as_micros() as u64;
    server_now.is_some_and(|now| proposed.get() <= now.saturating_add(ahead))
}

/// The commands of the usual acquire or release, and how many they are, if there are any for this one.
pub(crate) fn commands(
    command: &Command,
    keys: &Keys,
    held_with: Option<FencingToken>,
) -> Option<(Vec<u8>, usize)> {
    if let (Command::Release { .. }, Some(token)) = (command, held_with) {
        return Some((release(command, keys, token)?, SHORT_SCRIPT));
    }
    if let Some(commands) = acquire_turn(command, keys) {
        return Some((commands, SHORT_SCRIPT));
    }
    let acquire = PlainAcquire::of(command)?;
    let (mut token, mut ttl) = (itoa::Buffer::new(), itoa::Buffer::new());
    let token = token.format(acquire.proposed.get());
    let ttl = ttl.format(acquire.ttl.as_millis());
    // `random:token:label`: the token stands behind the part that no other attempt has.
    let (unique, label) = acquire.value.as_str().split_once(':')?;
    let mut bytes = Vec::with_capacity(384);
    begin(&mut bytes, "SET", 7);
    text(&mut bytes, &[&keys.lock]);
    text(&mut bytes, &[unique, ":", token, ":", label]);
    for word in ["NX", "GET", "PX", ttl] {
        text(&mut bytes, &[word]);
    }
    begin(&mut bytes, "ZADD", 6);
    for word in [keys.register(), "GT", "CH", token, &keys.lock] {
        text(&mut bytes, &[word]);
    }
    begin(&mut bytes, "ZRANGE", 4);
    text(&mut bytes, &keys.queue().parts());
    for word in ["0", "0"] {
        text(&mut bytes, &[word]);
    }
    let mut count = ACQUIRE;
    if acquire.looks_for_tombstone() {
        // Behind the SET: a release between the two would find nothing otherwise, and not be seen.
        begin(&mut bytes, "EXISTS", 2);
        text(&mut bytes, &keys.lease_tombstone(acquire.value)?.parts());
        count = ACQUIRE_LEASED;
    }
    Some((bytes, count))
}

/// A release that has nothing to do but to compare, to wake and to delete, by a script of its own: that of all
/// releases costs the server half as much again.
fn release(command: &Command, keys: &Keys, token: FencingToken) -> Option<Vec<u8>> {
    let Command::Release {
        value,
        tombstone: None,
        ticket,
        follower: None,
        is_lease: true,
    } = command
    else {
        return None;
    };
    let leaves = match ticket {
        TicketDisposition::Stays => None,
        TicketDisposition::Leaves(id) => Some(id),
        TicketDisposition::Returns { .. } => return None,
    };
    if value.is_reentrant() {
        return None;
    }
    let mut digits = itoa::Buffer::new();
    let token = digits.format(token.get());
    let (unique, label) = value.as_str().split_once(':')?;
    let mut bytes = Vec::with_capacity(384);
    begin(&mut bytes, "EVALSHA", if leaves.is_some() { 8 } else { 7 });
    for word in [scripts::release_held(), "3", &keys.lock] {
        text(&mut bytes, &[word]);
    }
    text(&mut bytes, &keys.queue().parts());
    text(&mut bytes, &keys.leases().parts());
    text(&mut bytes, &[unique, ":", token, ":", label]);
    if let Some(id) = leaves {
        text(&mut bytes, &[id.as_str()]);
    }
    Some(bytes)
}

/// An acquire by a waiter that was woken, by a script of its own: it finds itself at the head of the queue, and the lock free.
fn acquire_turn(command: &Command, keys: &Keys) -> Option<Vec<u8>> {
    let (acquire, ticket) = PlainAcquire::by_turn(command)?;
    if keys.is_slot() || acquire.looks_for_tombstone() {
        return None;
    }
    let (mut token, mut ttl) = (itoa::Buffer::new(), itoa::Buffer::new());
    let token = token.format(acquire.proposed.get());
    let (unique, label) = acquire.value.as_str().split_once(':')?;
    let mut bytes = Vec::with_capacity(448);
    begin(&mut bytes, "EVALSHA", 11);
    for word in [scripts::acquire_turn(), "4", &keys.lock, keys.register()] {
        text(&mut bytes, &[word]);
    }
    text(&mut bytes, &keys.queue().parts());
    text(&mut bytes, &keys.leases().parts());
    text(&mut bytes, &[unique, ":", token, ":", label]);
    for word in [ttl.format(acquire.ttl.as_millis()), token, ticket.as_str()] {
        text(&mut bytes, &[word]);
    }
    Some(bytes)
}

/// The bytes of the answers to so many commands when nothing was in the way, in both versions of the protocol. There
/// may be others that mean the same: see [`is_usual`].
pub(crate) fn usual_answers(count: usize) -> &'static [&'static [u8]] {
    match count {
        SHORT_SCRIPT => &[b":1\r\n"],
        ACQUIRE => &[b"$-1\r\n:1\r\n*0\r\n", b"_\r\n:1\r\n*0\r\n"],
        ACQUIRE_LEASED => &[b"$-1\r\n:1\r\n*0\r\n:0\r\n", b"_\r\n:1\r\n*0\r\n:0\r\n"],
        _ => &[],
    }
}

/// Whether these are the answers when nothing was in the way of the acquire or release: granted and lifted, with no waiter
/// before it and without a tombstone, if one was looked for; or released. There are as many answers as commands.
pub(crate) fn is_usual(command: &Command, answers: &Value) -> bool {
    match answers {
        Value::Int(1) => PlainAcquire::of(command).is_none(),
        Value::Array(each) => matches!(&each[..],
            [Value::Nil, Value::Int(1), Value::Array(waiters)]
            | [Value::Nil, Value::Int(1), Value::Array(waiters), Value::Int(0)]
                if waiters.is_empty()),
        _ => false,
    }
}

/// Whether the server does not have the script.
pub(crate) fn is_no_script(answer: &Value) -> bool {
    matches!(answer, Value::ServerError(error) if error.is_no_script())
}

/// What the answers come to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// As the core decided it.
    Decided(Verdict),
    /// Another holder has it: this one.
    Held(Stored),
    /// One of the commands failed. Where the lock was taken, it has to be released.
    Failed { error: NodeError, is_taken: bool },
}

/// Reads the answers to the commands of that acquire.
pub(crate) fn read(command: &Command, answers: &Value) -> Outcome {
    let nonsense = || Outcome::Failed {
        error: NodeError::Other(format!("an answer that makes no sense: {answers}")),
        is_taken: true,
    };
    let each = match answers {
        // The short script has done nothing.
        Value::Int(0) => return Outcome::Decided(Verdict::AskScript { is_taken: false }),
        answer if is_no_script(answer) => {
            return Outcome::Decided(Verdict::AskScript { is_taken: false });
        }
        Value::ServerError(error) => {
            return Outcome::Failed {
                error: fault::refusal(error),
                is_taken: true,
            };
        }
        Value::Array(each) => each,
        _ => return nonsense(),
    };
    let Some(acquire) = PlainAcquire::of(command) else {
        return nonsense();
    };
    let (set, lifted, head, tombstoned) = match (&each[..], acquire.looks_for_tombstone()) {
        ([set, lifted, head], false) => (set, lifted, head, &Value::Int(0)),
        ([set, lifted, head, tombstoned], true) => (set, lifted, head, tombstoned),
        _ => return nonsense(),
    };
    match set {
        Value::Nil => {}
        Value::BulkString(bytes) => {
            let holder = Stored::parse(&fault::text_or_hex(bytes));
            let verdict = acquire.decide(&Seen {
                holder: Some(&holder.value),
                lifted: false,
                head: None,
                is_tombstoned: false,
            });
            return match verdict {
                Verdict::Held => Outcome::Held(holder),
                other => Outcome::Decided(other),
            };
        }
        Value::ServerError(error) => {
            return match fault::refusal(error) {
                // The script says what it is instead.
                NodeError::WrongType(_) => Outcome::Decided(Verdict::AskScript { is_taken: false }),
                error => Outcome::Failed {
                    error,
                    is_taken: false,
                },
            };
        }
        _ => return nonsense(),
    }
    let failed = |error: &ServerError, key: &str| Outcome::Failed {
        error: of_key(error, key),
        is_taken: true,
    };
    let lifted = match lifted {
        Value::Int(lifted) => *lifted == 1,
        Value::ServerError(error) => return failed(error, REGISTER),
        _ => return nonsense(),
    };
    let head = match head {
        Value::Array(ids) => match ids.first() {
            Some(Value::BulkString(id)) => Some(TicketId::reported(&*String::from_utf8_lossy(id))),
            Some(_) => return nonsense(),
            None => None,
        },
        Value::ServerError(error) => return failed(error, "the queue"),
        _ => return nonsense(),
    };
    let is_tombstoned = match tombstoned {
        Value::Int(found) => *found > 0,
        Value::ServerError(error) => return failed(error, "the tombstone"),
        _ => return nonsense(),
    };
    Outcome::Decided(acquire.decide(&Seen {
        holder: None,
        lifted,
        head: head.as_ref(),
        is_tombstoned,
    }))
}

/// What a command on that key failed with. The lock itself is not at fault.
fn of_key(error: &ServerError, key: &str) -> NodeError {
    match fault::refusal(error) {
        NodeError::WrongType(text) => NodeError::WrongType(format!("{text} ({key})")),
        NodeError::Permission(text) => NodeError::Permission(format!("{text} ({key})")),
        NodeError::OutOfMemory(text) => NodeError::OutOfMemory(format!("{text} ({key})")),
        other => other,
    }
}

/// The milliseconds that `PTTL` tells.
pub(crate) fn remaining(answer: &Value) -> Option<Duration> {
    match answer {
        // Never expires.
        Value::Int(-1) => None,
        Value::Int(left) => Some(Duration::from_millis(u64::try_from(*left).unwrap_or(0))),
        _ => Some(Duration::ZERO),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fencepost_core::lock::Precedence;
    use fencepost_core::owner::Owner;
    use fencepost_core::token::FencingToken;
    use fencepost_core::ttl::Ttl;
    use fencepost_core::value::AttemptValue;

    fn acquire(proposed: u64, turn: Precedence) -> Command {
        Command::Acquire {
            value: AttemptValue::labelled(1, &Owner::readable("me")),
            ttl: Ttl::new(Duration::from_secs(10)).unwrap(),
            proposed: FencingToken::new(proposed).unwrap(),
            turn,
        }
    }

    /// What a server says.
    fn said(text: &str) -> Value {
        let list = format!("*3\r\n{text}");
        crate::store::redis::protocol::resp::read(list.as_bytes())
            .unwrap()
            .unwrap()
            .0
    }

    fn outcome(text: &str) -> Outcome {
        read(&acquire(5, Precedence::MayPass), &said(text))
    }

    fn bulk(text: &str) -> String {
        format!("${}\r\n{text}\r\n", text.len())
    }

    const EMPTY: &str = "*0\r\n";

    #[test]
    fn a_free_lock_is_granted_and_is_a_vote_only_where_the_register_was_lifted() {
        for nil in ["$-1\r\n", "_\r\n"] {
            let lifted = outcome(&format!("{nil}:1\r\n{EMPTY}"));
            assert_eq!(lifted, Outcome::Decided(Verdict::Granted));
            let not_lifted = outcome(&format!("{nil}:0\r\n{EMPTY}"));
            assert_eq!(not_lifted, Outcome::Decided(Verdict::NotRaised));
        }
    }

    #[test]
    fn another_holder_is_named_whatever_became_of_the_register() {
        let value = format!("{}:17:other", "0".repeat(32));
        let expected = Stored::parse(&value);
        assert_eq!(expected.token.map(FencingToken::get), Some(17));
        for register in [":1\r\n", ":0\r\n", "-OOM no\r\n"] {
            let held = outcome(&format!("{}{register}{EMPTY}", bulk(&value)));
            assert_eq!(held, Outcome::Held(expected.clone()));
        }
    }

    #[test]
    fn a_register_that_cannot_be_lifted_is_no_vote_is_named_and_gives_the_lock_back() {
        for (text, said) in [
            ("-WRONGTYPE Operation", "WRONGTYPE"),
            ("-NOPERM no permissions", "NOPERM"),
            ("-OOM command not allowed", "OOM"),
        ] {
            let Outcome::Failed { error, is_taken } = outcome(&format!("$-1\r\n{text}\r\n{EMPTY}"))
            else {
                panic!("{text} is a vote");
            };
            assert!(is_taken, "{text}");
            let error = error.to_string();
            assert!(error.contains(said) && error.contains(REGISTER), "{error}");
        }
    }

    #[test]
    fn a_lock_that_could_not_be_taken_is_not_given_back() {
        let oom = outcome(&format!("-OOM no\r\n:1\r\n{EMPTY}"));
        assert!(matches!(
            oom,
            Outcome::Failed {
                error: NodeError::OutOfMemory(_),
                is_taken: false
            }
        ));
        let hash = outcome(&format!("-WRONGTYPE no\r\n:1\r\n{EMPTY}"));
        let script = Verdict::AskScript { is_taken: false };
        assert_eq!(hash, Outcome::Decided(script));
    }

    #[test]
    fn whoever_may_not_be_passed_is_left_to_the_script_and_so_is_what_makes_no_sense() {
        let fair = format!("{}{}f:waiter", "a".repeat(32), "0".repeat(16));
        let seen = outcome(&format!("$-1\r\n:1\r\n*1\r\n{}", bulk(&fair)));
        let script = Verdict::AskScript { is_taken: true };
        assert_eq!(seen, Outcome::Decided(script));
        for nonsense in [
            ":1\r\n:1\r\n*0\r\n",
            "$-1\r\n+OK\r\n*0\r\n",
            "$-1\r\n:1\r\n:0\r\n",
        ] {
            assert!(matches!(
                outcome(nonsense),
                Outcome::Failed { is_taken: true, .. }
            ));
        }
    }

    #[test]
    fn the_commands_are_what_a_server_reads() {
        let keys = crate::store::redis::encoding::keys::Prefix::new("app:").unwrap();
        let keys = keys
            .keys(&fencepost_core::name::LockName::new("job").unwrap())
            .unwrap();
        let command = acquire(1_700_000_000_000_001, Precedence::MayPass);
        let (bytes, count) = commands(&command, &keys, None).unwrap();
        let stored = format!("{:032x}:1700000000000001:me", 1);
        let expected = [
            &["SET", "app:job", &stored, "NX", "GET", "PX", "10000"][..],
            &["ZADD", REGISTER, "GT", "CH", "1700000000000001", "app:job"],
            &["ZRANGE", "{app:job}:queue", "0", "0"],
        ];
        let expected = expected.map(|cmd| words(cmd).encoded());
        assert_eq!(
            String::from_utf8(bytes).unwrap(),
            String::from_utf8(expected.concat()).unwrap()
        );
        assert_eq!(expected.len(), count);
    }

    #[test]
    fn bytes_that_need_not_be_read_mean_that_nothing_was_in_the_way() {
        let command = acquire(5, Precedence::MayPass);
        for count in [ACQUIRE, ACQUIRE_LEASED] {
            for usual in usual_answers(count) {
                let list = [format!("*{count}\r\n").as_bytes(), usual].concat();
                let (answers, bytes) = crate::store::redis::protocol::resp::read(&list)
                    .unwrap()
                    .unwrap();
                assert_eq!(bytes, list.len(), "so many, and no more");
                assert!(is_usual(&command, &answers));
            }
        }
        for unusual in [
            "$1\r\nx\r\n:1\r\n*0\r\n",
            "_\r\n:0\r\n*0\r\n",
            "_\r\n:1\r\n*1\r\n$1\r\nx\r\n",
        ] {
            assert!(!is_usual(&command, &said(unusual)), "{unusual}");
        }
        assert!(!is_usual(&command, &Value::Int(1)));
    }

    #[test]
    fn the_tombstone_of_a_chosen_lease_is_looked_for_behind_the_lock_and_seen() {
        use fencepost_core::{LeaseAttempt, LeaseId};
        let keys = crate::store::redis::encoding::keys::Prefix::new("app:").unwrap();
        let keys = keys
            .keys(&fencepost_core::name::LockName::new("job").unwrap())
            .unwrap();
        let of = LeaseAttempt {
            lease: LeaseId::new(7),
            attempt: 1,
            max_hold: None,
        };
        let command = Command::Acquire {
            value: AttemptValue::leased(1, of, &Owner::readable("me")),
            ttl: Ttl::new(Duration::from_secs(10)).unwrap(),
            proposed: FencingToken::new(5).unwrap(),
            turn: Precedence::MayPass,
        };
        let (bytes, count) = commands(&command, &keys, None).unwrap();
        let look = words(&["EXISTS", &format!("{{app:job}}:gone:{:032x}", 7)]);
        assert!(bytes.ends_with(&look.encoded()) && count == 4);
        let seen = |answers: &[u8]| {
            let list = crate::store::redis::protocol::resp::read(answers)
                .unwrap()
                .unwrap()
                .0;
            read(&command, &list)
        };
        let tombstoned = Outcome::Decided(Verdict::Tombstoned);
        let granted = Outcome::Decided(Verdict::Granted);
        assert_eq!(seen(b"*4\r\n$-1\r\n:1\r\n*0\r\n:1\r\n"), tombstoned);
        assert_eq!(seen(b"*4\r\n$-1\r\n:1\r\n*0\r\n:0\r\n"), granted);
        for no_look in [
            &b"*3\r\n$-1\r\n:1\r\n*0\r\n"[..],
            b"*4\r\n$-1\r\n:1\r\n*0\r\n-NOPERM no\r\n",
        ] {
            assert!(matches!(
                seen(no_look),
                Outcome::Failed { is_taken: true, .. }
            ));
        }
    }

    #[test]
    fn a_token_that_is_too_far_ahead_of_the_server_is_left_to_the_script() {
        let now = 1_700_000_000_000_000;
        let hour = MAX_SKEW.as_micros() as u64;
        let fits =
            |proposed, server_now| suits(&acquire(proposed, Precedence::MayPass), server_now);
        assert!(fits(now, Some(now)) && fits(now + hour, Some(now)));
        assert!(!fits(now + hour + 1, Some(now)));
        assert!(!fits(now, None), "a server whose time is not known");
    }
}
