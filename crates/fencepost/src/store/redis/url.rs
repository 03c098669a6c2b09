//! Parses a URL into the address of a server and its credentials.
//!
//! No label and no error message made here may show a password.

use std::path::PathBuf;
use std::time::Duration;

use redis::{ConnectionAddr, IntoConnectionInfo, RedisConnectionInfo};

use crate::error::{Cause, Error};

const TCP_FORM: &str = "write redis://[user]:[password]@host[:port][/db][?protocol=resp3&replicas=K], with \
                        special characters in user and password percent-encoded";
const UNIX_FORM: &str =
    "write redis+unix:///path/of/the/socket[?db=N][&user=U][&pass=P][&protocol=resp3&replicas=K]";

/// The address of a server, and its credentials.
#[derive(Clone, Debug)]
pub(super) struct Target {
    /// The route.
    pub(super) place: Place,
    /// User, password, database and protocol.
    pub(super) login: RedisConnectionInfo,
    /// The URL without user and password, for display.
    pub(super) label: String,
    /// How many replicas must have a vote before it counts.
    pub(super) replicas: u32,
}

/// The route to a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Tcp { host: String, port: u16, tls: bool },
    Unix(PathBuf),
}

impl Place {
    /// Whether this address leads to another server on each machine.
    pub(super) fn is_local(&self) -> bool {
        match self {
            Self::Unix(_) => true,
            Self::Tcp { host, .. } => is_loopback(host),
        }
    }
}

/// Whether this host is the machine itself.
pub(super) fn is_loopback(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let host = host.trim_end_matches('.');
    let address = host.parse::<std::net::IpAddr>().map(|ip| ip.to_canonical());
    host.eq_ignore_ascii_case("localhost")
        || address.is_ok_and(|ip| ip.is_loopback() || ip.is_unspecified())
}

impl Target {
    /// # Errors
    /// [`ErrorKind::InvalidUrl`](crate::ErrorKind::InvalidUrl) says what would be valid.
    pub(super) fn parse(url: &str) -> Result<Self, Error> {
        let invalid = |why: String| {
            Error::from(Cause::InvalidUrl {
                url: without_login(url),
                why,
            })
        };
        let (scheme, rest) = url
            .split_once("://")
            .ok_or_else(|| invalid(format!("it has no scheme; {TCP_FORM}")))?;
        let (plain, tls, unix) = match scheme {
            "redis" | "valkey" => ("redis", false, false),
            "rediss" | "valkeys" => ("redis", true, false),
            "redis+unix" | "valkey+unix" | "unix" => ("redis+unix", false, true),
            _ => return Err(invalid(format!("unknown scheme; {TCP_FORM}"))),
        };
        if tls && cfg!(not(feature = "tls")) {
            let why = "TLS is not built in; build fencepost with its feature \"tls\"";
            return Err(invalid(why.to_owned()));
        }
        let form = if unix { UNIX_FORM } else { TCP_FORM };
        // The crate's parser accepts rediss only with its own TLS, which is not used here.
        let mut parsed = redis::parse_redis_url(&format!("{plain}://{rest}"))
            .ok_or_else(|| invalid(format!("it is not a URL; {form}")))?;
        if parsed.fragment().is_some() {
            let why = "it has a \"#\" part, which is not supported; a \"#\" in a password is %23";
            return Err(invalid(why.to_owned()));
        }
        let known: &[&str] = if unix {
            &["db", "user", "pass", "protocol", "replicas"]
        } else {
            &["protocol", "replicas"]
        };
        for (key, _) in parsed.query_pairs() {
            if !known.contains(&&*key) {
                return Err(invalid(format!("unknown parameter {key:?}; {form}")));
            }
        }

        let mut replicas = 0;
        let mut others: Vec<(String, String)> = Vec::new();
        for (key, value) in parsed.query_pairs() {
            match &*key {
                "replicas" => {
                    replicas = replica_count(&value).ok_or_else(|| {
                        invalid(format!(
                            "expected replicas to be a number from 0 to {MOST_REPLICAS}"
                        ))
                    })?;
                }
                _ => others.push((key.into_owned(), value.into_owned())),
            }
        }
        match others.is_empty() {
            true => parsed.set_query(None),
            false => {
                parsed.query_pairs_mut().clear().extend_pairs(others);
            }
        }
        let mut shown = parsed.clone();
        // Both fail only without a host, and then there are no credentials to hide.
        let _ = shown.set_username("");
        let _ = shown.set_password(None);
        if unix {
            let keep = |key: &str| key == "db";
            let pairs = parsed.query_pairs().filter(|(key, _)| keep(key));
            let query: Vec<String> = pairs.map(|(key, val)| format!("{key}={val}")).collect();
            shown.set_query((!query.is_empty()).then(|| query.join("&")).as_deref());
        } else {
            shown.set_query(None);
        }
        let label = shown.as_str();
        let label = label.strip_prefix(plain).unwrap_or(label);
        let label = format!("{scheme}{}", label.strip_suffix('/').unwrap_or(label));

        let info = parsed
            .into_connection_info()
            .map_err(|error| invalid(format!("{}; {form}", plain_words(&error))))?;
        let mut login = info.redis_settings().clone().set_skip_set_lib_name();
        if login.db() < 0 {
            return Err(invalid(format!("the database number is below 0; {form}")));
        }
        if login.username().is_some() && login.password().is_none() {
            // Without one, the crate would not authenticate at all, and act as the default user.
            login = login.set_password("");
        }
        let place = match info.addr() {
            ConnectionAddr::Tcp(host, _) if host.is_empty() => {
                return Err(invalid(format!("it has no host; {form}")));
            }
            ConnectionAddr::Tcp(host, port) => Place::Tcp {
                host: host.clone(),
                port: *port,
                tls,
            },
            ConnectionAddr::Unix(path) => Place::Unix(path.clone()),
            _ => return Err(invalid(format!("unknown kind of address; {form}"))),
        };
        Ok(Self {
            place,
            login,
            label,
            replicas,
        })
    }
}

/// The maximum of `replicas=`.
pub(super) const MOST_REPLICAS: u32 = 9;

/// The value of `replicas=`.
pub(super) fn replica_count(text: &str) -> Option<u32> {
    text.parse().ok().filter(|count| *count <= MOST_REPLICAS)
}

/// The host, and the port if there is one.
pub(super) fn split_port(host: &str) -> (&str, Option<String>) {
    match host.rsplit_once(':') {
        // Not a colon inside an IPv6 address.
        Some((name, port)) if !port.contains(']') => (name, Some(port.to_owned())),
        _ => (host, None),
    }
}

/// Whole seconds: `10s`, or `10`.
pub(super) fn seconds(text: &str) -> Option<Duration> {
    let number = text.strip_suffix('s').unwrap_or(text);
    number.parse().ok().map(Duration::from_secs)
}

/// The parser's message, without its names of error kinds.
fn plain_words(error: &redis::RedisError) -> String {
    let text = error.to_string();
    let words = text.split(" - ").next().unwrap_or(&text);
    words.to_lowercase()
}

/// A displayable form of a URL that could not be parsed.
pub(super) fn without_login(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let rest = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
    let rest = rest.split(['?', '#']).next().unwrap_or("");
    match scheme {
        "" => rest.to_owned(),
        _ => format!("{scheme}://{rest}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(host: &str, port: u16) -> Place {
        Place::Tcp {
            host: host.into(),
            port,
            tls: false,
        }
    }

    #[test]
    fn the_forms_that_people_use_are_understood() {
        for (url, place, label, db) in [
            ("redis://h", tcp("h", 6379), "redis://h", 0),
            ("redis://h:1/2", tcp("h", 1), "redis://h:1/2", 2),
            ("redis://u:p@h:1", tcp("h", 1), "redis://h:1", 0),
            ("redis://:p@h/", tcp("h", 6379), "redis://h", 0),
            (
                "valkey://u@h/?protocol=resp3",
                tcp("h", 6379),
                "valkey://h",
                0,
            ),
            ("redis://[::1]:7", tcp("::1", 7), "redis://[::1]:7", 0),
            (
                "redis+unix:///run/r.sock?db=3&user=u&pass=secret",
                Place::Unix("/run/r.sock".into()),
                "redis+unix:///run/r.sock?db=3",
                3,
            ),
            (
                "unix:///run/r.sock",
                Place::Unix("/run/r.sock".into()),
                "unix:///run/r.sock",
                0,
            ),
        ] {
            let target = Target::parse(url).unwrap();
            assert_eq!(target.place, place, "{url}");
            assert_eq!(target.label, label, "{url}");
            assert_eq!(target.login.db(), db, "{url}");
        }
    }

    #[test]
    fn user_and_password_may_be_percent_encoded() {
        let target = Target::parse("redis://b%20b:p%40ss%2F%23@h").unwrap();
        assert_eq!(target.login.username(), Some("b b"));
        assert_eq!(target.login.password(), Some("p@ss/#"));
        let waits = Target::parse("redis://:a%26b@h?replicas=2&protocol=resp3").unwrap();
        assert_eq!((waits.replicas, waits.label.as_str()), (2, "redis://h"));
        assert_eq!(waits.login.password(), Some("a&b"));
        let nopass = Target::parse("redis://bob@h").unwrap();
        assert_eq!(nopass.login.password(), Some(""));
    }

    #[test]
    fn a_bad_url_is_refused_with_what_would_be_right_and_without_its_password() {
        for (url, why) in [
            ("localhost:6379", "no scheme"),
            ("http://h", "unknown scheme"),
            ("redis://", "redis://[user]"),
            ("redis://:secret@h/x", "database number"),
            ("redis://:secret@h/-1", "below 0"),
            ("redis://:secret@h:99999", "not a URL"),
            ("redis://:sec/secret@h", "percent-encoded"),
            ("redis://:secret@h?protocol=resp9", "protocol"),
            ("redis://h?pass=secret", "unknown parameter"),
            ("redis://:secret@h?replicas=x", "0 to 9"),
            ("redis://h/#secret", "%23"),
            ("redis://:secret@0.0.0.0", "wildcard"),
            ("redis+unix://", "redis+unix:///path"),
            ("redis+unix:///s?db=x&pass=secret", "database number"),
        ] {
            let error = Target::parse(url).unwrap_err();
            assert_eq!(error.kind(), crate::ErrorKind::InvalidUrl);
            let text = error.to_string();
            assert!(text.contains(why), "{url}: {text}");
            assert!(!text.contains("secret"), "{url}: {text}");
        }
    }

    #[cfg(feature = "tls")]
    #[test]
    fn rediss_means_tls() {
        let target = Target::parse("rediss://:secret@h:7/1").unwrap();
        assert!(matches!(target.place, Place::Tcp { tls: true, .. }));
        assert_eq!(target.label, "rediss://h:7/1");
    }

    #[cfg(not(feature = "tls"))]
    #[test]
    fn rediss_without_the_feature_says_which_one_is_missing() {
        let error = Target::parse("rediss://h").unwrap_err().to_string();
        assert!(error.contains("\"tls\""), "{error}");
    }
}
