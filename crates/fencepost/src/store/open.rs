//! From a URL to a node.

use std::sync::Arc;

use super::Node;
use super::memory::MemoryNode;
#[cfg(feature = "redis")]
use super::redis::{ClusterNode, RedisNode, RedisOptions, Roster};
#[cfg(feature = "service")]
use super::service::{ServiceNode, ServiceOptions};
#[cfg(feature = "sqlite")]
use super::sqlite::{FileSpec, HolderProcess, SqliteNode};
use crate::error::{Cause, Error};
use crate::runtime::clock::Clock;

/// What opening the nodes of one client needs.
pub(crate) struct Opener {
    pub(crate) clock: Arc<dyn Clock>,
    #[cfg(feature = "sqlite")]
    pub(crate) holder: HolderProcess,
    #[cfg(feature = "redis")]
    pub(crate) redis: RedisOptions,
    #[cfg(feature = "redis")]
    pub(crate) roster: Roster,
    #[cfg(feature = "redis")]
    pub(crate) runtime: tokio::runtime::Handle,
    #[cfg(feature = "service")]
    pub(crate) service: ServiceOptions,
}

/// Whether this is a scheme of Redis and Valkey servers.
pub(crate) fn is_redis(scheme: &str) -> bool {
    matches!(
        scheme,
        "redis" | "rediss" | "redis+unix" | "valkey" | "valkeys" | "valkey+unix" | "unix"
    ) || is_group(scheme)
        || is_cluster(scheme)
}

/// Whether this is a scheme of Sentinel groups.
pub(crate) fn is_group(scheme: &str) -> bool {
    scheme.ends_with("+sentinel")
}

/// Whether this is a scheme of Redis Clusters.
pub(crate) fn is_cluster(scheme: &str) -> bool {
    scheme.ends_with("+cluster")
}

/// Whether URLs of this scheme have several hosts.
fn has_hosts(scheme: &str) -> bool {
    is_group(scheme) || is_cluster(scheme)
}

/// Splits a comma-separated list of URLs. The hosts of a Sentinel group or a Cluster are also
/// separated by commas: a part without a scheme belongs to the URL before it.
#[must_use]
pub fn split_urls(urls: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for piece in urls.split(',').map(str::trim) {
        let has_scheme =
            piece.contains("://") || ["file:", "memory:"].iter().any(|s| piece.starts_with(s));
        match found.last_mut() {
            Some(group)
                if !has_scheme && group.split_once(':').is_some_and(|(s, _)| has_hosts(s)) =>
            {
                group.push(',');
                group.push_str(piece);
            }
            _ => found.push(piece.to_owned()),
        }
    }
    found
}

/// Refuses a quorum with a node that differs for each client: they would all hold the lock.
pub(crate) fn check_reach(urls: &[&str]) -> Result<(), Error> {
    let of_one = |url: &&&str| matches!(url.split_once(':'), Some(("file" | "memory", _)));
    let is_service = |url: &&&str| url.starts_with("http:");
    if urls.len() > 1 && urls.iter().any(|url| is_service(&url)) {
        return Err(Error::from(Cause::InvalidUrl {
            url: "http:".into(),
            why: "a lock service has nodes of its own; use it alone".into(),
        }));
    }
    let is_of_cluster = |url: &&&str| url.split_once(':').is_some_and(|(s, _)| is_cluster(s));
    if urls.len() > 1 && urls.iter().any(|url| is_of_cluster(&url)) {
        return Err(Error::from(Cause::InvalidUrl {
            url: "redis+cluster:".into(),
            why: "a Redis Cluster is one voter; use it alone, or independent servers or Sentinel \
                  groups for a quorum"
                .into(),
        }));
    }
    #[cfg(feature = "redis")]
    {
        let reach = || urls.iter().map(|url| (url, super::redis::is_local(url)));
        let is_mixed = reach().any(|(_, is_local)| is_local == Some(false));
        let local = reach().find(|(_, is_local)| *is_local == Some(true));
        if let Some((url, _)) = local.filter(|_| is_mixed) {
            return Err(Error::from(Cause::InvalidUrl {
                url: super::redis::address(url)?,
                why: "it is local to this machine, so every host has another server there, and \
                      other nodes are not; give the name by which all clients reach this server"
                    .into(),
            }));
        }
    }
    // Duplicates are reported by the caller, which opens them.
    let is_one = urls.iter().all(|url| *url == urls[0]);
    match urls.iter().find(of_one) {
        Some(url) if !is_one => Err(Error::from(Cause::InvalidUrl {
            url: (*url).to_owned(),
            why:
                "it is local to this machine, and a quorum needs nodes that every client reaches; \
                  use it alone, or use servers only"
                    .into(),
        })),
        _ => Ok(()),
    }
}

impl Opener {
    pub(crate) fn url(&self, url: &str) -> Result<Arc<dyn Node>, Error> {
        match url.split_once(':') {
            Some(("memory", name)) => Ok(Arc::new(MemoryNode::named(name, self.clock.clone()))),
            Some(("file", path)) => self.file_url(url, path),
            Some((scheme, _)) if is_redis(scheme) => self.redis(url),
            _ => Err(Error::from(Cause::InvalidUrl {
                // It may contain a password: only its start is safe to show.
                url: format!("{:?}", beginning(url)),
                why: "it must begin with memory:, file:, redis://, rediss://, redis+unix://, \
                      redis+sentinel:// or redis+cluster:// (or valkey for redis), http:// or \
                      https://"
                    .into(),
            })),
        }
    }

    /// The service with these replicas.
    #[cfg(feature = "service")]
    pub(crate) fn service(&self, replicas: &[String]) -> Result<Arc<dyn Node>, Error> {
        let node = ServiceNode::open(replicas, &self.service, self.clock.clone())?;
        Ok(Arc::new(node))
    }

    #[cfg(not(feature = "service"))]
    pub(crate) fn service(&self, _: &[String]) -> Result<Arc<dyn Node>, Error> {
        Err(without_feature("http:", "service"))
    }

    #[cfg(feature = "sqlite")]
    fn file_url(&self, url: &str, path: &str) -> Result<Arc<dyn Node>, Error> {
        let spec = FileSpec::parse(path).map_err(|why| {
            Error::from(Cause::InvalidUrl {
                url: url.to_owned(),
                why,
            })
        })?;
        self.file(spec)
    }

    #[cfg(not(feature = "sqlite"))]
    fn file_url(&self, url: &str, _: &str) -> Result<Arc<dyn Node>, Error> {
        Err(without_feature(url, "sqlite"))
    }

    #[cfg(feature = "sqlite")]
    pub(crate) fn file(&self, spec: FileSpec) -> Result<Arc<dyn Node>, Error> {
        let node = SqliteNode::open_or_look(spec, self.clock.clone(), self.holder)?;
        Ok(Arc::new(node))
    }

    #[cfg(feature = "redis")]
    fn redis(&self, url: &str) -> Result<Arc<dyn Node>, Error> {
        if url.split_once(':').is_some_and(|(s, _)| is_cluster(s)) {
            let (options, clock) = (self.redis.clone(), self.clock.clone());
            let node = ClusterNode::open(url, options, &self.roster, clock, &self.runtime)?;
            return Ok(Arc::new(node));
        }
        let node = RedisNode::open(
            url,
            self.redis.clone(),
            &self.roster,
            self.clock.clone(),
            &self.runtime,
        )?;
        Ok(Arc::new(node))
    }

    #[cfg(not(feature = "redis"))]
    fn redis(&self, url: &str) -> Result<Arc<dyn Node>, Error> {
        Err(without_feature(beginning(url), "redis"))
    }
}

fn beginning(url: &str) -> &str {
    url.split([':', '@', '/']).next().unwrap_or_default()
}

#[cfg(not(all(feature = "redis", feature = "sqlite", feature = "service")))]
fn without_feature(url: &str, feature: &str) -> Error {
    Error::from(Cause::InvalidUrl {
        url: url.to_owned(),
        why: format!("fencepost was built without its feature {feature}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_keeps_its_sentinels_and_ends_where_the_next_url_begins() {
        let split = |urls| split_urls(urls).join(" ");
        assert_eq!(split("redis://a, redis://b"), "redis://a redis://b");
        assert_eq!(split("memory:a,memory:b"), "memory:a memory:b");
        assert_eq!(split("redis://a,b"), "redis://a b", "and b is refused");
        assert_eq!(
            split("redis+sentinel://a1,a2:1/m, redis+sentinel://b1,b2/n?failover=2s,redis://c"),
            "redis+sentinel://a1,a2:1/m redis+sentinel://b1,b2/n?failover=2s redis://c"
        );
        assert_eq!(
            split("rediss+sentinel://a,b/m,file:c"),
            "rediss+sentinel://a,b/m file:c"
        );
        assert_eq!(
            split("redis+cluster://u:p@a,b:1, c?failover=2s"),
            "redis+cluster://u:p@a,b:1,c?failover=2s"
        );
    }

    #[test]
    fn what_is_another_one_for_each_client_is_refused_in_a_quorum() {
        for alone in [
            &["file:a"][..],
            &["memory:"],
            &["redis://a", "redis://b"],
            &[],
        ] {
            assert_eq!(check_reach(alone), Ok(()));
        }
        for mixed in [
            ["redis://u:secret@a", "file:b"],
            ["memory:b", "valkey://u:secret@a"],
            ["file:a", "file:b"],
        ] {
            let why = check_reach(&mixed).unwrap_err().to_string();
            assert!(why.contains("local to this machine"), "{why}");
            assert!(!why.contains("secret"), "{why}");
        }
    }
}
