//! A model of its own: one client of the lock service, whose acquire is repeated, and a rival.
//!
//! The client chooses a lease id and numbers its attempts. Each attempt is a request to some replica; a
//! proxy may send one of them twice, and a replica may die at any step. A replica acquires under a value
//! of its own; refused, it cleans up exactly that value, looks for holds of the same lease, and takes
//! over from smaller attempts. What it was granted it cleans up if the answer could not be sent. The
//! client holds the lock once it has read the answer to its *last* attempt, and releases by lease id: each
//! node releases what it has for the lease and keeps a tombstone of the id, in one step.
//!
//! A first acquire is made by plain commands, as on Redis: what sets the lock and what looks for the
//! tombstone are two steps at a node, and anything may come between them. A take-over is one step.
//!
//! Nodes are [`LockState`]s, and a replica counts votes by [`AcquireTally`], as they are. A command and its
//! reply are one step; what a lost reply would do, a replica that dies does too. Nothing expires: what a
//! crash leaves behind ends by its TTL, and is no fault.

use std::time::Duration;

use fencepost::{AttemptValue, FencingToken, Owner};
use fencepost_core::Ttl;
use fencepost_core::lock::plain::{PlainAcquire, Seen, Verdict};
use fencepost_core::lock::{Command, LockState, Now, Reply};
use fencepost_core::quorum::{AcquireStep, AcquireTally, Quorum};
use fencepost_core::{LeaseAttempt, LeaseId};
use stateright::{Model, Path, Property};

/// The client and its rival never hold the lock at the same time.
pub const ONE_HOLDER: &str = "the client and its rival never hold the lock together";
/// When all is over and the client has released, no node holds the lock for its lease.
pub const RELEASED: &str = "a released lease is held by no node in the end";

/// One client, its attempts, and a rival.
#[derive(Clone, Copy, Debug)]
pub struct Service {
    /// How many nodes vote.
    pub nodes: usize,
    /// How many attempts the client makes at most.
    pub attempts: u32,
    /// How many requests a proxy repeats.
    pub repeats: u8,
    /// How many replicas die.
    pub crashes: u8,
    /// Whether there is a rival, which makes one attempt and never releases.
    pub rival: bool,
    /// What is wrong.
    pub flaw: Option<ServiceFlaw>,
}

/// A rule that is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceFlaw {
    /// A replica cleans up whatever its lease id holds.
    CleanUpByLeaseId,
    /// A request takes over from any attempt of its lease but its own.
    TakeOverFromAny,
    /// A request takes over also from the same attempt.
    TakeOverFromEqual,
    /// A release leaves no tombstone of the lease id.
    NoTombstone,
    /// Plain commands look for the tombstone before they set the lock.
    LooksBeforeItSets,
    /// The client takes the answer to an earlier attempt.
    LateAnswerCounts,
}

const LEASE: LeaseId = LeaseId::new(1);
/// The rival's attempt.
const RIVAL: u32 = 0;

/// A request at a replica.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    attempt: u32,
    /// What its value is made of: no other has it. A take-over has another value.
    nonce: u32,
    phase: Phase,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Phase {
    /// Acquires; or takes over from these values, if there are some.
    Acquires {
        asked: u8,
        tally: TallyState,
        from: Vec<AttemptValue>,
        /// What plain commands have found out at the nodes at which they are half-way.
        halfway: Vec<(usize, Halfway)>,
    },
    /// Cleans up on the nodes that are left; then looks for holds of the lease, or ends.
    CleansUp { left: u8, then_looks: bool },
    /// Looks for holds of its lease.
    Looks {
        left: u8,
        earlier: Vec<AttemptValue>,
        others: bool,
    },
    /// The answer is on its way.
    Answers,
}

/// Between the two steps of plain commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Halfway {
    /// The lock is set.
    Set { lifted: bool },
    /// The tombstone was looked for, by a flaw.
    Looked { is_tombstoned: bool },
}

/// [`AcquireTally`] compares by hash only.
#[derive(Clone, Debug)]
struct TallyState(AcquireTally);

impl std::hash::Hash for TallyState {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl PartialEq for TallyState {
    fn eq(&self, other: &Self) -> bool {
        fingerprint(self) == fingerprint(other)
    }
}

impl Eq for TallyState {}

fn fingerprint(tally: &TallyState) -> u64 {
    use std::hash::{DefaultHasher, Hash as _, Hasher as _};
    let mut hasher = DefaultHasher::new();
    tally.hash(&mut hasher);
    hasher.finish()
}

/// What the client does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Holding {
    No,
    Yes,
    Released,
}

/// All of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Scene {
    nodes: Vec<LockState>,
    requests: Vec<Request>,
    /// The nodes that the release has not reached yet.
    release: Option<u8>,
    /// The client's last attempt.
    attempt: u32,
    holding: Holding,
    rival_holds: bool,
    next_nonce: u32,
    repeats_left: u8,
    crashes_left: u8,
}

/// Something that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The client sends its next attempt, and voids the earlier ones.
    Send,
    /// A proxy sends the attempt of that request again.
    Repeat(usize),
    /// That request does its next step at that node.
    Work(usize, usize),
    /// The answer of that request is read by the client.
    Read(usize),
    /// The answer could not be sent, and its replica knows.
    Unread(usize),
    /// The answer went to a proxy that has no use for it.
    Swallow(usize),
    /// The replica of that request dies.
    Crash(usize),
    /// The client releases.
    Release,
    /// The release does its next step at that node.
    WorkRelease(usize),
}

const NOW: Now = Now {
    elapsed: Duration::ZERO,
    wall_micros: 1_000_000,
};

fn ttl() -> Ttl {
    Ttl::new(Duration::from_secs(1)).expect("within the bounds")
}

impl Request {
    fn value(&self) -> AttemptValue {
        let owner = Owner::new("x").expect("a label");
        match self.attempt {
            RIVAL => AttemptValue::labelled(u128::from(self.nonce), &owner),
            attempt => {
                let of = LeaseAttempt {
                    lease: LEASE,
                    attempt,
                    max_hold: None,
                };
                AttemptValue::leased(u128::from(self.nonce), of, &owner)
            }
        }
    }
}

impl Service {
    fn all(&self) -> u8 {
        (1 << self.nodes) - 1
    }

    fn quorum(&self) -> Quorum {
        Quorum::of(self.nodes).expect("a few nodes")
    }

    fn begin(&self, scene: &mut Scene, attempt: u32) {
        let nonce = scene.next_nonce;
        scene.next_nonce += 1;
        scene.requests.push(Request {
            attempt,
            nonce,
            phase: self.acquires(Vec::new()),
        });
    }

    fn acquires(&self, from: Vec<AttemptValue>) -> Phase {
        Phase::Acquires {
            asked: 0,
            tally: TallyState(AcquireTally::new(self.quorum())),
            from,
            halfway: Vec::new(),
        }
    }

    fn release(&self, node: &mut LockState, value: AttemptValue) {
        let command = Command::Release {
            value,
            tombstone: None,
            ticket: Default::default(),
            follower: None,
            is_lease: false,
        };
        let _ = node.apply(&command, NOW);
    }

    /// One step of plain commands at one node; the node's answer after the last one.
    fn by_plain_commands(
        &self,
        node: &mut LockState,
        acquire: &PlainAcquire<'_>,
        before: Option<Halfway>,
    ) -> Result<Reply, Halfway> {
        let looks_first = self.flaw == Some(ServiceFlaw::LooksBeforeItSets);
        let is_tombstoned = |node: &LockState| node.is_tombstoned(acquire);
        let (lifted, is_tombstoned) = match before {
            None if looks_first => {
                let is_tombstoned = is_tombstoned(node);
                return Err(Halfway::Looked { is_tombstoned });
            }
            Some(Halfway::Set { lifted }) => (lifted, is_tombstoned(node)),
            None | Some(Halfway::Looked { .. }) => {
                let holder = node.set_if_free(acquire, NOW.elapsed);
                let lifted = node.lift(acquire.proposed);
                match (holder, before) {
                    (Some(holder), _) => return Ok(Reply::Held(holder)),
                    (None, Some(Halfway::Looked { is_tombstoned })) => (lifted, is_tombstoned),
                    (None, _) if acquire.looks_for_tombstone() => {
                        return Err(Halfway::Set { lifted });
                    }
                    (None, _) => (lifted, false),
                }
            }
        };
        let verdict = acquire.decide(&Seen {
            holder: None,
            lifted,
            head: None,
            is_tombstoned,
        });
        Ok(match verdict {
            Verdict::Granted => Reply::Granted {
                register: acquire.proposed,
                evicted: None,
            },
            Verdict::NotRaised => Reply::NotRaised(acquire.proposed),
            Verdict::Tombstoned => {
                self.release(node, acquire.value.clone());
                Reply::Tombstoned
            }
            Verdict::Held | Verdict::AskScript { .. } => unreachable!("nobody waits"),
        })
    }

    /// One step of a request at one node. `None` when it has nothing to do there.
    fn work(&self, scene: &mut Scene, which: usize, at: usize) -> Option<()> {
        let mut request = scene.requests[which].clone();
        let (value, bit) = (request.value(), 1 << at);
        let node = &mut scene.nodes[at];
        let mut ends = false;
        request.phase = match request.phase {
            Phase::Acquires {
                asked,
                mut tally,
                from,
                mut halfway,
            } => {
                if asked & bit != 0 {
                    return None;
                }
                let reply = match from.is_empty() {
                    true => {
                        let place = halfway.iter().position(|(node, _)| *node == at);
                        let before = place.map(|place| halfway.remove(place).1);
                        let acquire = PlainAcquire {
                            value: &value,
                            ttl: ttl(),
                            proposed: FencingToken::new(request.nonce.into()).expect("small"),
                            may_pass: true,
                        };
                        match self.by_plain_commands(node, &acquire, before) {
                            Ok(reply) => reply,
                            Err(so_far) => {
                                halfway.push((at, so_far));
                                halfway.sort_unstable_by_key(|(node, _)| *node);
                                request.phase = Phase::Acquires {
                                    asked,
                                    tally,
                                    from,
                                    halfway,
                                };
                                scene.requests[which] = request;
                                return Some(());
                            }
                        }
                    }
                    false => {
                        let command = Command::Steal {
                            value: value.clone(),
                            ttl: ttl(),
                            proposed: FencingToken::ZERO,
                            from: from.clone(),
                        };
                        node.apply(&command, NOW)
                    }
                };
                let mut step = tally.0.answered(at, Ok(reply));
                // Raises go to all at once: that they may be late is modelled elsewhere.
                while let AcquireStep::Raise { nodes, to } = step {
                    step = AcquireStep::Wait;
                    for raised in nodes.iter() {
                        let raise = Command::Raise {
                            value: value.clone(),
                            to,
                        };
                        let reply = scene.nodes[raised].apply(&raise, NOW);
                        step = tally.0.answered(raised, Ok(reply));
                    }
                }
                match step {
                    AcquireStep::Certified(_) if request.attempt == RIVAL => {
                        scene.rival_holds = true;
                        ends = true;
                        Phase::Answers
                    }
                    AcquireStep::Certified(_) => Phase::Answers,
                    AcquireStep::Blocked => Phase::CleansUp {
                        left: self.all(),
                        then_looks: from.is_empty() && request.attempt != RIVAL,
                    },
                    _ => Phase::Acquires {
                        asked: asked | bit,
                        tally,
                        from,
                        halfway,
                    },
                }
            }
            Phase::CleansUp { left, then_looks } => {
                if left & bit == 0 {
                    return None;
                }
                let value = match (self.flaw, node.holder()) {
                    (Some(ServiceFlaw::CleanUpByLeaseId), Some(holder))
                        if holder.lease_attempt().is_some() =>
                    {
                        holder.clone()
                    }
                    _ => value,
                };
                self.release(node, value);
                match (left & !bit, then_looks) {
                    (0, true) => Phase::Looks {
                        left: self.all(),
                        earlier: Vec::new(),
                        others: false,
                    },
                    (0, false) => {
                        ends = true;
                        Phase::Answers
                    }
                    (left, _) => Phase::CleansUp { left, then_looks },
                }
            }
            Phase::Looks {
                left,
                mut earlier,
                mut others,
            } => {
                if left & bit == 0 {
                    return None;
                }
                let holder = node.holder();
                let of = holder.and_then(AttemptValue::lease_attempt);
                if let (Some(holder), Some(of)) = (holder, of) {
                    let may_take_over = match self.flaw {
                        Some(ServiceFlaw::TakeOverFromAny) => true,
                        Some(ServiceFlaw::TakeOverFromEqual) => of.attempt <= request.attempt,
                        _ => of.attempt < request.attempt,
                    };
                    match may_take_over {
                        true if !earlier.contains(holder) => earlier.push(holder.clone()),
                        true => {}
                        false => others = true,
                    }
                }
                match (left & !bit, earlier.is_empty() || others) {
                    // Held, or in progress.
                    (0, true) => {
                        ends = true;
                        Phase::Answers
                    }
                    (0, false) => {
                        // Another try has another value.
                        request.nonce = scene.next_nonce;
                        scene.next_nonce += 1;
                        self.acquires(earlier)
                    }
                    (left, _) => Phase::Looks {
                        left,
                        earlier,
                        others,
                    },
                }
            }
            Phase::Answers => return None,
        };
        match ends {
            true => drop(scene.requests.remove(which)),
            false => scene.requests[which] = request,
        }
        Some(())
    }

    fn work_release(&self, scene: &mut Scene, at: usize) -> Option<()> {
        let left = scene.release.filter(|left| left & 1 << at != 0)?;
        let tombstone = match self.flaw {
            Some(ServiceFlaw::NoTombstone) => Duration::ZERO,
            _ => Duration::from_secs(60),
        };
        let lease = LEASE;
        let command = Command::ReleaseLease { lease, tombstone };
        let _ = scene.nodes[at].apply(&command, NOW);
        let left = left & !(1 << at);
        scene.release = (left != 0).then_some(left);
        Some(())
    }
}

impl Model for Service {
    type State = Scene;
    type Action = Step;

    fn init_states(&self) -> Vec<Scene> {
        let mut scene = Scene {
            nodes: vec![LockState::default(); self.nodes],
            requests: Vec::new(),
            release: None,
            attempt: 0,
            holding: Holding::No,
            rival_holds: false,
            next_nonce: 1,
            repeats_left: self.repeats,
            crashes_left: self.crashes,
        };
        if self.rival {
            self.begin(&mut scene, RIVAL);
        }
        vec![scene]
    }

    fn actions(&self, scene: &Scene, steps: &mut Vec<Step>) {
        if scene.holding == Holding::No && scene.attempt < self.attempts {
            steps.push(Step::Send);
        }
        if scene.holding == Holding::Yes {
            steps.push(Step::Release);
        }
        for (which, request) in scene.requests.iter().enumerate() {
            if request.attempt != RIVAL {
                if scene.repeats_left > 0 {
                    steps.push(Step::Repeat(which));
                }
                if scene.crashes_left > 0 {
                    steps.push(Step::Crash(which));
                }
            }
            match request.phase {
                Phase::Answers => {
                    steps.push(Step::Read(which));
                    steps.push(Step::Unread(which));
                    if self.repeats > 0 {
                        steps.push(Step::Swallow(which));
                    }
                }
                _ => steps.extend((0..self.nodes).map(|node| Step::Work(which, node))),
            }
        }
        if scene.release.is_some() {
            steps.extend((0..self.nodes).map(Step::WorkRelease));
        }
    }

    fn next_state(&self, last: &Scene, step: Step) -> Option<Scene> {
        let mut scene = last.clone();
        match step {
            Step::Send => {
                scene.attempt += 1;
                let attempt = scene.attempt;
                self.begin(&mut scene, attempt);
            }
            Step::Repeat(which) => {
                scene.repeats_left -= 1;
                let attempt = scene.requests[which].attempt;
                self.begin(&mut scene, attempt);
            }
            Step::Work(which, node) => self.work(&mut scene, which, node)?,
            Step::Read(which) => {
                let attempt = scene.requests.remove(which).attempt;
                let counts =
                    attempt == scene.attempt || self.flaw == Some(ServiceFlaw::LateAnswerCounts);
                if counts && scene.holding == Holding::No {
                    scene.holding = Holding::Yes;
                }
            }
            Step::Unread(which) => {
                scene.requests[which].phase = Phase::CleansUp {
                    left: self.all(),
                    then_looks: false,
                };
            }
            Step::Swallow(which) => drop(scene.requests.remove(which)),
            Step::Crash(which) => {
                scene.crashes_left -= 1;
                drop(scene.requests.remove(which));
            }
            Step::Release => {
                scene.holding = Holding::Released;
                scene.release = Some(self.all());
            }
            Step::WorkRelease(node) => self.work_release(&mut scene, node)?,
        }
        Some(scene)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(ONE_HOLDER, |_, scene: &Scene| {
                !(scene.holding == Holding::Yes && scene.rival_holds)
            }),
            Property::always(RELEASED, |model: &Self, scene: &Scene| {
                let is_over = scene.requests.is_empty()
                    && scene.release.is_none()
                    && scene.holding == Holding::Released
                    && scene.crashes_left == model.crashes;
                let of_lease =
                    |node: &LockState| node.holder().and_then(AttemptValue::lease_attempt);
                let held = scene.nodes.iter().filter_map(of_lease).count();
                !is_over || held < model.quorum().needed()
            }),
            Property::sometimes("the client holds it", |_, scene: &Scene| {
                scene.holding == Holding::Yes
            }),
            Property::sometimes("a later attempt takes over", |_, scene: &Scene| {
                scene.requests.iter().any(|request| {
                    matches!(&request.phase, Phase::Acquires { from, .. } if !from.is_empty())
                })
            }),
        ]
    }
}

/// Every step of a path in a line.
#[must_use]
pub fn tell(model: &Service, path: Path<Scene, Step>) -> Vec<String> {
    let mut lines = Vec::new();
    for (scene, step) in path.into_vec() {
        let Some(step) = step else { break };
        let who = |which: usize| match scene.requests[which].attempt {
            RIVAL => "the rival".to_owned(),
            attempt => format!(
                "attempt {attempt} (request {})",
                scene.requests[which].nonce
            ),
        };
        let what = match step {
            Step::Send => format!("the client sends attempt {}", scene.attempt + 1),
            Step::Repeat(which) => format!("a proxy repeats {}", who(which)),
            Step::Work(which, node) => {
                let does = match &scene.requests[which].phase {
                    Phase::Acquires { from, .. } if from.is_empty() => "acquires",
                    Phase::Acquires { .. } => "takes over",
                    Phase::CleansUp { .. } => "cleans up",
                    Phase::Looks { .. } => "looks for its lease",
                    Phase::Answers => "answers",
                };
                format!("{} {does} at node {node}", who(which))
            }
            Step::Read(which) => format!("the client reads the answer to {}", who(which)),
            Step::Unread(which) => format!("the answer to {} cannot be sent", who(which)),
            Step::Swallow(which) => format!("the answer to {} is lost", who(which)),
            Step::Crash(which) => format!("the replica of {} dies", who(which)),
            Step::Release => "the client releases".to_owned(),
            Step::WorkRelease(node) => format!("the release goes on at node {node}"),
        };
        let then = model.next_state(&scene, step);
        let then = match then {
            Some(next) if next.holding == Holding::Yes && scene.holding == Holding::No => {
                " => the client holds the lock"
            }
            Some(next) if next.rival_holds && !scene.rival_holds => " => the rival holds the lock",
            _ => "",
        };
        lines.push(what + then);
    }
    lines
}
