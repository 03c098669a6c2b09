//! How fast a lock could pass from one client to another: the library's own commands, encoded
//! beforehand, sent and heard by one task that does nothing else. Whoever wants to be faster needs
//! other scripts, or another machine.

use std::time::{Duration, Instant};

use fencepost::internals::redis::{encoded, script_sources};
use fencepost::{AttemptValue, FencingToken, LockName, Owner, Ttl};
use fencepost_core::lock::{Command, Precedence, TicketDisposition};
use fencepost_core::ticket::{ClientId, Standing, Ticket, TicketId, TicketNumber};
use hdrhistogram::Histogram;

use super::direct::{Connection, answered, connect_all, send};
use super::resp::{Request, Script};
use super::{LABEL, connect, majority, now_micros};
use crate::contender::TTL;

const NAME: &str = "hand-off";
const TICKET_LEASE: Duration = Duration::from_secs(3);

/// Two who hand a lock to each other, all the time.
pub(crate) struct Pair {
    sides: [Side; 2],
    attempts: u64,
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

    fn acquire(&mut self, attempt: u64, ticket: Option<&TicketId>) -> Request {
        self.value = AttemptValue::labelled(attempt.into(), &Owner::shortened(LABEL));
        command(&Command::Acquire {
            value: self.value.clone(),
            ttl: Ttl::new(TTL).expect("a TTL"),
            proposed: FencingToken::saturating(now_micros()),
            turn: match ticket {
                Some(ticket) => Precedence::Ticket(ticket.clone()),
                None => Precedence::MayPass,
            },
        })
    }

    fn release(&self) -> Request {
        command(&Command::Release {
            value: self.value.clone(),
            tombstone: None,
            ticket: TicketDisposition::Stays,
            follower: None,
        })
    }
}

fn enqueue(id: &TicketId) -> Request {
    let number = TicketNumber::saturating(now_micros());
    command(&Command::Enqueue {
        tickets: vec![Ticket {
            id: id.clone(),
            number: Standing::Proposed(number),
        }],
        lease: TICKET_LEASE,
    })
}

fn command(command: &Command) -> Request {
    let name = LockName::new(NAME).expect("a name");
    Request::encoded(encoded(command, &name))
}

impl Pair {
    pub(crate) async fn new(ports: &[u16]) -> Self {
        for port in ports {
            let mut stream = connect(*port).await;
            for source in script_sources() {
                Script::load(&mut stream, source).await;
            }
        }
        Self {
            sides: [Side::new(1, ports).await, Side::new(2, ports).await],
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
        let label = Owner::shortened(LABEL);
        // The first has the lock, from here on.
        let [first, _] = &mut self.sides;
        let all = first.nodes.len();
        let acquire = first.acquire(self.attempts, None);
        send(&mut first.nodes, &acquire).await;
        answered(&mut first.nodes, all).await;
        while Instant::now() < end {
            let [giver, taker] = &mut self.sides;
            let enough = majority(all);
            self.attempts += 1;
            let ticket = TicketId::new(&taker.client, self.attempts, false, &label);
            send(&mut taker.nodes, &enqueue(&ticket)).await;
            answered(&mut taker.nodes, all).await;
            work().await;
            for wake in &mut taker.wakes {
                wake.pending += 1;
            }
            let release = giver.release();
            let acquire = taker.acquire(self.attempts, Some(&ticket));
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
            self.sides.swap(0, 1);
        }
        let [last, _] = &mut self.sides;
        let release = last.release();
        send(&mut last.nodes, &release).await;
        answered(&mut last.nodes, all).await;
    }
}
