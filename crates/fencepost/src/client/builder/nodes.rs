//! The configured nodes of a client: what they are, and how each is opened.

#[cfg(feature = "sqlite")]
use std::path::PathBuf;
use std::sync::Arc;

use super::Builder;
use crate::error::{Cause, Error};
use crate::store::Node;
use crate::store::open::Opener;
#[cfg(feature = "redis")]
use crate::store::open::{is_cluster, is_group};
#[cfg(feature = "sqlite")]
use crate::store::sqlite::FileSpec;

pub(in crate::client) enum Source {
    Url(String),
    /// The replicas of one lock service.
    Service(Vec<String>),
    #[cfg(feature = "sqlite")]
    File(PathBuf),
    Made(Arc<dyn Node>),
}

impl Builder {
    /// Whether a node is a Sentinel group or a Redis Cluster, which fail over.
    #[cfg(feature = "redis")]
    pub(in crate::client) fn has_group(&self) -> bool {
        let fails_over = |scheme: &str| is_group(scheme) || is_cluster(scheme);
        self.nodes.iter().any(|source| match source {
            Source::Url(url) => url.split_once(':').is_some_and(|(s, _)| fails_over(s)),
            _ => false,
        })
    }

    /// Refuses a quorum with nodes that only this machine reaches.
    pub(in crate::client) fn check_reach(&self) -> Result<(), Error> {
        let urls = self.nodes.iter().map(|source| match source {
            Source::Url(url) => url.as_str(),
            Source::Service(_) => "http:SERVICE",
            #[cfg(feature = "sqlite")]
            Source::File(_) => "file:PATH",
            _ => "",
        });
        crate::store::open::check_reach(&urls.collect::<Vec<_>>())
    }

    /// Whether there are nodes that are reached over sockets: then the runtime must have I/O
    /// enabled. A file does not need it, and asking a runtime without I/O would panic.
    pub(super) fn has_io(&self) -> bool {
        self.runtime_has_io
            || self.nodes.iter().any(|source| match source {
                Source::Url(url) => !url.starts_with("file:") && !url.starts_with("memory:"),
                #[cfg(feature = "sqlite")]
                Source::File(_) => false,
                Source::Made(_) => false,
                Source::Service(_) => true,
            })
    }

    pub(in crate::client) fn open_nodes(
        self,
        opener: &Opener,
    ) -> Result<Vec<Arc<dyn Node>>, Error> {
        let mut nodes: Vec<Arc<dyn Node>> = Vec::new();
        for source in self.nodes {
            let node = match source {
                Source::Made(node) => {
                    nodes.push(node);
                    continue;
                }
                Source::Url(url) => opener.url(&url)?,
                Source::Service(replicas) => opener.service(&replicas)?,
                #[cfg(feature = "sqlite")]
                Source::File(path) => opener.file(FileSpec::new(path))?,
            };
            if nodes.iter().any(|other| other.address() == node.address()) {
                return Err(duplicate(node.address()));
            }
            nodes.push(node);
        }
        Ok(nodes)
    }
}

/// Whether it is the URL of a lock service.
pub(super) fn is_service(url: &str) -> bool {
    matches!(url.split_once("://"), Some(("http" | "https", _)))
}

/// No node may vote twice.
pub(in crate::client) fn duplicate(address: &str) -> Error {
    Error::from(Cause::InvalidUrl {
        url: address.to_owned(),
        why: "duplicate node; list each server once".into(),
    })
}
