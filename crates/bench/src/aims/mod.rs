//! The table of aims: every figure that fencepost promises itself, with what it was made of.
//!
//! Everything that is compared took turns in one run, on the same servers.

mod foreign;
mod report;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fencepost_interop::peer::Spec;
use fencepost_tests::RedisServer;
use tokio::runtime::Runtime;

use crate::Effort;
use crate::core::{Race, TASKS};
use crate::figures::against_nodes;
use crate::measure::{Seen, median};
use crate::peers::{profile, versions};
use crate::probe::Probe;
use crate::waiting::{Clients, Controls, IN_QUEUE, contend};
use report::{Aim, Figure};

/// How much is measured.
#[derive(Clone, Copy)]
pub(crate) struct Extent {
    alone: Effort,
    together: Effort,
    /// Behind foreign clients that never pause.
    behind: Duration,
    after_release: usize,
    /// How long nothing happens to those who wait for a slot, and how long before that until they wait as they do in
    /// the long run.
    idle: Duration,
    settling: Duration,
    slots: usize,
    waiters: usize,
}

impl Extent {
    pub(crate) const FULL: Self = Self {
        alone: Effort {
            rounds: 8,
            slice: Duration::from_millis(200),
        },
        together: Effort {
            rounds: 9,
            slice: Duration::from_millis(250),
        },
        behind: Duration::from_secs(25),
        after_release: 10,
        idle: Duration::from_secs(20),
        settling: Duration::from_secs(10),
        slots: 200,
        waiters: 20,
    };
    pub(crate) const QUICK: Self = Self {
        alone: Effort::QUICK,
        together: Effort::QUICK,
        behind: Duration::from_secs(1),
        after_release: 3,
        idle: Duration::from_millis(500),
        settling: Duration::from_millis(500),
        slots: 20,
        waiters: 3,
    };
}

/// Rows that are measured together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rows {
    Alone,
    Growth,
    HandOff,
    Behind,
    Release,
    Slots,
}

impl Rows {
    pub(crate) const ALL: [Self; 6] = [
        Self::Alone,
        Self::Growth,
        Self::HandOff,
        Self::Behind,
        Self::Release,
        Self::Slots,
    ];

    fn word(self) -> &'static str {
        match self {
            Self::Alone => "alone",
            Self::Growth => "growth",
            Self::HandOff => "hand-off",
            Self::Behind => "behind",
            Self::Release => "release",
            Self::Slots => "slots",
        }
    }

    /// Those in a list with commas. `None` when there is a word that is none of them.
    pub(crate) fn parse(list: &str) -> Option<Vec<Self>> {
        let named = |word: &str| Self::ALL.into_iter().find(|rows| rows.word() == word);
        list.split(',').map(named).collect()
    }

    fn measure(self, runtime: &Runtime, extent: Extent, peers: &Peers, seen: &mut Measured) {
        match self {
            Self::Alone => runtime.block_on(alone(extent, seen)),
            Self::Growth => runtime.block_on(growth(extent, seen)),
            Self::HandOff => runtime.block_on(together(extent, seen)),
            Self::Behind => behind(extent, peers, seen),
            Self::Release => runtime.block_on(after_release(extent, seen)),
            Self::Slots => runtime.block_on(slots(extent, seen)),
        }
    }
}

/// Whether the clients of others can be started, or why not.
type Peers = Result<(), String>;

/// The figures of one run. Each is shown as soon as it is there.
#[derive(Default)]
struct Measured(Vec<Figure>);

impl Measured {
    fn push(&mut self, figure: Figure) {
        eprintln!("  {}", report::line(&figure));
        self.0.push(figure);
    }

    fn extend(&mut self, figures: impl IntoIterator<Item = Figure>) {
        figures.into_iter().for_each(|figure| self.push(figure));
    }
}

/// Measures these rows so many times, prints them, and writes them to `table.md` and `table.json` there.
pub(crate) fn run(
    runtime: &Runtime,
    extent: Extent,
    runs: usize,
    rows: &[Rows],
    into: Option<&Path>,
) {
    let peers = match rows.contains(&Rows::Behind) {
        true => build_peers(),
        false => Ok(()),
    };
    let mut all = Vec::new();
    for run in 1..=runs {
        let mut seen = Measured::default();
        for rows in rows {
            eprintln!("run {run} of {runs}: {} …", rows.word());
            let begin = Instant::now();
            rows.measure(runtime, extent, &peers, &mut seen);
            eprintln!("  took {:.0} s", begin.elapsed().as_secs_f64());
        }
        all.push(seen.0);
    }
    print!("{}", report::table(&all));
    if let Some(directory) = into {
        let command = format!("cargo run --release -p fencepost-bench -- table --runs {runs}");
        let versions = versions();
        let write = |name: &str, text: String| {
            let path: PathBuf = directory.join(name);
            std::fs::write(&path, text).expect("the directory can be written to");
        };
        write("table.md", report::markdown(&all, &command, &versions));
        write("table.json", report::json(&all, &command, &versions));
    }
}

/// That takes minutes the first time, and a moment afterwards.
fn build_peers() -> Peers {
    eprintln!("building the clients to measure beside (rslock, redsync) …");
    // Also builds fencepost's own peer.
    Spec::of("rslock").in_profile(profile()).install()?;
    Spec::of("redsync").install()
}

/// What ours takes in units of what theirs takes, for a figure where less is better.
fn cost(what: String, aim: f64, unit: &str, ours: f64, theirs: (&str, f64)) -> Figure {
    let (name, theirs) = theirs;
    Figure {
        what,
        aim: Aim::AtMost(aim),
        value: Ok(ours / theirs),
        detail: format!("{ours:.1} {unit}, {name} {theirs:.1}"),
    }
}

/// The same for cycles per second, of which more are better.
fn slowdown(what: String, aim: f64, ours: f64, theirs: (&str, f64)) -> Figure {
    let (name, theirs) = theirs;
    Figure {
        what,
        aim: Aim::AtMost(aim),
        value: Ok(theirs / ours),
        detail: format!("{ours:.0} cycles/s, {name} {theirs:.0}"),
    }
}

async fn alone(extent: Extent, figures: &mut Measured) {
    const OVER_FLOOR: f64 = 1.15;
    let servers = RedisServer::start_many(5);
    for (nodes, p50, cycles) in [(1, 1.05, [1.0, 0.95, 0.92]), (5, 0.72, [0.6, 0.65, 0.5])] {
        let race = Race::run(&servers[..nodes], &TASKS, extent.alone).await;
        let mut over_floor = Vec::new();
        let one = race.at(0);
        let micros = |seen: &Seen| seen.acquire_micros(0.5);
        let what = |over: &str| format!("n = {nodes}, acquire p50, over {over}");
        let (ours, rslock, floor) = (micros(one.ours), micros(one.rslock), micros(one.floor));
        figures.push(cost(what("rslock"), p50, "us", ours, ("rslock", rslock)));
        // The controls: what the best client written by hand reaches whose connections are shared.
        let control =
            |what: String| format!("{what}: the floor that a task reads for, over rslock");
        figures.push(cost(
            control(format!("n = {nodes}, acquire p50")),
            p50,
            "us",
            micros(race.hop()),
            ("rslock", rslock),
        ));
        over_floor.push(cost(
            what("the floor"),
            OVER_FLOOR,
            "us",
            ours,
            ("floor", floor),
        ));
        // No client whose connections are shared can be below that: the control for one task.
        let hop = |over: &str| format!("n = {nodes}, {over}, over the floor that a task reads for");
        over_floor.push(cost(
            hop("acquire p50"),
            OVER_FLOOR,
            "us",
            ours,
            ("that floor", micros(race.hop())),
        ));
        over_floor.push(slowdown(
            hop("cycles, tasks: 1"),
            OVER_FLOOR,
            one.ours.cycles_per_second(),
            ("that floor", race.hop().cycles_per_second()),
        ));
        for (at, (tasks, aim)) in TASKS.into_iter().zip(cycles).enumerate() {
            let seen = race.at(at);
            let what = |over: &str| format!("n = {nodes}, cycles, tasks: {tasks}, over {over}");
            let ours = seen.ours.cycles_per_second();
            let rslock = seen.rslock.cycles_per_second();
            let floor = seen.floor.cycles_per_second();
            figures.push(slowdown(what("rslock"), aim, ours, ("rslock", rslock)));
            let read_for = match tasks {
                1 => race.hop().cycles_per_second(),
                // At many tasks a task reads for the floor anyway.
                _ => floor,
            };
            figures.push(slowdown(
                control(format!("n = {nodes}, cycles, tasks: {tasks}")),
                aim,
                read_for,
                ("rslock", rslock),
            ));
            let floor = slowdown(what("the floor"), OVER_FLOOR, ours, ("floor", floor));
            over_floor.push(floor);
        }
        figures.extend(over_floor);
        if nodes == 1 {
            figures.extend(server_cpu(&race));
        }
    }
}

/// From `INFO cpu`, over the hand-written classical client: at one task every command is a system
/// call of its own, at many they share them.
fn server_cpu(race: &Race<'_>) -> Vec<Figure> {
    const AIM: f64 = 1.4;
    let at = |at: usize| {
        let (seen, tasks) = (race.at(at), TASKS[at]);
        let what = format!("server CPU per cycle, tasks: {tasks}, over a classical client");
        let (ours, bare) = (seen.ours.server_micros(), seen.bare.server_micros());
        cost(what, AIM, "us", ours, ("classical", bare))
    };
    vec![at(0), at(TASKS.len() - 1)]
}

/// How latency grows with the nodes, over a network that is slower than this machine.
async fn growth(extent: Extent, figures: &mut Measured) {
    let effort = Effort {
        rounds: extent.alone.rounds.div_ceil(3),
        ..extent.alone
    };
    let (nine, one) = against_nodes(effort).await.most_and_one();
    figures.push(Figure {
        what: "acquire p50 with 1 ms of network each way, n = 9 over n = 1".to_owned(),
        aim: Aim::AtMost(1.3),
        value: Ok(nine / one),
        detail: format!("{nine:.2} ms, n = 1 {one:.2}"),
    });
}

async fn together(extent: Extent, figures: &mut Measured) {
    let servers = RedisServer::start_many(5);
    for workers in [4, 32] {
        let (each, none) = (Clients::Each, Controls::None);
        let seen = contend(&servers, workers, each, extent.together, none).await;
        let (ours, rslock) = (seen.ours(), seen.rslock());
        figures.push(cost(
            format!("hand-off between {workers} clients, over the same by hand"),
            1.2,
            "us",
            ours.hand_off_micros(),
            ("by hand", seen.hand_off_by_hand()),
        ));
        // With three clients and more, each node tells the second, too.
        figures.push(cost(
            format!(
                "hand-off between {workers} clients, over the same by hand that tells the second too"
            ),
            1.2,
            "us",
            ours.hand_off_micros(),
            ("by hand", seen.hand_off_by_hand_telling()),
        ));
        // By hand, the taker is in the queue long before. Of few clients, many have only just asked: that the lock is
        // held, and their ticket, they learn and send while it is released.
        let before = IN_QUEUE.as_micros();
        figures.push(cost(
            format!(
                "hand-off between {workers} clients, to one that asked {before} us before, over the same by hand"
            ),
            1.2,
            "us",
            ours.hand_off_in_queue_micros(),
            ("by hand", seen.hand_off_by_hand()),
        ));
        if workers < 32 {
            continue;
        }
        let (rate, theirs) = (ours.per_second(), rslock.per_second());
        figures.push(Figure {
            what: "32 workers with a client each, hold 1 ms: cycles/s over rslock".to_owned(),
            aim: Aim::AtLeast(1.5),
            value: Ok(rate / theirs),
            detail: format!("{rate:.0} cycles/s, rslock {theirs:.0}"),
        });
        // The control: what is left to the nodes, the network and the machine.
        let by_hand = seen.per_second_by_hand();
        figures.push(Figure {
            what: "32 workers with a client each, hold 1 ms: cycles/s over rslock, with hand-offs by hand"
                .to_owned(),
            aim: Aim::AtLeast(1.5),
            value: Ok(by_hand / theirs),
            detail: format!("{by_hand:.0} cycles/s, rslock {theirs:.0}"),
        });
        let (wait, theirs) = (ours.wait_ms(0.99), rslock.wait_ms(0.99));
        figures.push(Figure {
            what: "32 workers with a client each, hold 1 ms: p99 wait of rslock over ours"
                .to_owned(),
            aim: Aim::AtLeast(10.0),
            value: Ok(theirs / wait),
            detail: format!("{wait:.1} ms, rslock {theirs:.1} ms"),
        });
    }
}

fn behind(extent: Extent, peers: &Peers, figures: &mut Measured) {
    for nodes in [1, 5] {
        let beside_rslock = |who: Option<Spec>| {
            let peers = peers.clone();
            peers.and_then(|()| foreign::never_pause(nodes, extent.behind, who))
        };
        let ours = beside_rslock(None);
        let theirs = beside_rslock(Some(Spec::of("redsync")));
        let span = extent.behind.as_secs_f64();
        let place = format!("behind two rslock that never pause, n = {nodes}");
        figures.push(Figure {
            what: format!("{place}: grants over redsync"),
            aim: Aim::AtLeast(1.0),
            detail: match (&ours, &theirs) {
                (Ok(ours), Ok(theirs)) => format!(
                    "{:.0} in {span} s, redsync {:.0}, whose longest wait is {:.1} s",
                    ours.grants * span,
                    theirs.grants * span,
                    theirs.longest.as_secs_f64()
                ),
                _ => String::new(),
            },
            value: match (&ours, &theirs) {
                (Ok(ours), Ok(theirs)) => Ok(ours.grants / theirs.grants),
                (Err(why), _) | (_, Err(why)) => Err(why.clone()),
            },
        });
        figures.push(Figure {
            what: format!("{place}: longest wait, s"),
            aim: Aim::AtMost(2.0),
            detail: match &ours {
                Ok(ours) => format!("{:.0} grants in {span} s", ours.grants * span),
                Err(_) => String::new(),
            },
            value: ours.map(|got| got.longest.as_secs_f64()),
        });
    }
}

async fn after_release(extent: Extent, figures: &mut Measured) {
    for nodes in [1, 5] {
        let taken = foreign::after_release(nodes, extent.after_release).await;
        let longest = taken.iter().copied().fold(0.0, f64::max);
        let count = taken.len();
        figures.push(Figure {
            what: format!(
                "from a foreign release until our waiter has the lock, n = {nodes}, median ms"
            ),
            aim: Aim::AtMost(10.0),
            value: Ok(median(&taken)),
            detail: format!("{count} times, longest {longest:.1} ms"),
        });
    }
}

/// What waiting for a slot costs while nothing happens: every waiter is a client of its own.
async fn slots(extent: Extent, figures: &mut Measured) {
    const TTL: Duration = Duration::from_secs(60);
    let server = RedisServer::start();
    let urls = [server.url()];
    let locks = crate::ours::connect(&urls).await;
    let mut permits = Vec::new();
    for _ in 0..extent.slots {
        // Nobody renews them, so that every command that is counted is a waiter's.
        let permit = locks.semaphore("slots", extent.slots).acquire();
        permits.push(permit.ttl(TTL).renew(false).await.expect("one is free"));
    }
    let mut waiting = Vec::new();
    for _ in 0..extent.waiters {
        let client = crate::ours::connect(&urls).await;
        let request = client.semaphore("slots", extent.slots).acquire();
        waiting.push(tokio::spawn(async move { drop((request.await, client)) }));
    }
    // A newcomer looks at once and once more a second later: only then it knows that it is far from the head.
    tokio::time::sleep(extent.settling).await;
    let mut probe = Probe::of(&server);
    let before = probe.commands();
    tokio::time::sleep(extent.idle).await;
    let commands = probe.commands() - before;
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
    figures.push(Figure {
        what: format!(
            "{} waiters for one of {} slots, nothing happens: commands/s",
            extent.waiters, extent.slots
        ),
        aim: Aim::AtMost(100.0),
        value: Ok(commands as f64 / extent.idle.as_secs_f64()),
        detail: format!("{commands} in {:?}", extent.idle),
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_chosen_by_their_words() {
        let two = vec![Rows::Slots, Rows::HandOff];
        assert_eq!(Rows::parse("slots,hand-off"), Some(two));
        assert_eq!(Rows::parse("slots,stairs"), None);
        let words = Rows::ALL.map(Rows::word);
        assert_eq!(Rows::parse(&words.join(",")), Some(Rows::ALL.to_vec()));
    }
}
