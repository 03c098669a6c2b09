//! A semaphore that is wrong on purpose: each node admits k by itself, and whoever has a majority of
//! the nodes is in. The checker has to catch it.

use std::time::Duration;

use fencepost::{Client, Error, Permit, RestartPolicy, Semaphore};

/// Nodes that count, each for itself.
#[derive(Debug)]
pub struct ByCount {
    nodes: Vec<Semaphore>,
}

impl ByCount {
    /// One client for each of the servers, separated by commas, with `places` on each. A server that
    /// does not answer in time is passed over.
    ///
    /// # Errors
    /// When it is called outside of a runtime, or the URLs are none.
    pub fn open(
        urls: &str,
        name: &str,
        places: usize,
        node_timeout: Duration,
    ) -> Result<Self, Error> {
        let mut nodes = Vec::new();
        for url in urls.split(',') {
            let node = Client::builder()
                .url(url)
                .restart_policy(RestartPolicy::Trust)
                .node_timeout(node_timeout);
            nodes.push(node.build()?.semaphore(name, places));
        }
        Ok(Self { nodes })
    }

    /// A place on a majority of the nodes, asked one after the other from that one on. `None`, and
    /// everything given back, if there is none.
    pub async fn try_enter(&self, first: usize, ttl: Duration) -> Option<Vec<Permit>> {
        let needed = self.nodes.len() / 2 + 1;
        let mut places = Vec::new();
        for n in 0..self.nodes.len() {
            let node = &self.nodes[(first + n) % self.nodes.len()];
            let place = node.acquire().ttl(ttl).renew(false).timeout(Duration::ZERO);
            places.extend(place.await.ok());
            if places.len() == needed {
                return Some(places);
            }
        }
        for place in places {
            // Lost or not: it is given back.
            let _ = place.release().await;
        }
        None
    }
}
