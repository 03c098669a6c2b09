//! One run: a seed in, what happened and what was wrong out.

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use fencepost::{Client, Drift};
use fencepost_checks::{Bounds, Event, History, Step, Time, Violation, What};
use fencepost_core::quorum::membership::Stage;
use tokio::task::LocalSet;
use tokio::time::{sleep, sleep_until, timeout};

use crate::client::SimClient;
use crate::dice::{Dice, SharedDice};
use crate::faults::FaultCounts;
use crate::link::SimNode;
use crate::nemesis::haunt;
use crate::net::{Pair, nanos};
use crate::operator::replace_list;
use crate::plan::{Plan, Work};
use crate::server::Server;
use crate::sharing::is_reader;
use crate::workload::Session;
use crate::world::World;

/// How long a waiter may wait when all is well. Nobody holds for long then; but all ask at once, and
/// whoever is turned away comes back ever more rarely.
const SERVED_WITHIN: Duration = Duration::from_secs(10);
/// How long a lock may be free while somebody stands in line for it, when all is well: messages, and
/// the moment that the second in line leaves to the first. On top come two node time-outs: an attempt
/// that met another waits for a node that is silent before it gives back what it has.
const HANDED_ON: Duration = Duration::from_millis(200);
/// How long it may take until nothing is left of what was dropped: longer than a release takes,
/// shorter than the TTL that would free it anyway.
const GRACE: Duration = Duration::from_millis(900);

/// The part of the drift that does not grow with the TTL: the library's default.
const DRIFT_FIXED: Duration = Duration::from_millis(2);

/// What a run came to.
#[derive(Debug)]
pub struct Outcome {
    /// What it was made of.
    pub plan: Plan,
    /// What was wrong.
    pub violations: Vec<Violation>,
    /// How many faults of each kind there were.
    pub faults: FaultCounts,
    /// What the clients did.
    pub deeds: Deeds,
    /// Everything that happened, line by line, if it was asked for.
    pub log: String,
}

/// What the clients of one or more runs did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deeds {
    /// Locks that were acquired.
    pub acquired: u64,
    /// Requests that ended without the lock.
    pub failed: u64,
    /// Losses that were told.
    pub told: u64,
    /// Renewals and extensions that were seen.
    pub extended: u64,
    /// Writes that the resource took.
    pub accepted: u64,
    /// Writes that it refused: an older token than one that it had seen.
    pub refused: u64,
}

impl Deeds {
    fn of(events: &[Event]) -> Self {
        let mut deeds = Self::default();
        for event in events {
            let What::Lease { step, .. } = &event.what else {
                continue;
            };
            match step {
                Step::Acquired { .. } => deeds.acquired += 1,
                Step::Failed { .. } => deeds.failed += 1,
                Step::LossTold { .. } => deeds.told += 1,
                Step::Extended { .. } => deeds.extended += 1,
                Step::Wrote { accepted, .. } => match accepted {
                    true => deeds.accepted += 1,
                    false => deeds.refused += 1,
                },
                _ => {}
            }
        }
        deeds
    }

    /// Adds those of another run.
    pub fn add(&mut self, other: &Self) {
        self.acquired += other.acquired;
        self.failed += other.failed;
        self.told += other.told;
        self.extended += other.extended;
        self.accepted += other.accepted;
        self.refused += other.refused;
    }
}

/// Runs one seed with that work.
///
/// # Errors
/// When there is no runtime to be had, or the library does not take what the plan says.
pub fn run(seed: u64, work: Work, with_log: bool) -> io::Result<Outcome> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()?;
    let plan = Plan::of(seed, work);
    let everybody = LocalSet::new();
    let life = everybody.run_until(live(plan.clone(), with_log));
    let (events, mut violations, faults, mut log) = runtime.block_on(life)?;
    let deeds = Deeds::of(&events);
    let history = History::new(events);
    violations.extend(judge(&plan, &history));
    if with_log {
        for violation in &violations {
            log.push_str(&format!("{violation}\n"));
        }
    }
    Ok(Outcome {
        plan,
        violations,
        faults,
        deeds,
        log,
    })
}

/// All that was wrong with what the clients did.
fn judge(plan: &Plan, history: &History) -> Vec<Violation> {
    let bounds = Bounds {
        served_within: SERVED_WITHIN,
        settled_after: plan.settled_after(),
        told_within: Duration::ZERO,
        token_skew: plan.token_skew(),
    };
    if plan.work == Work::Semaphore {
        // Each slot is a lock; and of the whole no more may be held than there are permits.
        let slots = plan.guarded();
        let is_slot = |lock: &str| slots.iter().any(|slot| slot == lock);
        let whole = history.of_locks(|lock| !is_slot(lock));
        let mut found = judge_locks(&history.of_locks(is_slot), &bounds);
        found.extend(fencepost_checks::holders::check(&whole, plan.permits));
        let (served, settled) = (bounds.served_within, bounds.settled_after);
        found.extend(fencepost_checks::served::check(&whole, served, settled));
        let (all_well, handed_on) = hand_off(plan);
        let idle = fencepost_checks::idle::check_permits(&whole, plan.permits, all_well, handed_on);
        found.extend(idle);
        return found;
    }
    if plan.work == Work::ReadWrite {
        let mut found = fencepost_checks::read_write(history, &bounds, is_reader);
        found.extend(fencepost_checks::fresh::check(history));
        return found;
    }
    let mut found = judge_locks(history, &bounds);
    if plan.work == Work::Multi {
        found.extend(fencepost_checks::together::check(history));
        return found;
    }
    let (all_well, handed_on) = hand_off(plan);
    found.extend(fencepost_checks::idle::check(history, all_well, handed_on));
    if plan.keeps_the_line() {
        found.extend(fencepost_checks::fifo::check(history));
    }
    found
}

/// From when on a lock is handed on in time, and what that is.
fn hand_off(plan: &Plan) -> (Time, Duration) {
    let all_well = Time::default().after(plan.faults_until + plan.settled_after());
    (all_well, HANDED_ON + plan.node_timeout * 2)
}

fn judge_locks(history: &History, bounds: &Bounds) -> Vec<Violation> {
    let mut found = fencepost_checks::mutex(history, bounds);
    found.extend(fencepost_checks::fresh::check(history));
    found
}

type Life = (Vec<Event>, Vec<Violation>, FaultCounts, String);

async fn live(plan: Plan, with_log: bool) -> io::Result<Life> {
    let mut dice = Dice::new(plan.seed ^ 0xD1CE);
    let world = World::new(plan.clone(), &mut dice, with_log);
    world.inside().log(|| format!("{plan:?}"));
    tokio::spawn(world.clone().carry());
    let mut sessions = Vec::new();
    for number in 0..plan.clients {
        let gate = world.gates[number].clone();
        let client = Rc::new(client(&world, number, dice.fork())?);
        for _ in 0..plan.sessions {
            let session = Session {
                client: client.clone(),
                dice: dice.fork(),
                observer: None,
            };
            let session = tokio::task::spawn_local(gate.guard(Box::pin(session.run())));
            sessions.push((number, session));
        }
    }
    if let Some(first) = plan.first_list {
        tokio::task::spawn_local(replace_list(world.clone(), first, dice.fork()));
    }
    for (fault, rate) in &plan.faults {
        tokio::task::spawn_local(haunt(world.clone(), *fault, *rate, dice.fork()));
    }
    // One tick later, when each fault has undone what it did.
    let healing = plan.faults_until + Duration::from_millis(2);
    sleep_until(world.time.at(nanos(healing))).await;
    // Whoever has the old list still is started anew with the other one, which is another client.
    for client in (0..plan.clients).filter(|client| plan.list_of(*client) < plan.nodes) {
        if !world.gates[client].is_closed() {
            world.kill_client(client);
        }
    }
    world.act(|inside| {
        inside.is_healed = true;
        inside.record(Event::healed(world.now()));
        // A minority is never missed: everything has to work without it. But a cluster that none of the others knows any
        // more is made anew, and that needs all of its nodes.
        let is_made = |server: &Server| {
            let marker = server.marker();
            marker.is_some_and(|marker| marker.stage != Stage::Pending)
        };
        let others = &inside.servers[plan.missing_nodes..];
        let missing = match plan.nodes == 1 || others.iter().any(is_made) {
            true => plan.missing_nodes,
            false => 0,
        };
        for node in 0..missing {
            inside.log(|| format!("! node {node} is gone for good"));
            inside.crash(node, node % 2 == 0);
        }
    });
    let patience = plan.settled_after() + SERVED_WITHIN * 2;
    let alive = sessions
        .into_iter()
        .filter(|(number, _)| !world.gates[*number].is_closed());
    let all = async {
        for (_, session) in alive {
            if let Err(error) = session.await
                && error.is_panic()
            {
                std::panic::resume_unwind(error.into_panic());
            }
        }
    };
    // Whoever is not done by then is still waiting, and the checker says so.
    let _ = timeout(patience, all).await;
    sleep(GRACE).await;
    let mut inside = world.inside();
    for node in plan.missing_nodes..plan.nodes {
        let left = inside.servers[node].left();
        inside.record(Event::keys_left(world.now(), format!("node-{node}"), left));
    }
    for (number, lock) in plan.guarded().into_iter().enumerate() {
        let items = inside.resources[number].items();
        inside.record(Event::found(world.now(), lock, items));
    }
    let events = std::mem::take(&mut inside.events);
    let objections = std::mem::take(&mut inside.objections);
    let log = inside.take_log();
    Ok((events, objections, inside.counts.clone(), log))
}

fn client(world: &Arc<World>, number: usize, dice: Dice) -> io::Result<SimClient> {
    let gate = world.gates[number].clone();
    let mut builder = Client::builder()
        .owner(format!("client-{number}"))
        .clock(world.clocks[number].clone())
        .randomness(Arc::new(SharedDice::new(dice)))
        .around_tasks(Arc::new(move |task| Box::pin(gate.guard(task))))
        .drift(Drift::new(world.plan.drift, DRIFT_FIXED).map_err(io::Error::other)?)
        .max_ttl(world.plan.max_ttl)
        .node_timeout(world.plan.node_timeout);
    for node in 0..world.plan.list_of(number) {
        let client = number;
        builder = builder.node(SimNode::new(world, Pair { client, node }));
    }
    let locks = builder.build().map_err(io::Error::other)?;
    let names = (0..world.plan.names).map(|name| world.plan.name(name));
    let semaphores = names.map(|name| (name.clone(), locks.semaphore(name, world.plan.permits)));
    Ok(SimClient {
        semaphores: semaphores.collect(),
        world: world.clone(),
        number,
        locks,
        next_lease: Cell::new(0),
    })
}
