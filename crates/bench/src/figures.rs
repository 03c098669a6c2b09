//! Latency as it grows: with the tasks, and with the nodes.

use std::path::Path;
use std::time::Duration;

use fencepost_tests::RedisServer;
use serde_json::json;

use crate::contender::Contender;
use crate::core::Race;
use crate::delay::Delay;
use crate::measure::{Seen, slice};
use crate::ours::Ours;
use crate::peers::versions;
use crate::plot::{Line, Panel, Scale, lines};
use crate::probe::Probe;
use crate::rslock::Rslock;
use crate::{Effort, ours, rslock};

const TASKS: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];
/// Over how many nodes latency is measured.
pub(crate) const NODES: [usize; 5] = [1, 3, 5, 7, 9];
/// What the network takes in each direction: long beside what two cores need for nine servers, so that
/// they do not measure themselves.
const EACH_WAY: Duration = Duration::from_millis(1);

/// Measures, and writes `latency-tasks.svg`, `latency-nodes.svg` and `figures.json` there.
pub(crate) async fn run(effort: Effort, into: Option<&Path>) {
    let tasks = against_tasks(effort).await;
    let nodes = against_nodes(effort).await;
    let panel = nodes.panel();
    for panel in tasks.iter().chain([&panel]) {
        show(panel);
    }
    let Some(directory) = into else { return };
    let write = |name: &str, text: String| {
        std::fs::write(directory.join(name), text).expect("the directory can be written to");
    };
    let data = json!({
        "command": "cargo run --release -p fencepost-bench -- figures",
        "versions": versions(),
        "plots": tasks.iter().chain([&panel]).map(values).collect::<Vec<_>>(),
    });
    write("latency-tasks.svg", lines(Scale::Logarithmic, &tasks));
    write("latency-nodes.svg", lines(Scale::Linear, &[panel]));
    write("figures.json", format!("{data:#}\n"));
}

fn values(panel: &Panel) -> serde_json::Value {
    let lines = panel.lines.iter();
    json!({
        "title": panel.title,
        "x": panel.x.0,
        "places": panel.x.1,
        "y": panel.y,
        "lines": lines.map(|line| (line.name, line.figures.clone())).collect::<Vec<_>>(),
    })
}

fn show(panel: &Panel) {
    print!("\n{}\n\n{:<16}", panel.title, panel.x.0);
    for place in &panel.x.1 {
        print!("{place:>9}");
    }
    println!("   {}", panel.y);
    for line in &panel.lines {
        print!("{:<16}", line.name);
        for figure in &line.figures {
            print!("{figure:>9.2}");
        }
        println!();
    }
}

async fn against_tasks(effort: Effort) -> Vec<Panel> {
    let servers = RedisServer::start_many(5);
    let mut panels = Vec::new();
    for nodes in [1, 5] {
        let race = Race::run(&servers[..nodes], &TASKS, effort).await;
        let micros = |seen: &Seen| seen.acquire_micros(0.5);
        let all = || (0..TASKS.len()).map(|at| race.at(at));
        let line = |name, figures| Line { name, figures };
        panels.push(Panel {
            title: format!("Acquire, median, uncontended, n = {nodes}"),
            x: ("tasks", TASKS.map(|tasks| tasks.to_string()).to_vec()),
            y: "us",
            lines: vec![
                line("fencepost", all().map(|seen| micros(seen.ours)).collect()),
                line("rslock", all().map(|seen| micros(seen.rslock)).collect()),
                line("floor", all().map(|seen| micros(seen.floor)).collect()),
            ],
        });
    }
    panels
}

/// What was seen at each number of nodes, over a network that takes a millisecond in each direction.
pub(crate) struct Nodes {
    ours: Vec<Seen>,
    rslock: Vec<Seen>,
}

impl Nodes {
    /// The median at the most nodes, and at one, in milliseconds.
    pub(crate) fn most_and_one(&self) -> (f64, f64) {
        let at = |at: usize| self.ours[at].acquire_micros(0.5) / 1e3;
        (at(NODES.len() - 1), at(0))
    }

    fn panel(&self) -> Panel {
        let line = |name, seen: &[Seen], quantile| Line {
            name,
            figures: seen
                .iter()
                .map(|seen| seen.acquire_micros(quantile) / 1e3)
                .collect(),
        };
        Panel {
            title: "Acquire, 1 ms of network each way".to_owned(),
            x: ("nodes", NODES.map(|nodes| nodes.to_string()).to_vec()),
            y: "ms",
            lines: vec![
                line("fencepost p50", &self.ours, 0.5),
                line("rslock p50", &self.rslock, 0.5),
                line("fencepost p99", &self.ours, 0.99),
            ],
        }
    }
}

pub(crate) async fn against_nodes(effort: Effort) -> Nodes {
    let most = NODES[NODES.len() - 1];
    let servers = RedisServer::start_many(most);
    let proxies: Vec<_> = servers
        .iter()
        .map(|server| Delay::before(server, EACH_WAY))
        .collect();
    let urls: Vec<_> = proxies.iter().map(Delay::url).collect();
    let mut probe = Probe::of(&servers[0]);
    let mut ours: Vec<Vec<Ours>> = Vec::new();
    let mut theirs: Vec<Vec<Rslock>> = Vec::new();
    for nodes in NODES {
        ours.push(ours::clients(&urls[..nodes], 1).await);
        theirs.push(rslock::clients(&urls[..nodes], 1));
    }
    let mut seen = Nodes {
        ours: NODES.map(|_| Seen::new()).into(),
        rslock: NODES.map(|_| Seen::new()).into(),
    };
    let (time, warm_up) = (2 * effort.slice, effort.slice);
    for at in 0..NODES.len() {
        turn(&mut ours[at], warm_up, &mut probe, &mut Seen::new()).await;
        turn(&mut theirs[at], warm_up, &mut probe, &mut Seen::new()).await;
    }
    for _ in 0..effort.rounds {
        for at in 0..NODES.len() {
            turn(&mut ours[at], time, &mut probe, &mut seen.ours[at]).await;
            turn(&mut theirs[at], time, &mut probe, &mut seen.rslock[at]).await;
        }
    }
    seen
}

async fn turn<C: Contender>(
    clients: &mut Vec<C>,
    time: Duration,
    probe: &mut Probe,
    seen: &mut Seen,
) {
    slice(clients, 1, time, probe, seen).await;
}
