//! The second implementation of [the core](fencepost_core::lock): one Lua script per command. This
//! file names them, encodes their arguments and parses their replies.
//!
//! A number must never be rounded: tokens travel as integers in both directions.

use std::borrow::Cow;
use std::sync::LazyLock;
use std::time::Duration;

use redis::{Cmd, Script, Value};

use super::fault;
use super::keys::Keys;
use crate::error::NodeError;
use fencepost_core::lock::{
    Command, Holder, MAX_SKEW, NodeQueue, Precedence, Repair, Reply, Snapshot, TicketDisposition,
};
use fencepost_core::ticket::{ClientId, Place, Standing, TicketId, TicketNumber};
use fencepost_core::token::FencingToken;
use fencepost_core::ttl::Ttl;
use fencepost_core::value::{AttemptValue, Stored};

/// How a script wakes a client, and how it does in a Cluster.
const PUBLISH: &str = "redis.pcall('PUBLISH', 'fencepost:wake:' .. client, message)";
const PUBLISH_AT_SHARD: &str = include_str!("scripts/cluster/publish.lua");

/// Where a script runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Site {
    /// A server that has all keys.
    Server,
    /// A node of a Redis Cluster.
    Cluster,
}

/// One script: its text and its SHA-1 digest.
struct Lua {
    source: Cow<'static, str>,
    digest: String,
    /// The same for a Cluster, if it wakes somebody.
    in_cluster: Option<Box<Lua>>,
}

/// A script for each layout of a lock's key.
struct Layouts {
    plain: LazyLock<Lua>,
    reentrant: LazyLock<Lua>,
}

/// A script assembled from these files. A function that it does not need would cost the server time
/// at every call.
macro_rules! lua {
    ($($file:literal),+) => {
        LazyLock::new(|| Lua::new(concat!($(include_str!(concat!("scripts/", $file, ".lua"))),+)))
    };
}

static ACQUIRE: Layouts = Layouts {
    plain: lua!(
        "mark/take",
        "plain/mine",
        "kinds",
        "plain/take",
        "register",
        "line",
        "acquire"
    ),
    reentrant: lua!(
        "reentrant/mine",
        "kinds",
        "hash",
        "reentrant/take",
        "register",
        "line",
        "acquire"
    ),
};
static RAISE: Layouts = Layouts {
    plain: lua!(
        "mark/keep",
        "plain/mine",
        "hash",
        "holder",
        "plain/keep",
        "register",
        "raise"
    ),
    reentrant: lua!(
        "reentrant/mine",
        "hash",
        "holder",
        "reentrant/keep",
        "register",
        "raise"
    ),
};
static EXTEND: Layouts = Layouts {
    plain: lua!(
        "mark/keep",
        "plain/mine",
        "hash",
        "holder",
        "kinds",
        "plain/keep",
        "plain/take",
        "register",
        "extend"
    ),
    reentrant: lua!(
        "reentrant/mine",
        "hash",
        "holder",
        "kinds",
        "reentrant/keep",
        "reentrant/take",
        "register",
        "extend"
    ),
};
static RELEASE: Layouts = Layouts {
    plain: lua!(
        "plain/release",
        "mark/keep",
        "plain/mine",
        "hash",
        "holder",
        "plain/keep",
        "line",
        "stand",
        "readers",
        "release"
    ),
    reentrant: lua!(
        "reentrant/mine",
        "hash",
        "holder",
        "reentrant/keep",
        "line",
        "stand",
        "readers",
        "release"
    ),
};
static STEAL: Layouts = Layouts {
    plain: lua!(
        "mark/take",
        "plain/mine",
        "kinds",
        "plain/take",
        "plain/evict",
        "register",
        "steal"
    ),
    reentrant: lua!(
        "reentrant/mine",
        "kinds",
        "hash",
        "reentrant/take",
        "reentrant/evict",
        "register",
        "steal"
    ),
};
static SHARE: LazyLock<Lua> = lua!("mark/take", "register", "line", "readers", "share");
static EXTEND_SHARED: LazyLock<Lua> = lua!(
    "mark/keep",
    "plain/mine",
    "register",
    "line",
    "readers",
    "extend_shared"
);
static QUEUE: LazyLock<Lua> = lua!(
    "hash", "holder", "register", "line", "stand", "readers", "queue"
);
static LEAVE: LazyLock<Lua> = lua!("hash", "holder", "line", "readers", "leave");
static INSPECT: LazyLock<Lua> = lua!("hash", "holder", "register", "inspect");
static RELEASE_LEASE: LazyLock<Lua> = lua!(
    "lease/released",
    "hash",
    "holder",
    "line",
    "readers",
    "lease/release"
);

/// The usual release, by a holder that knows what is stored.
static RELEASE_HELD: LazyLock<Lua> = lua!("release_held");

/// The usual acquire by the head of a queue.
static ACQUIRE_TURN: LazyLock<Lua> = lua!("acquire_turn");

/// Removes old registers. Sent as text: once a minute is not worth a digest.
pub(super) const FORGET: &str = include_str!("scripts/forget.lua");

impl Layouts {
    /// The variant for the kind of lock that this value may hold.
    fn of(&self, value: &AttemptValue) -> &Lua {
        match value.is_reentrant() {
            true => &self.reentrant,
            false => &self.plain,
        }
    }
}

impl Lua {
    fn new(source: &'static str) -> Self {
        let wakes = source.contains(PUBLISH);
        let in_cluster = wakes.then(|| Box::new(Self::made_of(at_shard(source).into())));
        Self {
            in_cluster,
            ..Self::made_of(source.into())
        }
    }

    fn made_of(source: Cow<'static, str>) -> Self {
        let digest = Script::new(&source).get_hash().to_owned();
        Self {
            source,
            digest,
            in_cluster: None,
        }
    }

    fn at(&self, site: Site) -> &Self {
        match (site, &self.in_cluster) {
            (Site::Cluster, Some(lua)) => lua,
            _ => self,
        }
    }

    fn of(command: &Command, keys: &Keys) -> &'static Self {
        Self::on_server(command).at(keys.site())
    }

    fn on_server(command: &Command) -> &'static Self {
        match command {
            Command::Acquire { value, .. } => ACQUIRE.of(value),
            Command::Raise { value, .. } => RAISE.of(value),
            Command::Extend { value, .. } => EXTEND.of(value),
            Command::Release { value, .. } => RELEASE.of(value),
            Command::Steal { value, .. } => STEAL.of(value),
            Command::Share { .. } => &SHARE,
            Command::ExtendShared { .. } => &EXTEND_SHARED,
            Command::Enqueue { .. } => &QUEUE,
            Command::Leave { .. } => &LEAVE,
            Command::Inspect => &INSPECT,
            Command::ReleaseLease { .. } => &RELEASE_LEASE,
        }
    }
}

/// The same script, which wakes clients as in a Cluster.
fn at_shard(source: &str) -> String {
    let mut text = String::with_capacity(source.len() + 2 * PUBLISH_AT_SHARD.len());
    for line in source.lines() {
        match line.strip_suffix(PUBLISH) {
            Some(indent) => {
                let lines = PUBLISH_AT_SHARD.lines();
                lines.for_each(|line| text.extend([indent, line, "\n"]));
            }
            None => text.extend([line, "\n"]),
        }
    }
    text
}

/// The scripts in both layouts.
fn in_layouts() -> [&'static Layouts; 5] {
    [&ACQUIRE, &RAISE, &EXTEND, &RELEASE, &STEAL]
}

/// The scripts to load when a connection is opened: those of plain locks. A server loads the others
/// on first use, so that a client that needs none of them does not wait for them.
pub(super) fn to_load(site: Site) -> impl Iterator<Item = &'static str> {
    let plain = in_layouts().into_iter().map(|layouts| &*layouts.plain);
    let others = [&ACQUIRE_TURN, &RELEASE_HELD, &QUEUE, &LEAVE, &INSPECT].map(|lua| &**lua);
    plain.chain(others).map(move |lua| &*lua.at(site).source)
}

/// The text of every script.
pub(super) fn sources(site: Site) -> impl Iterator<Item = &'static str> {
    let reentrant = in_layouts().map(|layouts| &*layouts.reentrant);
    let shared = [&SHARE, &EXTEND_SHARED, &RELEASE_LEASE].map(|lua| &**lua);
    let others = reentrant.into_iter().chain(shared);
    let others = others.map(move |lua| &*lua.at(site).source);
    to_load(site).chain(others).chain([FORGET])
}

/// The command for a server that should have the script.
pub(super) fn by_digest(command: &Command, keys: &Keys) -> Cmd {
    write("EVALSHA", &Lua::of(command, keys).digest, command, keys)
}

/// The same for a server that does not have it, which loads it.
pub(super) fn by_source(command: &Command, keys: &Keys) -> Cmd {
    write("EVAL", &Lua::of(command, keys).source, command, keys)
}

/// The digest of the usual release's script.
pub(super) fn release_held() -> &'static str {
    &RELEASE_HELD.digest
}

/// The same for an acquire by the head of a queue.
pub(super) fn acquire_turn() -> &'static str {
    &ACQUIRE_TURN.digest
}

/// Gives the short script of this command to a server that has lost it.
pub(super) fn load_short(command: &Command) -> Cmd {
    let lua = match command {
        Command::Acquire { .. } => &ACQUIRE_TURN,
        _ => &RELEASE_HELD,
    };
    let mut cmd = redis::cmd("SCRIPT");
    cmd.arg("LOAD").arg(&*lua.source);
    cmd
}

fn write(verb: &str, script: &str, command: &Command, keys: &Keys) -> Cmd {
    let mut cmd = Cmd::with_capacity(11, 512);
    cmd.arg(verb).arg(script);
    match command {
        Command::Acquire {
            value,
            ttl,
            proposed,
            turn,
        } => {
            let lease = keys.lease_tombstone(value);
            cmd.arg(5 + lease.iter().len())
                .arg(&keys.lock)
                .arg(keys.register())
                .arg(keys.tombstone(value))
                .arg(keys.queue())
                .arg(keys.leases())
                .arg(lease);
            take(&mut cmd, value, *ttl, *proposed);
            match turn {
                Precedence::MayPass => {}
                Precedence::PassNobody => {
                    cmd.arg("").arg("f");
                }
                Precedence::Ticket(id) => {
                    let mode = if id.is_fair() { "f" } else { "d" };
                    cmd.arg(id.as_str()).arg(mode);
                    if keys.is_slot() {
                        cmd.arg("stays");
                    }
                }
            }
        }
        Command::Share {
            value,
            ttl,
            proposed,
            turn,
        } => {
            let lease = keys.lease_tombstone(value);
            cmd.arg(6 + lease.iter().len());
            six_keys(&mut cmd, keys, value).arg(lease);
            take(&mut cmd, value, *ttl, *proposed);
            if let Precedence::Ticket(id) = turn {
                cmd.arg(id.as_str());
            }
        }
        Command::Steal {
            value,
            ttl,
            proposed,
            from,
        } => {
            let lease = keys.lease_tombstone(value);
            cmd.arg(5 + lease.iter().len())
                .arg(&keys.lock)
                .arg(keys.register())
                .arg(keys.tombstone(value))
                .arg(keys.stolen())
                .arg(keys.readers())
                .arg(lease);
            take(&mut cmd, value, *ttl, *proposed);
            for value in from {
                cmd.arg(value.as_str());
            }
        }
        Command::Raise { value, to } => {
            cmd.arg(3)
                .arg(&keys.lock)
                .arg(keys.register())
                .arg(keys.readers())
                .arg(value.as_str())
                .arg(to.get());
        }
        Command::Extend {
            value,
            ttl,
            token,
            entries,
            repair,
        } => {
            let lease = keys.lease_tombstone(value);
            cmd.arg(4 + lease.iter().len())
                .arg(&keys.lock)
                .arg(keys.register())
                .arg(keys.tombstone(value))
                .arg(keys.stolen())
                .arg(lease);
            keep(&mut cmd, value, *ttl, *token);
            cmd.arg(match repair {
                Repair::Always => "always",
                Repair::UnlessOvertaken => "compares",
                Repair::Never => "never",
            });
            if value.is_reentrant() {
                cmd.arg(entries.get());
            }
        }
        Command::ExtendShared { value, ttl, token } => {
            let lease = keys.lease_tombstone(value);
            cmd.arg(7 + lease.iter().len());
            let cmd = six_keys(&mut cmd, keys, value);
            cmd.arg(keys.stolen()).arg(lease);
            keep(cmd, value, *ttl, *token);
        }
        Command::ReleaseLease { lease, tombstone } => {
            let mark = AttemptValue::of_lease(*lease);
            cmd.arg(5)
                .arg(&keys.lock)
                .arg(keys.queue())
                .arg(keys.leases())
                .arg(keys.tombstone(&mark))
                .arg(keys.readers())
                .arg(mark.unique_part())
                .arg(millis_up(*tombstone));
        }
        Command::Release {
            value,
            tombstone,
            ticket,
            follower,
            is_lease,
        } => {
            cmd.arg(6)
                .arg(&keys.lock)
                .arg(keys.queue())
                .arg(keys.leases())
                .arg(keys.tombstone(value))
                .arg(keys.readers())
                .arg(keys.stolen())
                .arg(value.as_str())
                .arg(tombstone.map_or(0, millis_up))
                .arg(if *is_lease { "0" } else { "1" })
                .arg(follower.as_ref().map_or("", ClientId::as_str));
            match ticket {
                TicketDisposition::Stays => cmd.arg("stays"),
                TicketDisposition::Leaves(id) => cmd.arg("leaves").arg(id.as_str()),
                TicketDisposition::Returns { id, number, lease } => cmd
                    .arg("returns")
                    .arg(id.as_str())
                    .arg(number.get())
                    .arg(millis_up(*lease)),
            };
        }
        Command::Enqueue { tickets, lease } => {
            cmd.arg(4)
                .arg(&keys.lock)
                .arg(keys.queue())
                .arg(keys.leases())
                .arg(keys.register())
                .arg(millis_up(*lease))
                .arg(MAX_SKEW.as_micros() as u64);
            for ticket in tickets {
                let standing = match ticket.number {
                    Standing::Proposed(_) => "proposed",
                    Standing::Agreed(_) => "agreed",
                };
                cmd.arg(ticket.id.as_str())
                    .arg(ticket.number.number().get())
                    .arg(standing);
            }
        }
        Command::Leave { tickets } => {
            cmd.arg(3)
                .arg(&keys.lock)
                .arg(keys.queue())
                .arg(keys.leases());
            for id in tickets {
                cmd.arg(id.as_str());
            }
        }
        Command::Inspect => {
            cmd.arg(4)
                .arg(&keys.lock)
                .arg(keys.register())
                .arg(keys.leases())
                .arg(keys.readers());
        }
    }
    cmd
}

fn take(cmd: &mut Cmd, value: &AttemptValue, ttl: Ttl, proposed: FencingToken) {
    cmd.arg(value.as_str())
        .arg(ttl.as_millis())
        .arg(proposed.get())
        .arg(MAX_SKEW.as_micros() as u64);
}

fn keep(cmd: &mut Cmd, value: &AttemptValue, ttl: Ttl, token: FencingToken) {
    cmd.arg(value.as_str())
        .arg(ttl.as_millis())
        .arg(token.get());
}

fn six_keys<'c>(cmd: &'c mut Cmd, keys: &Keys, value: &AttemptValue) -> &'c mut Cmd {
    cmd.arg(&keys.lock)
        .arg(keys.register())
        .arg(keys.tombstone(value))
        .arg(keys.queue())
        .arg(keys.leases())
        .arg(keys.readers())
}

/// Rounded up, and at least a millisecond: Redis accepts no shorter TTL.
fn millis_up(time: Duration) -> u64 {
    let millis = time.as_nanos().div_ceil(1_000_000).max(1);
    // Redis adds it to its clock in 63 bits; a year is as good as forever.
    const YEAR: u128 = 365 * 24 * 60 * 60 * 1000;
    millis.min(YEAR) as u64
}

/// Parses a script's reply.
pub(super) fn read(value: Value) -> Result<Reply, NodeError> {
    let answer = |value: &Value| NodeError::Other(format!("malformed reply: {value:?}"));
    if let Some(register) = token(Some(&value)) {
        let evicted = None;
        return Ok(Reply::Granted { register, evicted });
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
        b"granted" => token(rest.first()).map(|register| Reply::Granted {
            register,
            evicted: rest.get(1).and_then(stored).map(|held| held.value),
        }),
        b"held" => holder(rest).map(Reply::Held),
        b"withdrawn" => Some(Reply::Tombstoned),
        b"exhausted" => Some(Reply::Exhausted),
        b"raised" => token(rest.first()).map(Reply::Raised),
        b"not raised" => token(rest.first()).map(Reply::NotRaised),
        b"extended" => Some(Reply::Extended),
        b"repaired" => Some(Reply::Repaired),
        b"released" => Some(Reply::Released),
        b"lease released" => {
            let values: Vec<_> = rest.iter().filter_map(stored).collect();
            (values.len() == rest.len()).then_some(Reply::LeaseReleased(values))
        }
        b"not held" => Some(Reply::NotHeld(holder(rest))),
        b"stolen" => rest
            .first()
            .and_then(text)
            .map(|by| Reply::Stolen(AttemptValue::reported(&*by))),
        b"line" => line(rest).map(Reply::Queue),
        b"left" => Some(Reply::Left),
        b"seen" => match rest {
            [register, waiting, seen @ ..] => token(Some(register)).map(|register| {
                Reply::Snapshot(Snapshot {
                    holder: holder(seen),
                    readers: seen.chunks_exact(2).skip(1).filter_map(reader).collect(),
                    register,
                    waiting: count(waiting).unwrap_or(0),
                })
            }),
            _ => None,
        },
        _ => None,
    };
    reply.ok_or_else(|| answer(&value))
}

/// The holder, the head of the queue, and the presented tickets: a number and how many are ahead.
fn line(items: &[Value]) -> Option<NodeQueue> {
    let (seen, places) = items.split_at_checked(4)?;
    let head = match (text(&seen[2]), &seen[3]) {
        (Some(head), Value::Int(left)) => {
            let left = Duration::from_millis(u64::try_from(*left).unwrap_or(0));
            Some((TicketId::reported(&*head), left))
        }
        _ => None,
    };
    let place = |pair: &[Value]| {
        let (number, ahead) = (count(&pair[0])?, count(&pair[1])?);
        let number = TicketNumber::saturating(number as u64);
        Some(Place { number, ahead })
    };
    Some(NodeQueue {
        holder: holder(seen),
        head,
        places: places.chunks_exact(2).map(place).collect::<Option<_>>()?,
    })
}

fn count(value: &Value) -> Option<usize> {
    match value {
        Value::Int(n) => usize::try_from(*n).ok(),
        _ => None,
    }
}

fn token(value: Option<&Value>) -> Option<FencingToken> {
    match value {
        // A register that was set beyond the integer range comes back negative.
        Some(Value::Int(n)) => {
            Some(u64::try_from(*n).map_or(FencingToken::MAX, FencingToken::saturating))
        }
        _ => None,
    }
}

/// The holder's value and token, and its remaining milliseconds: -1 without an expiry.
fn holder(items: &[Value]) -> Option<Holder> {
    let Stored { value, token } = items.first().and_then(stored)?;
    Some(Holder {
        value,
        token,
        remaining: remaining(items.get(1)?)?,
    })
}

/// The same for a reader: its value is stored alone.
fn reader(items: &[Value]) -> Option<Holder> {
    Some(Holder {
        value: AttemptValue::reported(&*items.first().and_then(text)?),
        token: None,
        remaining: remaining(items.get(1)?)?,
    })
}

fn remaining(value: &Value) -> Option<Option<Duration>> {
    match value {
        Value::Int(left) => Some(u64::try_from(*left).ok().map(Duration::from_millis)),
        _ => None,
    }
}

fn stored(value: &Value) -> Option<Stored> {
    text(value).map(|text| Stored::parse(&text))
}

fn text(value: &Value) -> Option<Cow<'_, str>> {
    match value {
        Value::BulkString(bytes) => Some(fault::text_or_hex(bytes)),
        _ => None,
    }
}

#[cfg(test)]
mod assembled;
