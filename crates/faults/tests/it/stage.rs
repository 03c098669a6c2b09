//! Two clients and a story that always goes the same way: for tests that show one thing.
//!
//! The holder has the lock on just a majority of the nodes, or on all of them; something befalls the
//! nodes; the contender tries for as long as the holder's lease is valid. What both saw is a history,
//! and the checkers judge it.

use std::time::Duration;

use fencepost::{Client, Lease, RestartPolicy};
use fencepost_checks::{
    ClientId, Event, History, LeaseId, LeaseRef, Step, Violation, overlap, tokens,
};
use fencepost_faults::cluster::{Cluster, Layout};
use fencepost_faults::node::Node;
use fencepost_faults::now::now;

pub(crate) const LOCK: &str = "job";
/// Long enough for a server to be restarted on a busy machine while a lease is valid.
pub(crate) const TTL: Duration = Duration::from_secs(2);
/// How long fresh servers may take until they vote: the longest TTL, and what their uptime cannot
/// tell.
const VOTE_LIMIT: Duration = Duration::from_secs(30);
/// How long a command that was sent may take to arrive.
const LATECOMERS: Duration = Duration::from_millis(200);
const LOOK: Duration = Duration::from_millis(10);

/// Tells a story on three nodes and on five, side by side: most of it is waiting.
pub(crate) fn on_three_and_five(story: impl AsyncFn(usize) + Sync) {
    std::thread::scope(|scope| {
        for nodes in [3, 5] {
            let story = &story;
            scope.spawn(move || {
                let mut runtime = tokio::runtime::Builder::new_current_thread();
                let runtime = runtime.enable_all().build().unwrap();
                runtime.block_on(story(nodes));
            });
        }
    });
}

/// Servers, a holder and a contender.
pub(crate) struct Stage {
    pub(crate) cluster: Cluster,
    pub(crate) holder: Client,
    pub(crate) contender: Client,
    events: Vec<Event>,
}

impl Stage {
    /// Sets the stage, and waits until all servers vote.
    pub(crate) async fn set(layout: Layout) -> Self {
        let cluster = Cluster::start_on_loopback(layout).unwrap();
        let holder = client(&cluster, "holder").await;
        let contender = client(&cluster, "contender").await;
        Self {
            cluster,
            holder,
            contender,
            events: Vec::new(),
        }
    }

    pub(crate) fn nodes(&self) -> usize {
        self.cluster.layout.nodes
    }

    pub(crate) fn majority(&self) -> usize {
        self.nodes() / 2 + 1
    }

    /// The node by which two majorities meet: the last that the holder has when it has just one.
    pub(crate) fn shared_node(&self) -> usize {
        self.majority() - 1
    }

    /// The holder gets the lock on all nodes.
    pub(crate) async fn hold_on_all(&mut self) -> Lease {
        let lease = self.hold().await;
        let end = now().after(TTL / 2);
        while (0..self.nodes()).any(|node| !self.has_lock(node)) {
            assert!(now() < end, "not everywhere");
            tokio::time::sleep(LOOK).await;
        }
        lease
    }

    /// The holder gets the lock on the first nodes, as many as it takes, and on no other: the others
    /// are another's at that moment, and free again later.
    pub(crate) async fn hold_on_just_a_majority(&mut self) -> Lease {
        let others = self.majority()..self.nodes();
        for node in others.clone() {
            self.tell(node, &["SET", LOCK, "another", "PX", "60000"]);
        }
        let lease = self.hold().await;
        for node in 0..self.majority() {
            assert!(self.has_lock(node), "node {node}");
        }
        // What it sent on its way must not find those nodes free: it would take them, too.
        tokio::time::sleep(LATECOMERS).await;
        for node in others.clone() {
            self.tell(node, &["DEL", LOCK]);
        }
        for node in others {
            assert!(!self.has_lock(node), "node {node}");
        }
        lease
    }

    async fn hold(&mut self) -> Lease {
        self.write(1, Step::Asked);
        let lease = self
            .holder
            .try_lock(LOCK)
            .ttl(TTL)
            .renew(false)
            .await
            .unwrap();
        self.write_grant(1, &lease);
        lease
    }

    /// The contender tries until it has the lock, which must not take longer than two TTLs. Whether
    /// that was while the holder's lease was valid.
    pub(crate) async fn contend(&mut self, held: &Lease) -> (Lease, bool) {
        let contender = self.contender.clone();
        self.contend_as(&contender, held).await
    }

    /// The same with another client in the place of the contender.
    pub(crate) async fn contend_as(&mut self, contender: &Client, held: &Lease) -> (Lease, bool) {
        let end = now().after(TTL * 2 + VOTE_LIMIT);
        loop {
            let asked = now();
            if let Ok(lease) = contender.try_lock(LOCK).ttl(TTL).renew(false).await {
                self.events.push(Event::lease(asked, &of(2), Step::Asked));
                self.write_grant(2, &lease);
                return (lease, held.is_valid());
            }
            assert!(now() < end, "never");
            tokio::time::sleep(LOOK).await;
        }
    }

    /// What the checkers of exclusion and of tokens find in what both saw.
    pub(crate) fn overlaps(&self) -> Vec<Violation> {
        overlap::check(&History::new(self.events.clone()))
    }

    /// What the checker of tokens finds.
    pub(crate) fn bad_tokens(&self) -> Vec<Violation> {
        tokens::check(&History::new(self.events.clone()), Duration::ZERO)
    }

    pub(crate) fn has_lock(&self, node: usize) -> bool {
        let holders: Option<String> = self.cluster.nodes[node].ask(&["GET", LOCK]).unwrap();
        holders.is_some_and(|value| value != "another")
    }

    pub(crate) fn tell(&self, node: usize, words: &[&str]) {
        self.cluster.nodes[node].tell(words).unwrap();
    }

    /// Kills a server, does something to its disk, and starts it again.
    pub(crate) fn restart(&mut self, node: usize, meanwhile: fn(&Node) -> std::io::Result<()>) {
        self.cluster.nodes[node].kill().unwrap();
        meanwhile(&self.cluster.nodes[node]).unwrap();
        let network = &self.cluster.network;
        self.cluster.nodes[node].restart(network).unwrap();
    }

    fn write(&mut self, client: u32, step: Step) {
        self.events.push(Event::lease(now(), &of(client), step));
    }

    fn write_grant(&mut self, client: u32, lease: &Lease) {
        let valid_until = now().after(lease.remaining());
        let token = lease.token().get();
        self.write(client, Step::Acquired { token, valid_until });
    }
}

fn of(client: u32) -> LeaseRef {
    LeaseRef {
        client: ClientId(client),
        lock: LOCK.into(),
        lease: LeaseId(1),
    }
}

/// A client that has never been here before. On a busy machine servers that are just up may be too slow for
/// the first to make a cluster of them.
pub(crate) async fn newcomer(cluster: &Cluster, owner: &str) -> Client {
    let end = now().after(VOTE_LIMIT);
    loop {
        let builder = Client::builder().url(cluster.urls()).owner(owner);
        let builder = builder.restart_policy(cluster.layout.policy).max_ttl(TTL);
        match builder.connect().await {
            Ok(client) => return client,
            Err(error) => assert!(now() < end, "{error}"),
        }
    }
}

/// A client for which every node votes.
pub(crate) async fn client(cluster: &Cluster, owner: &str) -> Client {
    let locks = newcomer(cluster, owner).await;
    if cluster.layout.policy == RestartPolicy::Delay {
        // A lock that only a full house grants: as long as a node is in quarantine, it holds nothing.
        let end = now().after(VOTE_LIMIT);
        loop {
            if let Ok(lease) = locks.try_lock(owner).ttl(TTL).renew(false).await {
                let everywhere = || {
                    let mut nodes = cluster.nodes[..cluster.layout.nodes].iter();
                    nodes.all(|node| node.ask::<bool>(&["EXISTS", owner]).unwrap())
                };
                let settled = now().after(Duration::from_millis(200));
                while !everywhere() && now() < settled {
                    tokio::time::sleep(LOOK).await;
                }
                let all = everywhere();
                lease.release().await.unwrap();
                if all {
                    break;
                }
            }
            assert!(now() < end, "the servers do not vote");
            tokio::time::sleep(LOOK * 5).await;
        }
    }
    locks
}
