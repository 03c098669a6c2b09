//! How fast a lock could pass from one client to another: the library's own commands, encoded
//! beforehand, sent and heard by one task that does nothing else. Whoever wants to be faster needs
//! other scripts, or another machine.

use std::time::{Duration, Instant};

use fencepost::internals::redis::{encoded, script_sources};
use fencepost::{AttemptValue, FencingToken, LockName, Owner};
use fencepost_core::Ttl;
use fencepost_core::lock::{Command, Precedence, TicketDisposition};
use fencepost_core::ticket::{ClientId, Standing, Ticket, TicketId, TicketNumber};
use hdrhistogram::Histogram;

use super::direct::{Connection, answered, connect_all, send};
use super::resp::{Request, Script};
use super::{LABEL, connect, majority, now_micros};
use crate::contender::TTL;

const TICKET_LEASE: Duration = Duration::from_secs(3);

/// Two who hand a lock to each other, all the time.
pub(crate) struct Pair {
    name: LockName,
    sides: [Side; 2],
    /// One who waits behind the next and never gets the lock: each node tells it of every release, as it tells the
    /// second of three clients and more.
    second: Option<Side>,
    attempts: u64,
}

/// Who waits for the lock of a pair.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waiting {
    /// The next, and nobody else.
    Alone,
    /// The next, and one behind it.
    WithASecond,
}

struct Side {
    client: ClientId,
    /// Of its latest attempt.
    value: AttemptValue,
    nodes: Vec<Connection>,
    /// Where it is woken.
    wakes: Vec<Connection>,
}

impl Side {
    async fn new(number: u128, ports: &[u16]) -> Self {
        let client = ClientId::of(number);
        let mut subscribe = Request::default();
        let channel = format!("fencepost:wake:{}", client.as_str());
        subscribe.command(2).text("SUBSCRIBE").text(&channel);
        let mut wakes = connect_all(ports).await;
        send(&mut wakes, &subscribe).await;
        answered(&mut wakes, ports.len()).await;
        Self {
            client,
            value: AttemptValue::reported(""),
            nodes: connect_all(ports).await,
            wakes,
        }
    }

    fn acquire(&mut self, attempt: u64, ticket: Option<&TicketId>) -> Command {
        self.value = AttemptValue::labelled(attempt.into(), &Owner::shortened(LABEL));
        Command::Acquire {
            value: self.value.clone(),
            ttl: Ttl::new(TTL).expect("a TTL"),
            proposed: FencingToken::saturating(now_micros()),
            turn: match ticket {
                Some(ticket) => Precedence::Ticket(ticket.clone()),
                None => Precedence::MayPass,
            },
        }
    }

    fn release(&self) -> Command {
        Command::Release {
            value: self.value.clone(),
            tombstone: None,
            ticket: TicketDisposition::Stays,
            follower: None,
            is_lease: true,
        }
    }

    /// A ticket for that attempt.
    fn ticket(&self, attempt: u64) -> TicketId {
        TicketId::new(&self.client, attempt, false, &Owner::shortened(LABEL))
    }

    /// Sends it to all nodes, and waits for all of them.
    async fn ask(&mut self, request: &Request) {
        let all = self.nodes.len();
        send(&mut self.nodes, request).await;
        answered(&mut self.nodes, all).await;
    }

    async fn leave(&mut self, ticket: Option<TicketId>, name: &LockName) {
        if let Some(ticket) = ticket {
            let tickets = vec![ticket];
            self.ask(&request(&Command::Leave { tickets }, name)).await;
        }
    }

    /// From now on each node says something once more.
    fn expects_to_be_told(&mut self) {
        for wake in &mut self.wakes {
            wake.pending += 1;
        }
    }
}

fn enqueue(id: &TicketId) -> Command {
    let number = TicketNumber::saturating(now_micros());
    Command::Enqueue {
        tickets: vec![Ticket {
            id: id.clone(),
            number: Standing::Proposed(number),
        }],
        lease: TICKET_LEASE,
    }
}

fn request(command: &Command, name: &LockName) -> Request {
    Request::encoded(encoded(command, name))
}

impl Pair {
    pub(crate) async fn new(ports: &[u16], waiting: Waiting) -> Self {
        // Each pair with a lock and channels of its own.
        let (name, first) = match waiting {
            Waiting::Alone => ("hand-off", 1),
            Waiting::WithASecond => ("hand-off-with-a-second", 11),
        };
        let second = match waiting {
            Waiting::Alone => None,
            Waiting::WithASecond => Some(Side::new(first + 2, ports).await),
        };
        for port in ports {
            let mut stream = connect(*port).await;
            for source in script_sources() {
                Script::load(&mut stream, source).await;
            }
        }
        Self {
            name: LockName::new(name).expect("a name"),
            sides: [
                Side::new(first, ports).await,
                Side::new(first + 1, ports).await,
            ],
            second,
            attempts: 0,
        }
    }

    /// Hands it over for that long, after so much work each time.
    pub(crate) async fn slice(
        &mut self,
        time: Duration,
        work: impl AsyncFn(),
        seen: &mut Histogram<u64>,
    ) {
        let end = Instant::now() + time;
        let name = &self.name;
        // The first has the lock, from here on.
        let [first, _] = &mut self.sides;
        let all = first.nodes.len();
        let acquire = first.acquire(self.attempts, None);
        first.ask(&request(&acquire, name)).await;
        let mut behind = None;
        while Instant::now() < end {
            let [giver, taker] = &mut self.sides;
            let enough = majority(all);
            self.attempts += 1;
            let ticket = taker.ticket(self.attempts);
            taker.ask(&request(&enqueue(&ticket), name)).await;
            if let Some(second) = &mut self.second {
                second.leave(behind.take(), name).await;
                let ticket = second.ticket(self.attempts);
                second.ask(&request(&enqueue(&ticket), name)).await;
                behind = Some(ticket);
                second.expects_to_be_told();
            }
            work().await;
            taker.expects_to_be_told();
            let release = request(&giver.release(), name);
            let acquire = request(&taker.acquire(self.attempts, Some(&ticket)), name);
            let released = Instant::now();
            send(&mut giver.nodes, &release).await;
            answered(&mut taker.wakes, enough).await;
            // The others may not have had the release yet.
            let (free, rest): (Vec<_>, Vec<_>) =
                (0..all).partition(|node| taker.wakes[*node].pending == 0);
            for node in free {
                send(&mut taker.nodes[node..=node], &acquire).await;
            }
            answered(&mut taker.nodes, enough + rest.len()).await;
            seen.saturating_record(released.elapsed().as_nanos() as u64);
            answered(&mut taker.wakes, all).await;
            for node in rest {
                send(&mut taker.nodes[node..=node], &acquire).await;
            }
            for late in [&mut taker.nodes, &mut giver.nodes] {
                answered(late, all).await;
            }
            if let Some(second) = &mut self.second {
                answered(&mut second.wakes, all).await;
            }
            self.sides.swap(0, 1);
        }
        if let Some(second) = &mut self.second {
            // While the lock is held, so that nobody is told.
            second.leave(behind, name).await;
        }
        let [last, _] = &mut self.sides;
        let release = last.release();
        last.ask(&request(&release, name)).await;
    }
}
