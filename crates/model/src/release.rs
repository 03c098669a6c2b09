//! A model of its own: one claim is released on one node, over connections that break.
//!
//! A connection keeps the order of what is sent, so a release arrives behind the acquire that it
//! takes back. When a connection breaks, what was on it arrives at any later time or never, and what
//! is sent on the next one may overtake it. A *tombstone* on the node then refuses the value;
//! otherwise the late acquire would take the lock for nobody.
//!
//! When a release leaves a tombstone is decided by [`Unresolved`], which runs here as it is.
//!
//! Nodes do not know of each other, so one is enough. The key does not expire here: what would be
//! left behind until then is the point.

use std::num::NonZeroU32;
use std::time::Duration;

use fencepost::{AttemptValue, FencingToken};
use fencepost_core::NodeError;
use fencepost_core::Ttl;
use fencepost_core::lock::{Command, LockState, Now, Repair};
use fencepost_core::quorum::NodeSet;
use fencepost_core::quorum::unresolved::{self, Followup, Unresolved};
use stateright::{Model, Path, Property};

/// When all has arrived or is lost, the node holds nothing of a claim that is over.
pub const NOTHING_LEFT: &str = "nothing is left behind";

/// One claim, one node.
#[derive(Clone, Copy, Debug)]
pub struct OneRelease {
    /// Whether a release leaves a tombstone where the rule asks for one.
    pub tombstones: bool,
    /// How often the connection may break.
    pub breaks: u8,
}

/// The only node.
const NODE: usize = 0;

/// What was sent and has not arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sent {
    /// The attempt.
    Acquire,
    /// A round of extending.
    Extend,
    /// The release.
    Release {
        /// Whether it leaves a tombstone.
        tombstone: bool,
    },
    /// Another release, because something ended without an answer.
    Deferred {
        /// Whether it leaves a tombstone.
        tombstone: bool,
    },
}

impl Sent {
    /// What it is to the rule.
    fn kind(self) -> unresolved::Sent {
        match self {
            Self::Acquire | Self::Extend => unresolved::Sent::Claim,
            Self::Release { .. } => unresolved::Sent::Release,
            Self::Deferred { .. } => unresolved::Sent::Deferred,
        }
    }
}

/// The node, and what is in flight to it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Scene {
    node: LockState,
    /// On the connection that stands, oldest first.
    connection: Vec<Sent>,
    /// On connections that broke.
    astray: Vec<Sent>,
    /// What the claim knows of it.
    unresolved: Unresolved,
    extended: bool,
    released: bool,
    breaks_left: u8,
}

/// Something that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The claim, which has the lock by other nodes, sends an extension.
    Extend,
    /// The claim ends and sends its release.
    Release,
    /// The oldest on the connection arrives.
    Arrive,
    /// Something of a broken connection arrives after all.
    ArriveLate(usize),
    /// Something of a broken connection is lost for good.
    Vanish(usize),
    /// The connection breaks, and another takes its place.
    Break,
}

impl OneRelease {
    fn carry_out(&self, node: &mut LockState, sent: Sent) {
        let value = AttemptValue::reported("A");
        let ttl = Ttl::new(Duration::from_secs(1)).expect("within the bounds");
        let command = match sent {
            Sent::Acquire => Command::Acquire {
                value,
                ttl,
                proposed: FencingToken::ZERO,
                turn: Default::default(),
            },
            Sent::Extend => Command::Extend {
                value,
                ttl,
                token: FencingToken::MAX,
                entries: NonZeroU32::MIN,
                repair: Repair::Always,
            },
            Sent::Release { tombstone } | Sent::Deferred { tombstone } => Command::Release {
                value,
                tombstone: tombstone.then_some(ttl.get()),
                ticket: Default::default(),
                follower: None,
                is_lease: false,
            },
        };
        let now = Now {
            elapsed: Duration::ZERO,
            wall_micros: 0,
        };
        let _ = node.apply(&command, now);
    }

    fn cut(&self, scene: &mut Scene) {
        scene.breaks_left -= 1;
        let broken = NodeError::Disconnected("it broke".to_owned());
        for sent in std::mem::take(&mut scene.connection) {
            scene.astray.push(sent);
            match scene.unresolved.ended(NODE, sent.kind(), Some(&broken)) {
                Followup::Nothing => {}
                Followup::Tombstone => scene.connection.push(Sent::Deferred {
                    tombstone: self.tombstones,
                }),
            }
        }
    }
}

impl Model for OneRelease {
    type State = Scene;
    type Action = Step;

    fn init_states(&self) -> Vec<Scene> {
        vec![Scene {
            node: LockState::default(),
            connection: vec![Sent::Acquire],
            astray: Vec::new(),
            unresolved: Unresolved::default(),
            extended: false,
            released: false,
            breaks_left: self.breaks,
        }]
    }

    fn actions(&self, scene: &Scene, steps: &mut Vec<Step>) {
        if !scene.released {
            steps.push(Step::Release);
            if !scene.extended {
                steps.push(Step::Extend);
            }
        }
        if !scene.connection.is_empty() {
            steps.push(Step::Arrive);
        }
        if scene.breaks_left > 0 {
            steps.push(Step::Break);
        }
        for place in 0..scene.astray.len() {
            steps.push(Step::ArriveLate(place));
            steps.push(Step::Vanish(place));
        }
    }

    fn next_state(&self, last: &Scene, step: Step) -> Option<Scene> {
        let mut scene = last.clone();
        match step {
            Step::Extend => {
                scene.extended = true;
                scene.connection.push(Sent::Extend);
            }
            Step::Release => {
                scene.released = true;
                let _ = scene.unresolved.released(NodeSet::all(1));
                let tombstone = self.tombstones && scene.unresolved.needs_tombstone(NODE);
                scene.connection.push(Sent::Release { tombstone });
            }
            Step::Arrive => {
                let sent = scene.connection.remove(0);
                self.carry_out(&mut scene.node, sent);
                let _ = scene.unresolved.ended(NODE, sent.kind(), None);
            }
            Step::ArriveLate(place) => {
                let sent = scene.astray.remove(place);
                self.carry_out(&mut scene.node, sent);
            }
            Step::Vanish(place) => drop(scene.astray.remove(place)),
            Step::Break => self.cut(&mut scene),
        }
        Some(scene)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(NOTHING_LEFT, |_, scene: &Scene| {
                let quiet = scene.connection.is_empty() && scene.astray.is_empty();
                !(quiet && scene.released) || scene.node.holder().is_none()
            }),
            Property::sometimes("the node holds it", |_, scene: &Scene| {
                scene.node.holder().is_some()
            }),
        ]
    }
}

/// Every step of a path in a line.
#[must_use]
pub fn tell(model: &OneRelease, path: Path<Scene, Step>) -> Vec<String> {
    let mut lines = vec!["A asks for the lock".to_owned()];
    for (scene, step) in path.into_vec() {
        let Some(step) = step else { break };
        let Some(next) = model.next_state(&scene, step) else {
            break;
        };
        let what = match step {
            Step::Extend => "A, which has the lock by other nodes, sends an extension".to_owned(),
            Step::Release => "A sends its release".to_owned(),
            Step::Arrive => format!("A's {} arrives", called(scene.connection[0])),
            Step::ArriveLate(place) => {
                format!("A's {} arrives late", called(scene.astray[place]))
            }
            Step::Vanish(place) => format!("A's {} is lost", called(scene.astray[place])),
            Step::Break => "the connection breaks, and another takes its place".to_owned(),
        };
        let then = match (scene.node.holder(), next.node.holder()) {
            (None, Some(_)) => " => the node holds it for A",
            (Some(_), None) => " => the node is free",
            _ => "",
        };
        lines.push(what + then);
    }
    lines
}

fn called(sent: Sent) -> &'static str {
    match sent {
        Sent::Acquire => "acquire",
        Sent::Extend => "extension",
        Sent::Release { tombstone: true } => "release with a tombstone",
        Sent::Release { tombstone: false } => "release",
        Sent::Deferred { tombstone: true } => "deferred release with a tombstone",
        Sent::Deferred { tombstone: false } => "deferred release",
    }
}
