//! Diagnoses every node without a client.

use futures_util::future::join_all;

use super::builder::{Builder, Source, duplicate, invalid};
use crate::error::{Cause, Error};
use crate::store::facts::{Facts, NodeSurvey};
use crate::store::open::Opener;
#[cfg(feature = "sqlite")]
use crate::store::sqlite::FileSpec;
use fencepost_core::quorum::{MOST_NODES, Quorum};

impl Builder {
    /// Diagnoses every node, including those that may not vote. It acquires no lock; it writes and
    /// deletes a key or row `fencepost:doctor` to check permissions.
    ///
    /// # Errors
    /// As [`build`](Self::build). A node that cannot be reached is part of the result.
    pub async fn survey(self) -> Result<Vec<NodeSurvey>, Error> {
        let count = self.nodes.len();
        let Some(quorum) = Quorum::of(count) else {
            let why = format!("expected 1 to {MOST_NODES} nodes, got {count}");
            return Err(invalid("nodes", why));
        };
        fencepost_core::ttl::Ttl::new(self.max_ttl)?;
        self.check_reach()?;
        let opener = self.opener(quorum)?;
        let mut asked = Vec::new();
        for source in &self.nodes {
            asked.push(self.ask(source, &opener)?);
        }
        let surveys = join_all(asked).await;
        for (index, survey) in surveys.iter().enumerate() {
            if surveys[..index]
                .iter()
                .any(|other| other.node == survey.node)
            {
                return Err(duplicate(&survey.node));
            }
        }
        Ok(surveys)
    }

    /// An invalid URL is reported at once, everything else when awaited.
    fn ask(
        &self,
        source: &Source,
        opener: &Opener,
    ) -> Result<std::pin::Pin<Box<dyn Future<Output = NodeSurvey> + Send>>, Error> {
        match source {
            Source::Url(url) => match url.split_once(':') {
                #[cfg(feature = "sqlite")]
                Some(("file", path)) => {
                    let spec = FileSpec::parse(path).map_err(|why| {
                        Error::from(Cause::InvalidUrl {
                            url: url.clone(),
                            why,
                        })
                    })?;
                    Ok(Box::pin(crate::store::sqlite::survey(
                        spec,
                        self.clock.clone(),
                    )))
                }
                #[cfg(feature = "redis")]
                Some((scheme, _)) if crate::store::open::is_redis(scheme) => {
                    let options = opener.redis.clone();
                    let max_ttl = self.max_ttl;
                    Ok(Box::pin(crate::store::redis::survey(
                        url,
                        options,
                        max_ttl,
                        self.clock.clone(),
                    )?))
                }
                _ => Ok(other(opener.url(url)?.address())),
            },
            #[cfg(feature = "sqlite")]
            Source::File(path) => Ok(Box::pin(crate::store::sqlite::survey(
                FileSpec::new(path),
                self.clock.clone(),
            ))),
            Source::Service(_) => Err(Error::from(Cause::InvalidUrl {
                url: "http:".into(),
                why: "it is a lock service; see its GET /v1/nodes".into(),
            })),
            Source::Made(node) => Ok(other(node.address())),
        }
    }
}

fn other(address: &str) -> std::pin::Pin<Box<dyn Future<Output = NodeSurvey> + Send>> {
    let node = address.to_owned();
    let facts = Ok(Facts::Other);
    Box::pin(std::future::ready(NodeSurvey { node, facts }))
}
