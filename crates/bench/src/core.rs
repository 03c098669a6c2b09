//! Acquire latency and cycles per second, uncontended, at one node and at five.

use std::time::Duration;

use fencepost_tests::RedisServer;

use crate::contender::Contender;
use crate::floor::Kind;
use crate::floor::direct::Direct;
use crate::floor::shared::Shared;
use crate::measure::{Seen, slice};
use crate::ours::Ours;
use crate::rslock::Rslock;
use crate::table::{Better, Row, print};
use crate::{Effort, floor, ours, rslock};

const TASKS: [usize; 3] = [1, 16, 64];
const MOST_TASKS: usize = 64;
const CONTENDERS: usize = 4;

/// One contender's clients, and what was seen of them at each number of tasks.
struct Lane<C> {
    clients: Vec<C>,
    seen: [Seen; TASKS.len()],
}

impl<C: Contender> Lane<C> {
    async fn new(mut clients: Vec<C>, warm_up: Duration) -> Self {
        let all = clients.len();
        slice(&mut clients, all, warm_up, &mut Seen::new()).await;
        Self {
            clients,
            seen: TASKS.map(|_| Seen::new()),
        }
    }

    async fn turn(&mut self, at: usize, time: Duration) {
        slice(&mut self.clients, TASKS[at], time, &mut self.seen[at]).await;
    }
}

/// The faster of the two at each number of tasks.
struct Floor {
    direct: Lane<Direct>,
    shared: Lane<Shared>,
}

impl Floor {
    async fn new(kind: Kind, ports: &[u16], warm_up: Duration) -> Self {
        let direct = floor::direct::clients(kind, ports, 1).await;
        let shared = floor::shared::clients(kind, ports, MOST_TASKS).await;
        Self {
            direct: Lane::new(direct, warm_up).await,
            shared: Lane::new(shared, warm_up).await,
        }
    }

    async fn turn(&mut self, at: usize, time: Duration) {
        match TASKS[at] {
            1 => self.direct.turn(at, time).await,
            _ => self.shared.turn(at, time).await,
        }
    }

    fn seen(&self, at: usize) -> &Seen {
        match TASKS[at] {
            1 => &self.direct.seen[at],
            _ => &self.shared.seen[at],
        }
    }
}

/// Everybody, on the same servers.
struct Race {
    nodes: usize,
    ours: Lane<Ours>,
    floor: Floor,
    bare: Floor,
    rslock: Lane<Rslock>,
}

pub(crate) async fn run(effort: Effort) {
    let servers = RedisServer::start_many(5);
    let mut rows = Vec::new();
    for n in [1, 5] {
        let mut race = Race::new(&servers[..n], effort.slice).await;
        for round in 0..effort.rounds {
            race.round(round, effort.slice).await;
        }
        rows.extend(race.rows());
    }
    print(&rows);
}

impl Race {
    async fn new(servers: &[RedisServer], warm_up: Duration) -> Self {
        let ports: Vec<_> = servers.iter().map(RedisServer::port).collect();
        let urls: Vec<_> = servers.iter().map(RedisServer::url).collect();
        Self {
            nodes: servers.len(),
            ours: Lane::new(ours::clients(&urls, MOST_TASKS).await, warm_up).await,
            floor: Floor::new(Kind::Fenced, &ports, warm_up).await,
            bare: Floor::new(Kind::Bare, &ports, warm_up).await,
            rslock: Lane::new(rslock::clients(&urls, MOST_TASKS), warm_up).await,
        }
    }

    /// One turn for everybody at each number of tasks, each round in another order.
    async fn round(&mut self, round: usize, time: Duration) {
        for at in 0..TASKS.len() {
            for turn in 0..CONTENDERS {
                match (round + turn) % CONTENDERS {
                    0 => self.ours.turn(at, time).await,
                    1 => self.floor.turn(at, time).await,
                    2 => self.bare.turn(at, time).await,
                    _ => self.rslock.turn(at, time).await,
                }
            }
        }
    }

    fn rows(&self) -> Vec<Row> {
        let nodes = self.nodes;
        let latency = |quantile| move |seen: &Seen| seen.acquire_micros(quantile);
        let mut rows = vec![
            self.row(format!("n = {nodes}  acquire p50, us"), 0, latency(0.5)),
            self.row(format!("n = {nodes}  acquire p99, us"), 0, latency(0.99)),
        ];
        for (at, tasks) in TASKS.into_iter().enumerate() {
            let what = format!("n = {nodes}  cycles/s, {tasks:>2} tasks");
            rows.push(Row {
                better: Better::More,
                ..self.row(what, at, Seen::cycles_per_second)
            });
        }
        rows
    }

    fn row(&self, what: String, at: usize, figure: impl Fn(&Seen) -> f64) -> Row {
        Row {
            what,
            ours: figure(&self.ours.seen[at]),
            floor: figure(self.floor.seen(at)),
            bare: figure(self.bare.seen(at)),
            rslock: figure(&self.rslock.seen[at]),
            better: Better::Less,
        }
    }
}
