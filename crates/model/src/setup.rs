//! [`Setup`]: how many of what, and which flaw.

use fencepost::FencingToken;
use fencepost_core::quorum::{Certify, Quorum, reported_exactly};

/// When a node may forget a key by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// Once the validity of every round has ended that its claim had begun when the key was last
    /// set: what the clocks promise.
    AfterValidity,
    /// At any time: clocks that cannot be relied on. Mutual exclusion is not promised then.
    Free,
}

/// How a claim that is over leaves the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Releases {
    /// By releases that are sent, and arrive at any time or never.
    Sent,
    /// By nothing. The key of a claim that is over may expire at any time, which does to the node
    /// all that a release does except for its mark, and a mark only ever refuses.
    LeftToExpiry,
}

/// One rule done wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// The token is the largest register among the first grants that are a majority.
    LargestOfGrants,
    /// The token is what the client proposed by its clock.
    OwnProposal,
    /// A node whose register is above the token counts for it.
    HigherCertifies,
    /// A release deletes the key, whoever's it is.
    BlindRelease,
    /// A node that lost its data votes at once.
    NoQuarantine,
    /// A node in quarantine does not grant, but its `Extended` counts.
    QuarantinedExtends,
    /// A node that had forgotten the lease counts as soon as it has taken it again.
    RepairedVotes,
    /// The majority is one of the nodes that can be reached.
    ReachableQuorum,
    /// The second attempt of a client has the value of its first.
    ReusedValue,
}

/// How many of what, and which flaw.
#[derive(Clone, Debug)]
pub struct Setup {
    /// How many nodes.
    pub nodes: usize,
    /// How many attempts to get the lock.
    pub claims: usize,
    /// How many rounds of extending each claim may begin.
    pub extensions: u8,
    /// How many restarts with loss of all data there may be, of all nodes together.
    pub restarts: u8,
    /// How claims leave.
    pub releases: Releases,
    /// When keys expire.
    pub expiry: Expiry,
    /// Whether a claim may stop waiting for one node and go on with the others.
    pub timeouts: bool,
    /// The registers that the nodes begin with: one initial state each.
    pub registers: &'static [&'static [u64]],
    /// What each claim proposes as its token, in the order in which they begin.
    pub proposals: &'static [u64],
    /// Whether the first claim has the lock at the beginning, on a bare majority of the nodes, and
    /// what it sent to the others is lost. One reachable state instead of all the ways to it: so that
    /// the steps that a bounded search has are left for what comes after.
    pub head_start: bool,
    /// What is done wrong, if anything.
    pub flaw: Option<Flaw>,
}

impl Setup {
    /// Three nodes that have never been used, two claims that only acquire, no faults but those of
    /// the network, clocks that hold what they promise and tell no useful time.
    pub const SMALL: Self = Self {
        nodes: 3,
        claims: 2,
        extensions: 0,
        restarts: 0,
        releases: Releases::LeftToExpiry,
        expiry: Expiry::AfterValidity,
        timeouts: false,
        registers: &[&[]],
        proposals: &[0; 4],
        head_start: false,
        flaw: None,
    };

    /// Clocks that are in order, and ahead of whatever the registers count by themselves: without
    /// them, nothing orders tokens once a node has lost its register.
    pub const CLOCKS_IN_ORDER: &'static [u64] = &[100, 200, 300, 400];

    /// Clocks that run backwards.
    pub const CLOCKS_BACKWARDS: &'static [u64] = &[3, 2, 1, 0];

    /// Whether this is done wrong here.
    #[must_use]
    pub fn has(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    /// The quorum of all nodes.
    #[must_use]
    pub fn quorum(&self) -> Quorum {
        Quorum::of(self.nodes).expect("1 to 9 nodes")
    }

    /// The rule by which registers become a token.
    #[must_use]
    pub fn certify(&self) -> Certify {
        match self.flaw {
            Some(Flaw::LargestOfGrants | Flaw::OwnProposal) => largest_of_grants,
            Some(Flaw::HigherCertifies) => reached_or_passed,
            _ => reported_exactly,
        }
    }

    /// What that claim proposes as its token.
    #[must_use]
    pub fn proposal(&self, claim: usize) -> FencingToken {
        FencingToken::saturating(self.proposals[claim])
    }

    /// Which claim's value this claim uses: its own, if nothing is wrong.
    #[must_use]
    pub fn value_of(&self, claim: usize) -> usize {
        match claim {
            1 if self.has(Flaw::ReusedValue) => 0,
            _ => claim,
        }
    }
}

fn largest_of_grants(registers: &[FencingToken], _: usize) -> Option<FencingToken> {
    registers.iter().copied().max()
}

/// The largest token that so many nodes have reached *or passed*.
fn reached_or_passed(registers: &[FencingToken], needed: usize) -> Option<FencingToken> {
    let mut registers = registers.to_vec();
    registers.sort_unstable_by(|a, b| b.cmp(a));
    registers.get(needed - 1).copied()
}
