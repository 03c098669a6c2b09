//! A model of its own: writers and readers of one lock, through the library's state machine and its
//! certification. Nothing expires: what is looked at is every order in which commands arrive, of
//! attempts, of failed ones that give back, and of writers that become readers.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::time::Duration;

use fencepost::{AttemptValue, FencingToken};
use fencepost_core::Ttl;
use fencepost_core::lock::{Command, LockState, Now};
use fencepost_core::quorum::{AcquireStep, AcquireTally, Quorum};
use stateright::{Model, Path, Property};

use crate::story::name;

/// Nobody reads or writes beside a writer.
pub const ALONE: &str = "a writer is alone";
/// Who begins after another had the lock: a writer has a larger token, a reader no smaller one.
pub const IN_ORDER: &str = "tokens tell the order";
/// The model is not empty.
const TOGETHER: &str = "two read at once";

/// Claims of which some read.
#[derive(Clone, Copy, Debug)]
pub struct ReadWrite {
    /// How many nodes.
    pub nodes: usize,
    /// How many claims want to write. They come first.
    pub writers: usize,
    /// How many want to read.
    pub readers: usize,
    /// How many nodes a reader asks: all, unless it is wrong on purpose.
    pub readers_ask: usize,
}

/// Everything there is.
#[derive(Clone, Debug, Hash)]
#[expect(
    clippy::derived_hash_with_manual_eq,
    reason = "the equality is by the hash"
)]
pub struct Shelf {
    nodes: Vec<LockState>,
    claims: Vec<Claim>,
    /// The largest token that anybody was given.
    largest: FencingToken,
}

impl PartialEq for Shelf {
    fn eq(&self, other: &Self) -> bool {
        let hasher = BuildHasherDefault::<DefaultHasher>::new();
        hasher.hash_one(self) == hasher.hash_one(other)
    }
}

#[derive(Clone, Debug, Hash)]
struct Claim {
    stage: Stage,
    attempt: AcquireTally,
    /// On its way: to each node in the order in which it was sent.
    mail: Vec<(usize, Sent)>,
    /// The largest token that anybody had been given when it began.
    floor: FencingToken,
    token: FencingToken,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Stage {
    Idle,
    Asks,
    Writes,
    Reads,
    Over,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Sent {
    Ask,
    Raise(FencingToken),
    BecomeReader,
    Release,
}

/// Something that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A claim asks its nodes.
    Begin(usize),
    /// The oldest that a claim has sent to a node arrives, and its answer comes back.
    Arrive(usize, usize),
    /// A writer becomes a reader.
    Downgrade(usize),
    /// A claim gives the lock back.
    Leave(usize),
}

impl ReadWrite {
    fn asks(&self, claim: usize) -> usize {
        match claim < self.writers {
            true => self.nodes,
            false => self.readers_ask,
        }
    }

    fn command(&self, claim: usize, sent: Sent, token: FencingToken) -> Command {
        let value = AttemptValue::reported(name(claim));
        let ttl = Ttl::new(Duration::from_secs(1)).expect("within the bounds");
        // Clocks that run backwards.
        let proposed = FencingToken::saturating((self.writers + self.readers - claim) as u64);
        let turn = Default::default();
        match sent {
            Sent::Ask if claim < self.writers => Command::Acquire {
                value,
                ttl,
                proposed,
                turn,
            },
            Sent::Ask => Command::Share {
                value,
                ttl,
                proposed,
                turn,
            },
            Sent::Raise(to) => Command::Raise { value, to },
            Sent::BecomeReader => Command::ExtendShared { value, ttl, token },
            Sent::Release => Command::Release {
                value,
                tombstone: None,
                ticket: Default::default(),
                follower: None,
                is_lease: false,
            },
        }
    }

    fn arrive(&self, shelf: &mut Shelf, claim: usize, node: usize) {
        let mail = &mut shelf.claims[claim].mail;
        let Some(place) = mail.iter().position(|(to, _)| *to == node) else {
            return;
        };
        let (_, sent) = mail.remove(place);
        let now = Now {
            elapsed: Duration::ZERO,
            wall_micros: 1 << 40,
        };
        let command = self.command(claim, sent, shelf.claims[claim].token);
        let reply = shelf.nodes[node].apply(&command, now);
        let of = &mut shelf.claims[claim];
        if of.stage != Stage::Asks || !matches!(sent, Sent::Ask | Sent::Raise(_)) {
            return;
        }
        match of.attempt.answered(node, Ok(reply)) {
            AcquireStep::Wait => {}
            AcquireStep::Raise { nodes, to } => {
                of.mail
                    .extend(nodes.iter().map(|node| (node, Sent::Raise(to))));
            }
            AcquireStep::Certified(token) => {
                let is_writer = claim < self.writers;
                of.stage = if is_writer {
                    Stage::Writes
                } else {
                    Stage::Reads
                };
                of.token = token;
                shelf.largest = shelf.largest.max(token);
            }
            AcquireStep::Blocked => self.send_all(of, claim, Sent::Release, Stage::Over),
        }
    }

    fn send_all(&self, of: &mut Claim, claim: usize, sent: Sent, stage: Stage) {
        of.stage = stage;
        of.mail
            .extend((0..self.asks(claim)).map(|node| (node, sent)));
    }

    fn is_in_order(&self, shelf: &Shelf, claim: usize) -> bool {
        let of = &shelf.claims[claim];
        let is_settled = of.token != FencingToken::ZERO;
        match claim < self.writers {
            true => !is_settled || of.token > of.floor,
            false => !is_settled || of.token >= of.floor,
        }
    }
}

impl Shelf {
    fn how_many(&self, stage: Stage) -> usize {
        let same = self.claims.iter().filter(|claim| claim.stage == stage);
        same.count()
    }
}

impl Model for ReadWrite {
    type State = Shelf;
    type Action = Step;

    fn init_states(&self) -> Vec<Shelf> {
        let claim = |number| {
            let quorum = Quorum::of(self.asks(number)).expect("1 to 9 nodes");
            Claim {
                stage: Stage::Idle,
                attempt: AcquireTally::new(quorum),
                mail: Vec::new(),
                floor: FencingToken::ZERO,
                token: FencingToken::ZERO,
            }
        };
        vec![Shelf {
            nodes: vec![LockState::default(); self.nodes],
            claims: (0..self.writers + self.readers).map(claim).collect(),
            largest: FencingToken::ZERO,
        }]
    }

    fn actions(&self, shelf: &Shelf, steps: &mut Vec<Step>) {
        for (claim, of) in shelf.claims.iter().enumerate() {
            match of.stage {
                Stage::Idle => steps.push(Step::Begin(claim)),
                Stage::Writes => steps.extend([Step::Downgrade(claim), Step::Leave(claim)]),
                Stage::Reads => steps.push(Step::Leave(claim)),
                Stage::Asks | Stage::Over => {}
            }
            let nodes = 0..self.nodes;
            let has_mail = |node: &usize| of.mail.iter().any(|(to, _)| to == node);
            steps.extend(nodes.filter(has_mail).map(|node| Step::Arrive(claim, node)));
        }
    }

    fn next_state(&self, last: &Shelf, step: Step) -> Option<Shelf> {
        let mut shelf = last.clone();
        match step {
            Step::Begin(claim) => {
                shelf.claims[claim].floor = shelf.largest;
                self.send_all(&mut shelf.claims[claim], claim, Sent::Ask, Stage::Asks);
            }
            Step::Arrive(claim, node) => self.arrive(&mut shelf, claim, node),
            Step::Downgrade(claim) => {
                let of = &mut shelf.claims[claim];
                self.send_all(of, claim, Sent::BecomeReader, Stage::Reads);
            }
            Step::Leave(claim) => {
                let of = &mut shelf.claims[claim];
                self.send_all(of, claim, Sent::Release, Stage::Over);
            }
        }
        Some(shelf)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let alone = |_: &Self, shelf: &Shelf| {
            let (writers, readers) = (shelf.how_many(Stage::Writes), shelf.how_many(Stage::Reads));
            writers == 0 || writers + readers == 1
        };
        let in_order = |model: &Self, shelf: &Shelf| {
            let mut claims = 0..shelf.claims.len();
            claims.all(|claim| model.is_in_order(shelf, claim))
        };
        let together = |_: &Self, shelf: &Shelf| shelf.how_many(Stage::Reads) > 1;
        vec![
            Property::always(ALONE, alone),
            Property::always(IN_ORDER, in_order),
            Property::sometimes(TOGETHER, together),
        ]
    }
}

/// Every step of a path in a line.
#[must_use]
pub fn tell(_: &ReadWrite, path: Path<Shelf, Step>) -> Vec<String> {
    let steps = path.into_actions().into_iter();
    let line = |step| match step {
        Step::Begin(claim) => format!("{} asks", name(claim)),
        Step::Arrive(claim, node) => format!("node {} hears {}", node + 1, name(claim)),
        Step::Downgrade(claim) => format!("{} becomes a reader", name(claim)),
        Step::Leave(claim) => format!("{} gives the lock back", name(claim)),
    };
    steps.map(line).collect()
}
