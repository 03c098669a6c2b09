//! The second implementation of [the core](fencepost_core::lock): one Lua script per command. This
//! file names and assembles them; `encode` writes their arguments, `decode` parses their replies.
//!
//! A number must never be rounded: tokens travel as integers in both directions.

mod decode;
mod encode;

use std::borrow::Cow;
use std::sync::LazyLock;

use sha1_smol::Sha1;

use super::keys::Keys;
use crate::store::redis::protocol::command::Cmd;
pub(crate) use decode::read;
use encode::write;
use fencepost_core::lock::Command;
use fencepost_core::value::AttemptValue;

/// How a script wakes a client, and how it does in a Cluster.
const PUBLISH: &str = "redis.pcall('PUBLISH', 'fencepost:wake:' .. client, message)";
const PUBLISH_AT_SHARD: &str = include_str!("scripts/cluster/publish.lua");

/// Where a script runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Site {
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
pub(crate) const FORGET: &str = include_str!("scripts/forget.lua");

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
        let digest = Sha1::from(&*source).digest().to_string();
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
pub(crate) fn to_load(site: Site) -> impl Iterator<Item = &'static str> {
    let plain = in_layouts().into_iter().map(|layouts| &*layouts.plain);
    let others = [&ACQUIRE_TURN, &RELEASE_HELD, &QUEUE, &LEAVE, &INSPECT].map(|lua| &**lua);
    plain.chain(others).map(move |lua| &*lua.at(site).source)
}

/// The text of every script.
pub(crate) fn sources(site: Site) -> impl Iterator<Item = &'static str> {
    let reentrant = in_layouts().map(|layouts| &*layouts.reentrant);
    let shared = [&SHARE, &EXTEND_SHARED, &RELEASE_LEASE].map(|lua| &**lua);
    let others = reentrant.into_iter().chain(shared);
    let others = others.map(move |lua| &*lua.at(site).source);
    to_load(site).chain(others).chain([FORGET])
}

/// The command for a server that should have the script.
pub(crate) fn by_digest(command: &Command, keys: &Keys) -> Cmd {
    write("EVALSHA", &Lua::of(command, keys).digest, command, keys)
}

/// The same for a server that does not have it, which loads it.
pub(crate) fn by_source(command: &Command, keys: &Keys) -> Cmd {
    write("EVAL", &Lua::of(command, keys).source, command, keys)
}

/// The digest of the usual release's script.
pub(crate) fn release_held() -> &'static str {
    &RELEASE_HELD.digest
}

/// The same for an acquire by the head of a queue.
pub(crate) fn acquire_turn() -> &'static str {
    &ACQUIRE_TURN.digest
}

/// Gives the short script of this command to a server that has lost it.
pub(crate) fn load_short(command: &Command) -> Cmd {
    let lua = match command {
        Command::Acquire { .. } => &ACQUIRE_TURN,
        _ => &RELEASE_HELD,
    };
    let mut cmd = Cmd::new("SCRIPT");
    cmd.arg("LOAD").arg(&*lua.source);
    cmd
}

#[cfg(test)]
mod assembled;
