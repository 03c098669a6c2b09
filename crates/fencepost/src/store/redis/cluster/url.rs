//! From a URL to a Redis Cluster: the nodes that are asked who owns which slots, and how to log in.
//!
//! No label and no error message made here may show a password.

use std::time::Duration;

use crate::error::Error;
use crate::store::redis::address::several::{Kind, SeveralHosts};
use crate::store::redis::address::url::{Login, Place};

const KIND: Kind = Kind {
    scheme: "cluster",
    form: "write redis+cluster://[user]:[password]@node1[:port],node2,node3[?failover=15s]\
           [&replicas=K]",
    host: "node",
    port: 6379,
    // More would make no majority safer.
    most: 9,
    more: "; the others are found by themselves",
    parameters: &["failover", "replicas", "protocol"],
};

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
        let parts = SeveralHosts::split(&KIND, url)?;
        if !matches!(parts.path, "" | "0") {
            return Err(parts.wrong("a Cluster has one database, and no path"));
        }
        let listed = parts.hosts()?;
        let common = parts.parameters(|_, _| false)?;
        let login = parts.login("", "its user or password")?;
        let addresses: Vec<_> = listed.iter().map(|(address, _)| address.as_str()).collect();
        let mut label = format!("{}+cluster://{}", parts.scheme(), addresses.join(","));
        if let Some(failover) = common.failover {
            // All clients of a Cluster have to agree on it.
            label += &format!("?failover={}s", failover.as_secs());
        }
        Ok(Self {
            listed,
            login,
            tls: parts.tls,
            replicas: common.replicas,
            failover: common.failover,
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
