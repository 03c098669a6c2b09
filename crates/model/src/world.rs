//! [`World`]: a state of the model.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash};

use fencepost::{FencingToken, NodeError};
use fencepost_core::lock::{LockState, Reply};
use fencepost_core::quorum::{AcquireTally, ExtendTally, NodeSet, ReleaseTally};

/// What a node answers, as the client sees it.
pub type Answer = Result<Reply, NodeError>;

/// Everything there is.
#[derive(Clone, Debug, Hash)]
#[expect(
    clippy::derived_hash_with_manual_eq,
    reason = "the equality is by the hash"
)]
pub struct World {
    /// The nodes, and the mail of each.
    pub nodes: Vec<Place>,
    /// The claims, in the order in which they begin.
    pub claims: Vec<Claim>,
    /// How many restarts there may still be.
    pub restarts_left: u8,
}

/// One node, and what is under way to it and from it.
#[derive(Clone, Debug, Hash)]
pub struct Place {
    /// What the node is called in stories.
    pub name: Name,
    /// What the node knows.
    pub lock: LockState,
    /// Who set the node's key last, and when. `None` when nobody holds it.
    pub stamp: Option<Stamp>,
    /// Set while the node may have forgotten what others rely on: how many rounds each claim had
    /// begun when it did.
    pub quarantine: Option<Vec<u8>>,
    /// Commands on their way to the node and answers on their way from it, in a fixed order: which
    /// was sent first does not matter.
    pub mail: Vec<Mail>,
}

/// A node's name: which one it is makes no difference, so states do not differ by it.
#[derive(Clone, Copy, Debug)]
pub struct Name(pub usize);

impl Hash for Name {
    fn hash<H: std::hash::Hasher>(&self, _: &mut H) {}
}

/// When a key was set, as far as that matters to its expiry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stamp {
    /// Whose it is.
    pub claim: usize,
    /// How many rounds the claim had begun. The key outlasts the validity of each of them.
    pub rounds: u8,
}

/// A command or its answer, under way.
#[derive(Clone, Debug, Hash)]
pub struct Mail {
    /// Who sent the command.
    pub claim: usize,
    /// What it is.
    pub call: Call,
    /// The answer, once the node has carried it out.
    pub answer: Option<Answer>,
    /// Whether anybody still waits for the answer.
    pub open: bool,
}

/// What a claim asks of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Call {
    /// Take the lock.
    Acquire,
    /// Lift the register.
    Raise(FencingToken),
    /// Keep the lock: the round of that number.
    Extend(u8),
    /// Give it back, and refuse what comes later if something may.
    Release {
        /// Whether to leave a mark.
        refuse: bool,
    },
}

/// One attempt to get the lock, and what became of it.
#[derive(Clone, Debug, Hash)]
pub struct Claim {
    /// How far it is.
    pub stage: Stage,
    /// The nodes that it asks: all, if nothing is wrong.
    pub reach: NodeSet,
    /// How many rounds it has begun: the attempt is the first, each extension one more.
    pub rounds: u8,
    /// The validity of so many rounds has ended.
    pub over: u8,
    /// The largest token that had been handed out when it began.
    pub floor: FencingToken,
    /// The token that it got.
    pub token: Option<FencingToken>,
    /// Whether its token is not above one that had been handed out when it began.
    pub out_of_order: bool,
}

/// How far a claim is.
#[derive(Clone, Debug, Hash)]
pub enum Stage {
    /// Not begun.
    Idle,
    /// The attempt is under way.
    Acquiring(AcquireTally),
    /// It has the lock, as far as it knows.
    Holding {
        /// The latest round that succeeded; valid until that round's validity ends.
        round: u8,
        /// The rounds of extending that are under way.
        extending: Vec<(u8, ExtendTally)>,
    },
    /// It gives the lock back and waits for a majority to say so. Not valid any more.
    Releasing(ReleaseTally),
    /// It has given up, lost or given back the lock. What it sent may still be under way.
    Ended,
}

impl World {
    /// Whether the claim may use the lock now.
    #[must_use]
    pub fn is_valid(&self, claim: usize) -> bool {
        let claim = &self.claims[claim];
        matches!(claim.stage, Stage::Holding { round, .. } if round >= claim.over)
    }

    /// The tokens that were handed out.
    pub fn tokens(&self) -> impl Iterator<Item = FencingToken> {
        self.claims.iter().filter_map(|claim| claim.token)
    }

    /// The place of a mail among the node's others.
    pub(crate) fn find(&self, node: usize, claim: usize, call: Call) -> Option<usize> {
        let mut mail = self.nodes[node].mail.iter();
        mail.position(|mail| mail.claim == claim && mail.call == call)
    }
}

impl Claim {
    pub(crate) fn idle() -> Self {
        Self {
            stage: Stage::Idle,
            reach: NodeSet::NONE,
            rounds: 0,
            over: 0,
            floor: FencingToken::ZERO,
            token: None,
            out_of_order: false,
        }
    }

    /// Whether it has begun and is not over.
    #[must_use]
    pub fn is_live(&self) -> bool {
        !matches!(self.stage, Stage::Idle | Stage::Ended)
    }
}

impl Place {
    pub(crate) fn send(&mut self, claim: usize, call: Call, open: bool) {
        self.mail.push(Mail {
            claim,
            call,
            answer: None,
            open,
        });
    }
}

pub(crate) fn hash_of(what: &impl Hash) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(what)
}

/// The checker wants it where it replays a path. The decisions have no equality of their own, and
/// their hash is what it tells states apart by anyway.
impl PartialEq for World {
    fn eq(&self, other: &Self) -> bool {
        hash_of(self) == hash_of(other)
    }
}
