//! Closes a cluster that is to be replaced: none of its nodes votes any more.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::timeout;

use super::keeper::Source;
use super::membership::{MOST_CHANGES, Server, incarnation};
use super::options::RedisOptions;
use super::reader::Reader;
use crate::error::{Error, NodeError};
use crate::runtime::clock::{Clock, SystemClock};
use fencepost_core::quorum::membership::{Marker, Stage, Terms};

/// A closed cluster, which another may replace.
#[derive(Clone, Debug)]
pub(crate) struct Closed {
    cluster: String,
    pub(super) epoch: u64,
    /// How long a lock of it may still be held.
    pub(crate) wait: Duration,
}

impl Closed {
    pub(super) fn is_of(&self, marker: &Marker) -> bool {
        (&self.cluster, self.epoch) == (&marker.cluster, marker.epoch)
    }
}

/// Closes the cluster at these URLs: none of the reachable nodes votes any more. Returns each
/// node's outcome.
///
/// # Errors
/// [`Error`] for an invalid URL.
pub(crate) async fn close(
    urls: &[String],
    options: &RedisOptions,
) -> Result<Vec<(String, Result<Closed, NodeError>)>, Error> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let mut sources = Vec::new();
    for url in urls {
        sources.push(Source::open(url, options, &clock, &Handle::current())?);
    }
    let labels = sources.iter().map(|opened| opened.label.clone()).collect();
    let old = Terms::new(labels, Duration::ZERO, Duration::ZERO);
    let closing = sources.into_iter().map(async |opened| {
        let limit = options.connect_timeout;
        let closing = async {
            let way = opened.source.locate(limit).await?;
            let (connection, _driver) = way.dial(limit, None, Reader::default()).await?;
            let server = Server {
                connection: &connection,
                options,
                tracks: false,
            };
            close_one(&server, &old).await
        };
        let closed = timeout(2 * limit, closing).await;
        let closed = closed.unwrap_or(Err(NodeError::Timeout(2 * limit)));
        (opened.label, closed)
    });
    Ok(futures_util::future::join_all(closing).await)
}

async fn close_one(server: &Server<'_>, old: &Terms) -> Result<Closed, NodeError> {
    for _ in 0..MOST_CHANGES {
        let look = server.look().await?;
        let sight = look.sight()?;
        let Some(raw) = look.marker else {
            return Err(NodeError::Differs("it belongs to no cluster".to_owned()));
        };
        let marker: Marker = raw.parse().map_err(|_| {
            NodeError::Differs("its marker cannot be read by this version".to_owned())
        })?;
        if marker.terms.nodes() != old.nodes() {
            let (theirs, ours) = (marker.terms.nodes().join(","), old.nodes().join(","));
            let why = format!("its node list is {theirs}; expected the list to replace, {ours}");
            return Err(NodeError::Differs(why));
        }
        if marker.stage == Stage::Closing {
            let passed = sight.now_us.saturating_sub(marker.since_us);
            let max_ttl = marker.terms.max_ttl;
            return Ok(Closed {
                wait: max_ttl.saturating_sub(Duration::from_micros(passed)),
                cluster: marker.cluster,
                epoch: marker.epoch,
            });
        }
        let closing = sight.rewritten(&marker, Stage::Closing, incarnation()?);
        server.replace(&raw, Some(&closing)).await?;
    }
    let why = "its marker keeps changing; retry".to_owned();
    Err(NodeError::NoCluster(why))
}
