//! A node that cannot be asked: why, and what to type.

use fencepost::NodeError;

use super::file::is_file;
use super::{Examination, Severity};
use crate::fault;

impl Examination {
    pub(super) fn unreachable(&mut self, node: &str, error: &NodeError) {
        let (what, fix) = match error {
            _ if is_file(node) => (
                "store",
                "give --store file:PATH with a path that this user can read and write, on a local \
                 disk; the default is in $XDG_STATE_HOME or ~/.local/state",
            ),
            _ if error.to_string().contains("certificate") => (
                "tls",
                "give --tls-ca FILE with the certificate of the authority that signed the server's, \
                 and --tls-cert FILE and --tls-key FILE if the server asks for a client certificate \
                 (tls-auth-clients); the host in the URL must be a name in its certificate",
            ),
            NodeError::Auth(_) => (
                "auth",
                "correct user and password in the URL: redis://USER:PASSWORD@HOST, with special \
                 characters percent-encoded",
            ),
            NodeError::Store(_) | NodeError::Unusable(_) => {
                ("store", "follow that advice, or give another file:PATH")
            }
            NodeError::Sentinel => (
                "sentinel",
                "list all Sentinels of the group and the name that they have for its master: \
                 redis+sentinel://SENTINEL1,SENTINEL2,SENTINEL3/MASTER",
            ),
            NodeError::Unnamed(_) if node.contains("+cluster://") => (
                "cluster",
                "start the nodes that the URL lists, or correct their addresses; all clients must list \
                 the same ones",
            ),
            NodeError::Unnamed(_) => (
                "sentinel",
                "start the Sentinels, or correct their addresses and the name of the master in the \
                 URL: redis+sentinel://SENTINEL1,SENTINEL2,SENTINEL3/MASTER",
            ),
            NodeError::ClusterNode | NodeError::NoClusterNode | NodeError::ClusterDown(_) => (
                "cluster",
                "list the masters of the Redis Cluster: redis+cluster://NODE1,NODE2,NODE3; see \
                 redis-cli --cluster check NODE1",
            ),
            NodeError::HidesFencing(_) => (
                "fencing-hidden",
                "run ACL SETUSER <user> +config|get on every node, or give failover= in the URL, the \
                 same for every client and not below cluster-node-timeout",
            ),
            NodeError::Timeout(_) => (
                "timeout",
                "check whether the server hangs, whether a firewall drops packets, and whether it \
                 speaks TLS (rediss://) or not (redis://)",
            ),
            _ => (
                "unreachable",
                "start the server, or correct host and port in the URL; check that it listens on an \
                 address that this machine can reach (`bind` in redis.conf), and whether with TLS",
            ),
        };
        let why = format!("cannot be used: {}", fault::node(error));
        self.find(Severity::Bad, what, why, fix);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::{Policy, keeps_from_voting};
    use super::*;

    #[test]
    fn a_node_that_cannot_be_asked_has_a_finding_of_its_own_kind() {
        let policy = Policy {
            restart: None,
            max_ttl: Duration::from_secs(60),
        };
        let mut exam = Examination {
            policy,
            nodes: 3,
            findings: Vec::new(),
            at: Some(0),
        };
        for error in [
            NodeError::Auth("WRONGPASS".into()),
            NodeError::Unreachable("refused".into()),
            NodeError::Store("no".into()),
            NodeError::Timeout(Duration::from_secs(1)),
        ] {
            exam.unreachable("redis://a", &error);
        }
        let what: Vec<_> = exam.findings.iter().map(|finding| finding.what).collect();
        assert_eq!(what, ["auth", "unreachable", "store", "timeout"]);
        assert!(exam.findings.iter().all(keeps_from_voting));
        assert!(exam.delays(), "three nodes");
        exam.unreachable("file:/x", &NodeError::Other("broken".into()));
        let last = exam.findings.last().unwrap();
        assert_eq!(last.what, "store");
        assert!(
            last.fix.contains("file:PATH") && !last.fix.contains("server"),
            "{}",
            last.fix
        );
    }
}
