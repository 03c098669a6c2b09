//! Acquire latency and cycles per second, uncontended, all contenders in turns.

use std::time::Duration;

use fencepost_tests::RedisServer;

use crate::columns::{Better, Row, print};
use crate::contender::Contender;
use crate::floor::Kind;
use crate::floor::direct::Direct;
use crate::floor::shared::{Shared, Writing};
use crate::measure::{Seen, slice};
use crate::ours::Ours;
use crate::probe::Probe;
use crate::rslock::Rslock;
use crate::{Effort, floor, ours, rslock};

/// At how many tasks `core` measures.
pub(crate) const TASKS: [usize; 3] = [1, 16, 64];
const CONTENDERS: usize = 5;

/// One contender's clients, and what was seen of them at each number of tasks.
struct Lane<C> {
    clients: Vec<C>,
    seen: Vec<Seen>,
}

impl<C: Contender> Lane<C> {
    async fn new(mut clients: Vec<C>, scene: &mut Scene<'_>) -> Self {
        let (all, warm_up) = (clients.len(), scene.time);
        slice(
            &mut clients,
            all,
            warm_up,
            &mut scene.probe,
            &mut Seen::new(),
        )
        .await;
        Self {
            clients,
            seen: scene.tasks.iter().map(|_| Seen::new()).collect(),
        }
    }

    async fn turn(&mut self, at: usize, scene: &mut Scene<'_>) {
        let (tasks, time) = (scene.tasks[at], scene.time);
        let seen = &mut self.seen[at];
        slice(&mut self.clients, tasks, time, &mut scene.probe, seen).await;
    }
}

/// The faster of the two at each number of tasks: at one, the one without other tasks.
struct Floor {
    direct: Lane<Direct>,
    shared: Lane<Shared>,
}

impl Floor {
    async fn new(kind: Kind, scene: &mut Scene<'_>) -> Self {
        let ports: Vec<_> = scene.servers.iter().map(RedisServer::port).collect();
        let direct = floor::direct::clients(kind, &ports, 1).await;
        let shared =
            floor::shared::clients(kind, &ports, scene.most_tasks(), Writing::ByTask).await;
        Self {
            direct: Lane::new(direct, scene).await,
            shared: Lane::new(shared, scene).await,
        }
    }

    async fn turn(&mut self, at: usize, scene: &mut Scene<'_>) {
        match scene.tasks[at] {
            1 => self.direct.turn(at, scene).await,
            _ => self.shared.turn(at, scene).await,
        }
    }

    fn seen(&self, at: usize) -> &Seen {
        match self.direct.seen[at].is_empty() {
            true => &self.shared.seen[at],
            false => &self.direct.seen[at],
        }
    }
}

/// Where they run, and for how long at a time.
struct Scene<'a> {
    servers: &'a [RedisServer],
    tasks: &'a [usize],
    time: Duration,
    /// Of the first server.
    probe: Probe,
}

impl Scene<'_> {
    fn most_tasks(&self) -> usize {
        self.tasks.iter().copied().max().unwrap_or(1)
    }
}

/// Every contender, on the same servers.
pub(crate) struct Race<'a> {
    scene: Scene<'a>,
    ours: Lane<Ours>,
    floor: Floor,
    bare: Floor,
    rslock: Lane<Rslock>,
    /// The floor of one task, but that another task reads the answers.
    hop: Lane<Shared>,
}

/// What was seen of each contender at one number of tasks.
pub(crate) struct Finish<'a> {
    pub(crate) ours: &'a Seen,
    pub(crate) floor: &'a Seen,
    pub(crate) bare: &'a Seen,
    pub(crate) rslock: &'a Seen,
}

pub(crate) async fn run(effort: Effort) {
    let servers = RedisServer::start_many(5);
    let mut rows = Vec::new();
    for n in [1, 5] {
        let race = Race::run(&servers[..n], &TASKS, effort).await;
        rows.extend(race.rows());
    }
    print(&rows);
}

impl<'a> Race<'a> {
    /// All rounds, at each of these numbers of tasks.
    pub(crate) async fn run(
        servers: &'a [RedisServer],
        tasks: &'a [usize],
        effort: Effort,
    ) -> Self {
        let urls: Vec<_> = servers.iter().map(RedisServer::url).collect();
        let mut scene = Scene {
            servers,
            tasks,
            time: effort.slice,
            probe: Probe::of(&servers[0]),
        };
        let most = scene.most_tasks();
        let ours = ours::clients(&urls, most).await;
        let ports: Vec<_> = servers.iter().map(RedisServer::port).collect();
        let hop = floor::shared::clients(Kind::Fenced, &ports, 1, Writing::ByCaller).await;
        let mut race = Self {
            ours: Lane::new(ours, &mut scene).await,
            floor: Floor::new(Kind::Fenced, &mut scene).await,
            bare: Floor::new(Kind::Bare, &mut scene).await,
            rslock: Lane::new(rslock::clients(&urls, most), &mut scene).await,
            hop: Lane::new(hop, &mut scene).await,
            scene,
        };
        for round in 0..effort.rounds {
            race.round(round).await;
        }
        race
    }

    /// One turn for each at each number of tasks, each round in another order.
    async fn round(&mut self, round: usize) {
        let scene = &mut self.scene;
        for at in 0..scene.tasks.len() {
            for turn in 0..CONTENDERS {
                match (round + turn) % CONTENDERS {
                    0 => self.ours.turn(at, scene).await,
                    1 => self.floor.turn(at, scene).await,
                    2 => self.bare.turn(at, scene).await,
                    3 => self.rslock.turn(at, scene).await,
                    _ if scene.tasks[at] == 1 => self.hop.turn(at, scene).await,
                    _ => {}
                }
            }
        }
    }

    /// What was seen of the floor at one task whose answers another task reads.
    pub(crate) fn hop(&self) -> &Seen {
        &self.hop.seen[0]
    }

    /// What was seen at the number of tasks of that index.
    pub(crate) fn at(&self, at: usize) -> Finish<'_> {
        Finish {
            ours: &self.ours.seen[at],
            floor: self.floor.seen(at),
            bare: self.bare.seen(at),
            rslock: &self.rslock.seen[at],
        }
    }

    fn rows(&self) -> Vec<Row> {
        let nodes = self.scene.servers.len();
        let latency = |quantile| move |seen: &Seen| seen.acquire_micros(quantile);
        let mut rows = vec![
            self.row(format!("n = {nodes}  acquire p50, us"), 0, latency(0.5)),
            self.row(format!("n = {nodes}  acquire p99, us"), 0, latency(0.99)),
        ];
        for (at, tasks) in self.scene.tasks.iter().enumerate() {
            let what = format!("n = {nodes}  cycles/s, {tasks:>2} tasks");
            rows.push(Row {
                better: Better::More,
                ..self.row(what, at, Seen::cycles_per_second)
            });
        }
        rows
    }

    fn row(&self, what: String, at: usize, figure: impl Fn(&Seen) -> f64) -> Row {
        let finish = self.at(at);
        Row {
            what,
            ours: figure(finish.ours),
            floor: figure(finish.floor),
            bare: figure(finish.bare),
            rslock: figure(finish.rslock),
            better: Better::Less,
        }
    }
}
