//! What can happen in a state, and what follows.

use std::num::NonZeroU32;
use std::time::Duration;

use fencepost::{AttemptValue, FencingToken, NodeError};
use fencepost_core::Ttl;
use fencepost_core::lock::{Command, Holder, LockState, Now, Repair, Reply};
use fencepost_core::quorum::{
    AcquireStep, AcquireTally, ExtendStep, ExtendTally, NodeSet, Quorum, ReleaseStep, ReleaseTally,
};
use stateright::{Model, Property};

use crate::setup::{Expiry, Flaw, Releases, Setup};
use crate::world::{Answer, Call, Claim, Name, Place, Stage, Stamp, World};

/// Nodes and clients as a setup has them.
#[derive(Clone, Debug)]
pub struct Locks {
    /// The setup.
    pub setup: Setup,
    values: Vec<AttemptValue>,
    somebody: Holder,
    ttl: Ttl,
}

/// Something that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A claim sends its attempt to these nodes.
    Begin {
        /// Which claim.
        claim: usize,
        /// All nodes, if nothing is wrong.
        reach: NodeSet,
    },
    /// A command arrives at a node and is carried out.
    Arrive {
        /// Where.
        node: usize,
        /// Whose command.
        claim: usize,
        /// Which command.
        call: Call,
        /// Whether the key that the node holds expires just before.
        expired: bool,
    },
    /// A claim reads an answer.
    Take {
        /// From which node.
        node: usize,
        /// Which claim.
        claim: usize,
        /// What it was the answer to.
        call: Call,
    },
    /// A claim stops waiting for an answer. The command may still arrive.
    TimeOut {
        /// From which node.
        node: usize,
        /// Which claim.
        claim: usize,
        /// The answer to what.
        call: Call,
    },
    /// A claim is cancelled, or its time is up, before it has the lock.
    GiveUp {
        /// Which claim.
        claim: usize,
    },
    /// A claim begins another round of extending.
    Extend {
        /// Which claim.
        claim: usize,
    },
    /// A claim gives the lock back.
    Release {
        /// Which claim.
        claim: usize,
    },
    /// A node restarts and has lost everything.
    Restart {
        /// Which node.
        node: usize,
    },
    /// A node's quarantine ends: all that was valid before its restart is over.
    QuarantineOver {
        /// Which node.
        node: usize,
    },
}

/// All commands run at the same moment: what expires is a step of its own.
const NOW: Now = Now {
    elapsed: Duration::ZERO,
    wall_micros: 1 << 40,
};

impl Locks {
    /// The model of a setup.
    #[must_use]
    pub fn new(setup: Setup) -> Self {
        let name = |claim| AttemptValue::reported(crate::story::name(setup.value_of(claim)));
        Self {
            values: (0..setup.claims).map(name).collect(),
            somebody: Holder {
                value: AttemptValue::reported("somebody"),
                token: None,
                remaining: None,
            },
            ttl: Ttl::new(Duration::from_secs(1)).expect("within the bounds"),
            setup,
        }
    }

    pub(crate) fn value(&self, claim: usize) -> &AttemptValue {
        &self.values[claim]
    }

    fn first_world(&self, registers: &[u64]) -> World {
        let mut nodes = Vec::new();
        for node in 0..self.setup.nodes {
            let mut lock = LockState::default();
            let register = registers.get(node).copied().unwrap_or(0);
            if register > 0 {
                self.apply(
                    &mut lock,
                    self.acquire("earlier", FencingToken::saturating(register)),
                );
                lock.evict_holder();
            }
            nodes.push(Place {
                name: Name(node + 1),
                lock,
                stamp: None,
                quarantine: None,
                mail: Vec::new(),
            });
        }
        let mut world = World {
            nodes,
            claims: vec![Claim::idle(); self.setup.claims],
            restarts_left: self.setup.restarts,
        };
        if self.setup.head_start {
            self.give_head_start(&mut world);
        }
        world
    }

    /// Lets the first claim have the lock on a bare majority, and forgets the rest of what it sent.
    fn give_head_start(&self, world: &mut World) {
        self.begin(world, 0, NodeSet::all(self.setup.nodes));
        let majority = 0..self.setup.quorum().needed();
        for node in majority {
            self.arrive(world, node, 0, Call::Acquire, false);
            self.take(world, node, 0, Call::Acquire);
        }
        for place in &mut world.nodes {
            place.mail.clear();
        }
        self.settle(world);
    }

    pub(crate) fn acquire(&self, value: &str, proposed: FencingToken) -> Command {
        Command::Acquire {
            value: AttemptValue::reported(value),
            ttl: self.ttl,
            proposed,
            turn: Default::default(),
        }
    }

    pub(crate) fn apply(&self, lock: &mut LockState, command: Command) -> Reply {
        lock.apply(&command, NOW)
    }

    fn command(&self, world: &World, claim: usize, call: Call) -> Command {
        let value = self.values[claim].clone();
        let ttl = self.ttl;
        match call {
            Call::Acquire => Command::Acquire {
                value,
                ttl,
                proposed: self.setup.proposal(claim),
                turn: Default::default(),
            },
            Call::Raise(to) => Command::Raise { value, to },
            Call::Extend(_) => Command::Extend {
                value,
                ttl,
                token: world.claims[claim].token.unwrap_or_default(),
                entries: NonZeroU32::MIN,
                repair: Repair::Always,
            },
            Call::Release { refuse } => Command::Release {
                value,
                tombstone: refuse.then_some(ttl.get()),
                ticket: Default::default(),
                follower: None,
                is_lease: false,
            },
        }
    }

    /// Lets a node carry out a command. The answer is what the library makes of the node's reply.
    pub(crate) fn carry_out(
        &self,
        world: &mut World,
        node: usize,
        claim: usize,
        call: Call,
    ) -> Answer {
        let command = self.command(world, claim, call);
        let rounds = world.claims[claim].rounds;
        let place = &mut world.nodes[node];
        let quarantined = place.quarantine.is_some();
        if quarantined && matches!(call, Call::Acquire | Call::Raise(_)) {
            return Err(NodeError::Quarantined(Duration::ZERO));
        }
        if self.setup.has(Flaw::BlindRelease) && matches!(call, Call::Release { .. }) {
            place.lock.evict_holder();
            place.stamp = None;
            return Ok(Reply::Released);
        }
        let was_free = place.lock.holder().is_none();
        let reply = self.apply(&mut place.lock, command);
        match reply {
            // Asked again by the same value, it is not kept any longer.
            Reply::Granted { .. } if was_free => place.stamp = Some(Stamp { claim, rounds }),
            Reply::Extended | Reply::Repaired => place.stamp = Some(Stamp { claim, rounds }),
            Reply::Released => place.stamp = None,
            _ => {}
        }
        match reply {
            Reply::Extended if quarantined && !self.setup.has(Flaw::QuarantinedExtends) => {
                Err(NodeError::Quarantined(Duration::ZERO))
            }
            Reply::Repaired if quarantined => Err(NodeError::Quarantined(Duration::ZERO)),
            Reply::Repaired if self.setup.has(Flaw::RepairedVotes) => Ok(Reply::Extended),
            // Who has it decides nothing, it is only told.
            Reply::Held(_) => Ok(Reply::Held(self.somebody.clone())),
            Reply::NotHeld(Some(_)) => Ok(Reply::NotHeld(Some(self.somebody.clone()))),
            reply => Ok(reply),
        }
    }

    fn begin(&self, world: &mut World, claim: usize, reach: NodeSet) {
        let asked = Quorum::of(reach.len()).expect("at least one node");
        let floor = world.tokens().max().unwrap_or_default();
        world.claims[claim] = Claim {
            stage: Stage::Acquiring(AcquireTally::certified_by(asked, self.setup.certify())),
            reach,
            rounds: 1,
            floor,
            ..Claim::idle()
        };
        for node in reach.iter() {
            world.nodes[node].send(claim, Call::Acquire, true);
        }
    }

    fn arrive(&self, world: &mut World, node: usize, claim: usize, call: Call, expired: bool) {
        if expired {
            self.expire(world, node);
        }
        let answer = self.carry_out(world, node, claim, call);
        if let Some(place) = world.find(node, claim, call) {
            world.nodes[node].mail[place].answer = Some(answer);
        }
    }

    /// The node forgets its key. The holder's validity has ended by then: not earlier than somebody
    /// can notice, which is no loss, for a claim that is valid for longer can only be in the way of
    /// more others.
    fn expire(&self, world: &mut World, node: usize) {
        let place = &mut world.nodes[node];
        place.lock.evict_holder();
        if let Some(Stamp { claim, rounds }) = place.stamp.take()
            && self.setup.expiry == Expiry::AfterValidity
        {
            let claim = &mut world.claims[claim];
            claim.over = claim.over.max(rounds);
        }
    }

    pub(crate) fn take(&self, world: &mut World, node: usize, claim: usize, call: Call) {
        let Some(place) = world.find(node, claim, call) else {
            return;
        };
        if let Some(answer) = world.nodes[node].mail.remove(place).answer {
            self.answered(world, node, claim, call, answer);
        }
    }

    fn answered(&self, world: &mut World, node: usize, claim: usize, call: Call, answer: Answer) {
        let me = &mut world.claims[claim];
        match (&mut me.stage, call) {
            (Stage::Acquiring(attempt), Call::Acquire | Call::Raise(_)) => {
                let position = me.reach.iter().position(|other| other == node);
                let position = position.expect("only a node that was asked answers");
                match attempt.answered(position, answer) {
                    AcquireStep::Wait => {}
                    AcquireStep::Raise { nodes, to } => {
                        let asked: Vec<usize> = me.reach.iter().collect();
                        for position in nodes.iter() {
                            world.nodes[asked[position]].send(claim, Call::Raise(to), true);
                        }
                    }
                    AcquireStep::Certified(token) => {
                        let token = match self.setup.has(Flaw::OwnProposal) {
                            true => self.setup.proposal(claim),
                            false => token,
                        };
                        me.token = Some(token);
                        me.out_of_order = token <= me.floor;
                        me.stage = Stage::Holding {
                            round: 0,
                            extending: Vec::new(),
                        };
                    }
                    AcquireStep::Blocked => self.end(world, claim),
                }
            }
            (Stage::Holding { round, extending }, Call::Extend(number)) => {
                let Some(place) = extending.iter().position(|(other, _)| *other == number) else {
                    return;
                };
                match extending[place].1.answered(node, answer) {
                    ExtendStep::Wait => {}
                    ExtendStep::Extended => {
                        *round = (*round).max(number);
                        // A round that began earlier has no more to give.
                        extending.retain(|(other, _)| *other > number);
                    }
                    ExtendStep::Lost(_) => self.end(world, claim),
                    ExtendStep::NoQuorum => drop(extending.remove(place)),
                }
            }
            (Stage::Releasing(handover), Call::Release { .. }) => {
                let step = handover.answered(node, answer);
                if step != ReleaseStep::Wait {
                    me.stage = Stage::Ended;
                }
            }
            _ => {}
        }
    }

    fn time_out(&self, world: &mut World, node: usize, claim: usize, call: Call) {
        let Some(place) = world.find(node, claim, call) else {
            return;
        };
        let mail = &mut world.nodes[node].mail;
        match mail[place].answer {
            Some(_) => drop(mail.remove(place)),
            None => mail[place].open = false,
        }
        let timeout = Err(NodeError::Timeout(Duration::ZERO));
        self.answered(world, node, claim, call, timeout);
    }

    fn open_calls<'a>(
        &self,
        world: &'a World,
        node: usize,
        claim: usize,
    ) -> impl Iterator<Item = Call> + use<'a> {
        let mail = world.nodes[node].mail.iter();
        mail.filter(move |mail| mail.claim == claim && mail.open)
            .map(|mail| mail.call)
    }

    /// A claim is over, and says so to the nodes that may hold something of it.
    pub(crate) fn end(&self, world: &mut World, claim: usize) {
        let me = &mut world.claims[claim];
        let nodes = match &me.stage {
            Stage::Acquiring(attempt) => {
                let places = attempt.may_hold();
                let mut nodes = NodeSet::NONE;
                for (place, node) in me.reach.iter().enumerate() {
                    if places.contains(place) {
                        nodes.insert(node);
                    }
                }
                nodes
            }
            _ => me.reach,
        };
        me.stage = Stage::Ended;
        self.send_releases(world, claim, nodes, false);
    }

    fn send_releases(&self, world: &mut World, claim: usize, nodes: NodeSet, open: bool) {
        if self.setup.releases == Releases::LeftToExpiry {
            return;
        }
        for node in nodes.iter() {
            let place = &mut world.nodes[node];
            let lost = |mail: &crate::world::Mail| {
                mail.claim == claim && !mail.open && mail.answer.is_none()
            };
            let refuse = place.mail.iter().any(lost);
            place.send(claim, Call::Release { refuse }, open);
        }
    }

    fn extend(&self, world: &mut World, claim: usize) {
        let me = &mut world.claims[claim];
        let number = me.rounds;
        me.rounds += 1;
        if let Stage::Holding { extending, .. } = &mut me.stage {
            extending.push((number, ExtendTally::new(self.setup.quorum())));
        }
        for place in &mut world.nodes {
            place.send(claim, Call::Extend(number), true);
        }
    }

    fn release(&self, world: &mut World, claim: usize) {
        let nodes = world.claims[claim].reach;
        let sent = self.setup.releases == Releases::Sent;
        world.claims[claim].stage = match sent {
            true => Stage::Releasing(ReleaseTally::new(self.setup.quorum())),
            false => Stage::Ended,
        };
        // Nobody waits for the answers to what was sent before.
        for place in &mut world.nodes {
            place
                .mail
                .retain(|mail| mail.claim != claim || mail.answer.is_none());
        }
        self.send_releases(world, claim, nodes, true);
    }

    fn restart(&self, world: &mut World, node: usize) {
        world.restarts_left -= 1;
        let begun = world.claims.iter().map(|claim| claim.rounds).collect();
        let place = &mut world.nodes[node];
        place.lock = LockState::default();
        place.stamp = None;
        place.quarantine = (!self.setup.has(Flaw::NoQuarantine)).then_some(begun);
    }

    fn end_quarantine(&self, world: &mut World, node: usize) {
        if let Some(begun) = world.nodes[node].quarantine.take() {
            for (claim, begun) in world.claims.iter_mut().zip(begun) {
                claim.over = claim.over.max(begun);
            }
        }
    }

    fn claim_steps(&self, world: &World, claim: usize, steps: &mut Vec<Step>) {
        let me = &world.claims[claim];
        match &me.stage {
            Stage::Idle => {
                let all = NodeSet::all(self.setup.nodes);
                let waits_for_its_first = self.setup.value_of(claim) != claim
                    && !matches!(world.claims[claim - 1].stage, Stage::Ended);
                if waits_for_its_first {
                } else if self.setup.has(Flaw::ReachableQuorum) {
                    for nodes in subsets(self.setup.nodes).filter(|nodes| !nodes.is_empty()) {
                        steps.push(Step::Begin {
                            claim,
                            reach: nodes,
                        });
                    }
                } else {
                    steps.push(Step::Begin { claim, reach: all });
                }
            }
            Stage::Acquiring(_) => steps.push(Step::GiveUp { claim }),
            Stage::Holding { .. } => {
                if me.rounds <= self.setup.extensions {
                    steps.push(Step::Extend { claim });
                }
                steps.push(Step::Release { claim });
            }
            Stage::Releasing(_) | Stage::Ended => {}
        }
        if self.setup.timeouts && me.is_live() {
            for node in 0..self.setup.nodes {
                let open = self.open_calls(world, node, claim);
                steps.extend(open.map(|call| Step::TimeOut { node, claim, call }));
            }
        }
    }

    fn node_steps(&self, world: &World, node: usize, steps: &mut Vec<Step>) {
        let place = &world.nodes[node];
        for mail in &place.mail {
            let (claim, call) = (mail.claim, mail.call);
            if mail.answer.is_some() {
                steps.push(Step::Take { node, claim, call });
                continue;
            }
            for expired in [false, true] {
                if !expired || place.lock.holder().is_some() {
                    steps.push(Step::Arrive {
                        node,
                        claim,
                        call,
                        expired,
                    });
                }
            }
        }
        if world.restarts_left > 0 {
            steps.push(Step::Restart { node });
        }
        if place.quarantine.is_some() {
            steps.push(Step::QuarantineOver { node });
        }
    }
}

/// All sets of so many nodes.
pub(crate) fn subsets(nodes: usize) -> impl Iterator<Item = NodeSet> {
    (0..1_u16 << nodes).map(move |bits| {
        let mut set = NodeSet::NONE;
        for node in (0..nodes).filter(|node| bits & (1 << node) != 0) {
            set.insert(node);
        }
        set
    })
}

impl Model for Locks {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        let registers = self.setup.registers.iter();
        registers.map(|each| self.first_world(each)).collect()
    }

    fn actions(&self, world: &World, steps: &mut Vec<Step>) {
        // What follows from a fault says nothing new.
        if crate::properties::is_faulty(self, world) {
            return;
        }
        let idle = |claim: &Claim| matches!(claim.stage, Stage::Idle);
        for claim in 0..self.setup.claims {
            self.claim_steps(world, claim, steps);
            // Claims differ in nothing but their names: they begin in the order of these.
            if idle(&world.claims[claim]) {
                break;
            }
        }
        for node in 0..self.setup.nodes {
            self.node_steps(world, node, steps);
        }
    }

    fn next_state(&self, last: &World, step: Step) -> Option<World> {
        let mut world = last.clone();
        match step {
            Step::Begin { claim, reach } => self.begin(&mut world, claim, reach),
            Step::Arrive {
                node,
                claim,
                call,
                expired,
            } => self.arrive(&mut world, node, claim, call, expired),
            Step::Take { node, claim, call } => self.take(&mut world, node, claim, call),
            Step::TimeOut { node, claim, call } => self.time_out(&mut world, node, claim, call),
            Step::GiveUp { claim } => self.end(&mut world, claim),
            Step::Extend { claim } => self.extend(&mut world, claim),
            Step::Release { claim } => self.release(&mut world, claim),
            Step::Restart { node } => self.restart(&mut world, node),
            Step::QuarantineOver { node } => self.end_quarantine(&mut world, node),
        }
        self.settle(&mut world);
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        crate::properties::of(&self.setup)
    }
}
