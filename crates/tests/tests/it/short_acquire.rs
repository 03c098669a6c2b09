//! A waiter that was woken acquires the lock by a short script, which leaves whatever is unusual to the script of all
//! acquires. Every kind of queue is tried from every place in it: both must come to what the state machine says.

use std::time::Duration;

use fencepost::internals::Node;
use fencepost::{AttemptValue, FencingToken, LockName, Owner};
use fencepost_core::Ttl;
use fencepost_core::lock::{Command, LockState, Now, Precedence, Reply};
use fencepost_core::ticket::{ClientId, Standing, Ticket, TicketId, TicketMode, TicketNumber};
use fencepost_tests::RedisServer;
use futures_util::future::join_all;

use crate::on_redis::{name, open, within};

const LATE: Duration = Duration::from_secs(60);
const MINUTE: Duration = Duration::from_secs(60);
/// The lease of those who are silent, and how long after they queued the lock is wanted.
const MOMENT: Duration = Duration::from_millis(50);
const LONG_AFTER: Duration = Duration::from_millis(100);
const TOKEN: u64 = 5;

/// One who waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Waiter {
    mode: TicketMode,
    is_silent: bool,
}

/// Every queue of up to two.
fn queues() -> Vec<Vec<Waiter>> {
    let modes = [TicketMode::Default, TicketMode::Fair, TicketMode::Reader];
    let waiters = modes
        .into_iter()
        .flat_map(|mode| [false, true].map(|is_silent| Waiter { mode, is_silent }));
    let waiters: Vec<_> = waiters.collect();
    let mut queues = vec![Vec::new()];
    for first in &waiters {
        queues.push(vec![*first]);
        queues.extend(waiters.iter().map(|second| vec![*first, *second]));
    }
    queues
}

#[derive(Debug)]
struct Case {
    name: LockName,
    queue: Vec<Waiter>,
    /// The place of the one who acquires: also of one who is not there.
    place: usize,
    is_held: bool,
    /// A token that was raised before.
    register: Option<u64>,
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for queue in queues() {
        for place in 0..=queue.len() {
            for is_held in [false, true] {
                for register in [None, Some(TOKEN - 1), Some(TOKEN)] {
                    cases.push(Case {
                        name: name(&cases.len().to_string()),
                        queue: queue.clone(),
                        place,
                        is_held,
                        register,
                    });
                }
            }
        }
    }
    cases
}

fn acquire(value: u128, token: u64, turn: Precedence) -> Command {
    Command::Acquire {
        value: AttemptValue::labelled(value, &Owner::new("me").unwrap()),
        ttl: Ttl::new(MINUTE).unwrap(),
        proposed: FencingToken::new(token).unwrap(),
        turn,
    }
}

fn release(value: u128) -> Command {
    Command::Release {
        value: AttemptValue::labelled(value, &Owner::new("me").unwrap()),
        tombstone: None,
        ticket: Default::default(),
        follower: None,
        is_lease: false,
    }
}

impl Case {
    fn ticket(&self, place: usize) -> Ticket {
        let mode = self
            .queue
            .get(place)
            .map_or(TicketMode::Default, |it| it.mode);
        let owner = Owner::new("waiter").unwrap();
        Ticket {
            id: TicketId::of_mode(&ClientId::of(1), place as u64, mode, &owner),
            number: Standing::Agreed(TicketNumber::saturating(place as u64 + 1)),
        }
    }

    fn enqueue(&self, is_silent: bool) -> Option<Command> {
        let places = self.queue.iter().enumerate();
        let places = places.filter(|(_, waiter)| waiter.is_silent == is_silent);
        let tickets: Vec<_> = places.map(|(place, _)| self.ticket(place)).collect();
        let lease = if is_silent { MOMENT } else { MINUTE };
        (!tickets.is_empty()).then_some(Command::Enqueue { tickets, lease })
    }

    fn before(&self) -> Vec<Command> {
        let raised = self
            .register
            .map(|token| acquire(1, token, Precedence::MayPass));
        let freed = self.register.map(|_| release(1));
        let held = self
            .is_held
            .then(|| acquire(2, TOKEN + 1, Precedence::MayPass));
        // The silent ones last: the next command drops them.
        let queued = [self.enqueue(false), self.enqueue(true)];
        let commands = [raised, freed, held].into_iter().chain(queued);
        commands.flatten().collect()
    }

    fn acquire(&self) -> Command {
        acquire(3, TOKEN, Precedence::Ticket(self.ticket(self.place).id))
    }

    /// Whether the short script does it.
    fn is_usual(&self) -> bool {
        let is_waiting = self.queue.get(self.place).is_some_and(|it| !it.is_silent);
        self.place == 0 && is_waiting && !self.is_held && self.register < Some(TOKEN)
    }

    /// The reply, and how the lock and its queue are seen then.
    fn expected(&self) -> [Reply; 3] {
        let mut state = LockState::default();
        let now = |elapsed| Now {
            elapsed,
            wall_micros: 1_000,
        };
        for command in self.before() {
            state.apply(&command, now(Duration::ZERO));
        }
        let commands = [self.acquire(), Command::Inspect, self.everybody()];
        commands.map(|command| state.apply(&command, now(LONG_AFTER)))
    }

    /// Shows one more ticket, which tells the head of the queue.
    fn everybody(&self) -> Command {
        Command::Enqueue {
            tickets: vec![self.ticket(7)],
            lease: MINUTE,
        }
    }
}

/// Without the times, which the two do not have in common.
fn alike(reply: &Reply) -> String {
    match reply {
        Reply::Held(holder) => format!("held by {:?} {:?}", holder.value, holder.token),
        Reply::Queue(queue) => {
            let head = queue.head.as_ref().map(|(id, _)| id.as_str());
            let holder = queue.holder.as_ref().map(|it| it.value.as_str());
            format!("{head:?} {holder:?} {:?}", queue.places)
        }
        Reply::Snapshot(seen) => {
            let holder = seen.holder.as_ref().map(|it| (it.value.as_str(), it.token));
            format!("{holder:?} {:?}", seen.register)
        }
        other => format!("{other:?}"),
    }
}

fn scripts(server: &RedisServer) -> usize {
    server.scripts_run() as usize
}

#[tokio::test]
async fn an_acquire_by_a_waiter_comes_to_the_same_by_the_short_script_and_by_the_other() {
    let server = RedisServer::start();
    let node = open(&server.url());
    within(LATE, node.ready()).await;
    let cases = cases();
    let before = cases.iter().map(async |case| {
        for command in case.before() {
            node.call(&case.name, command).await.unwrap();
        }
    });
    within(LATE, join_all(before)).await;
    tokio::time::sleep(LONG_AFTER).await;
    let sent = scripts(&server);
    let acquired = cases
        .iter()
        .map(|case| node.call(&case.name, case.acquire()));
    let acquired = within(LATE, join_all(acquired)).await;
    if server.has_plain_commands() {
        let unusual = cases.iter().filter(|case| !case.is_usual()).count();
        let sent = scripts(&server) - sent;
        assert_eq!(sent, cases.len() + unusual, "not by the short script");
        assert!(unusual < cases.len());
    }
    let ask = |command: fn(&Case) -> Command| {
        let asked = cases.iter().map(move |case| (case, command(case)));
        join_all(asked.map(|(case, command)| node.call(&case.name, command)))
    };
    let seen = within(LATE, ask(|_| Command::Inspect)).await;
    let queues = within(LATE, ask(Case::everybody)).await;
    let really = acquired.into_iter().zip(seen).zip(queues);
    for (case, ((reply, seen), queue)) in cases.iter().zip(really) {
        let really = [reply, seen, queue].map(|it| alike(&it.unwrap()));
        let expected = case.expected();
        assert_eq!(really, expected.each_ref().map(alike), "{case:?}");
    }
}
