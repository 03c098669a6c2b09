//! [`Plan`]: everything that one seed sets before a run begins.
//!
//! Swarm: each run has some of the faults and not the others, each at a rate of its own. Faults that
//! come all together hide each other.

use std::time::Duration;

use fencepost_core::ticket::TICKET_LEASE;

use crate::dice::Dice;
use crate::faults::Fault;

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// How far a clock's rate may be off, in parts per million of a drift of 100 %: a client and a node
/// that are off in opposite directions stay below what the clients allow for.
const SHARE_OF_DRIFT_PPM: f64 = 400_000.0;
/// How far a client's clock may be too fast. The timers of the runtime are always right, so a lease
/// on a faster clock would be told of its end too late; on a real machine both run alike.
pub(crate) const MOST_FAST_CLIENT_PPM: i64 = 4_000;
/// How far wall clocks are apart in runs in which nodes lose their data, in microseconds.
const WALL_SKEW_MICROS: i64 = 20_000;
/// How far they are apart in the others.
const WILD_SKEW_MICROS: i64 = 3 * 60 * 60 * 1_000_000;
/// How long after a node may vote again the last requests wait, so that messages of before have
/// arrived.
const SETTLING: Duration = ms(1_500);
/// The least that a message takes.
const SHORTEST: Duration = Duration::from_micros(200);
/// The longest that a message takes once all is well.
const QUICK: Duration = ms(2);

/// What wall clocks can tell apart as a rule.
const FINEST_TICK: Duration = Duration::from_micros(1);

/// How many rounds to the farthest nodes the shortest TTL has to last, so that no attempt is too late.
const ROUNDS_IN_TIME: u32 = 4;
/// Faults by which nobody loses its place in line.
const KEEP_THE_LINE: [Fault; 6] = [
    Fault::NoticeLost,
    Fault::ClientWallJump,
    Fault::NodeWallJump,
    Fault::ClientRate,
    Fault::NodeRate,
    Fault::Cancel,
];

/// What the clients of a run work with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Work {
    /// Locks, one at a time.
    #[default]
    Mutex,
    /// Permits of a semaphore.
    Semaphore,
    /// Several locks at once.
    Multi,
    /// Leaderships.
    Election,
    /// Read-write locks: most who ask only read.
    ReadWrite,
}

impl Work {
    /// All kinds.
    pub const ALL: [Self; 5] = [
        Self::Mutex,
        Self::Semaphore,
        Self::Multi,
        Self::Election,
        Self::ReadWrite,
    ];

    /// Its name, for people and for the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mutex => "mutex",
            Self::Semaphore => "semaphore",
            Self::Multi => "multi",
            Self::Election => "election",
            Self::ReadWrite => "read-write",
        }
    }

    /// The one of that name.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|work| work.name() == name)
    }
}

/// What one run is made of.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The seed.
    pub seed: u64,
    /// What the clients work with.
    pub work: Work,
    /// How many permits each semaphore has.
    pub permits: usize,
    /// How many nodes there are.
    pub nodes: usize,
    /// How many client processes.
    pub clients: usize,
    /// How many tasks of each ask for locks.
    pub sessions: usize,
    /// How many locks there are.
    pub names: usize,
    /// The TTLs that are asked for.
    pub ttls: Vec<Duration>,
    /// The longest TTL, and how long a node that lost its data does not vote.
    pub max_ttl: Duration,
    /// How long a client waits for one node.
    pub node_timeout: Duration,
    /// How far each client is from the nodes.
    pub distances: Vec<Distance>,
    /// The share of a TTL that clients allow for clocks that are wrong.
    pub drift: f64,
    /// How long the faults last.
    pub faults_until: Duration,
    /// The kinds of faults, each with its rate.
    pub faults: Vec<(Fault, Rate)>,
    /// How many nodes are gone for good when the faults have ended: a minority at the most.
    pub missing_nodes: usize,
    /// How far wall clocks are apart.
    pub wall_skew_micros: i64,
    /// Whether everybody who waits asks for a fair line.
    pub is_fair: bool,
    /// Whether locks are held for moments only, so that there are many holders.
    pub is_hasty: bool,
    /// How many of the nodes are on the first list, where that changes: the others join them.
    pub first_list: Option<usize>,
    /// Of so many in a thousand pairs of a client and a node that client may use plain commands there.
    pub by_commands: u32,
    /// Of so many in a thousand attempts by plain commands the first arrives alone, and the others later.
    pub torn: u32,
    /// How coarse the clients' wall clocks are. Those of coarse clocks agree, so that clients propose the same tokens.
    pub tick: Duration,
    /// Whether every write is on disk before it is answered, and the cluster was made with that promise.
    pub is_durable: bool,
}

/// The longest that a message takes as a rule, there and back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Distance {
    /// From the client to a node.
    pub there: Duration,
    /// From a node to the client.
    pub back: Duration,
}

/// How often a fault strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Of messages and of futures: so many in a thousand.
    pub per_mille: u32,
    /// Of everything else: the mean time between two.
    pub every: Duration,
    /// How long one lasts at the most.
    pub lasts: Duration,
}

impl Plan {
    /// The plan of a seed: the same faults whatever the work is.
    #[must_use]
    pub fn of(seed: u64, work: Work) -> Self {
        let plan = Self::of_locks(seed).with_commands();
        let mut dice = Dice::new(seed ^ 0x5107);
        let names = match work {
            Work::Mutex | Work::ReadWrite => plan.names,
            // Where few compete for the same, nobody is ever one too many.
            Work::Semaphore | Work::Election => 1,
            Work::Multi => dice.pick(&[2, 3, 3, 4]),
        };
        Self {
            work,
            permits: dice.pick(&[1, 2, 2, 3]),
            names,
            ..plan
        }
    }

    /// From a generator of its own, so that the rest of a seed does not depend on it.
    fn with_commands(mut self) -> Self {
        let mut dice = Dice::new(self.seed ^ 0x91A1);
        self.by_commands = dice.pick(&[0, 500, 500, 1_000]);
        self.torn = dice.pick(&[0, 50, 300]);
        let tick = dice.pick(&[FINEST_TICK, FINEST_TICK, ms(5), ms(50)]);
        // Without its data a node leaves the order of tokens to the wall clocks.
        if self.token_skew() == Duration::ZERO {
            self.tick = tick;
        }
        self
    }

    fn of_locks(seed: u64) -> Self {
        let mut plan = Self::of_one_list(seed);
        if plan.rate(Fault::ListChange).is_none() {
            return plan;
        }
        let mut dice = Dice::new(seed ^ 0x1157);
        let (first, all) = dice.pick(&[(3, 5), (3, 5), (3, 4), (2, 3)]);
        (plan.first_list, plan.nodes) = (Some(first), all);
        // All nodes of the new list are needed once, and each list needs a client.
        plan.missing_nodes = 0;
        plan.clients = plan.clients.max(3);
        while plan.distances.len() < plan.clients {
            plan.distances.push(plan.distances[0]);
        }
        plan.faults.retain(|(fault, _)| !fault.loses_data());
        let wall = [Fault::ClientWallJump, Fault::NodeWallJump];
        plan.faults.retain(|(fault, _)| !wall.contains(fault));
        plan.wall_skew_micros = WALL_SKEW_MICROS;
        plan
    }

    /// How many of the nodes are on the list of that client.
    #[must_use]
    pub fn list_of(&self, client: usize) -> usize {
        match self.first_list {
            Some(first) if client < self.clients / 2 => first,
            _ => self.nodes,
        }
    }

    fn of_one_list(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let calm = dice.per_mille(40);
        // Only faults of clocks and callers: nobody loses its place in line by them.
        let only_clocks = dice.per_mille(80);
        let may_lose_data = dice.per_mille(500);
        let mut faults = Vec::new();
        for fault in Fault::ALL {
            let every = match fault.loses_data() {
                // Who has lost its data does not vote for a while: seldom enough for somebody to hold locks.
                true => dice.pick(&[ms(1_000), ms(2_500), ms(5_000)]),
                false => dice.pick(&[ms(400), ms(1_000), ms(2_500)]),
            };
            let rate = Rate {
                per_mille: dice.pick(&[5, 20, 60, 200]),
                every,
                lasts: dice.pick(&[ms(60), ms(250), ms(900), ms(2_500)]),
            };
            let share = if fault == Fault::ListChange { 100 } else { 350 };
            if dice.per_mille(share) && !calm && (may_lose_data || !fault.loses_data()) {
                faults.push((fault, rate));
            }
        }
        // Without its data a node leaves the order of tokens to the wall clocks.
        let loses_data = faults.iter().any(|(fault, _)| fault.loses_data());
        if loses_data {
            let wall = [Fault::ClientWallJump, Fault::NodeWallJump];
            faults.retain(|(fault, _)| !wall.contains(fault));
        }
        if only_clocks {
            faults.retain(|(fault, _)| KEEP_THE_LINE.contains(fault));
        }
        let (shortest, longest) = dice.pick(&[(60, 300), (100, 1_000), (300, 2_000)]);
        let ttl = |dice: &mut Dice| dice.time(ms(shortest), ms(longest));
        let clients = dice.pick(&[2, 3, 3, 4]);
        let far = |dice: &mut Dice| dice.pick(&[ms(2), ms(2), ms(2), ms(5), ms(20), ms(60)]);
        let distance = |dice: &mut Dice| Distance {
            there: far(dice),
            back: far(dice),
        };
        let distances: Vec<_> = (0..clients).map(|_| distance(&mut dice)).collect();
        let farthest = distances
            .iter()
            .map(|distance| distance.there + distance.back);
        let farthest = farthest.max().unwrap_or_default();
        let nodes: usize = dice.pick(&[1, 2, 3, 3, 3, 3, 3, 4, 5, 5]);
        if nodes == 1 {
            // One node alone has no marker, and nobody sees that it forgets while it runs.
            faults.retain(|(fault, _)| !matches!(fault, Fault::Flush | Fault::RoleChange));
        }
        Self {
            seed,
            work: Work::Mutex,
            permits: 1,
            nodes,
            missing_nodes: match dice.per_mille(300) {
                true => dice.index((nodes - 1) / 2 + 1),
                false => 0,
            },
            clients,
            sessions: dice.pick(&[1, 1, 2]),
            names: dice.pick(&[1, 1, 2]),
            ttls: (0..3).map(|_| ttl(&mut dice)).collect(),
            max_ttl: ms(2_000),
            node_timeout: dice.pick(&[ms(30), ms(80), ms(200)]).max(farthest * 3 / 2),
            drift: dice.pick(&[0.01, 0.1]),
            distances,
            faults_until: dice.time(ms(3_000), ms(7_000)),
            faults,
            is_hasty: dice.per_mille(600),
            is_fair: dice.per_mille(400),
            is_durable: dice.per_mille(500),
            first_list: None,
            by_commands: 0,
            torn: 0,
            tick: FINEST_TICK,
            wall_skew_micros: match loses_data {
                true => WALL_SKEW_MICROS,
                false => WILD_SKEW_MICROS,
            },
        }
    }

    /// The least and the most that a message of that client takes as a rule, there and back.
    #[must_use]
    pub fn messages_take(&self, client: usize, is_healed: bool) -> (Duration, Distance) {
        let distance = match is_healed {
            true => Distance {
                there: QUICK,
                back: QUICK,
            },
            false => self.distances[client],
        };
        (SHORTEST, distance)
    }

    /// Whether nothing happens by which a waiter loses its place: it is heard in time by a majority,
    /// and an attempt never takes longer than its TTL. A grant takes its ticket out of the line, so
    /// where the grant expires before the attempt is decided, the next in line has its turn.
    #[must_use]
    pub fn keeps_the_line(&self) -> bool {
        let mut faults = self.faults.iter();
        let shortest = self.ttls.iter().min().copied().unwrap_or_default();
        let farthest = self
            .distances
            .iter()
            .map(|distance| distance.there + distance.back);
        let in_time = farthest
            .max()
            .is_none_or(|time| shortest > time * ROUNDS_IN_TIME);
        self.is_fair && in_time && faults.all(|(fault, _)| KEEP_THE_LINE.contains(fault))
    }

    /// What is asked for under that number.
    #[must_use]
    pub fn name(&self, number: usize) -> String {
        match self.work {
            Work::Semaphore => format!("pool-{number}"),
            _ => format!("lock-{number}"),
        }
    }

    /// The locks that guard something: of a semaphore those of its slots.
    #[must_use]
    pub fn guarded(&self) -> Vec<String> {
        let names = (0..self.names).map(|number| self.name(number));
        let slot = |name: &String, slot| format!("{{{name}}}:semaphore:{slot}");
        match self.work {
            Work::Semaphore => {
                let slots = |name: String| (0..self.permits).map(move |n| slot(&name, n));
                names.flat_map(slots).collect()
            }
            _ => names.collect(),
        }
    }

    /// The number of what that lock guards.
    #[must_use]
    pub fn guards(&self, lock: &str) -> Option<usize> {
        self.guarded().iter().position(|guarded| guarded == lock)
    }

    /// How many attempts one after the other a request may make when its wait is over.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        let more = match self.work {
            Work::Mutex | Work::Election | Work::ReadWrite => 0,
            Work::Semaphore => self.permits + 1,
            Work::Multi => self.names + 1,
        };
        1 + more as u32
    }

    /// The rate of a fault, if this run has it.
    #[must_use]
    pub fn rate(&self, wanted: Fault) -> Option<Rate> {
        let found = self.faults.iter().find(|(fault, _)| *fault == wanted);
        found.map(|(_, rate)| *rate)
    }

    /// How far a clock's rate may be off, in parts per million.
    #[must_use]
    pub fn most_rate_ppm(&self) -> i64 {
        (self.drift * SHARE_OF_DRIFT_PPM) as i64
    }

    /// When restarted nodes vote again and messages of before have arrived, counted from the
    /// healing.
    #[must_use]
    pub fn settled_after(&self) -> Duration {
        let quarantine = self.max_ttl + self.max_ttl / 50;
        // Where its wall clock has jumped back meanwhile, it begins anew when a client looks whether it is over.
        let jumps = self.rate(Fault::NodeWallJump).is_some();
        let quarantine = if jumps { quarantine * 2 } else { quarantine };
        // By then a ticket has ended, too, that a late message put in line for nobody.
        quarantine.max(TICKET_LEASE) + SETTLING
    }

    /// Whether the clients' wall clocks are coarse, and agree.
    #[must_use]
    pub fn is_coarse(&self) -> bool {
        self.tick > FINEST_TICK
    }

    /// Whether nodes lose data.
    #[must_use]
    pub fn loses_data(&self) -> bool {
        self.faults.iter().any(|(fault, _)| fault.loses_data())
    }

    /// Tokens grow between acquisitions further apart than this: see the checker.
    #[must_use]
    pub fn token_skew(&self) -> Duration {
        // The new majority may have no node of the old one.
        match self.loses_data() || self.first_list.is_some() {
            true => Duration::from_micros(2 * self.wall_skew_micros.unsigned_abs()),
            false => Duration::ZERO,
        }
    }
}
