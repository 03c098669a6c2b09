//! The second implementation of [`state`](crate::state): one Lua script for each command. Here
//! they are named, their arguments written and their answers read.
//!
//! A number must never be rounded on its way: tokens travel as integers in both directions.

use std::sync::LazyLock;
use std::time::Duration;

use redis::{Cmd, Script, Value};

use super::keys::Keys;
use crate::error::NodeError;
use crate::state::{COUNTER_RETENTION, Command, Holder, MAX_SKEW, Reply, Snapshot};
use crate::token::FencingToken;
use crate::ttl::Ttl;
use crate::value::AttemptValue;

/// One script: its text, and the digest by which a server that has it knows it.
struct Lua {
    source: &'static str,
    digest: String,
}

macro_rules! lua {
    ($name:ident, $file:literal) => {
        static $name: LazyLock<Lua> = LazyLock::new(|| Lua::new(include_str!($file)));
    };
}

lua!(ACQUIRE, "scripts/acquire.lua");
lua!(RAISE, "scripts/raise.lua");
lua!(EXTEND, "scripts/extend.lua");
lua!(RELEASE, "scripts/release.lua");
lua!(INSPECT, "scripts/inspect.lua");
lua!(STEAL, "scripts/steal.lua");

impl Lua {
    fn new(source: &'static str) -> Self {
        let digest = Script::new(source).get_hash().to_owned();
        Self { source, digest }
    }

    fn of(command: &Command) -> &'static Self {
        match command {
            Command::Acquire { .. } => &ACQUIRE,
            Command::Raise { .. } => &RAISE,
            Command::Extend { .. } => &EXTEND,
            Command::Release { .. } => &RELEASE,
            Command::Inspect => &INSPECT,
            Command::Steal { .. } => &STEAL,
        }
    }
}

/// Every script's text, to load them when a connection is made.
pub(super) fn sources() -> [&'static str; 6] {
    [&ACQUIRE, &RAISE, &EXTEND, &RELEASE, &INSPECT, &STEAL].map(|lua| lua.source)
}

/// The command for a server that should have the script already.
pub(super) fn by_digest(command: &Command, keys: &Keys) -> Cmd {
    write("EVALSHA", &Lua::of(command).digest, command, keys)
}

/// The same for a server that does not have it: afterwards it has.
pub(super) fn by_source(command: &Command, keys: &Keys) -> Cmd {
    write("EVAL", Lua::of(command).source, command, keys)
}

fn write(verb: &str, script: &str, command: &Command, keys: &Keys) -> Cmd {
    let mut cmd = Cmd::with_capacity(11, 512);
    cmd.arg(verb).arg(script);
    match command {
        Command::Acquire {
            value,
            ttl,
            proposed,
        }
        | Command::Steal {
            value,
            ttl,
            proposed,
        } => {
            three_keys(&mut cmd, keys, value)
                .arg(value.as_str())
                .arg(ttl.as_millis())
                .arg(proposed.get())
                .arg(counter_ttl(*ttl))
                .arg(MAX_SKEW.as_micros() as u64);
        }
        Command::Raise { value, to } => {
            cmd.arg(2)
                .arg(&keys.lock)
                .arg(keys.counter())
                .arg(value.as_str())
                .arg(to.get())
                .arg(COUNTER_RETENTION.as_millis() as u64);
        }
        Command::Extend { value, ttl, token } => {
            three_keys(&mut cmd, keys, value)
                .arg(value.as_str())
                .arg(ttl.as_millis())
                .arg(token.get())
                .arg(counter_ttl(*ttl));
        }
        Command::Release { value, refuse_for } => {
            three_keys(&mut cmd, keys, value)
                .arg(value.as_str())
                .arg(refuse_for.map_or(0, millis_up));
        }
        Command::Inspect => {
            cmd.arg(2).arg(&keys.lock).arg(keys.counter());
        }
    }
    cmd
}

fn three_keys<'c>(cmd: &'c mut Cmd, keys: &Keys, value: &AttemptValue) -> &'c mut Cmd {
    cmd.arg(3)
        .arg(&keys.lock)
        .arg(keys.counter())
        .arg(keys.withdrawn(value))
}

fn counter_ttl(ttl: Ttl) -> u64 {
    ttl.as_millis() + COUNTER_RETENTION.as_millis() as u64
}

/// At least as long, and at least a millisecond: Redis takes no shorter time to live.
fn millis_up(time: Duration) -> u64 {
    let millis = time.as_nanos().div_ceil(1_000_000).max(1);
    // Redis adds it to its clock in 63 bits; a year is as good as for ever.
    const YEAR: u128 = 365 * 24 * 60 * 60 * 1000;
    millis.min(YEAR) as u64
}

/// Reads a script's answer.
pub(super) fn read(value: Value) -> Result<Reply, NodeError> {
    let answer =
        |value: &Value| NodeError::Other(format!("an answer that makes no sense: {value:?}"));
    if let Some(counter) = token(Some(&value)) {
        let evicted = None;
        return Ok(Reply::Granted { counter, evicted });
    }
    let items = match &value {
        Value::Array(items) => items,
        word => std::slice::from_ref(word),
    };
    let (word, rest) = match items.split_first() {
        Some((Value::BulkString(word), rest)) => (word.as_slice(), rest),
        _ => return Err(answer(&value)),
    };
    let reply = match word {
        b"granted" => token(rest.first()).map(|counter| Reply::Granted {
            counter,
            evicted: rest.get(1).and_then(text),
        }),
        b"held" => holder(rest).map(Reply::Held),
        b"withdrawn" => Some(Reply::Withdrawn),
        b"exhausted" => Some(Reply::Exhausted),
        b"counter" => token(rest.first()).map(Reply::Counter),
        b"extended" => Some(Reply::Extended),
        b"repaired" => Some(Reply::Repaired),
        b"released" => Some(Reply::Released),
        b"not held" => Some(Reply::NotHeld(holder(rest))),
        b"seen" => token(rest.first()).map(|counter| {
            Reply::Snapshot(Snapshot {
                holder: holder(&rest[1..]),
                counter,
            })
        }),
        _ => None,
    };
    reply.ok_or_else(|| answer(&value))
}

fn token(value: Option<&Value>) -> Option<FencingToken> {
    match value {
        // A counter that somebody set beyond what an integer holds comes back negative.
        Some(Value::Int(n)) => {
            Some(u64::try_from(*n).map_or(FencingToken::MAX, FencingToken::saturating))
        }
        _ => None,
    }
}

/// The holder's value, and the milliseconds that are left to it: -1 when it never expires.
fn holder(items: &[Value]) -> Option<Holder> {
    let value = items.first().and_then(text)?;
    let Some(Value::Int(left)) = items.get(1) else {
        return None;
    };
    Some(Holder {
        value,
        remaining: u64::try_from(*left).ok().map(Duration::from_millis),
    })
}

fn text(value: &Value) -> Option<AttemptValue> {
    match value {
        // A foreign client's value may be any bytes.
        Value::BulkString(bytes) => Some(AttemptValue::reported(String::from_utf8_lossy(bytes))),
        _ => None,
    }
}
