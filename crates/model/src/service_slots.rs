//! A model of its own: one client of the lock service, whose acquire of one of k slots is repeated, and rivals.
//!
//! As [`service`](crate::service), but each slot is a lock of its own, so a second copy of a request is not in the way of
//! the first one: it could be granted another slot. A request looks for what its lease holds before it asks and when it
//! is refused, takes over from smaller attempts, and looks again once it is granted; what follows from a look is
//! [`Repeated`]. A look is one step for each slot at each node, so anything may come between two of them, and it ends with
//! a majority of the nodes, as the service's does. Which free slot is tried first is not determined.
//!
//! Every request is at a replica of its own: where two are at the same one, it refuses one of them, so whatever holds
//! here holds there. A release goes to the slots at all nodes in any order. The validity of a grant may end at any time,
//! and then each node may drop what it has for it. What a replica that dies leaves behind ends so too, and is no fault.
//!
//! Left out: waiting (the queue is that of the semaphore), extending, raises that are late, nodes that do not answer.

use std::collections::BTreeSet;
use std::time::Duration;

use fencepost::{AttemptValue, FencingToken, Owner};
use fencepost_core::lock::plain::{PlainAcquire, Seen, Verdict};
use fencepost_core::lock::{Command, LockState, Now, Reply};
use fencepost_core::quorum::repeated::{LeaseHold, OtherAttempts, Repeated};
use fencepost_core::quorum::{AcquireStep, AcquireTally, LeaseRelease, LeaseReleaseTally, Quorum};
use fencepost_core::{LeaseAttempt, LeaseId, Ttl};
use stateright::{Model, Path, Property};

/// No slot has two valid holders by their own clocks, so no more than k are in.
pub const NO_CROWD: &str = "no slot has two valid holders, and at most k are in";
/// A majority has the client's slot under the value that was answered, for as long as it is valid.
pub const HELD: &str = "what the client validly holds, a majority of the nodes has for it";
/// Once every request has ended, the lease holds one slot or none.
pub const ONE_SLOT: &str = "in the end a lease holds no second slot";
/// When all is over and the client has released, no slot is held for its lease.
pub const RELEASED: &str = "a released lease holds no slot in the end";
/// The tokens of those who held a slot grow.
pub const TOKENS: &str = "the tokens of a slot are unique and grow";

/// One client, its attempts, and rivals.
#[derive(Clone, Copy, Debug)]
pub struct ServiceSlots {
    /// How many nodes vote.
    pub nodes: usize,
    /// How many slots there are.
    pub slots: usize,
    /// How many attempts the client makes at most.
    pub attempts: u32,
    /// How many requests a proxy repeats.
    pub repeats: u8,
    /// How many replicas die.
    pub crashes: u8,
    /// How many rivals there are: each makes one attempt at one slot, and may release it.
    pub rivals: u8,
    /// How many grants end because nobody extends them.
    pub expiries: u8,
    /// Whether the client releases by the slot that it was answered, and not by how many there are.
    pub by_slot: bool,
    /// What is wrong.
    pub flaw: Option<SlotsFlaw>,
}

/// A rule that is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotsFlaw {
    /// A repeat takes any free slot, and does not look for its own.
    TakesAnotherSlot,
    /// A request does not look again once it is granted.
    LooksNotAgain,
    /// A replica cleans up whatever its lease id holds in the slot.
    CleanUpByLeaseId,
    /// A request takes over also from the same attempt.
    TakeOverFromEqual,
    /// Once granted, it releases also what larger attempts hold.
    VoidsLater,
    /// A release leaves no tombstone.
    NoTombstone,
    /// A release leaves a tombstone in the slot that was held, and in no other.
    OneTombstone,
    /// A release whose slot is no longer held leaves no tombstone in the others.
    NoTombstoneOnceOver,
}

const LEASE: LeaseId = LeaseId::new(1);
/// A rival's attempt.
const RIVAL: u32 = 0;

/// A request at a replica.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    attempt: u32,
    /// What its value is made of: no other has it.
    nonce: u32,
    phase: Phase,
}

/// Slots at nodes, a bit each.
type Places = u8;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Why {
    /// It has not asked yet.
    Before,
    /// It was refused in every slot.
    Refused,
    /// It holds that slot, with that token.
    Granted(usize, FencingToken),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Phase {
    /// Looks for what its lease holds.
    Looks {
        why: Why,
        left: Places,
        seen: Vec<(usize, LeaseHold)>,
        /// What it saw before it waited for what was left of its own last try.
        first: Option<BTreeSet<String>>,
    },
    /// Chooses one of the slots that it has not tried.
    Chooses { tried: u8 },
    /// Acquires that slot; or takes it over from these values, if there are some, and then tries the others.
    Acquires {
        slot: usize,
        tried: u8,
        asked: u8,
        tally: TallyState,
        from: Vec<AttemptValue>,
        others: Vec<(usize, Vec<AttemptValue>)>,
        /// The nodes at which plain commands have set the lock, and not yet looked for the tombstone.
        set: Vec<(usize, bool)>,
    },
    /// Cleans up that slot on the nodes that are left.
    CleansUp {
        slot: usize,
        left: u8,
        then: Box<Option<Phase>>,
    },
    /// Releases what earlier attempts hold beside its slot.
    Voids {
        slot: usize,
        token: FencingToken,
        left: Places,
        values: BTreeSet<(usize, String)>,
    },
    /// The answer is on its way.
    Answers { slot: usize, token: FencingToken },
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

/// A slot that somebody holds by its own clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Hold {
    slot: usize,
    nonce: u32,
}

/// What the client does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Holding {
    No,
    /// It was answered this.
    Yes(Hold),
    /// The time of what it held is over, and it has not released it.
    Over(Hold),
    Released,
}

/// A release under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Release {
    left: Places,
    /// The slot that goes first, and what the nodes said of it.
    first: Option<(usize, Vec<Option<Reply>>)>,
}

/// All of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Scene {
    /// Slot by slot, node by node.
    nodes: Vec<LockState>,
    requests: Vec<Request>,
    release: Option<Release>,
    /// The client's last attempt.
    attempt: u32,
    holding: Holding,
    rivals: Vec<Hold>,
    /// The token of whoever held the slot last.
    tokens: Vec<FencingToken>,
    tokens_grow: bool,
    /// The nonces of grants whose validity has ended.
    over: BTreeSet<u32>,
    next_nonce: u32,
    repeats_left: u8,
    crashes_left: u8,
    rivals_left: u8,
    expiries_left: u8,
}

/// Something that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The client sends its next attempt, and voids the earlier ones.
    Send,
    /// A proxy sends the attempt of that request again.
    Repeat(usize),
    /// That request chooses that slot.
    Choose(usize, usize),
    /// That request does its next step at that slot and node.
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
    /// The release does its next step at that slot and node.
    WorkRelease(usize),
    /// A rival comes.
    Rival,
    /// That rival releases its slot.
    RivalReleases(usize),
    /// The validity of the grant of that nonce ends.
    End(u32),
    /// That slot at that node is free because the TTL of what held it is over.
    Expire(usize),
}

const NOW: Now = Now {
    elapsed: Duration::ZERO,
    wall_micros: 1_000_000,
};

fn ttl() -> Ttl {
    Ttl::new(Duration::from_secs(1)).expect("within the bounds")
}

fn value_of(attempt: u32, nonce: u32) -> AttemptValue {
    let owner = Owner::new("x").expect("a label");
    match attempt {
        RIVAL => AttemptValue::labelled(u128::from(nonce), &owner),
        attempt => {
            let of = LeaseAttempt {
                lease: LEASE,
                attempt,
                max_hold: None,
            };
            AttemptValue::leased(u128::from(nonce), of, &owner)
        }
    }
}

fn texts<'a>(values: impl IntoIterator<Item = &'a AttemptValue>) -> BTreeSet<String> {
    let each = values.into_iter();
    each.map(|value| value.as_str().to_owned()).collect()
}

fn release(node: &mut LockState, value: AttemptValue) {
    let command = Command::Release {
        value,
        tombstone: None,
        ticket: Default::default(),
        follower: None,
        is_lease: false,
    };
    let _ = node.apply(&command, NOW);
}

impl Request {
    fn value(&self) -> AttemptValue {
        value_of(self.attempt, self.nonce)
    }
}

impl ServiceSlots {
    fn quorum(&self) -> Quorum {
        Quorum::of(self.nodes).expect("a few nodes")
    }

    fn all_nodes(&self) -> u8 {
        (1 << self.nodes) - 1
    }

    fn all_places(&self) -> Places {
        (1 << (self.nodes * self.slots)) - 1
    }

    /// The bits of a slot at all nodes.
    fn places_of(&self, slot: usize) -> Places {
        self.all_nodes() << (slot * self.nodes)
    }

    fn has(&self, flaw: SlotsFlaw) -> bool {
        self.flaw == Some(flaw)
    }

    fn begin(&self, scene: &mut Scene, attempt: u32) {
        let nonce = scene.next_nonce;
        scene.next_nonce += 1;
        let phase = match attempt == RIVAL || self.has(SlotsFlaw::TakesAnotherSlot) {
            true => Phase::Chooses { tried: 0 },
            false => self.looks(Why::Before, None),
        };
        scene.requests.push(Request {
            attempt,
            nonce,
            phase,
        });
    }

    fn looks(&self, why: Why, first: Option<BTreeSet<String>>) -> Phase {
        Phase::Looks {
            why,
            left: self.all_places(),
            seen: Vec::new(),
            first,
        }
    }

    fn acquires(
        &self,
        slot: usize,
        tried: u8,
        from: Vec<AttemptValue>,
        others: Vec<(usize, Vec<AttemptValue>)>,
    ) -> Phase {
        Phase::Acquires {
            slot,
            tried: tried | 1 << slot,
            asked: 0,
            tally: TallyState(AcquireTally::new(self.quorum())),
            from,
            others,
            set: Vec::new(),
        }
    }

    /// What a lease holds in a slot, by the number of nodes.
    fn is_held(&self, scene: &Scene, slot: usize) -> bool {
        let nodes = &scene.nodes[slot * self.nodes..][..self.nodes];
        let of_lease = |node: &&LockState| {
            let of = node.holder().and_then(AttemptValue::lease_attempt);
            of.is_some()
        };
        nodes.iter().filter(of_lease).count() >= self.quorum().needed()
    }

    /// One step of plain commands at one node: its answer after the last one.
    fn by_plain_commands(
        node: &mut LockState,
        acquire: &PlainAcquire<'_>,
        lifted: Option<bool>,
    ) -> Result<Reply, bool> {
        let lifted = match lifted {
            Some(lifted) => lifted,
            None => {
                let holder = node.set_if_free(acquire, NOW.elapsed);
                let lifted = node.lift(acquire.proposed);
                match holder {
                    Some(holder) => return Ok(Reply::Held(holder)),
                    None if acquire.looks_for_tombstone() => return Err(lifted),
                    None => lifted,
                }
            }
        };
        let is_tombstoned = node.is_tombstoned(acquire);
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
                release(node, acquire.value.clone());
                Reply::Tombstoned
            }
            Verdict::Held | Verdict::AskScript { .. } => unreachable!("nobody waits"),
        })
    }

    /// One step of a request at one slot of one node: `None` when it has nothing to do there.
    fn work(&self, scene: &mut Scene, which: usize, place: usize) -> Option<()> {
        let request = scene.requests[which].clone();
        let next = match request.phase.clone() {
            Phase::Looks { .. } => self.look(scene, which, &request, place)?,
            Phase::Acquires { .. } => self.acquire(scene, &request, place)?,
            Phase::CleansUp { slot, left, then } => {
                let at = self.node_of(slot, place)?;
                if left & 1 << at == 0 {
                    return None;
                }
                let node = &mut scene.nodes[place];
                let value = match node.holder() {
                    Some(holder)
                        if self.has(SlotsFlaw::CleanUpByLeaseId)
                            && holder.lease_attempt().is_some() =>
                    {
                        holder.clone()
                    }
                    _ => request.value(),
                };
                release(node, value);
                match left & !(1 << at) {
                    0 => *then,
                    left => Some(Phase::CleansUp { slot, left, then }),
                }
            }
            Phase::Voids {
                slot,
                token,
                left,
                values,
            } => {
                if left & 1 << place == 0 {
                    return None;
                }
                for (at, value) in &values {
                    if *at == place / self.nodes {
                        release(&mut scene.nodes[place], AttemptValue::reported(&**value));
                    }
                }
                Some(match left & !(1 << place) {
                    0 => Phase::Answers { slot, token },
                    left => Phase::Voids {
                        slot,
                        token,
                        left,
                        values,
                    },
                })
            }
            Phase::Chooses { .. } | Phase::Answers { .. } => return None,
        };
        match next {
            None => drop(scene.requests.remove(which)),
            Some(phase) => scene.requests[which].phase = phase,
        }
        Some(())
    }

    /// The node that a place is at, if it is of that slot.
    fn node_of(&self, slot: usize, place: usize) -> Option<usize> {
        (place / self.nodes == slot).then_some(place % self.nodes)
    }

    fn cleans_up(&self, slot: usize, then: Option<Phase>) -> Phase {
        Phase::CleansUp {
            slot,
            left: self.all_nodes(),
            then: Box::new(then),
        }
    }

    /// Looks at one place, and does what follows if that was enough.
    fn look(
        &self,
        scene: &mut Scene,
        which: usize,
        request: &Request,
        place: usize,
    ) -> Option<Option<Phase>> {
        let Phase::Looks {
            why,
            left,
            mut seen,
            first,
        } = request.phase.clone()
        else {
            return None;
        };
        if left & 1 << place == 0 {
            return None;
        }
        let left = left & !(1 << place);
        let holder = scene.nodes[place].holder();
        if let Some(value) = holder
            && let Some(of) = value.lease_attempt()
        {
            let value = value.clone();
            let hold = LeaseHold {
                place: place / self.nodes,
                value,
                of,
            };
            seen.push((place, hold));
            seen.sort_by_key(|(place, _)| *place);
        }
        let is_enough = |slot: usize| {
            let silent = (left & self.places_of(slot)).count_ones() as usize;
            let is_majority = self.nodes - silent >= self.quorum().needed();
            let is_held = seen.iter().any(|(_, hold)| hold.place == slot);
            // A look before the grant ends early only where nothing is held.
            silent == 0 || is_majority && (matches!(why, Why::Granted(..)) || !is_held)
        };
        if !(0..self.slots).all(is_enough) {
            return Some(Some(Phase::Looks {
                why,
                left,
                seen,
                first,
            }));
        }
        let attempt = match (self.flaw, why) {
            (Some(SlotsFlaw::TakeOverFromEqual), _) => request.attempt + 1,
            (Some(SlotsFlaw::VoidsLater), Why::Granted(..)) => u32::MAX,
            _ => request.attempt,
        };
        let repeated = Repeated {
            attempt,
            any_place: true,
            shared: false,
            places: self.slots,
        };
        let holds: Vec<LeaseHold> = seen.into_iter().map(|(_, hold)| hold).collect();
        if let Why::Granted(slot, token) = why {
            let own = request.value();
            let beside = repeated.beside(&holds, |value| *value == own);
            let others = texts(&beside.others);
            return Some(match first {
                _ if others.is_empty() => Some(self.voids(slot, token, &beside.earlier)),
                None => Some(self.looks(why, Some(others))),
                // In progress: what was granted is dropped.
                Some(first) if !first.is_disjoint(&others) => Some(self.cleans_up(slot, None)),
                Some(_) => Some(self.voids(slot, token, &beside.earlier)),
            });
        }
        let nothing = match why {
            Why::Before => Some(Phase::Chooses { tried: 0 }),
            // Held by others.
            _ => None,
        };
        Some(match repeated.before(&holds) {
            OtherAttempts::None => nothing,
            OtherAttempts::NotEarlier(values) => match first {
                None => Some(self.looks(why, Some(texts(&values)))),
                Some(first) if first.is_disjoint(&texts(&values)) => nothing,
                // In progress.
                Some(_) => None,
            },
            OtherAttempts::Earlier(mut held) => {
                let (slot, mut from) = held.remove(0);
                from.sort_by(|one, other| one.as_str().cmp(other.as_str()));
                // Another try has another value.
                scene.requests[which].nonce = scene.next_nonce;
                scene.next_nonce += 1;
                Some(self.acquires(slot, u8::MAX, from, held))
            }
        })
    }

    fn voids<'a>(
        &self,
        slot: usize,
        token: FencingToken,
        earlier: impl IntoIterator<Item = &'a (usize, AttemptValue)>,
    ) -> Phase {
        let earlier = earlier.into_iter();
        let values: BTreeSet<_> = earlier
            .map(|(at, value)| (*at, value.as_str().to_owned()))
            .collect();
        if values.is_empty() {
            return Phase::Answers { slot, token };
        }
        let slots: BTreeSet<usize> = values.iter().map(|(at, _)| *at).collect();
        Phase::Voids {
            slot,
            token,
            left: slots.iter().map(|at| self.places_of(*at)).sum(),
            values,
        }
    }

    /// Asks one node for the slot.
    fn acquire(&self, scene: &mut Scene, request: &Request, place: usize) -> Option<Option<Phase>> {
        let Phase::Acquires {
            slot,
            tried,
            asked,
            mut tally,
            from,
            mut others,
            mut set,
        } = request.phase.clone()
        else {
            return None;
        };
        let at = self.node_of(slot, place)?;
        if asked & 1 << at != 0 {
            return None;
        }
        let value = request.value();
        let node = &mut scene.nodes[place];
        let reply = match from.is_empty() {
            true => {
                let before = set.iter().position(|(node, _)| *node == at);
                let lifted = before.map(|before| set.remove(before).1);
                let acquire = PlainAcquire {
                    value: &value,
                    ttl: ttl(),
                    proposed: FencingToken::new(request.nonce.into()).expect("small"),
                    may_pass: true,
                };
                match Self::by_plain_commands(node, &acquire, lifted) {
                    Ok(reply) => reply,
                    Err(lifted) => {
                        set.push((at, lifted));
                        set.sort_unstable();
                        return Some(Some(Phase::Acquires {
                            slot,
                            tried,
                            asked,
                            tally,
                            from,
                            others,
                            set,
                        }));
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
        let was_released = reply == Reply::Tombstoned;
        let mut step = tally.0.answered(at, Ok(reply));
        // Raises go to all at once: that they may be late is modelled elsewhere.
        while let AcquireStep::Raise { nodes, to } = step {
            step = AcquireStep::Wait;
            for raised in nodes.iter() {
                let raise = Command::Raise {
                    value: value.clone(),
                    to,
                };
                let reply = scene.nodes[slot * self.nodes + raised].apply(&raise, NOW);
                step = tally.0.answered(raised, Ok(reply));
            }
        }
        Some(match step {
            AcquireStep::Certified(token) if request.attempt == RIVAL => {
                if !scene.over.contains(&request.nonce) {
                    let nonce = request.nonce;
                    self.holds(scene, Hold { slot, nonce }, token);
                    scene.rivals.push(Hold { slot, nonce });
                }
                None
            }
            AcquireStep::Certified(token) => {
                let looks_again =
                    !self.has(SlotsFlaw::TakesAnotherSlot) && !self.has(SlotsFlaw::LooksNotAgain);
                Some(match looks_again {
                    true => self.looks(Why::Granted(slot, token), None),
                    false => Phase::Answers { slot, token },
                })
            }
            // A tombstone ends it: the others are not tried.
            AcquireStep::Blocked if was_released || request.attempt == RIVAL => {
                Some(self.cleans_up(slot, None))
            }
            AcquireStep::Blocked => {
                let then = match (from.is_empty(), others.is_empty()) {
                    // Taken over from somewhere else.
                    (false, false) => {
                        let (slot, from) = others.remove(0);
                        Some(self.acquires(slot, tried, from, others))
                    }
                    (false, true) => None,
                    (true, _) if (0..self.slots).all(|slot| tried & 1 << slot != 0) => {
                        Some(self.looks(Why::Refused, None))
                    }
                    (true, _) => Some(Phase::Chooses { tried }),
                };
                Some(self.cleans_up(slot, then))
            }
            _ => Some(Phase::Acquires {
                slot,
                tried,
                asked: asked | 1 << at,
                tally,
                from,
                others,
                set,
            }),
        })
    }

    /// Somebody holds a slot by its own clock from now on.
    fn holds(&self, scene: &mut Scene, hold: Hold, token: FencingToken) {
        scene.tokens_grow &= token > scene.tokens[hold.slot];
        scene.tokens[hold.slot] = token;
    }

    /// The nodes of the slot that goes first go on to the others once the outcome of it is known.
    fn work_release(&self, scene: &mut Scene, place: usize) -> Option<()> {
        let mut under_way = scene.release.clone()?;
        if under_way.left & 1 << place == 0 {
            return None;
        }
        let tombstone = match self.flaw {
            Some(SlotsFlaw::NoTombstone) => Duration::ZERO,
            _ => Duration::from_secs(60),
        };
        let lease = LEASE;
        let command = Command::ReleaseLease { lease, tombstone };
        let reply = scene.nodes[place].apply(&command, NOW);
        under_way.left &= !(1 << place);
        if let Some((slot, replies)) = &mut under_way.first
            && place / self.nodes == *slot
        {
            replies[place % self.nodes] = Some(reply);
            let mut tally = LeaseReleaseTally::new(self.quorum());
            let mut outcome = None;
            for (node, reply) in replies.iter().enumerate() {
                if let Some(reply) = reply {
                    outcome = tally.answered(node, Ok(reply.clone()));
                }
            }
            if let Some(outcome) = outcome {
                let others = self.all_places() & !self.places_of(*slot);
                let ends_here = match self.flaw {
                    Some(SlotsFlaw::OneTombstone) => true,
                    Some(SlotsFlaw::NoTombstoneOnceOver) => outcome == LeaseRelease::NotHeld,
                    _ => false,
                };
                under_way.first = None;
                if !ends_here {
                    under_way.left |= others;
                }
            }
        }
        scene.release = (under_way.left != 0).then_some(under_way);
        Some(())
    }

    fn ends(&self, scene: &mut Scene, nonce: u32) {
        scene.expiries_left -= 1;
        scene.over.insert(nonce);
        scene.rivals.retain(|hold| hold.nonce != nonce);
        if let Holding::Yes(hold) = scene.holding
            && hold.nonce == nonce
        {
            scene.holding = Holding::Over(hold);
        }
    }
}

impl Model for ServiceSlots {
    type State = Scene;
    type Action = Step;

    fn init_states(&self) -> Vec<Scene> {
        vec![Scene {
            nodes: vec![LockState::default(); self.nodes * self.slots],
            requests: Vec::new(),
            release: None,
            attempt: 0,
            holding: Holding::No,
            rivals: Vec::new(),
            tokens: vec![FencingToken::ZERO; self.slots],
            tokens_grow: true,
            over: BTreeSet::new(),
            next_nonce: 1,
            repeats_left: self.repeats,
            crashes_left: self.crashes,
            rivals_left: self.rivals,
            expiries_left: self.expiries,
        }]
    }

    fn actions(&self, scene: &Scene, steps: &mut Vec<Step>) {
        if scene.holding == Holding::No && scene.attempt < self.attempts {
            steps.push(Step::Send);
        }
        if matches!(scene.holding, Holding::Yes(_) | Holding::Over(_)) {
            steps.push(Step::Release);
        }
        if scene.rivals_left > 0 {
            steps.push(Step::Rival);
        }
        steps.extend((0..scene.rivals.len()).map(Step::RivalReleases));
        let places = self.nodes * self.slots;
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
                Phase::Answers { .. } => {
                    steps.push(Step::Read(which));
                    steps.push(Step::Unread(which));
                    if self.repeats > 0 {
                        steps.push(Step::Swallow(which));
                    }
                }
                Phase::Chooses { tried } => {
                    let untried = (0..self.slots).filter(|slot| tried & 1 << slot == 0);
                    steps.extend(untried.map(|slot| Step::Choose(which, slot)));
                }
                _ => steps.extend((0..places).map(|place| Step::Work(which, place))),
            }
        }
        if scene.release.is_some() {
            steps.extend((0..places).map(Step::WorkRelease));
        }
        let holders = scene.nodes.iter().filter_map(LockState::holder);
        let nonces = (1..scene.next_nonce).filter(|nonce| !scene.over.contains(nonce));
        if scene.expiries_left > 0 {
            // Of those that hold something: others have no validity.
            let held = texts(holders);
            let is_held = |nonce: &u32| {
                let mut attempts = 0..=scene.attempt;
                attempts.any(|attempt| held.contains(value_of(attempt, *nonce).as_str()))
            };
            steps.extend(nonces.filter(is_held).map(Step::End));
        }
        if !scene.over.is_empty() {
            steps.extend((0..places).map(Step::Expire));
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
            Step::Choose(which, slot) => {
                let Phase::Chooses { tried } = scene.requests[which].phase else {
                    return None;
                };
                let request = &mut scene.requests[which];
                // Another try has another value.
                if tried != 0 {
                    request.nonce = scene.next_nonce;
                    scene.next_nonce += 1;
                }
                request.phase = self.acquires(slot, tried, Vec::new(), Vec::new());
            }
            Step::Work(which, place) => self.work(&mut scene, which, place)?,
            Step::Read(which) => {
                let request = scene.requests.remove(which);
                let Phase::Answers { slot, token } = request.phase else {
                    return None;
                };
                let counts = request.attempt == scene.attempt
                    && scene.holding == Holding::No
                    // The client counts from when it sent it.
                    && !scene.over.contains(&request.nonce);
                if counts {
                    let nonce = request.nonce;
                    self.holds(&mut scene, Hold { slot, nonce }, token);
                    scene.holding = Holding::Yes(Hold { slot, nonce });
                }
            }
            Step::Unread(which) => {
                let Phase::Answers { slot, .. } = scene.requests[which].phase else {
                    return None;
                };
                scene.requests[which].phase = self.cleans_up(slot, None);
            }
            Step::Swallow(which) => drop(scene.requests.remove(which)),
            Step::Crash(which) => {
                scene.crashes_left -= 1;
                drop(scene.requests.remove(which));
            }
            Step::Release => {
                let (Holding::Yes(hold) | Holding::Over(hold)) = scene.holding else {
                    return None;
                };
                scene.holding = Holding::Released;
                let by_slot = Release {
                    left: self.places_of(hold.slot),
                    first: Some((hold.slot, vec![None; self.nodes])),
                };
                scene.release = Some(match self.by_slot {
                    true => by_slot,
                    false => Release {
                        left: self.all_places(),
                        first: None,
                    },
                });
            }
            Step::WorkRelease(place) => self.work_release(&mut scene, place)?,
            Step::Rival => {
                scene.rivals_left -= 1;
                self.begin(&mut scene, RIVAL);
            }
            Step::RivalReleases(which) => {
                let hold = scene.rivals.remove(which);
                let value = value_of(RIVAL, hold.nonce);
                for node in &mut scene.nodes[hold.slot * self.nodes..][..self.nodes] {
                    release(node, value.clone());
                }
            }
            Step::End(nonce) => self.ends(&mut scene, nonce),
            Step::Expire(place) => {
                let holder = scene.nodes[place].holder()?.as_str().to_owned();
                let is_its = |nonce: &u32| {
                    let mut attempts = 0..=scene.attempt;
                    attempts.any(|attempt| value_of(attempt, *nonce).as_str() == holder)
                };
                if !scene.over.iter().any(is_its) {
                    return None;
                }
                scene.nodes[place].evict_holder();
            }
        }
        Some(scene)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(NO_CROWD, |model: &Self, scene: &Scene| {
                let mine = match scene.holding {
                    Holding::Yes(hold) => Some(hold.slot),
                    _ => None,
                };
                let rivals = scene.rivals.iter().map(|hold| hold.slot);
                let slots: Vec<usize> = rivals.chain(mine).collect();
                let different: BTreeSet<usize> = slots.iter().copied().collect();
                different.len() == slots.len() && slots.len() <= model.slots
            }),
            Property::always(HELD, |model: &Self, scene: &Scene| {
                let Holding::Yes(Hold { slot, nonce }) = scene.holding else {
                    return true;
                };
                let value = value_of(scene.attempt, nonce);
                let nodes = &scene.nodes[slot * model.nodes..][..model.nodes];
                let has = nodes.iter().filter(|node| node.holder() == Some(&value));
                has.count() >= model.quorum().needed()
            }),
            Property::always(ONE_SLOT, |model: &Self, scene: &Scene| {
                let is_over = scene.requests.is_empty() && scene.crashes_left == model.crashes;
                let held = (0..model.slots).filter(|slot| model.is_held(scene, *slot));
                !is_over || held.count() <= 1
            }),
            Property::always(RELEASED, |model: &Self, scene: &Scene| {
                let is_over = scene.requests.is_empty()
                    && scene.release.is_none()
                    && scene.holding == Holding::Released
                    && scene.crashes_left == model.crashes;
                !is_over || !(0..model.slots).any(|slot| model.is_held(scene, slot))
            }),
            Property::always(TOKENS, |_, scene: &Scene| scene.tokens_grow),
            Property::sometimes("the client holds a slot", |_, scene: &Scene| {
                matches!(scene.holding, Holding::Yes(_))
            }),
            Property::sometimes(
                "a later attempt takes over",
                |model: &Self, scene: &Scene| {
                    model.attempts == 1
                    || scene.requests.iter().any(|request| {
                        matches!(&request.phase, Phase::Acquires { from, .. } if !from.is_empty())
                    })
                },
            ),
            Property::sometimes("every slot is held", |model: &Self, scene: &Scene| {
                let mine = usize::from(matches!(scene.holding, Holding::Yes(_)));
                usize::from(model.rivals) + 1 < model.slots
                    || scene.rivals.len() + mine == model.slots
            }),
        ]
    }
}

/// Every step of a path in a line.
#[must_use]
pub fn tell(model: &ServiceSlots, path: Path<Scene, Step>) -> Vec<String> {
    let mut lines = Vec::new();
    for (scene, step) in path.into_vec() {
        let Some(step) = step else { break };
        let who = |which: usize| match &scene.requests[which] {
            request if request.attempt == RIVAL => format!("a rival ({})", request.nonce),
            request => format!("attempt {} (request {})", request.attempt, request.nonce),
        };
        let at = |place: usize| {
            let (slot, node) = (place / model.nodes, place % model.nodes);
            format!("slot {slot} of node {node}")
        };
        let what = match step {
            Step::Send => format!("the client sends attempt {}", scene.attempt + 1),
            Step::Repeat(which) => format!("a proxy repeats {}", who(which)),
            Step::Choose(which, slot) => format!("{} tries slot {slot}", who(which)),
            Step::Work(which, place) => {
                let does = match &scene.requests[which].phase {
                    Phase::Acquires { from, .. } if from.is_empty() => "acquires",
                    Phase::Acquires { .. } => "takes over",
                    Phase::CleansUp { .. } => "cleans up",
                    Phase::Voids { .. } => "releases what earlier attempts hold",
                    Phase::Looks { why, .. } => match why {
                        Why::Granted(..) => "looks again for its lease, granted,",
                        _ => "looks for its lease",
                    },
                    Phase::Chooses { .. } | Phase::Answers { .. } => "waits",
                };
                format!("{} {does} at {}", who(which), at(place))
            }
            Step::Read(which) => format!("the client reads the answer to {}", who(which)),
            Step::Unread(which) => format!("the answer to {} cannot be sent", who(which)),
            Step::Swallow(which) => format!("the answer to {} is lost", who(which)),
            Step::Crash(which) => format!("the replica of {} dies", who(which)),
            Step::Release => "the client releases".to_owned(),
            Step::WorkRelease(place) => format!("the release goes on at {}", at(place)),
            Step::Rival => "a rival comes".to_owned(),
            Step::RivalReleases(which) => {
                format!("the rival in slot {} releases", scene.rivals[which].slot)
            }
            Step::End(nonce) => format!("the time of what request {nonce} was granted is over"),
            Step::Expire(place) => format!("{} expires", at(place)),
        };
        let then = match model.next_state(&scene, step) {
            Some(next) if next.rivals.len() > scene.rivals.len() => {
                " => the rival holds its slot".to_owned()
            }
            Some(next) => match (next.holding, scene.holding) {
                (Holding::Yes(hold), Holding::No) => {
                    format!(" => the client holds slot {}", hold.slot)
                }
                _ => String::new(),
            },
            None => String::new(),
        };
        lines.push(what + &then);
    }
    lines
}
