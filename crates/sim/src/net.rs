//! [`Net`]: connections and messages between clients and nodes, with everything that can happen to
//! them.
//!
//! What the library may rely on is kept: commands of one connection arrive in the order in which
//! they were sent, unless they are lost; a connection never outlives the node's process. Everything
//! else happens: messages are late, lost, doubled, stuck in a partition; a replaced connection's
//! messages arrive behind the new one's.
//!
//! Some clients acquire by plain commands at some nodes, others by scripts at the same: what arrives then is `SET`, and
//! with it or later what belongs behind it, so that others' commands may come between. Such a client has the node close
//! its lost connections, so that nothing that was sent on them arrives any more.
//!
//! - `connection`: how connections are given up and made again, and what becomes of them.
//! - `marker`: how a node's marker is looked at and watched, and when its votes count.

mod connection;
mod marker;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use fencepost::NodeError;
use fencepost::internals::{Notice, WakeSink};
use fencepost_core::lock::plain::PlainAcquire;
use fencepost_core::lock::{Command, Reply};
use fencepost_core::quorum::membership::{Marker, Sight, is_void_in_quarantine};
use fencepost_core::ticket::{ClientId, Wake};
use fencepost_core::value::AttemptValue;
use tokio::sync::oneshot;

use crate::dice::Dice;
use crate::faults::Fault;
use crate::member::{Watch, asks_for_a_vote};
use crate::plan::Plan;
use crate::world::Inside;

/// How often it is looked whether a client runs again that has something to hear.
const LOOK_AGAIN: Duration = Duration::from_millis(5);
/// Of so many in a thousand attempts whose commands arrive apart the later ones never do, where commands are lost.
const REST_LOST_PER_MILLE: u32 = 100;
/// How long the commands of an attempt are apart at the most, when all is well.
const APART_IF_WELL: Duration = Duration::from_millis(2);

/// What a call gets in the end.
pub(crate) type Answer = Result<Reply, NodeError>;

/// Which client talks to which node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Pair {
    pub(crate) client: usize,
    pub(crate) node: usize,
}

/// A message on its way, or something else that will happen to a connection.
pub(crate) struct Packet {
    pair: Pair,
    connection: u64,
    /// The node's process that the connection leads to.
    process: u64,
    load: Load,
}

enum Load {
    Command {
        id: u64,
        name: String,
        command: Command,
        path: Path,
        /// The second copy of a message: nobody waits for what it is answered.
        is_copy: bool,
    },
    Answer {
        id: u64,
        answer: Answer,
    },
    /// The plain commands of an attempt came to nothing that counts: it goes on by that path.
    GoOn {
        id: u64,
        name: String,
        command: Command,
        path: Path,
    },
    /// The client reads the marker, and wants to be told when it changes.
    Look {
        id: u64,
    },
    /// What it was, and what the node says of itself.
    Seen {
        id: u64,
        marker: Option<Marker>,
        sight: Sight,
    },
    /// A marker that is to take the place of that one.
    WriteMarker {
        old: Option<Marker>,
        new: Option<Marker>,
    },
    /// The marker that was read has changed, or is gone.
    Invalid,
    /// The client looks at the marker again.
    LookDue,
    /// It is some waiter's turn.
    Notice(Wake),
    /// The node's process is gone, and its machine says so.
    Broken,
    /// The client tries to connect.
    Connect,
    /// The client looks whether a command has been answered.
    MuteWatch {
        id: u64,
    },
}

/// How a node carries out a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Path {
    /// At once, and as the state machine does it.
    Script,
    /// By plain commands, all of which have arrived.
    Commands,
    /// By the first of them; the others arrive later.
    Set,
    /// By the others.
    Rest,
    /// What plain commands have acquired in vain is released.
    Undo,
}

/// What a node has done.
#[derive(Debug)]
pub(crate) enum Done {
    /// It answers.
    Replied(Reply),
    /// It answers what makes the client go on by that path.
    GoOn(Path),
    /// Only the first of some commands, or none: no answer.
    Nothing,
}

/// Which way a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    ToNode,
    ToClient,
}

/// One client's connection to one node, and what is on it.
pub(crate) struct Link {
    state: State,
    connection: u64,
    process: u64,
    /// Whether this client may use plain commands here. Then each connection, before it is used, has the node close
    /// the one before.
    by_commands: bool,
    /// The latest connection that the node knows.
    connected: u64,
    to_node: Direction,
    to_client: Direction,
    /// Commands without an answer.
    open: BTreeMap<u64, Open>,
    /// What is known of the node's marker.
    watch: Watch,
    /// Votes that came while it was not known whether they count.
    held_back: Vec<(u64, Answer)>,
    /// Commands that wait for a connection.
    waiting: VecDeque<(u64, String, Command)>,
    until_ready: Vec<Waker>,
    /// What hears the node out for the client's waiters.
    sink: Option<(ClientId, Arc<dyn WakeSink>)>,
}

/// A command without an answer.
struct Open {
    answer_to: oneshot::Sender<Answer>,
    /// Whether its answer may be counted towards a quorum.
    is_vote: bool,
    /// Of an acquire: its value.
    taker: Option<AttemptValue>,
    /// Whether that was released meanwhile.
    is_released: bool,
    /// How long the node still did not vote when it was sent.
    quarantine: Option<Duration>,
}

impl Open {
    fn end(self, answer: Answer) {
        let answer = match (answer, self.quarantine) {
            (Ok(reply), Some(left)) if is_void_in_quarantine(&reply, self.is_vote) => {
                Err(NodeError::Quarantined(left))
            }
            (answer, _) => answer,
        };
        // Nobody may wait for it any more.
        let _ = self.answer_to.send(answer);
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Up,
    /// Connected; calls wait for the look at the node's marker.
    Vetting,
    /// Calls wait for the attempt that is under way.
    Connecting,
    /// The last attempt failed; calls fail at once.
    Down,
}

#[derive(Default)]
struct Direction {
    /// When the latest message of the present connection arrives: no later one may overtake it.
    latest: u64,
    /// How many partitions stand in the way.
    blocks: u32,
    stuck: VecDeque<Packet>,
}

impl Link {
    fn new(by_commands: bool) -> Self {
        Self {
            state: State::Up,
            connection: 0,
            process: 0,
            by_commands,
            connected: 0,
            to_node: Direction::default(),
            to_client: Direction::default(),
            open: BTreeMap::new(),
            watch: Watch::default(),
            held_back: Vec::new(),
            waiting: VecDeque::new(),
            until_ready: Vec::new(),
            sink: None,
        }
    }

    fn way(&mut self, way: Way) -> &mut Direction {
        match way {
            Way::ToNode => &mut self.to_node,
            Way::ToClient => &mut self.to_client,
        }
    }
}

/// All links, and what is on its way.
pub(crate) struct Net {
    links: BTreeMap<Pair, Link>,
    queue: BTreeMap<(u64, u64), Packet>,
    next_number: u64,
    dice: Dice,
    /// For what only plain commands need, so that the rest of a seed does not depend on it.
    plain_dice: Dice,
}

impl Net {
    pub(crate) fn new(plan: &Plan, dice: Dice) -> Self {
        let pairs = (0..plan.clients)
            .flat_map(|client| (0..plan.nodes).map(move |node| Pair { client, node }));
        let mut plain_dice = Dice::new(plan.seed ^ 0x91A2);
        let mut link = |pair| (pair, Link::new(plain_dice.per_mille(plan.by_commands)));
        Self {
            links: pairs.map(&mut link).collect(),
            queue: BTreeMap::new(),
            next_number: 0,
            dice,
            plain_dice,
        }
    }

    /// When the next message arrives.
    pub(crate) fn next_due(&self) -> Option<u64> {
        self.queue.keys().next().map(|(due, _)| *due)
    }

    fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    fn put(&mut self, due: u64, packet: Packet) {
        let number = self.number();
        self.queue.insert((due, number), packet);
    }

    fn link(&mut self, pair: Pair) -> &mut Link {
        // All pairs are there from the beginning.
        self.links.entry(pair).or_insert_with(|| Link::new(false))
    }
}

impl Inside {
    /// A client's call, when it is polled for the first time.
    pub(crate) fn send(
        &mut self,
        pair: Pair,
        name: String,
        command: Command,
    ) -> Result<oneshot::Receiver<Answer>, NodeError> {
        let id = self.net.number();
        let (answer_to, answer) = oneshot::channel();
        let is_vote = command.is_vote();
        if let Some(why) = self.members[pair.client].refusal().filter(|_| is_vote) {
            return Err(why);
        }
        let link = self.net.link(pair);
        let open = Open {
            answer_to,
            is_vote,
            taker: match &command {
                Command::Acquire { value, .. } => Some(value.clone()),
                _ => None,
            },
            is_released: false,
            quarantine: None,
        };
        match link.state {
            State::Up => {
                link.open.insert(id, open);
                self.transmit(pair, id, name, command, None);
            }
            State::Connecting | State::Vetting => {
                link.open.insert(id, open);
                link.waiting.push_back((id, name, command));
            }
            State::Down => return Err(NodeError::Unreachable("refused".into())),
        }
        Ok(answer)
    }

    /// Whether the link is there; if not, whom to wake when it is.
    pub(crate) fn is_ready(&mut self, pair: Pair, waker: &Waker) -> bool {
        let link = self.net.link(pair);
        let is_up = link.state == State::Up;
        if !is_up {
            link.until_ready.push(waker.clone());
        }
        is_up
    }

    /// How long the node does not vote yet, as its client knows.
    pub(crate) fn quarantine_left(&mut self, pair: Pair) -> Option<Duration> {
        let own_now = self.own_now(pair.client);
        self.net.link(pair).watch.quarantine_left(own_now)
    }

    /// Puts a command on its way, by that path or else by what suits it.
    fn transmit(
        &mut self,
        pair: Pair,
        id: u64,
        name: String,
        command: Command,
        path: Option<Path>,
    ) {
        let now = self.now();
        let own_now = self.own_now(pair.client);
        let link = self.net.link(pair);
        let quarantine = link.watch.quarantine_left(own_now);
        if let Some(left) = quarantine.filter(|_| asks_for_a_vote(&command)) {
            if let Some(open) = link.open.remove(&id) {
                open.end(Err(NodeError::Quarantined(left)));
            }
            return;
        }
        if let Some(open) = link.open.get_mut(&id) {
            open.quarantine = quarantine;
        }
        let path = path.unwrap_or_else(|| self.path_of(pair, &command));
        self.log(|| format!("{pair} sends {id}: {name} {command:?} {path:?}"));
        let link = self.net.link(pair);
        if let Command::Release { value, .. } = &command {
            for open in link.open.values_mut() {
                open.is_released |= open.taker.as_ref() == Some(value);
            }
        }
        let (connection, process) = (link.connection, link.process);
        let packet = |load| Packet {
            pair,
            connection,
            process,
            load,
        };
        let mute_after = nanos(self.plan.node_timeout) * 2;
        self.net
            .put(now + mute_after, packet(Load::MuteWatch { id }));
        if self.strikes(Fault::Duplicate) {
            let late = self
                .net
                .dice
                .time(Duration::ZERO, self.lasts(Fault::Duplicate));
            let copy = Load::Command {
                id,
                name: name.clone(),
                command: command.clone(),
                path: Path::Script,
                is_copy: true,
            };
            // A copy may overtake what was sent before it, as on another connection; a client that uses plain commands
            // has the one before closed, so that its release never arrives before its acquire.
            if !self.net.link(pair).by_commands {
                self.net.put(now + nanos(late), packet(copy));
            }
        }
        if self.strikes(Fault::CommandLost) {
            self.log(|| format!("{pair} loses {id}"));
            return;
        }
        let part = |path| Load::Command {
            id,
            name: name.clone(),
            command: command.clone(),
            path,
            is_copy: false,
        };
        self.dispatch(Way::ToNode, packet(part(path)));
        if path == Path::Set {
            self.dispatch_rest(packet(part(Path::Rest)));
        }
    }

    /// Whether a command goes as a script.
    fn path_of(&mut self, pair: Pair, command: &Command) -> Path {
        let plain = PlainAcquire::of(command).filter(|plain| self.servers[pair.node].suits(plain));
        if plain.is_none() || !self.net.link(pair).by_commands {
            return Path::Script;
        }
        match self.net.plain_dice.per_mille(self.plan.torn) {
            true => Path::Set,
            false => Path::Commands,
        }
    }

    /// Puts the rest of an attempt on its way, some time behind its first command.
    fn dispatch_rest(&mut self, packet: Packet) {
        let pair = packet.pair;
        let longest = match self.is_healed {
            true => APART_IF_WELL,
            false => self.plan.node_timeout,
        };
        let longest = self.net.plain_dice.pick(&[APART_IF_WELL, longest]);
        let apart = self.net.plain_dice.time(Duration::ZERO, longest);
        let may_be_lost = !self.is_healed && self.plan.rate(Fault::CommandLost).is_some();
        if may_be_lost && self.net.plain_dice.per_mille(REST_LOST_PER_MILLE) {
            return self.log(|| format!("{pair} loses the rest"));
        }
        let direction = &mut self.net.link(pair).to_node;
        direction.latest += nanos(apart);
        let due = direction.latest;
        self.net.put(due, packet);
    }

    /// The client hears that an attempt has to go on: never behind its own release.
    fn go_on(&mut self, pair: Pair, id: u64, name: String, command: Command, path: Path) {
        let next = self.net.number();
        let link = self.net.link(pair);
        let Some(open) = link.open.remove(&id) else {
            return;
        };
        if open.is_released && path == Path::Script {
            return open.end(Ok(Reply::Tombstoned));
        }
        link.open.insert(next, open);
        self.transmit(pair, next, name, command, Some(path));
    }

    /// Puts a message on its way, behind those that went before it.
    fn dispatch(&mut self, way: Way, packet: Packet) {
        let now = self.now();
        let (least, most) = self.plan.messages_take(packet.pair.client, self.is_healed);
        let most = match way {
            Way::ToNode => most.there,
            Way::ToClient => most.back,
        };
        let mut takes = self.net.dice.time(least, most);
        if self.strikes(Fault::Delay) {
            takes += self.net.dice.time(Duration::ZERO, self.lasts(Fault::Delay));
        }
        let direction = self.net.link(packet.pair).way(way);
        direction.latest = direction.latest.max(now + nanos(takes));
        let due = direction.latest;
        self.net.put(due, packet);
    }

    /// Lets everything happen that is due.
    pub(crate) fn deliver(&mut self) {
        let now = self.now();
        while let Some(entry) = self.net.queue.first_entry()
            && entry.key().0 <= now
        {
            let packet = entry.remove();
            self.arrives(packet);
        }
    }

    fn arrives(&mut self, packet: Packet) {
        let pair = packet.pair;
        let way = match &packet.load {
            Load::Command { .. } | Load::Look { .. } | Load::WriteMarker { .. } => {
                Some(Way::ToNode)
            }
            Load::Answer { .. }
            | Load::GoOn { .. }
            | Load::Broken
            | Load::Notice(_)
            | Load::Seen { .. }
            | Load::Invalid => Some(Way::ToClient),
            Load::Connect | Load::MuteWatch { .. } | Load::LookDue => None,
        };
        if let Some(way) = way {
            let direction = self.net.link(pair).way(way);
            if direction.blocks > 0 {
                direction.stuck.push_back(packet);
                return;
            }
        }
        match packet.load {
            Load::Command { .. } | Load::Look { .. } | Load::WriteMarker { .. } => {
                self.arrives_at_node(packet);
            }
            Load::Seen { .. } | Load::Invalid | Load::LookDue => self.hears_of_marker(packet),
            Load::Answer { id, answer } => {
                let link = self.net.link(pair);
                if link.connection == packet.connection
                    && let Some(open) = link.open.remove(&id)
                {
                    if open.is_vote && link.watch.is_alarmed {
                        link.open.insert(id, open);
                        link.held_back.push((id, answer));
                        return;
                    }
                    self.log(|| format!("{pair} hears {id}: {answer:?}"));
                    open.end(answer);
                }
            }
            Load::GoOn {
                id,
                name,
                command,
                path,
            } => {
                if self.net.link(pair).connection == packet.connection {
                    self.go_on(pair, id, name, command, path);
                }
            }
            Load::Notice(wake) => self.notice(pair, Notice::Wake(wake)),
            Load::Broken => {
                if self.net.link(pair).connection == packet.connection {
                    self.reset(pair, "connection reset by peer");
                }
            }
            Load::Connect => self.connect(pair),
            Load::MuteWatch { id } => {
                let link = self.net.link(pair);
                let looks = link.watch.look.is_some_and(|(look, _)| look == id);
                if link.connection == packet.connection && (looks || link.open.contains_key(&id)) {
                    if self.gates[pair.client].is_closed() {
                        let later = self.now() + nanos(self.plan.node_timeout);
                        self.net.put(later, packet);
                    } else {
                        self.reset(pair, "the server has stopped answering");
                    }
                }
            }
        }
    }

    fn arrives_at_node(&mut self, packet: Packet) {
        let Packet {
            pair,
            connection,
            process,
            ..
        } = packet;
        let server = &mut self.servers[pair.node];
        if !server.is_up || server.process != process {
            return;
        }
        if server.is_paused {
            server.inbox.push_back(packet);
            return;
        }
        let (id, name, command, path, is_copy) = match packet.load {
            Load::Command {
                id,
                name,
                command,
                path,
                is_copy,
            } => (id, name, command, path, is_copy),
            load => return self.arrives_at_marker(pair, connection, process, load),
        };
        let link = self.net.link(pair);
        if link.by_commands && connection < link.connected && !is_copy {
            return self.log(|| format!("node {} has closed the connection of {id}", pair.node));
        }
        let server = &mut self.servers[pair.node];
        let plain = PlainAcquire::of(&command).filter(|_| path != Path::Script);
        let (answer, woken) = match &plain {
            Some(plain) => server.perform_plain((pair, id), &name, plain, path),
            None => {
                let (reply, woken) = server.perform(&name, &command);
                (Done::Replied(reply), woken)
            }
        };
        if server.is_held_by_a_ghost(&name) {
            let what = format!(
                "node {} holds {name} for an attempt that was given up",
                pair.node
            );
            self.object("ghost", what, Vec::new());
        }
        self.log(|| {
            let again = if is_copy { " again" } else { "" };
            format!("node {} does {id}{again}: {answer:?}", pair.node)
        });
        for wake in woken {
            self.wake(pair.node, wake);
        }
        let load = match answer {
            Done::Nothing => return,
            Done::Replied(_) if is_copy => return,
            Done::Replied(reply) => Load::Answer {
                id,
                answer: Ok(reply),
            },
            Done::GoOn(path) => Load::GoOn {
                id,
                name,
                command,
                path,
            },
        };
        if self.strikes(Fault::AnswerLost) {
            self.log(|| format!("{pair} loses the answer to {id}"));
            return;
        }
        let answer = Packet {
            pair,
            connection,
            process,
            load,
        };
        self.dispatch(Way::ToClient, answer);
    }

    /// A client's waiters want to hear this node.
    pub(crate) fn listen(&mut self, pair: Pair, client: ClientId, sink: Arc<dyn WakeSink>) {
        self.net.link(pair).sink = Some((client, sink));
    }

    pub(crate) fn stop_listening(&mut self, pair: Pair) {
        self.net.link(pair).sink = None;
    }

    /// Sends a notice to whom it concerns: on a connection of its own, so in no order with answers.
    fn wake(&mut self, node: usize, wake: Wake) {
        let now = self.now();
        for client in 0..self.plan.clients {
            let pair = Pair { client, node };
            let link = self.net.link(pair);
            let is_meant = |(client, _): &(ClientId, _)| wake.ticket.is_of(client);
            if link.state != State::Up || !link.sink.as_ref().is_some_and(is_meant) {
                continue;
            }
            let notice = Packet {
                pair,
                connection: link.connection,
                process: link.process,
                load: Load::Notice(wake.clone()),
            };
            if self.strikes(Fault::NoticeLost) {
                self.log(|| format!("{pair} loses {wake:?}"));
                continue;
            }
            let (least, most) = self.plan.messages_take(client, self.is_healed);
            let takes = self.net.dice.time(least, most.back);
            self.net.put(now + nanos(takes), notice);
        }
    }

    /// Hands a notice to the client, when it runs.
    fn notice(&mut self, pair: Pair, notice: Notice) {
        let now = self.now();
        let link = self.net.link(pair);
        if self.gates[pair.client].is_closed() {
            let (connection, process) = (link.connection, link.process);
            // What is said to one who stands still waits; what is only about being there does not.
            if let Notice::Wake(wake) = notice {
                let load = Load::Notice(wake);
                let again = Packet {
                    pair,
                    connection,
                    process,
                    load,
                };
                self.net.put(now + nanos(LOOK_AGAIN), again);
            }
            return;
        }
        if let Some((_, sink)) = &link.sink {
            let sink = Arc::clone(sink);
            self.log(|| format!("{pair} hears {notice:?}"));
            self.notices.push((sink, notice));
        }
    }

    /// Whether this message is struck by that fault.
    fn strikes(&mut self, fault: Fault) -> bool {
        if self.is_healed {
            return false;
        }
        let Some(rate) = self.plan.rate(fault) else {
            return false;
        };
        let strikes = self.net.dice.per_mille(rate.per_mille);
        if strikes {
            self.counts.note(fault);
        }
        strikes
    }

    fn lasts(&self, fault: Fault) -> Duration {
        // Not for ever: a run has only so much time to get over it.
        let longest = Duration::from_millis(900);
        self.plan
            .rate(fault)
            .map_or(Duration::ZERO, |rate| rate.lasts.min(longest))
    }
}

impl std::fmt::Display for Pair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "client {} to node {}", self.client, self.node)
    }
}

pub(crate) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
