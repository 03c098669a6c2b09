//! Closes a cluster that is to be replaced: none of its nodes votes any more; and looks before that
//! whether another can be opened.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::runtime::Handle;
use tokio::time::timeout;

use super::membership::{MOST_CHANGES, Server, incarnation};
use crate::error::{Error, NodeError};
use crate::runtime::clock::{Clock, SystemClock};
use crate::store::redis::address;
use crate::store::redis::connection::keeper::Source;
use crate::store::redis::options::RedisOptions;
use crate::store::redis::protocol::reader::Reader;
use crate::store::redis::sentinel::Named;
use fencepost_core::quorum::membership::{Marker, Sight, Stage, Terms, outside};

/// A closed cluster, which another may replace.
#[derive(Clone, Debug)]
pub(crate) struct Closed {
    cluster: String,
    pub(crate) epoch: u64,
    /// How long a lock of it may still be held.
    pub(crate) wait: Duration,
}

impl Closed {
    pub(crate) fn is_of(&self, marker: &Marker) -> bool {
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
    let old = terms_of(urls)?;
    each(urls, options, |server, named| {
        let old = old.clone();
        Box::pin(async move { close_one(&server, named, &old).await })
    })
    .await
}

/// Whether a cluster on these terms can be opened at these URLs once the old one is closed: each
/// server is up, may vote, and belongs to no third cluster. Changes nothing.
///
/// # Errors
/// [`Error`] for an invalid URL.
pub(crate) async fn preview(
    urls: &[String],
    old: &[String],
    new: &Terms,
    durable: bool,
    options: &RedisOptions,
) -> Result<Vec<(String, Result<(), NodeError>)>, Error> {
    let old = terms_of(old)?;
    let looked = each(urls, options, |server, named| {
        let (old, new) = (old.clone(), new.clone());
        Box::pin(async move { look_at_one(&server, named, &old, &new, durable).await })
    });
    let mut seen = Vec::<(String, String)>::new();
    let mut outcomes = Vec::new();
    for (label, outcome) in looked.await? {
        let outcome = outcome.and_then(|run_id| {
            if let Some((_, other)) = seen.iter().find(|(known, _)| *known == run_id) {
                return Err(NodeError::SameServer(other.clone()));
            }
            seen.push((run_id, label.clone()));
            Ok(())
        });
        outcomes.push((label, outcome));
    }
    Ok(outcomes)
}

/// The process, if it may join the new cluster.
async fn look_at_one(
    server: &Server<'_>,
    named: Option<&Named>,
    old: &Terms,
    new: &Terms,
    durable: bool,
) -> Result<String, NodeError> {
    let look = server.look().await?;
    if let Some(named) = named {
        named.check_fencing(look.facts.fencing)?;
    }
    let sight = look.sight()?;
    if durable && sight.syncs != Some(true) {
        return Err(NodeError::NotDurable);
    }
    let Some(raw) = look.marker else {
        return Ok(sight.run_id);
    };
    let marker: Marker = raw.parse().map_err(|_| unreadable())?;
    // A command that is repeated goes on where it stopped.
    let is_old = marker.terms.nodes() == old.nodes();
    match outside(new, &marker).filter(|_| !is_old) {
        Some(why) => Err(NodeError::Differs(format!(
            "it belongs to another cluster: {why}"
        ))),
        None => Ok(sight.run_id),
    }
}

/// The list of these servers; the other settings are whatever they are.
fn terms_of(urls: &[String]) -> Result<Terms, Error> {
    let labels = urls.iter().map(|url| address(url));
    let labels = labels.collect::<Result<_, _>>()?;
    Ok(Terms::new(labels, Duration::ZERO, Duration::ZERO))
}

/// What comes of it on each of these servers, all at once.
async fn each<T>(
    urls: &[String],
    options: &RedisOptions,
    act: impl for<'s> Fn(Server<'s>, Option<&'s Named>) -> BoxFuture<'s, Result<T, NodeError>> + Sync,
) -> Result<Vec<(String, Result<T, NodeError>)>, Error> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let mut sources = Vec::new();
    for url in urls {
        sources.push(Source::open(url, options, &clock, &Handle::current())?);
    }
    let act = &act;
    let acting = sources.into_iter().map(async |opened| {
        let limit = options.connect_timeout;
        let acting = async {
            let way = opened.source.locate(limit).await?;
            let (connection, _driver) = way.dial(limit, None, Reader::default()).await?;
            let server = Server {
                connection: &connection,
                options,
                tracks: false,
            };
            act(server, way.named.as_ref()).await
        };
        let outcome = timeout(2 * limit, acting).await;
        let outcome = outcome.unwrap_or(Err(NodeError::Timeout(2 * limit)));
        (opened.label, outcome)
    });
    Ok(futures_util::future::join_all(acting).await)
}

fn unreadable() -> NodeError {
    NodeError::Differs("its marker cannot be read by this version".to_owned())
}

/// How long a lock of a cluster that was closed may still be held, as this node sees it. A master that was replaced in a
/// failover may have granted locks for a while behind the closing.
fn still_held(marker: &Marker, sight: &Sight) -> Duration {
    let whole = marker.terms.max_ttl.saturating_add(sight.grace);
    let passed = sight.now_us.saturating_sub(marker.since_us);
    whole.saturating_sub(Duration::from_micros(passed))
}

async fn close_one(
    server: &Server<'_>,
    named: Option<&Named>,
    old: &Terms,
) -> Result<Closed, NodeError> {
    for _ in 0..MOST_CHANGES {
        let look = server.look().await?;
        let sight = look.sight()?;
        let sight = match named {
            Some(named) => named.sight(sight),
            None => sight,
        };
        let Some(raw) = look.marker else {
            return Err(NodeError::Differs("it belongs to no cluster".to_owned()));
        };
        let marker: Marker = raw.parse().map_err(|_| unreadable())?;
        if marker.terms.nodes() != old.nodes() {
            let (theirs, ours) = (marker.terms.nodes().join(","), old.nodes().join(","));
            let why = format!("its node list is {theirs}; expected the list to replace, {ours}");
            return Err(NodeError::Differs(why));
        }
        if marker.stage == Stage::Closing {
            return Ok(Closed {
                wait: still_held(&marker, &sight),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(passed: u64, grace: u64) -> Duration {
        let terms = Terms::new(
            vec!["redis://a:6379".to_owned()],
            Duration::from_secs(60),
            Duration::from_secs(3600),
        );
        let marker = Marker {
            cluster: "c".to_owned(),
            epoch: 1,
            node: 0,
            terms,
            stage: Stage::Closing,
            since_us: 1_000_000,
            incarnation: "i".to_owned(),
            run_id: "r".to_owned(),
            history: String::new(),
            durable: false,
            fresh: false,
        };
        let sight = Sight {
            run_id: "r".to_owned(),
            history: String::new(),
            now_us: 1_000_000 + passed * 1_000_000,
            syncs: None,
            grace: Duration::from_secs(grace),
        };
        still_held(&marker, &sight)
    }

    /// The failover time of a Sentinel group was left out: `init --replace` opened the new cluster while the master that
    /// was replaced might still grant locks of the old one.
    #[test]
    fn a_closed_group_that_fails_over_is_waited_for_longer() {
        let secs = Duration::from_secs;
        assert_eq!((seconds(0, 0), seconds(20, 0)), (secs(60), secs(40)));
        assert_eq!((seconds(0, 10), seconds(20, 10)), (secs(70), secs(50)));
        assert_eq!((seconds(65, 10), seconds(70, 10)), (secs(5), secs(0)));
    }
}
