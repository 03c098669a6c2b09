//! A model of its own: acquiring by plain commands, without a script.
//!
//! An attempt is one write to each node: `SET key value NX`, then `ZADD register GT CH p key`, then a look
//! at the head of the queue. Whoever fails to get the key lifts the register all the same. So what a node
//! says counts by the strict rule of [`AcquireTally`] alone: *this* node granted, and *this* node's
//! register was lifted from below the token to it, both in answer to this attempt. What is not lifted is
//! raised once more, on every node that granted, while the lock there is still held by the attempt.
//!
//! The nodes are Redis: a key, a register, a queue, and commands that each are atomic. Attempts by
//! script and thefts mix with plain ones on the same nodes.
//!
//! # What can happen
//! Messages of one attempt to one node keep their order (one connection); nothing else does. Keys expire
//! at any time where the setup says so: no clock is part of the argument. The register is forgotten by
//! retention; every attempt that had begun by then is too old to count, because none lasts as long, and
//! what begins later has a later clock.
//!
//! # What must hold
//! - [`UNIQUE`], [`ORDERED`]: as everywhere.
//! - [`HOLD_ORDER`]: of two who had the lock, and whose majorities share a node, the one that held that node
//!   later has the larger token. It needs `MULTI` where keys expire early or are stolen.
//! - [`QUEUE_KEPT`]: nobody who came without a ticket has the lock before one who waits in a fair queue.

use std::hash::Hash;
use std::time::Duration;

use fencepost::{AttemptValue, FencingToken};
use fencepost_core::lock::{Holder, Reply};
use fencepost_core::quorum::{AcquireStep, AcquireTally, NodeSet, Quorum};
use stateright::{Model, Path, Property};

use crate::properties::{ORDERED, UNIQUE};
use crate::story::name;
use crate::world::hash_of;

/// Who held a node later has the larger token.
pub const HOLD_ORDER: &str = "the later hold has the larger token";
/// Nobody passes a fair queue.
pub const QUEUE_KEPT: &str = "nobody passes a fair queue";

/// One rule done wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlainFlaw {
    /// A register that was at the proposal already counts as lifted.
    EqualCounts,
    /// A majority that granted and a majority that was lifted are enough, whichever nodes they are.
    DifferentNodes,
    /// The register is lifted before the key is set.
    RegisterFirst,
    /// A raise does not look at who holds the key.
    BlindRaise,
    /// The head of the queue is not looked at.
    NoLook,
    /// An attempt that is older than the retention still counts.
    NoTimeCheck,
}

/// How an attempt takes the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Way {
    /// `SET NX`, then `ZADD`: others may come in between.
    Commands,
    /// The same inside `MULTI`.
    Multi,
    /// By script: the register grows with the grant, and only with it.
    Script,
    /// By script, from whoever has it.
    Steal,
}

/// Nodes and attempts.
#[derive(Clone, Debug)]
pub struct Plain {
    /// How many nodes.
    pub nodes: usize,
    /// How each attempt goes about it, in the order in which they begin.
    pub ways: &'static [Way],
    /// What each attempt proposes: its clock.
    pub proposals: &'static [u64],
    /// Whether keys may expire at any time.
    pub expiry: bool,
    /// How often a node may forget its register by retention, of all nodes together.
    pub forgets: u8,
    /// Whether the first attempt has waited in a fair queue, and its ticket is on all nodes.
    pub queue: bool,
    /// What is done wrong, if anything.
    pub flaw: Option<PlainFlaw>,
}

/// Everything there is.
#[derive(Clone, Debug, Hash)]
#[expect(
    clippy::derived_hash_with_manual_eq,
    reason = "the equality is by the hash"
)]
pub struct State {
    nodes: Vec<Server>,
    attempts: Vec<Attempt>,
    forgets_left: u8,
}

impl PartialEq for State {
    fn eq(&self, other: &Self) -> bool {
        hash_of(self) == hash_of(other)
    }
}

/// One node.
#[derive(Clone, Debug, Default, Hash)]
struct Server {
    key: Option<usize>,
    register: u64,
    ticket: bool,
    /// Who held the key, each once, the first one first.
    held: Vec<usize>,
}

#[derive(Clone, Debug, Hash)]
struct Attempt {
    stage: Stage,
    /// What is under way between it and each node.
    wires: Vec<Wire>,
    /// The largest token that was handed out when it began.
    floor: u64,
    /// The register of some node was forgotten since it began.
    is_old: bool,
    token: Option<u64>,
    counted: NodeSet,
}

#[derive(Clone, Debug, Hash)]
enum Stage {
    Idle,
    Acquiring {
        tally: AcquireTally,
        granted: NodeSet,
        lifted: NodeSet,
    },
    Ended,
}

/// Between one attempt and one node: at most one command or its answer, and a release behind them.
#[derive(Clone, Debug, Default, Hash)]
struct Wire {
    call: Option<Call>,
    answer: Option<Answer>,
    release: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Call {
    Acquire,
    /// The second of the two commands, and what the first one did.
    Rest(bool),
    Raise(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Answer {
    /// Granted, and lifted to this or not: then the register is at this or above.
    Granted {
        register: u64,
        lifted: bool,
    },
    /// Another has it; the register may have been lifted.
    Held {
        lifted: bool,
    },
    NotHeld,
}

/// Something that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// An attempt sends its commands.
    Begin(usize),
    /// A command arrives at a node.
    Arrive {
        /// Whose.
        attempt: usize,
        /// Where.
        node: usize,
    },
    /// An attempt reads an answer.
    Read {
        /// Which attempt.
        attempt: usize,
        /// From which node.
        node: usize,
    },
    /// A release arrives at a node.
    Release {
        /// Whose.
        attempt: usize,
        /// Where.
        node: usize,
    },
    /// An attempt is given up, or what it got is given back.
    End(usize),
    /// A node's key expires.
    Expire(usize),
    /// Retention forgets a node's register.
    Forget(usize),
}

impl Plain {
    fn has(&self, flaw: PlainFlaw) -> bool {
        self.flaw == Some(flaw)
    }

    fn quorum(&self) -> Quorum {
        Quorum::of(self.nodes).expect("1 to 9 nodes")
    }

    fn begin(&self, state: &mut State, attempt: usize) {
        let floor = state.tokens().max().unwrap_or(0);
        let me = &mut state.attempts[attempt];
        me.floor = floor;
        me.stage = Stage::Acquiring {
            tally: AcquireTally::new(self.quorum()),
            granted: NodeSet::NONE,
            lifted: NodeSet::NONE,
        };
        for wire in &mut me.wires {
            wire.call = Some(Call::Acquire);
        }
    }

    fn arrive(&self, state: &mut State, attempt: usize, node: usize) {
        let wire = &mut state.attempts[attempt].wires[node];
        let Some(call) = wire.call.take() else {
            return;
        };
        let server = &mut state.nodes[node];
        let proposed = self.proposals[attempt];
        let answer = match (call, self.ways[attempt]) {
            (Call::Raise(to), _) => {
                if server.key != Some(attempt) && !self.has(PlainFlaw::BlindRaise) {
                    Answer::NotHeld
                } else {
                    let lifted = self.lift(server, to);
                    let register = if lifted { to } else { server.register };
                    Answer::Granted { register, lifted }
                }
            }
            (Call::Acquire, Way::Commands) => {
                let done = match self.has(PlainFlaw::RegisterFirst) {
                    true => self.lift(server, proposed),
                    false => set(server, attempt),
                };
                wire.call = Some(Call::Rest(done));
                return;
            }
            (Call::Rest(done), _) => {
                let (granted, lifted) = match self.has(PlainFlaw::RegisterFirst) {
                    true => (set(server, attempt), done),
                    false => (done, self.lift(server, proposed)),
                };
                self.plain_answer(server, attempt, granted, lifted)
            }
            (Call::Acquire, Way::Multi) => {
                let granted = set(server, attempt);
                let lifted = self.lift(server, proposed);
                self.plain_answer(server, attempt, granted, lifted)
            }
            (Call::Acquire, Way::Script) => {
                let passes = !server.ticket || self.waited(attempt);
                if server.key.is_none_or(|key| key == attempt) && passes {
                    self.grant_by_script(server, attempt)
                } else {
                    Answer::Held { lifted: false }
                }
            }
            (Call::Acquire, Way::Steal) => {
                server.key = None;
                self.grant_by_script(server, attempt)
            }
        };
        let wanted = matches!(state.attempts[attempt].stage, Stage::Acquiring { .. });
        state.attempts[attempt].wires[node].answer = wanted.then_some(answer);
    }

    /// Whether this attempt is the one that waited in the queue.
    fn waited(&self, attempt: usize) -> bool {
        self.queue && attempt == 0
    }

    /// `ZADD GT CH`: whether it changed anything.
    fn lift(&self, server: &mut Server, to: u64) -> bool {
        let lifted = match self.has(PlainFlaw::EqualCounts) {
            true => server.register <= to,
            false => server.register < to,
        };
        server.register = server.register.max(to);
        lifted
    }

    fn plain_answer(&self, server: &Server, attempt: usize, granted: bool, lifted: bool) -> Answer {
        let is_kept_out = server.ticket && !self.waited(attempt) && !self.has(PlainFlaw::NoLook);
        match granted && !is_kept_out {
            // Where it was not lifted, nothing more is known than that.
            true => Answer::Granted {
                register: self.proposals[attempt],
                lifted,
            },
            false => Answer::Held { lifted },
        }
    }

    fn grant_by_script(&self, server: &mut Server, attempt: usize) -> Answer {
        server.register = self.proposals[attempt].max(server.register + 1);
        set(server, attempt);
        if self.waited(attempt) {
            server.ticket = false;
        }
        Answer::Granted {
            register: server.register,
            lifted: true,
        }
    }

    fn read(&self, state: &mut State, attempt: usize, node: usize) {
        let me = &mut state.attempts[attempt];
        let Some(answer) = me.wires[node].answer.take() else {
            return;
        };
        let Stage::Acquiring {
            tally,
            granted,
            lifted: lifts,
        } = &mut me.stage
        else {
            return;
        };
        let (reply, is_granted, is_lifted) = match answer {
            Answer::Granted { register, lifted } => {
                let register = FencingToken::saturating(register);
                let reply = match lifted {
                    true => Reply::Raised(register),
                    false => Reply::NotRaised(register),
                };
                (reply, true, lifted)
            }
            Answer::Held { lifted } => {
                let somebody = Holder {
                    value: AttemptValue::reported("somebody"),
                    token: None,
                    remaining: Some(Duration::ZERO),
                };
                (Reply::Held(somebody), false, lifted)
            }
            Answer::NotHeld => (Reply::NotHeld(None), false, false),
        };
        if is_granted {
            granted.insert(node);
        }
        if is_lifted {
            lifts.insert(node);
        }
        let needed = self.quorum().needed();
        let step = tally.answered(node, Ok(reply));
        let enough = granted.len() >= needed && lifts.len() >= needed;
        if self.has(PlainFlaw::DifferentNodes) && enough {
            let counted = *granted;
            return self.succeed(state, attempt, self.proposals[attempt], counted);
        }
        match step {
            AcquireStep::Wait => {}
            AcquireStep::Raise { nodes, to } => {
                for node in nodes.iter() {
                    me.wires[node].call = Some(Call::Raise(to.get()));
                }
            }
            AcquireStep::Certified(token) => {
                let counted = tally.counted_for(token);
                self.succeed(state, attempt, token.get(), counted);
            }
            AcquireStep::Blocked => self.end(state, attempt),
        }
    }

    fn succeed(&self, state: &mut State, attempt: usize, token: u64, counted: NodeSet) {
        if state.attempts[attempt].is_old && !self.has(PlainFlaw::NoTimeCheck) {
            return self.end(state, attempt);
        }
        let me = &mut state.attempts[attempt];
        me.token = Some(token);
        me.counted = counted;
        me.stop_reading();
    }

    fn end(&self, state: &mut State, attempt: usize) {
        let me = &mut state.attempts[attempt];
        me.stop_reading();
        for wire in &mut me.wires {
            wire.release = true;
        }
    }

    fn put_in_order(&self, state: &mut State) {
        let said = |state: &State, node: usize| {
            let attempts = state.attempts.iter().map(|attempt| {
                let tally = match &attempt.stage {
                    Stage::Acquiring {
                        tally,
                        granted,
                        lifted,
                    } => {
                        let tally = hash_of(&tally.reordered(&[node]));
                        hash_of(&(tally, granted.contains(node), lifted.contains(node)))
                    }
                    Stage::Idle | Stage::Ended => 0,
                };
                (&attempt.wires[node], attempt.counted.contains(node), tally)
            });
            hash_of(&(&state.nodes[node], attempts.collect::<Vec<_>>()))
        };
        let mut order: Vec<_> = (0..self.nodes)
            .map(|node| (said(state, node), node))
            .collect();
        if order.is_sorted() {
            return;
        }
        order.sort_unstable();
        let order: Vec<usize> = order.into_iter().map(|(_, node)| node).collect();
        let reordered = |set: NodeSet| {
            let mut new = NodeSet::NONE;
            let places = order.iter().enumerate();
            places
                .filter(|(_, old)| set.contains(**old))
                .for_each(|(place, _)| new.insert(place));
            new
        };
        state.nodes = order
            .iter()
            .map(|node| state.nodes[*node].clone())
            .collect();
        for attempt in &mut state.attempts {
            attempt.wires = order
                .iter()
                .map(|node| attempt.wires[*node].clone())
                .collect();
            attempt.counted = reordered(attempt.counted);
            if let Stage::Acquiring {
                tally,
                granted,
                lifted,
            } = &mut attempt.stage
            {
                *tally = tally.reordered(&order);
                *granted = reordered(*granted);
                *lifted = reordered(*lifted);
            }
        }
    }

    fn passes_the_queue(&self, state: &State) -> bool {
        let waiting = state.nodes.iter().filter(|node| node.ticket).count();
        let mut others = state.attempts.iter().skip(1);
        waiting >= self.quorum().needed() && others.any(|other| other.token.is_some())
    }
}

/// `SET NX`: whether it was set.
fn set(server: &mut Server, attempt: usize) -> bool {
    if server.key.is_some() {
        return false;
    }
    server.key = Some(attempt);
    server.held.retain(|other| *other != attempt);
    server.held.push(attempt);
    true
}

impl Attempt {
    fn stop_reading(&mut self) {
        self.stage = Stage::Ended;
        for wire in &mut self.wires {
            wire.answer = None;
        }
    }
}

impl State {
    fn tokens(&self) -> impl Iterator<Item = u64> {
        self.attempts.iter().filter_map(|attempt| attempt.token)
    }

    fn are_unique(&self) -> bool {
        let mut tokens = self.tokens().enumerate();
        tokens.all(|(place, token)| !self.tokens().take(place).any(|other| other == token))
    }

    fn are_ordered(&self) -> bool {
        let mut attempts = self.attempts.iter();
        attempts.all(|attempt| attempt.token.is_none_or(|token| token > attempt.floor))
    }

    fn holds_are_ordered(&self) -> bool {
        self.nodes.iter().enumerate().all(|(node, server)| {
            let had = server.held.iter().map(|attempt| &self.attempts[*attempt]);
            let had = had.filter(|attempt| attempt.counted.contains(node));
            let tokens: Vec<_> = had.filter_map(|attempt| attempt.token).collect();
            tokens.is_sorted_by(|earlier, later| earlier < later)
        })
    }
}

impl Model for Plain {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        let server = Server {
            ticket: self.queue,
            ..Server::default()
        };
        let attempt = Attempt {
            stage: Stage::Idle,
            wires: vec![Wire::default(); self.nodes],
            floor: 0,
            is_old: false,
            token: None,
            counted: NodeSet::NONE,
        };
        vec![State {
            nodes: vec![server; self.nodes],
            attempts: vec![attempt; self.ways.len()],
            forgets_left: self.forgets,
        }]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        for (number, attempt) in state.attempts.iter().enumerate() {
            match attempt.stage {
                Stage::Idle => {
                    // Once a register may be forgotten, the clocks alone keep the order.
                    let idle = |earlier: &Attempt| matches!(earlier.stage, Stage::Idle);
                    if self.forgets == 0 || !state.attempts[..number].iter().any(idle) {
                        steps.push(Step::Begin(number));
                    }
                }
                Stage::Acquiring { .. } => steps.push(Step::End(number)),
                Stage::Ended => {
                    let kept = attempt.wires.iter().all(|wire| !wire.release);
                    if attempt.token.is_some() && kept {
                        steps.push(Step::End(number));
                    }
                }
            }
            for (node, wire) in attempt.wires.iter().enumerate() {
                let attempt = number;
                if wire.call.is_some() {
                    steps.push(Step::Arrive { attempt, node });
                } else if wire.answer.is_some() {
                    steps.push(Step::Read { attempt, node });
                } else if wire.release {
                    steps.push(Step::Release { attempt, node });
                }
            }
        }
        for (node, server) in state.nodes.iter().enumerate() {
            if self.expiry && server.key.is_some() {
                steps.push(Step::Expire(node));
            }
            if state.forgets_left > 0 && server.register > 0 && server.key.is_none() {
                steps.push(Step::Forget(node));
            }
        }
    }

    fn next_state(&self, last: &State, step: Step) -> Option<State> {
        let mut state = last.clone();
        match step {
            Step::Begin(attempt) => self.begin(&mut state, attempt),
            Step::Arrive { attempt, node } => self.arrive(&mut state, attempt, node),
            Step::Read { attempt, node } => self.read(&mut state, attempt, node),
            Step::Release { attempt, node } => {
                state.attempts[attempt].wires[node].release = false;
                let server = &mut state.nodes[node];
                server.key.take_if(|key| *key == attempt);
            }
            Step::End(attempt) => self.end(&mut state, attempt),
            Step::Expire(node) => state.nodes[node].key = None,
            Step::Forget(node) => {
                state.forgets_left -= 1;
                state.nodes[node].register = 0;
                for attempt in &mut state.attempts {
                    attempt.is_old |= matches!(attempt.stage, Stage::Acquiring { .. });
                }
            }
        }
        self.put_in_order(&mut state);
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut all = vec![
            Property::always(UNIQUE, |_, state: &State| state.are_unique()),
            Property::always(ORDERED, |_, state: &State| state.are_ordered()),
        ];
        let by_commands = self.ways.contains(&Way::Commands);
        let is_disturbed = self.expiry || self.ways.contains(&Way::Steal);
        if !(by_commands && is_disturbed) {
            all.push(Property::always(HOLD_ORDER, |_, state: &State| {
                state.holds_are_ordered()
            }));
        }
        if self.queue {
            all.push(Property::always(QUEUE_KEPT, |model: &Self, state| {
                !model.passes_the_queue(state)
            }));
        }
        if self.flaw.is_none() {
            all.push(Property::sometimes(
                "one gets the lock after another",
                |_, state: &State| state.tokens().count() > 1,
            ));
            all.push(Property::sometimes(
                "a token is raised above everything seen",
                |_, state: &State| state.tokens().any(|token| token > 1000),
            ));
        }
        all
    }
}

/// Every step of a path in a line.
#[must_use]
pub fn tell(model: &Plain, path: Path<State, Step>) -> Vec<String> {
    let mut lines = Vec::new();
    for (state, step) in path.into_vec() {
        let Some(step) = step else { break };
        let Some(next) = model.next_state(&state, step) else {
            break;
        };
        let mut line = match step {
            Step::Begin(attempt) => {
                let p = model.proposals[attempt];
                format!("{} asks all nodes, and proposes {p}", name(attempt))
            }
            Step::Arrive { attempt, node } => {
                let call = state.attempts[attempt].wires[node].call;
                let call = call.map_or(String::new(), |call| format!("{call:?}"));
                format!("{call} of {} arrives at place {}", name(attempt), node + 1)
            }
            Step::Read { attempt, node } => {
                let answer = state.attempts[attempt].wires[node].answer;
                let answer = answer.map_or(String::new(), |answer| format!("{answer:?}"));
                format!("{} reads {answer} of place {}", name(attempt), node + 1)
            }
            Step::Release { attempt, node } => {
                format!(
                    "the release of {} arrives at place {}",
                    name(attempt),
                    node + 1
                )
            }
            Step::End(attempt) => format!("{} gives up or gives back", name(attempt)),
            Step::Expire(node) => format!("the key at place {} expires", node + 1),
            Step::Forget(node) => format!("place {} forgets its register", node + 1),
        };
        for (attempt, now) in next.attempts.iter().enumerate() {
            if let (None, Some(token)) = (state.attempts[attempt].token, now.token) {
                line += &format!(" => {} HAS THE LOCK with token {token}", name(attempt));
            }
        }
        lines.push(line);
    }
    lines
}
