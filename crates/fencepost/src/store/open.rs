//! From a URL to a node.

#[cfg(feature = "sqlite")]
use std::path::Path;
use std::sync::Arc;

use super::Node;
use super::memory::MemoryNode;
#[cfg(feature = "redis")]
use super::redis::{RedisNode, RedisOptions, Roster};
#[cfg(feature = "sqlite")]
use super::sqlite::{HolderProcess, SqliteNode};
use crate::error::{Cause, Error};
use crate::runtime::clock::Clock;

/// What it takes to open the nodes of one client.
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
}

/// Whether URLs of this scheme are those of Redis and Valkey servers.
pub(crate) fn is_redis(scheme: &str) -> bool {
    matches!(
        scheme,
        "redis" | "rediss" | "redis+unix" | "valkey" | "valkeys" | "valkey+unix" | "unix"
    )
}

impl Opener {
    pub(crate) fn url(&self, url: &str) -> Result<Arc<dyn Node>, Error> {
        match url.split_once(':') {
            Some(("memory", name)) => Ok(Arc::new(MemoryNode::named(name, self.clock.clone()))),
            Some(("file", path)) => self.file_url(url, path),
            Some((scheme, _)) if is_redis(scheme) => self.redis(url),
            _ => Err(Error::from(Cause::InvalidUrl {
                // Whatever it is, it may hold a password: only its beginning is safe to show.
                url: format!("{:?}", beginning(url)),
                why: "it must begin with memory:, file:, redis://, rediss:// or redis+unix:// \
                      (or valkey for redis)"
                    .into(),
            })),
        }
    }

    #[cfg(feature = "sqlite")]
    fn file_url(&self, url: &str, path: &str) -> Result<Arc<dyn Node>, Error> {
        // file:PATH, and also file:///absolute/path as people write it.
        let path = path.strip_prefix("//").unwrap_or(path);
        if path.is_empty() {
            return Err(Error::from(Cause::InvalidUrl {
                url: url.to_owned(),
                why: "the path is missing; write file:PATH".into(),
            }));
        }
        self.file(Path::new(path))
    }

    #[cfg(not(feature = "sqlite"))]
    fn file_url(&self, url: &str, _: &str) -> Result<Arc<dyn Node>, Error> {
        Err(without_feature(url, "sqlite"))
    }

    #[cfg(feature = "sqlite")]
    pub(crate) fn file(&self, path: &Path) -> Result<Arc<dyn Node>, Error> {
        let node = SqliteNode::open_for(path, self.clock.clone(), self.holder)?;
        Ok(Arc::new(node))
    }

    #[cfg(feature = "redis")]
    fn redis(&self, url: &str) -> Result<Arc<dyn Node>, Error> {
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

    #[cfg(feature = "redis")]
    pub(crate) fn connection(
        &self,
        label: &str,
        connection: redis::aio::MultiplexedConnection,
    ) -> Arc<dyn Node> {
        Arc::new(RedisNode::over(
            connection,
            label,
            self.redis.clone(),
            &self.roster,
            self.clock.clone(),
            &self.runtime,
        ))
    }
}

fn beginning(url: &str) -> &str {
    url.split([':', '@', '/']).next().unwrap_or_default()
}

#[cfg(not(all(feature = "redis", feature = "sqlite")))]
fn without_feature(url: &str, feature: &str) -> Error {
    Error::from(Cause::InvalidUrl {
        url: url.to_owned(),
        why: format!("fencepost was built without its feature {feature}"),
    })
}
