//! [`Watcher`]: looks at all locks again and again, for all streams of this replica together.
//!
//! While nobody watches it does not look, unless a timeline is kept. It never looks for more than a
//! fifth of the time, however many locks there are.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use fencepost::{Client, NamePattern, SessionId, Waiter};
use futures_util::future::join_all;
use serde::Serialize;
use serde_json::Value;
use tokio::sync::{Notify, broadcast};
use tokio::time::sleep;

use crate::answer::millis;
use crate::texts::Texts;
use crate::timeline::Timeline;
use crate::tracker::{Event, PastHold, Steal, Tracker};
use crate::view::{LockView, shown_session};
use crate::waits_for::{Contended, cycles};

/// The shortest pause between two looks, and its part of a look's own time.
const SHORTEST_PAUSE: Duration = Duration::from_millis(250);
const PAUSE_PER_LOOK: u32 = 4;
/// How long it goes on looking once nobody watches any more.
const LINGER: Duration = Duration::from_secs(10);
/// How many looks a slow reader may be behind before it gets a new snapshot.
const BEHIND: usize = 64;
/// How many queues are asked for at the same time.
const QUEUES_AT_ONCE: usize = 64;
/// How often the nodes themselves are examined.
const EXAMINE_EVERY: Duration = Duration::from_secs(5);

/// Examines the nodes: what `fencepost doctor --json` prints.
pub type Doctor =
    Arc<dyn Fn() -> std::pin::Pin<Box<dyn Future<Output = Value> + Send>> + Send + Sync>;

/// Whether a node answers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct NodeState {
    pub(crate) node: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
}

/// Sessions that wait for each other, as it is shown.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct CycleView {
    pub(crate) steps: Vec<StepView>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct StepView {
    pub(crate) session: String,
    pub(crate) owner: String,
    pub(crate) lock: String,
}

/// What one look has shown.
#[derive(Debug)]
pub(crate) struct Delta {
    pub(crate) seq: u64,
    pub(crate) at_ms: u64,
    pub(crate) took_ms: u64,
    pub(crate) events: Vec<Event>,
    pub(crate) changed: Vec<Arc<LockView>>,
    pub(crate) removed: Vec<String>,
    pub(crate) nodes: Arc<Vec<NodeState>>,
    pub(crate) cycles: Arc<Vec<CycleView>>,
    /// Whether nodes or cycles are other ones than at the look before.
    pub(crate) also: bool,
}

/// What goes to the streams.
#[derive(Clone, Debug)]
pub(crate) enum Message {
    Looked(Arc<Delta>, Arc<Texts>),
    Closing,
}

/// All that is known now.
#[derive(Clone)]
pub(crate) struct Snapshot {
    pub(crate) seq: u64,
    pub(crate) at_ms: u64,
    pub(crate) took_ms: u64,
    pub(crate) locks: BTreeMap<String, Arc<LockView>>,
    pub(crate) nodes: Arc<Vec<NodeState>>,
    pub(crate) cycles: Arc<Vec<CycleView>>,
}

struct State {
    tracker: Tracker,
    timeline: Timeline,
    seq: u64,
    at_ms: u64,
    looked: Option<Instant>,
    took: Duration,
    nodes: Arc<Vec<NodeState>>,
    cycles: Arc<Vec<CycleView>>,
    /// The latest looks, for those who poll.
    recent: VecDeque<Arc<Delta>>,
    /// Of this process: a cursor of another one means nothing.
    epoch: u64,
    examined: Option<(Instant, Arc<Value>)>,
    /// What was noticed between two looks.
    pending: Vec<Event>,
    closed: bool,
}

struct Inner {
    client: Client,
    doctor: Option<Doctor>,
    state: Mutex<State>,
    messages: broadcast::Sender<Message>,
    viewers: AtomicUsize,
    wanted: Notify,
}

/// Looks at all locks for everybody who watches. Clones share it.
#[derive(Clone)]
pub(crate) struct Watcher(Arc<Inner>);

/// As long as it lives, the locks are watched.
pub(crate) struct Viewer(Watcher);

impl Drop for Viewer {
    fn drop(&mut self) {
        self.0.0.viewers.fetch_sub(1, Ordering::Relaxed);
    }
}

pub(crate) fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, millis)
}

impl Watcher {
    pub(crate) fn new(client: Client, doctor: Option<Doctor>, timeline: Timeline) -> Self {
        let state = State {
            tracker: Tracker::default(),
            timeline,
            seq: 0,
            at_ms: 0,
            looked: None,
            took: Duration::ZERO,
            nodes: Arc::default(),
            cycles: Arc::default(),
            recent: VecDeque::new(),
            epoch: now_ms(),
            examined: None,
            pending: Vec::new(),
            closed: false,
        };
        Self(Arc::new(Inner {
            client,
            doctor,
            state: Mutex::new(state),
            messages: broadcast::channel(BEHIND).0,
            viewers: AtomicUsize::new(0),
            wanted: Notify::new(),
        }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn viewers(&self) -> usize {
        self.0.viewers.load(Ordering::Relaxed)
    }

    /// Watches until what is returned is dropped, unless so many do already.
    pub(crate) fn watch(&self, most: usize) -> Option<Viewer> {
        let one_more = |viewers| (viewers < most).then_some(viewers + 1);
        let (viewers, order) = (&self.0.viewers, Ordering::Relaxed);
        viewers.fetch_update(order, order, one_more).ok()?;
        self.0.wanted.notify_one();
        Some(Viewer(self.clone()))
    }

    pub(crate) fn subscribe(&self) -> broadcast::Receiver<Message> {
        self.0.messages.subscribe()
    }

    /// Tells all streams that this replica is about to end.
    pub(crate) fn close(&self) {
        self.state().closed = true;
        let _ = self.0.messages.send(Message::Closing);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.state().closed
    }

    /// What the last look has shown, if it began no earlier than that.
    pub(crate) fn seen_since(&self, earliest: Instant) -> Option<Snapshot> {
        let state = self.state();
        let began = state.looked?;
        (began >= earliest).then(|| Snapshot {
            seq: state.seq,
            at_ms: state.at_ms,
            took_ms: millis(state.took),
            locks: state.tracker.locks.clone(),
            nodes: Arc::clone(&state.nodes),
            cycles: Arc::clone(&state.cycles),
        })
    }

    /// When the nodes were last asked, and how long that took.
    pub(crate) fn fresh_at(&self) -> Option<(u64, u64)> {
        let state = self.state();
        state.looked.map(|_| (state.at_ms, millis(state.took)))
    }

    /// What a look shows that begins now or later, waited for at most that long: whoever has acquired a
    /// lock and then asks is to see it.
    pub(crate) async fn snapshot(&self, limit: Duration) -> Option<Snapshot> {
        let (now, end) = (Instant::now(), tokio::time::Instant::now() + limit);
        let mut messages = self.subscribe();
        self.0.wanted.notify_one();
        loop {
            let next = tokio::time::timeout_at(end, messages.recv()).await;
            match (self.seen_since(now), next) {
                (Some(snapshot), _) => return Some(snapshot),
                (None, Ok(Ok(Message::Closing)) | Err(_)) => return None,
                (None, Ok(_)) => {}
            }
        }
    }

    /// The looks after that one, if they are still known.
    pub(crate) fn after(&self, seq: u64) -> Option<Vec<Arc<Delta>>> {
        let state = self.state();
        let known = state
            .recent
            .front()
            .is_some_and(|first| first.seq <= seq + 1);
        let later = state.recent.iter().filter(|delta| delta.seq > seq);
        (known && seq <= state.seq).then(|| later.cloned().collect())
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.state().epoch
    }

    pub(crate) fn past(&self, name: &str) -> Vec<PastHold> {
        self.state().tracker.past(name)
    }

    pub(crate) fn stolen(&self, name: &str, token: u64, by: &str, reason: &str) {
        self.state().tracker.stolen(Steal {
            name: name.to_owned(),
            token,
            by: by.to_owned(),
            reason: reason.to_owned(),
            at_ms: now_ms(),
        });
    }

    pub(crate) fn contention(&self, sees: impl Fn(&str) -> bool) -> Value {
        self.state().tracker.contention.shown(sees)
    }

    pub(crate) fn timeline(
        &self,
        filter: &crate::timeline::Filter,
        sees: impl Fn(&Event) -> bool,
    ) -> crate::timeline::Known {
        self.state().timeline.known(filter, now_ms(), sees)
    }

    /// What the doctor found, at most a few seconds ago.
    pub(crate) async fn examined(&self) -> Option<Arc<Value>> {
        let known = self.state().examined.clone();
        if let Some((at, found)) = known
            && at.elapsed() < EXAMINE_EVERY
        {
            return Some(found);
        }
        let doctor = self.0.doctor.as_ref()?;
        let found = Arc::new(doctor().await);
        self.state().examined = Some((Instant::now(), Arc::clone(&found)));
        Some(found)
    }

    /// Looks for as long as somebody watches. Ends with the process.
    pub(crate) async fn run(self) {
        tokio::join!(self.look_again_and_again(), self.examine_now_and_then());
    }

    async fn look_again_and_again(&self) {
        let mut last_wanted: Option<Instant> = None;
        while !self.is_closed() {
            if self.is_wanted() {
                last_wanted = Some(Instant::now());
            } else if last_wanted.is_none_or(|at| at.elapsed() > LINGER) {
                last_wanted = None;
                self.state().tracker.interrupted();
                self.0.wanted.notified().await;
                continue;
            }
            let took = self.look().await;
            tokio::select! {
                () = sleep((took * PAUSE_PER_LOOK).max(SHORTEST_PAUSE)) => {}
                // Who comes wants to see something soon.
                () = self.0.wanted.notified() => sleep(took.max(SHORTEST_PAUSE / 10)).await,
            }
        }
    }

    /// Apart from the looks: a node that hangs takes a second to say nothing.
    async fn examine_now_and_then(&self) {
        let mut judged: Option<Arc<Value>> = None;
        while !self.is_closed() && self.0.doctor.is_some() {
            if self.is_wanted()
                && let Some(found) = self.examined().await
            {
                if let Some(before) = &judged {
                    let mut state = self.state();
                    quarantines(before, &found, &mut state.pending);
                }
                judged = Some(found);
            }
            sleep(EXAMINE_EVERY).await;
        }
    }

    fn is_wanted(&self) -> bool {
        self.viewers() > 0 || self.state().timeline.is_kept()
    }

    /// Returns how long it took.
    async fn look(&self) -> Duration {
        let client = &self.0.client;
        let started = Instant::now();
        let listing = client.list(&NamePattern::new("*")).await;
        let at_ms = now_ms();
        let (views, nodes) = match listing {
            Ok(listing) => {
                let waited_for = listing.locks.iter().filter(|lock| lock.waiting > 0);
                let names: Vec<String> = waited_for.map(|lock| lock.name.to_string()).collect();
                let queues = self.queues(names).await;
                let none = Vec::new();
                let views = listing.locks.iter().map(|lock| {
                    let queue = queues.get(lock.name.as_str()).unwrap_or(&none);
                    LockView::new(lock, queue, at_ms)
                });
                let views: Vec<_> = views.collect();
                let nodes = self.nodes(&listing).await;
                (Some(views), nodes)
            }
            Err(error) => {
                let nodes = error.nodes().iter().map(|node| NodeState {
                    node: node.node.clone(),
                    error: Some(node.outcome.to_string()),
                });
                (None, nodes.collect())
            }
        };
        let took = started.elapsed();
        let mut state = self.state();
        let mut events = std::mem::take(&mut state.pending);
        for node in &nodes {
            let was = state.nodes.iter().find(|it| it.node == node.node);
            let was_up = was.is_none_or(|it| it.error.is_none());
            let word = match (was_up, node.error.is_some()) {
                (true, true) => "node_down",
                (false, false) => "node_up",
                _ => continue,
            };
            events.push(Event {
                event: word.into(),
                at_ms,
                node: Some(node.node.clone()),
                reason: node.error.clone(),
                ..Event::default()
            });
        }
        let mut diff = match views {
            Some(views) => state.tracker.look(views, at_ms),
            None => crate::tracker::Diff::default(),
        };
        events.append(&mut diff.events);
        let contended: Vec<Contended> = state
            .tracker
            .locks
            .values()
            .filter_map(|lock| lock.contended())
            .collect();
        let found: Vec<_> = cycles(&contended).iter().map(shown).collect();
        let also = *state.nodes != nodes || *state.cycles != found;
        if also {
            state.nodes = Arc::new(nodes);
            state.cycles = Arc::new(found);
        }
        let answered = state.nodes.iter().filter(|it| it.error.is_none()).count();
        let seen = answered > state.nodes.len() / 2;
        let happened = events.iter().cloned();
        state.timeline.looked(at_ms, seen, happened);
        state.seq += 1;
        state.at_ms = at_ms;
        state.looked = Some(started);
        state.took = took;
        let delta = Arc::new(Delta {
            seq: state.seq,
            at_ms,
            took_ms: millis(took),
            events,
            changed: diff.changed,
            removed: diff.removed,
            nodes: Arc::clone(&state.nodes),
            cycles: Arc::clone(&state.cycles),
            also,
        });
        state.recent.push_back(Arc::clone(&delta));
        if state.recent.len() > BEHIND {
            state.recent.pop_front();
        }
        drop(state);
        let _ = self.0.messages.send(Message::Looked(delta, Arc::default()));
        took
    }

    async fn queues(&self, names: Vec<String>) -> HashMap<String, Vec<Waiter>> {
        let mut queues = HashMap::with_capacity(names.len());
        for some in names.chunks(QUEUES_AT_ONCE) {
            let asked = some.iter().map(|name| self.0.client.queue(name));
            for (name, queue) in some.iter().zip(join_all(asked).await) {
                queues.insert(name.clone(), queue.unwrap_or_default());
            }
        }
        queues
    }

    /// Which nodes answer: by the locks, or where there is none, by one that nobody uses.
    async fn nodes(&self, listing: &fencepost::Listing) -> Vec<NodeState> {
        let asked;
        let status = match listing.locks.first() {
            Some(status) => status,
            None => match self.0.client.status("fencepost-watch").await {
                Ok(status) => {
                    asked = status;
                    &asked
                }
                Err(_) => return Vec::new(),
            },
        };
        let failed = |node: &str| listing.failed.iter().find(|it| it.node == node);
        let state = |node: &fencepost::NodeStatus| NodeState {
            node: node.node.clone(),
            error: match (&node.lock, failed(&node.node)) {
                (Err(error), _) => Some(error.to_string()),
                (Ok(_), Some(failed)) => Some(failed.outcome.to_string()),
                (Ok(_), None) => None,
            },
        };
        status.nodes.iter().map(state).collect()
    }
}

fn shown(cycle: &crate::waits_for::Cycle) -> CycleView {
    let session = |session: SessionId| shown_session(session);
    let steps = cycle.iter().map(|step| StepView {
        session: session(step.session),
        owner: step.owner.clone(),
        lock: step.lock.clone(),
    });
    CycleView {
        steps: steps.collect(),
    }
}

/// Which nodes do not vote any more, and which do again.
fn quarantines(before: &Value, now: &Value, events: &mut Vec<Event>) {
    // Where restarted servers are trusted they vote all the same, and the finding is a warning.
    let refused = |finding: &Value, node: &str| {
        finding["node"] == node && finding["what"] == "restarted" && finding["severity"] == "unsafe"
    };
    let waits = |all: &Value, node: &str| -> Option<u64> {
        let mut findings = all["findings"].as_array()?.iter();
        findings.find(|finding| refused(finding, node))?;
        let nodes = all["nodes"].as_array()?;
        let node = nodes.iter().find(|it| it["node"] == node)?;
        node["quarantine_ms"].as_u64()
    };
    for node in now["nodes"].as_array().into_iter().flatten() {
        let Some(name) = node["node"].as_str() else {
            continue;
        };
        let (was, is) = (waits(before, name), waits(now, name));
        let word = match (was, is) {
            (None, Some(_)) => "quarantined",
            (Some(_), None) if node["error"].is_null() => "voting",
            _ => continue,
        };
        events.push(Event {
            event: word.into(),
            at_ms: now_ms(),
            node: Some(name.to_owned()),
            left_ms: is,
            ..Event::default()
        });
    }
}
