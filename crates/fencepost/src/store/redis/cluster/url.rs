//! From a URL to a Redis Cluster: the nodes that are asked who owns which slots, and how to log in.
//!
//! No label and no error message made here may show a password.

use std::time::Duration;

use crate::error::{Cause, Error};
use crate::store::redis::address::url::{
    Login, MOST_REPLICAS, Place, Target, check_protocol, is_parameter, parameters, replica_count,
    seconds, split_port, without_login,
};
use fencepost_core::quorum::failover::{LONGEST_FAILOVER, SHORTEST_FAILOVER};

const FORM: &str = "write redis+cluster://[user]:[password]@node1[:port],node2,node3[?failover=15s]\
                    [&replicas=K]";
/// Where a node listens unless told otherwise.
const PORT: u16 = 6379;
/// The most nodes that are asked. More would make no majority safer.
const MOST_LISTED: usize = 9;
const PARAMETERS: [&str; 3] = ["failover", "replicas", "protocol"];

fn tls_of(scheme: &str) -> Option<bool> {
    match scheme {
        "redis+cluster" | "valkey+cluster" => Some(false),
        "rediss+cluster" | "valkeys+cluster" => Some(true),
        _ => None,
    }
}

/// A Redis Cluster.
#[derive(Clone, Debug)]
pub(in super::super) struct ClusterSpec {
    /// The listed nodes' addresses as people write them, and the way to each.
    pub(super) listed: Vec<(String, Place)>,
    /// How to log in at every node.
    pub(super) login: Login,
    pub(super) tls: bool,
    /// How many replicas must have a vote before it counts.
    pub(super) replicas: u32,
    /// `F` of [`failover`](fencepost_core::quorum::failover), unless `cluster-node-timeout` is to tell.
    pub(super) failover: Option<Duration>,
    /// The URL in the form that all clients of the Cluster share: without user and password.
    pub(in super::super) label: String,
}

impl ClusterSpec {
    /// # Errors
    /// [`ErrorKind::InvalidUrl`](crate::ErrorKind::InvalidUrl) says what would be right.
    pub(in super::super) fn parse(url: &str) -> Result<Self, Error> {
        let invalid = |why: String| {
            Error::from(Cause::InvalidUrl {
                url: without_login(url),
                why,
            })
        };
        let wrong = |why: &str| invalid(format!("{why}; {FORM}"));
        let (scheme, rest) = url.split_once("://").ok_or_else(|| wrong("no scheme"))?;
        let tls = tls_of(scheme).ok_or_else(|| wrong("its scheme is not known"))?;
        if rest.contains('#') {
            let why = "it has a \"#\" part, which is not supported; a \"#\" in a password is %23";
            return Err(invalid(why.to_owned()));
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (userinfo, rest) = rest.rsplit_once('@').unwrap_or(("", rest));
        let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
        if !matches!(path, "" | "0") {
            return Err(wrong("a Cluster has one database, and no path"));
        }
        let scheme = if tls { "rediss" } else { "redis" };
        let mut listed = Vec::new();
        for host in hosts.split(',') {
            let (host, port) = split_port(host.trim());
            let address = format!("{host}:{}", port.unwrap_or(PORT.to_string()));
            // It knows what a host is; its reasons are those of another form.
            let place = match Target::parse(&format!("{scheme}://{address}")) {
                Ok(target) => target.place,
                Err(error) if error.to_string().contains("TLS is not built in") => {
                    return Err(error);
                }
                // The hosts may be the beginning of a password.
                Err(_) if query.contains('@') => {
                    return Err(wrong(
                        "a host is not a node's address (percent-encode special characters)",
                    ));
                }
                Err(_) => return Err(wrong(&format!("{address:?} is not a node's address"))),
            };
            listed.push((address, place));
        }
        listed.sort_by(|one, other| one.0.cmp(&other.0));
        if listed.len() > MOST_LISTED {
            let got = listed.len();
            return Err(invalid(format!(
                "expected 1 to {MOST_LISTED} nodes, got {got}; the others are found by themselves"
            )));
        }
        if listed.windows(2).any(|pair| pair[0].0 == pair[1].0) {
            return Err(invalid("duplicate node; list each once".to_owned()));
        }
        let (mut failover, mut replicas) = (None, 0);
        for (key, value) in parameters(query) {
            match key.as_str() {
                "failover" => {
                    let in_range = SHORTEST_FAILOVER..=LONGEST_FAILOVER;
                    let time = seconds(&value).filter(|time| in_range.contains(time));
                    let time = time.ok_or_else(|| wrong("failover is not a time of 1s to 600s"))?;
                    failover = Some(time);
                }
                "replicas" => {
                    let why = format!("replicas is not a number from 0 to {MOST_REPLICAS}");
                    replicas = replica_count(&value).ok_or_else(|| wrong(&why))?;
                }
                "protocol" => check_protocol(&value).map_err(wrong)?,
                // It may be the rest of a password.
                _ if !is_parameter(&key) => return Err(wrong("it has an unknown parameter")),
                _ => {
                    let known = PARAMETERS.join(", ");
                    let why = format!("its parameter {key:?} is not known (known: {known})");
                    return Err(wrong(&why));
                }
            }
        }
        let at = if userinfo.is_empty() { "" } else { "@" };
        let login = Target::parse(&format!("redis://{userinfo}{at}h/")).map_err(|_| {
            wrong("its user or password cannot be read (percent-encode special characters)")
        })?;
        let addresses: Vec<_> = listed.iter().map(|(address, _)| address.as_str()).collect();
        let mut label = format!("{scheme}+cluster://{}", addresses.join(","));
        if let Some(failover) = failover {
            // All clients of a Cluster have to agree on it.
            label += &format!("?failover={}s", failover.as_secs());
        }
        Ok(Self {
            listed,
            login: login.login,
            tls,
            replicas,
            failover,
            label,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_clients_of_a_cluster_have_one_label_whatever_the_order_and_the_login() {
        let label = |url| ClusterSpec::parse(url).unwrap().label;
        let expected = "redis+cluster://a:6379,b:7";
        assert_eq!(label("redis+cluster://b:7,a"), expected);
        assert_eq!(
            label("valkey+cluster://u:p@a,b:7/0?replicas=1&protocol=resp3"),
            expected
        );
        assert_eq!(
            label("redis+cluster://:p@a?failover=3s"),
            "redis+cluster://a:6379?failover=3s"
        );
        let spec = ClusterSpec::parse("redis+cluster://u:p%40@[::1]:7,h?replicas=2").unwrap();
        assert_eq!((spec.replicas, spec.failover), (2, None));
        assert_eq!(spec.login.password.as_deref(), Some("p@"));
    }

    #[test]
    fn what_cannot_be_used_is_refused_without_the_password() {
        let many: Vec<_> = (0..10).map(|n| format!("h{n}")).collect();
        let many = format!("redis+cluster://{}", many.join(","));
        for (url, expected) in [
            ("redis+cluster://", "not a node's address"),
            ("redis+cluster://:secret@a,a", "duplicate"),
            ("redis+cluster://:secret@a/3", "one database"),
            ("redis+cluster://:secret@a?failover=0s", "1s to 600s"),
            ("redis+cluster://:secret@a?replicas=x", "replicas"),
            ("redis+cluster://:secret@a?db=1", "not known"),
            ("redis+cluster://:secret@a#b", "%23"),
            (many.as_str(), "got 10"),
        ] {
            let why = ClusterSpec::parse(url).unwrap_err().to_string();
            assert!(why.contains(expected) && !why.contains("secret"), "{why}");
        }
    }
}
