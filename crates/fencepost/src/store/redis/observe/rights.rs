//! Which permissions a user of a server lacks: found by trying, because a user that may read its
//! own ACL has more permissions than a lock needs.
//!
//! What is tried must be harmless: it reads, or writes a key of its own and deletes it.

use super::survey::Server;
use crate::error::NodeError;
use crate::store::facts::{MissingRight, NeededFor};
use crate::store::redis::encoding::keys::{Prefix, REGISTER};
use crate::store::redis::encoding::scripts;
use crate::store::redis::encoding::scripts::Site;
use crate::store::redis::fault;
use crate::store::redis::fault::RedisError;
use crate::store::redis::protocol::command::Cmd;
use fencepost_core::name::LockName;

/// The lock whose keys are tried. It is never acquired.
pub(crate) const PROBE: &str = "fencepost:doctor";
/// The channel that is tried. It has no subscribers.
const PROBE_CHANNEL: &str = "fencepost:wake:doctor";
/// The same in the shard of that lock.
const PROBE_SHARD_CHANNEL: &str = "fencepost:wake:{fencepost:doctor}:queue:doctor";
/// The TTL of what is written, in case it is not deleted.
const PROBE_MILLIS: &str = "1000";
/// The digest of a script that no server has: the reply is NOSCRIPT.
const NO_SCRIPT: &str = "0000000000000000000000000000000000000000";

/// Tries everything.
pub(crate) async fn missing(
    server: &Server,
    user: &str,
    site: Site,
    replicas: u32,
) -> Result<Vec<MissingRight>, NodeError> {
    let Some(lock) = probe_key() else {
        return Ok(Vec::new());
    };
    let mut missing = Vec::new();
    let (mut keys_denied, mut channels_denied) = (false, false);
    for (words, rule, needed_for) in attempts(&lock, site, replicas) {
        let mut cmd = Cmd::new(&words[0]);
        cmd.args(&words[1..]);
        match server.ask(&cmd).await.err().map(|error| denial(&error)) {
            None | Some(Denial::None) => {}
            Some(Denial::Broken(error)) => return Err(error),
            Some(Denial::Keys) => keys_denied = true,
            Some(Denial::Channels) => channels_denied = true,
            Some(Denial::Command) => missing.push(MissingRight {
                command: words[0].clone(),
                rule,
                needed_for,
            }),
        }
    }
    if keys_denied {
        missing.push(MissingRight {
            command: format!("keys such as {lock} and {REGISTER}, as user {user}"),
            rule: "~*".into(),
            needed_for: NeededFor::Locks,
        });
    }
    if channels_denied {
        missing.push(MissingRight {
            command: "the channels fencepost:wake:*".into(),
            rule: "&fencepost:wake:*".into(),
            needed_for: NeededFor::Waking,
        });
    }
    Ok(missing)
}

fn probe_key() -> Option<String> {
    let name = LockName::new(PROBE).ok()?;
    let keys = Prefix::new("").ok()?.keys(&name).ok()?;
    Some(keys.lock)
}

/// What is tried: the command, the rule that grants it, and what it is needed for.
fn attempts(lock: &str, site: Site, replicas: u32) -> Vec<(Vec<String>, String, NeededFor)> {
    let wait: (&[&str], &str, NeededFor) = (&["WAIT", "0", "1"], "+wait", NeededFor::Locks);
    let wait = (replicas > 0).then_some(wait);
    let fixed: [(&[&str], &str, NeededFor); 6] = [
        (&["EVALSHA", NO_SCRIPT, "0"], "+evalsha", NeededFor::Locks),
        (&["EVAL", "return 1", "0"], "+eval", NeededFor::Locks),
        (
            &["SCRIPT", "LOAD", "return 1"],
            "+script|load",
            NeededFor::Checks,
        ),
        (&["INFO"], "+info", NeededFor::Checks),
        (
            &["CONFIG", "GET", "appendfsync"],
            "+config|get",
            NeededFor::Checks,
        ),
        (
            &["ZSCAN", REGISTER, "0", "COUNT", "1"],
            "+zscan",
            NeededFor::Listing,
        ),
    ];
    let fixed = fixed
        .into_iter()
        .chain(wait)
        .map(|(words, rule, needed_for)| {
            let words = words.iter().map(ToString::to_string).collect();
            (words, rule.to_owned(), needed_for)
        });
    let within = commands_of_scripts(site).into_iter().filter_map(|command| {
        let words = harmless(&command, lock)?;
        let words = words.into_iter().map(str::to_owned).collect();
        let needed_for = match command.as_str() {
            // Scripts work without it.
            "PUBLISH" => NeededFor::Waking,
            "SPUBLISH" => NeededFor::WakingInShard,
            "HSET" | "HGET" | "HGETALL" | "HEXISTS" | "HLEN" | "TYPE" => NeededFor::Reentrant,
            _ => NeededFor::Locks,
        };
        let rule = format!("+{}", command.to_lowercase());
        Some((words, rule, needed_for))
    });
    // Last: afterwards the connection is unusable.
    let subscribe = [
        (
            ["SUBSCRIBE", PROBE_CHANNEL],
            "+subscribe",
            NeededFor::Waking,
        ),
        (
            ["SSUBSCRIBE", PROBE_SHARD_CHANNEL],
            "+ssubscribe",
            NeededFor::WakingInShard,
        ),
    ];
    let subscribe = subscribe.into_iter().take(match site {
        Site::Server => 1,
        Site::Cluster => 2,
    });
    let subscribe = subscribe.map(|(words, rule, needed_for)| {
        let words = words.map(str::to_owned).to_vec();
        (words, rule.to_owned(), needed_for)
    });
    fixed.chain(within).chain(subscribe).collect()
}

/// The commands that our scripts call, in upper case, each once. `SET` comes first, so that the key
/// exists as a string, and `DEL` last, to clean up.
fn commands_of_scripts(site: Site) -> Vec<String> {
    let mut commands: Vec<String> = Vec::new();
    for source in scripts::sources(site) {
        for after in source.split("call('").skip(1) {
            let command = after.split('\'').next().unwrap_or_default().to_uppercase();
            if !commands.contains(&command) {
                commands.push(command);
            }
        }
    }
    commands.sort_by_key(|command| (command == "DEL", command != "SET"));
    commands
}

/// The command with harmless arguments, if it is known.
fn harmless<'a>(command: &'a str, lock: &'a str) -> Option<Vec<&'a str>> {
    let rest: &[&str] = match command {
        "TIME" => &[],
        "SET" => &[lock, "", "PX", PROBE_MILLIS],
        "MGET" => &[lock, REGISTER],
        "PUBLISH" => &[PROBE_CHANNEL, ""],
        "SPUBLISH" => &[PROBE_SHARD_CHANNEL, ""],
        "GET" | "EXISTS" | "PTTL" | "TTL" | "PEXPIRETIME" | "DEL" | "UNLINK" | "TYPE" | "INCR"
        | "HGETALL" | "HKEYS" | "HLEN" | "ZCARD" | "SCARD" | "LLEN" => &[lock],
        "PEXPIRE" | "PEXPIREAT" => &[lock, PROBE_MILLIS],
        // On a string key: the reply is WRONGTYPE.
        "HGET" | "HDEL" | "HEXISTS" | "HMGET" | "ZSCORE" | "ZREM" | "ZRANK" | "SADD" | "SREM"
        | "SISMEMBER" => &[lock, "0"],
        "ZRANGE" | "ZREMRANGEBYSCORE" | "ZREMRANGEBYRANK" | "ZCOUNT" | "ZRANGEBYSCORE" | "ZADD"
        | "HSET" | "HINCRBY" | "ZINCRBY" => &[lock, "0", "0"],
        _ => return None,
    };
    let mut words = vec![command];
    words.extend(rest);
    Some(words)
}

enum Denial {
    /// It ran, or was refused for another reason.
    None,
    Command,
    Keys,
    Channels,
    /// The connection is gone.
    Broken(NodeError),
}

fn denial(error: &RedisError) -> Denial {
    if !fault::is_answer(error) {
        return Denial::Broken(fault::node_error(error));
    }
    match fault::node_error(error) {
        NodeError::Permission(text) if is_about(&text, "channel") => Denial::Channels,
        NodeError::Permission(text) if is_about(&text, "key") => Denial::Keys,
        NodeError::Permission(_) => Denial::Command,
        _ => Denial::None,
    }
}

/// Redis 6 and 7 word it differently, and both name the subject.
fn is_about(text: &str, what: &str) -> bool {
    text.contains("access") && text.contains(what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_of_our_scripts_is_tried() {
        for site in [Site::Server, Site::Cluster] {
            let commands = commands_of_scripts(site);
            assert!(commands.len() >= 6, "{commands:?}");
            for command in &commands {
                let tried = harmless(command, "a").is_some();
                assert!(tried, "{command}: say how it is tried without harm");
            }
            assert_eq!(commands.last().map(String::as_str), Some("DEL"));
            // A plain server is not asked for what only a Cluster needs.
            let is_sharded = commands.iter().any(|command| command == "SPUBLISH");
            assert_eq!(is_sharded, site == Site::Cluster);
        }
    }

    #[test]
    fn a_denied_key_is_not_taken_for_a_denied_command() {
        for (text, keys) in [
            ("NOPERM No permissions to access a key", true),
            (
                "NOPERM this user has no permissions to access one of the keys used as arguments",
                true,
            ),
            (
                "NOPERM this user has no permissions to run the 'get' command or its subcommand",
                false,
            ),
            (
                "NOPERM User app has no permissions to run the 'evalsha' command",
                false,
            ),
        ] {
            assert_eq!(is_about(text, "key"), keys, "{text}");
        }
    }
}
