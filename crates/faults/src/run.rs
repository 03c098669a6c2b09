//! One row, from the start of its servers to the verdict: hurt, heal, serve, stop, check.

use std::fs::File;
use std::io::{self, BufReader};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use fencepost_checks::{
    Bounds, Event, History, Step, Time, Violation, What, leftovers, loss, overlap, resource,
    served, tokens,
};

use crate::client::Manner;
use crate::clock::BentClock;
use crate::cluster::{CLIENTS, Cluster, Layout};
use crate::net::Network;
use crate::now::now;
use crate::progress::Progress;
use crate::random::Random;
use crate::row::{Needs, Promise, Row};
use crate::scene::{LOCK, MAX_TTL, Scene, TTL};

/// How long everybody may take to have the lock once, at the beginning and after the healing.
const SERVED_WITHIN: Duration = Duration::from_secs(15);
/// How much later than the end of its validity a client may *write down* that it was told. That it
/// is told in time to the millisecond is shown by the library's own tests, on clocks of their own;
/// here four processes share two processors with five servers.
const TOLD_WITHIN: Duration = Duration::from_millis(60);
/// How much longer than its TTL a key may stay.
const GRACE: Duration = Duration::from_secs(3);

/// How a row is to be run.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// How many servers.
    pub nodes: usize,
    /// How long faults go on.
    pub faults_for: Duration,
    /// How long everything is watched after the healing, at least.
    pub watch_for: Duration,
}

/// What came of a row.
#[derive(Debug)]
pub struct Verdict {
    /// Which one.
    pub row: Row,
    /// On how many servers.
    pub nodes: usize,
    /// How many faults there were.
    pub faults: usize,
    /// How long it took.
    pub took: Duration,
    /// How often the lock was acquired.
    pub acquisitions: usize,
    /// How often a holder was told that it has lost it.
    pub losses: usize,
    /// How often the resource refused an old token.
    pub refusals: usize,
    /// How often what is not promised under this fault did not hold.
    pub not_promised: usize,
    /// What must not be.
    pub violations: Vec<Violation>,
    /// Where it ran.
    pub network: &'static str,
    /// Why it was not run, if it was not.
    pub skipped: Option<&'static str>,
}

impl Verdict {
    fn skipped(row: Row, nodes: usize, why: &'static str) -> Self {
        Self {
            row,
            nodes,
            faults: 0,
            took: Duration::ZERO,
            acquisitions: 0,
            losses: 0,
            refusals: 0,
            not_promised: 0,
            violations: Vec::new(),
            network: "",
            skipped: Some(why),
        }
    }
}

/// Runs a row.
///
/// # Errors
/// When it could not be run to its end. What it found wrong is in the verdict.
pub fn run(row: Row, extent: Extent) -> io::Result<Verdict> {
    if row.needs == Needs::BentClocks && !BentClock::is_possible() {
        let why = "no library to bend a clock with on this system";
        return Ok(Verdict::skipped(row, extent.nodes, why));
    }
    let began = Instant::now();
    let Some(mut scene) = set_up(row, extent)? else {
        let why = "it cuts servers off from each other, for which network namespaces are needed";
        return Ok(Verdict::skipped(row, extent.nodes, why));
    };
    let mut progress = Progress::of(&histories_of_waiters(&scene));
    let at_all = Time(0);
    wait_for(SERVED_WITHIN, || progress.all_served_since(at_all))?;

    let mut faults = 0;
    let end = Instant::now() + extent.faults_for;
    while Instant::now() < end || faults == 0 {
        faults += (row.hurt)(&mut scene)?;
        if Instant::now() > end + SERVED_WITHIN {
            return Err(io::Error::other("no fault could be made"));
        }
    }
    scene.heal()?;
    let healed = now();
    scene.events.push(Event::healed(healed));

    let mut progress = Progress::of(&histories_of_waiters(&scene));
    // Whether all were served is for the checks to say.
    let _ = wait_for(SERVED_WITHIN, || progress.all_served_since(healed));
    while now() < healed.after(extent.watch_for) {
        std::thread::sleep(Duration::from_millis(20));
    }
    scene.stop_clients()?;
    note_keys_left(&mut scene)?;
    let history = History::new(all_events(&scene)?);
    let (violations, not_promised) = judge(&history, row);
    let count = |which: fn(&Step) -> bool| {
        let steps = history.events().iter().filter(|event| match &event.what {
            What::Lease { step, .. } => which(step),
            _ => false,
        });
        steps.count()
    };
    Ok(Verdict {
        row,
        nodes: extent.nodes,
        faults,
        took: began.elapsed(),
        acquisitions: count(|step| matches!(step, Step::Acquired { .. })),
        losses: count(|step| matches!(step, Step::LossTold { .. })),
        refusals: scene.resource.refusals(),
        not_promised,
        violations,
        network: scene.cluster.network.kind(),
        skipped: None,
    })
}

/// Everything that a run needs; nothing where its links cannot be cut.
fn set_up(row: Row, extent: Extent) -> io::Result<Option<Scene>> {
    let mut layout = Layout {
        nodes: extent.nodes,
        ..Layout::default()
    };
    (row.lay_out)(&mut layout);
    let servers = layout.nodes + layout.extra + layout.sentinels + layout.replicas;
    let network = Network::lay(servers, CLIENTS);
    if row.needs == Needs::Namespaces && !network.can_cut() {
        return Ok(None);
    }
    layout.proxied |= row.needs == Needs::Cuts && !network.can_cut();
    let cluster = Cluster::start_on(network, layout)?;
    let random = Random::from_text(&format!("{} {}", row.name, extent.nodes));
    let mut scene = Scene::new(cluster, random)?;
    (row.prepare)(&mut scene)?;
    scene.start_clients()?;
    Ok(Some(scene))
}

/// The histories of those who are there and wait for the lock: whoever only tries may find it held
/// for ever.
fn histories_of_waiters(scene: &Scene) -> Vec<PathBuf> {
    let clients = scene.clients.iter();
    let waiters = clients.filter(|client| client.manner != Manner::Try);
    waiters.map(|client| client.history.clone()).collect()
}

fn wait_for(limit: Duration, mut condition: impl FnMut() -> io::Result<bool>) -> io::Result<()> {
    let end = Instant::now() + limit;
    while !condition()? {
        if Instant::now() >= end {
            let why = format!("not everybody was served within {limit:?}");
            return Err(io::Error::other(why));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Waits until no key is left, or until none may be any more, and writes down what there is.
fn note_keys_left(scene: &mut Scene) -> io::Result<()> {
    let end = Instant::now() + TTL.max(MAX_TTL) + GRACE + scene.clocks_set_back;
    for node in 0..scene.cluster.nodes.len() {
        let mut left = scene.cluster.keys_left(node)?;
        while !left.is_empty() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(20));
            left = scene.cluster.keys_left(node)?;
        }
        let event = Event::keys_left(now(), format!("node {node}"), left);
        scene.events.push(event);
    }
    Ok(())
}

fn all_events(scene: &Scene) -> io::Result<Vec<Event>> {
    let mut events = scene.events.clone();
    events.extend(scene.resource.testimony(LOCK));
    for file in &scene.histories {
        let file = BufReader::new(File::open(file)?);
        events.extend(History::read(file)?);
    }
    Ok(events)
}

/// What must not be; and how often something did not hold that is not promised.
fn judge(history: &History, row: Row) -> (Vec<Violation>, usize) {
    let bounds = Bounds {
        served_within: SERVED_WITHIN,
        settled_after: row.settled_after,
        told_within: TOLD_WITHIN,
        // All clients of a run live on one machine; and where their clocks are bent, no node loses
        // its data.
        token_skew: Duration::ZERO,
    };
    if row.promise == Promise::Everything {
        return (fencepost_checks::mutex(history, &bounds), 0);
    }
    let mut found = tokens::check(history, bounds.token_skew);
    found.extend(resource::check(history));
    found.extend(served::check(
        history,
        bounds.served_within,
        bounds.settled_after,
    ));
    found.extend(leftovers::check(history));
    let lapses = overlap::check(history).len() + loss::check(history, bounds.told_within).len();
    (found, lapses)
}
