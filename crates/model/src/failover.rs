//! A model of its own: a Sentinel group fails over while a client renews at the old master, and a rival waits
//! for the new one.
//!
//! Each Sentinel changes its mind at any time, or never; each client asks any of them at any time. What a client
//! makes of the answers is [`Naming`], and how long the new master does not vote is [`quarantine`], as they are.
//! Nothing is said of who promotes whom, or of whether the old master can be reached: it always can, and takes
//! every write. Time passes in steps of a second; ages are kept instead of moments, so that the states are
//! finite.

use std::time::Duration;

use fencepost_core::Moment;
use fencepost_core::quorum::failover::{Master, Naming, quarantine};
use stateright::{Model, Path, Property};

/// The holder's lease is over before the rival has the lock.
pub const ONE_AFTER_THE_OTHER: &str =
    "nobody holds the lock at the old master while another has it at the new";
/// The rival is served.
pub const SERVED: &str = "the rival gets the lock";

const HOLDER: usize = 0;
const RIVAL: usize = 1;

/// A group and its two clients.
#[derive(Clone, Copy, Debug)]
pub struct Failover {
    /// How many Sentinels there are.
    pub sentinels: usize,
    /// `F`, in seconds.
    pub failover: u8,
    /// The longest TTL, in seconds.
    pub max_ttl: u8,
    /// What is wrong.
    pub flaw: Option<FailoverFlaw>,
}

/// A rule that is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailoverFlaw {
    /// A client follows the address and asks nobody again.
    NeverAsksAgain,
    /// What one Sentinel says is enough.
    OneSentinel,
    /// The new master votes at once.
    NoQuarantine,
    /// The new master votes after `max_ttl`.
    QuarantineOfMaxTtl,
}

/// What one client heard of one Sentinel: how long ago it asked, and whether the new master was named.
type Word = Option<(u8, bool)>;

/// A state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Group {
    /// Which Sentinels name the new master.
    moved: Vec<bool>,
    /// What the two clients heard.
    heard: [Vec<Word>; 2],
    /// How long the holder's lease is still valid.
    left: u8,
    /// How long ago the rival first found the new master.
    found: Option<u8>,
    /// The rival has the lock.
    is_taken: bool,
}

/// What can happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A second passes.
    Tick,
    /// A Sentinel learns of the failover.
    Move(usize),
    /// A client asks a Sentinel.
    Ask(usize, usize),
    /// The holder acquires or renews at the old master.
    Renew,
    /// The rival finds the new master, which does not vote from then on.
    Find,
    /// The rival acquires at the new master.
    Take,
}

impl Failover {
    /// Whether a reply of the old or the new master counts for that client.
    fn counts(&self, group: &Group, client: usize, is_new: bool) -> bool {
        let heard = &group.heard[client];
        if self.flaw == Some(FailoverFlaw::OneSentinel) {
            return heard.iter().flatten().any(|(_, named)| *named == is_new);
        }
        let seconds = |time: u8| Duration::from_secs(time.into());
        let now = Moment::from_start(seconds(100));
        let master = |is_new: bool| Master {
            host: if is_new { "new" } else { "old" }.to_owned(),
            port: 6379,
            epoch: u64::from(is_new),
        };
        let mut naming = Naming::of(self.sentinels, seconds(self.failover));
        for (sentinel, word) in heard.iter().enumerate() {
            if let Some((age, named)) = word {
                naming.on_answer(sentinel, None, now - seconds(*age), Some(master(*named)));
            }
        }
        naming.counts(&master(is_new), now)
    }

    fn may_renew(&self, group: &Group) -> bool {
        self.flaw == Some(FailoverFlaw::NeverAsksAgain) || self.counts(group, HOLDER, false)
    }

    /// How long the new master does not vote.
    fn quarantine(&self) -> u8 {
        let seconds = |time: u8| Duration::from_secs(time.into());
        match self.flaw {
            Some(FailoverFlaw::NoQuarantine) => 0,
            Some(FailoverFlaw::QuarantineOfMaxTtl) => self.max_ttl,
            _ => {
                let whole = quarantine(seconds(self.max_ttl), seconds(self.failover));
                u8::try_from(whole.as_secs()).expect("a few seconds")
            }
        }
    }
}

impl Model for Failover {
    type State = Group;
    type Action = Step;

    fn init_states(&self) -> Vec<Group> {
        vec![Group {
            moved: vec![false; self.sentinels],
            heard: [vec![None; self.sentinels], vec![None; self.sentinels]],
            left: self.max_ttl,
            found: None,
            is_taken: false,
        }]
    }

    fn actions(&self, group: &Group, steps: &mut Vec<Step>) {
        if group.is_taken && group.left > 0 {
            // Nothing worse can happen.
            return;
        }
        steps.push(Step::Tick);
        for sentinel in 0..self.sentinels {
            if !group.moved[sentinel] {
                steps.push(Step::Move(sentinel));
            }
            for client in [HOLDER, RIVAL] {
                let word = Some((0, group.moved[sentinel]));
                if group.heard[client][sentinel] != word {
                    steps.push(Step::Ask(client, sentinel));
                }
            }
        }
        if group.left < self.max_ttl && self.may_renew(group) {
            steps.push(Step::Renew);
        }
        let is_named = self.counts(group, RIVAL, true);
        if group.found.is_none() && is_named {
            steps.push(Step::Find);
        }
        if !group.is_taken && is_named && group.found.is_some_and(|age| age >= self.quarantine()) {
            steps.push(Step::Take);
        }
    }

    fn next_state(&self, last: &Group, step: Step) -> Option<Group> {
        let mut group = last.clone();
        match step {
            Step::Tick => {
                for (client, heard) in group.heard.iter_mut().enumerate() {
                    for word in heard {
                        // What names the master that a client does not use never counts, however old.
                        let is_used = |named: bool| named == (client == RIVAL);
                        let older = |(age, named)| (age + u8::from(is_used(named)), named);
                        // Too old to count, however old it is.
                        *word = word.map(older).filter(|(age, _)| *age < self.failover);
                    }
                }
                group.left = group.left.saturating_sub(1);
                let longest = self.quarantine();
                group.found = group.found.map(|age| (age + 1).min(longest));
            }
            Step::Move(sentinel) => group.moved[sentinel] = true,
            Step::Ask(client, sentinel) => {
                group.heard[client][sentinel] = Some((0, group.moved[sentinel]));
            }
            Step::Renew => group.left = self.max_ttl,
            Step::Find => group.found = Some(0),
            Step::Take => group.is_taken = true,
        }
        Some(group)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(ONE_AFTER_THE_OTHER, |_, group: &Group| {
                !(group.is_taken && group.left > 0)
            }),
            Property::sometimes(SERVED, |_, group: &Group| group.is_taken),
        ]
    }
}

/// Every step of a path in a line.
#[must_use]
pub fn tell(_: &Failover, path: Path<Group, Step>) -> Vec<String> {
    let who = |client| if client == HOLDER { "A" } else { "B" };
    let steps = path.into_vec().into_iter().filter_map(|(group, step)| {
        Some(match step? {
            Step::Tick => "a second passes".to_owned(),
            Step::Move(sentinel) => format!("Sentinel {} learns of the failover", sentinel + 1),
            Step::Ask(client, sentinel) => {
                let named = if group.moved[sentinel] { "new" } else { "old" };
                let sentinel = sentinel + 1;
                format!(
                    "{} asks Sentinel {sentinel}, which names the {named} master",
                    who(client)
                )
            }
            Step::Renew => "A acquires or renews at the old master => A HAS THE LOCK".to_owned(),
            Step::Find => "B finds the new master".to_owned(),
            Step::Take => "B acquires at the new master => B HAS THE LOCK".to_owned(),
        })
    });
    steps.collect()
}
