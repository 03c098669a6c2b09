//! [`World`]: everything of one run that its parts share: time, network, nodes, resources, and what
//! was written down.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fencepost::internals::{Notice, WakeSink};
use fencepost_checks::{Change, ClientId, Event, LeaseRef, Step, Time, Violation};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};

use crate::clock::{SkewedClock, TrueTime};
use crate::dice::Dice;
use crate::faults::{Fault, FaultCounts};
use crate::gate::Gate;
use crate::member::{Membership, first_marker, terms};
use crate::net::{Net, nanos};
use crate::plan::{MOST_FAST_CLIENT_PPM, Plan};
use crate::resource::Resource;
use crate::server::Server;

/// Everything of one run that its parts share.
pub(crate) struct World {
    pub(crate) time: TrueTime,
    pub(crate) plan: Plan,
    pub(crate) clocks: Vec<Arc<SkewedClock>>,
    pub(crate) gates: Vec<Arc<Gate>>,
    /// By client, the reader that its writer is about to become, and until when the writer was valid: nobody
    /// has the reader yet, so that a client that dies meanwhile has not missed its end.
    pub(crate) becoming: Mutex<BTreeMap<usize, (Vec<LeaseRef>, Time)>>,
    inside: Mutex<Inside>,
    /// Something was put on its way.
    sent: Notify,
}

/// What changes, behind one lock.
pub(crate) struct Inside {
    time: TrueTime,
    pub(crate) plan: Plan,
    pub(crate) net: Net,
    pub(crate) servers: Vec<Server>,
    /// What each client knows of the markers of its nodes.
    pub(crate) members: Vec<Membership>,
    pub(crate) clocks: Vec<Arc<SkewedClock>>,
    pub(crate) gates: Vec<Arc<Gate>>,
    pub(crate) resources: Vec<Resource>,
    pub(crate) counts: FaultCounts,
    pub(crate) is_healed: bool,
    /// What clients are to hear, when this is not locked: they may ask back.
    pub(crate) notices: Vec<(Arc<dyn WakeSink>, Notice)>,
    pub(crate) events: Vec<Event>,
    /// What was seen to be wrong at once, without a look at the history.
    pub(crate) objections: Vec<Violation>,
    log: Option<String>,
}

impl World {
    /// The world of that plan, at the beginning of time. Within its runtime.
    pub(crate) fn new(plan: Plan, dice: &mut Dice, with_log: bool) -> Arc<Self> {
        let time = TrueTime::begin();
        let mut counts = FaultCounts::default();
        let most = plan.most_rate_ppm();
        let mut clocks = |how_many: usize, fault: Fault, dice: &mut Dice| -> Vec<_> {
            let clock = |_| {
                let began = dice.below(1 << 50);
                let rate_ppm = match plan.rate(fault) {
                    Some(_) if dice.per_mille(500) => dice.pick(&[-most, most]),
                    Some(_) => dice.around_zero(most),
                    None => 0,
                };
                let rate_ppm = match fault {
                    Fault::ClientRate => rate_ppm.min(MOST_FAST_CLIENT_PPM),
                    _ => rate_ppm,
                };
                if rate_ppm != 0 {
                    counts.note(fault);
                }
                let wall_off = dice.around_zero(plan.wall_skew_micros);
                Arc::new(match fault == Fault::ClientRate && plan.is_coarse() {
                    true => SkewedClock::new(time, began, rate_ppm, 0).with_tick(plan.tick),
                    false => SkewedClock::new(time, began, rate_ppm, wall_off),
                })
            };
            (0..how_many).map(clock).collect()
        };
        let of_clients = clocks(plan.clients, Fault::ClientRate, dice);
        let of_nodes = clocks(plan.nodes, Fault::NodeRate, dice);
        let gates: Vec<_> = (0..plan.clients).map(|_| Arc::default()).collect();
        let first = plan.first_list.unwrap_or(plan.nodes);
        let server = |(node, clock)| {
            let marker = (node < first).then(|| first_marker(&plan, node));
            Server::new(clock, marker, plan.is_durable)
        };
        let servers = of_nodes.into_iter().enumerate().map(server).collect();
        let members = (0..plan.clients).map(|client| match plan.list_of(client) {
            list if list == first => {
                Membership::of_cluster(terms(&plan, first), &first_marker(&plan, 0))
            }
            list => Membership::new(terms(&plan, list)),
        });
        let members = members.collect();
        let mut inside = Inside {
            time,
            plan: plan.clone(),
            net: Net::new(&plan, dice.fork()),
            servers,
            members,
            clocks: of_clients.clone(),
            gates: gates.clone(),
            resources: plan.guarded().iter().map(|_| Resource::default()).collect(),
            counts,
            is_healed: false,
            notices: Vec::new(),
            events: Vec::new(),
            objections: Vec::new(),
            log: with_log.then(String::new),
        };
        inside.begin_to_watch();
        Arc::new(Self {
            time,
            plan,
            clocks: of_clients,
            gates,
            becoming: Mutex::default(),
            inside: Mutex::new(inside),
            sent: Notify::new(),
        })
    }

    pub(crate) fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes something that may put messages on their way.
    pub(crate) fn act<T>(&self, change: impl FnOnce(&mut Inside) -> T) -> T {
        let result = change(&mut self.inside());
        self.sent.notify_one();
        result
    }

    pub(crate) fn now(&self) -> Time {
        Time(self.time.now())
    }

    /// Carries the messages, for ever.
    pub(crate) async fn carry(self: Arc<Self>) {
        loop {
            let (next, notices) = {
                let mut inside = self.inside();
                inside.deliver();
                (inside.net.next_due(), std::mem::take(&mut inside.notices))
            };
            for (sink, notice) in notices {
                sink.notify(notice);
            }
            let sent = self.sent.notified();
            match next {
                Some(due) => tokio::select! {
                    biased;
                    () = sent => {}
                    () = sleep_until(self.time.at(due)) => {}
                },
                None => sent.await,
            }
        }
    }

    pub(crate) fn pause_client(&self, client: usize) {
        self.gates[client].close();
        self.note_client(client, Change::Paused);
    }

    pub(crate) fn resume_client(&self, client: usize) {
        self.note_client(client, Change::Resumed);
        self.gates[client].open();
    }

    /// Lets a client stand still for so long, beginning so much later, if it is not yet.
    pub(crate) async fn pause_for(self: Arc<Self>, client: usize, after: Duration, time: Duration) {
        sleep(after).await;
        let end = self.time.at(nanos(self.plan.faults_until));
        if self.gates[client].is_closed() || Instant::now() >= end {
            return;
        }
        self.inside().counts.note(Fault::ClientPause);
        self.pause_client(client);
        sleep_until(end.min(Instant::now() + time)).await;
        self.resume_client(client);
    }

    pub(crate) fn kill_client(&self, client: usize) {
        self.gates[client].close();
        let becoming = self.becoming().remove(&client);
        if let Some((readers, until)) = becoming
            && until < self.now()
        {
            for of in &readers {
                self.inside().record(Event::lease(until, of, Step::Dropped));
            }
        }
        self.note_client(client, Change::Died);
    }

    pub(crate) fn becoming(&self) -> MutexGuard<'_, BTreeMap<usize, (Vec<LeaseRef>, Time)>> {
        self.becoming.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note_client(&self, client: usize, change: Change) {
        let client = ClientId(client as u32);
        self.inside()
            .record(Event::client(self.now(), client, change));
    }
}

impl Inside {
    pub(crate) fn now(&self) -> u64 {
        self.time.now()
    }

    pub(crate) fn record(&mut self, event: Event) {
        self.log(|| format!("* {event}"));
        self.events.push(event);
    }

    /// Something that must not be, seen at once.
    pub(crate) fn object(&mut self, who: &'static str, what: String, events: Vec<Event>) {
        let at = Time(self.now());
        self.log(|| format!("* {who}: {what}"));
        let what = format!("at {at}: {what}");
        self.objections.push(Violation::new(who, what, events));
    }

    /// Writes a line, if anybody wants to read it.
    pub(crate) fn log(&mut self, line: impl FnOnce() -> String) {
        let at = Time(self.time.now());
        if let Some(log) = &mut self.log {
            // Writing to a string does not fail.
            let _ = writeln!(log, "{at} {}", line());
        }
    }

    pub(crate) fn take_log(&mut self) -> String {
        self.log.take().unwrap_or_default()
    }
}
