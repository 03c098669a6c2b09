//! The script of a release begins with a short way, which random commands seldom find; and whoever knows the token of the
//! lease releases it by a shorter script. Here every kind of queue is tried: all ways must come to what the state machine
//! says.

use std::collections::BTreeMap;
use std::time::Duration;

use fencepost::internals::{Node, Request};
use fencepost::{AttemptValue, FencingToken, LockName, Owner};
use fencepost_core::Ttl;
use fencepost_core::lock::{Command, LockState, Now, Reply, TicketDisposition};
use fencepost_core::ticket::{ClientId, Standing, Ticket, TicketId, TicketMode, TicketNumber};
use fencepost_tests::RedisServer;
use futures_util::StreamExt;
use futures_util::future::join_all;

use crate::on_redis::{name, open, within};

/// How late something may happen on a busy machine.
const LATE: Duration = Duration::from_secs(60);
const MINUTE: Duration = Duration::from_secs(60);
/// The lease of those who are silent when the lock is given back, and how long after they got in line that is.
const MOMENT: Duration = Duration::from_millis(50);
const LONG_AFTER: Duration = Duration::from_millis(100);
/// Published last of all.
const MARK: &str = "that is all";

fn token() -> FencingToken {
    FencingToken::new(1).unwrap()
}

/// One who waits.
#[derive(Clone, Copy, Debug)]
struct Waiter {
    client: usize,
    reads: bool,
    is_silent: bool,
}

/// Every kind of them, of two clients.
fn waiters() -> impl Iterator<Item = Waiter> {
    (0..8).map(|n| Waiter {
        client: n & 1,
        reads: n & 2 > 0,
        is_silent: n & 4 > 0,
    })
}

/// Every line of up to two, and one more behind them.
fn lines() -> Vec<Vec<Waiter>> {
    let last = Waiter {
        client: 1,
        reads: false,
        is_silent: false,
    };
    let mut lines = vec![Vec::new()];
    for first in waiters() {
        lines.push(vec![first]);
        for second in waiters() {
            lines.push(vec![first, second]);
            lines.push(vec![first, second, last]);
        }
    }
    lines
}

/// A lock that is given back.
#[derive(Debug)]
struct Case {
    name: LockName,
    value: AttemptValue,
    clients: [ClientId; 2],
    line: Vec<Waiter>,
    /// Whose ticket goes with it, if one does: also that of one who is not there.
    leaves: Option<usize>,
    follower: Option<usize>,
    /// The short way refuses nothing.
    tombstone: Option<Duration>,
}

/// With all that may be said of a release.
fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for line in lines() {
        for leaves in std::iter::once(None).chain((0..=line.len()).map(Some)) {
            for follower in [None, Some(0), Some(1)] {
                for tombstone in [None, Some(MINUTE)] {
                    let number = cases.len();
                    cases.push(Case {
                        name: name(&number.to_string()),
                        value: AttemptValue::reported(format!("{number:032x}:holder")),
                        clients: [0, 1].map(|client| ClientId::of(2 * number as u128 + client)),
                        line: line.clone(),
                        leaves,
                        follower,
                        tombstone,
                    });
                }
            }
        }
    }
    cases
}

impl Case {
    fn ticket(&self, place: usize) -> Ticket {
        let waiter = self.line.get(place);
        let mode = match waiter.is_some_and(|waiter| waiter.reads) {
            true => TicketMode::Reader,
            false => TicketMode::Fair,
        };
        let client = &self.clients[waiter.map_or(0, |waiter| waiter.client)];
        let owner = Owner::new("waiter").unwrap();
        Ticket {
            id: TicketId::of_mode(client, place as u64, mode, &owner),
            number: Standing::Agreed(TicketNumber::saturating(place as u64 + 1)),
        }
    }

    fn queue(&self, is_silent: bool) -> Option<Command> {
        let places = self.line.iter().enumerate();
        let places = places.filter(|(_, waiter)| waiter.is_silent == is_silent);
        let tickets: Vec<_> = places.map(|(place, _)| self.ticket(place)).collect();
        let lease = if is_silent { MOMENT } else { MINUTE };
        (!tickets.is_empty()).then_some(Command::Enqueue { tickets, lease })
    }

    /// What comes before the release.
    fn before(&self) -> Vec<Command> {
        let acquire = Command::Acquire {
            value: self.value.clone(),
            ttl: Ttl::new(MINUTE).unwrap(),
            proposed: token(),
            turn: Default::default(),
        };
        // The silent ones last: the next command drops them.
        let commands = [Some(acquire), self.queue(false), self.queue(true)];
        commands.into_iter().flatten().collect()
    }

    fn release(&self) -> Command {
        Command::Release {
            value: self.value.clone(),
            tombstone: self.tombstone,
            ticket: match self.leaves {
                Some(place) => TicketDisposition::Leaves(self.ticket(place).id),
                None => TicketDisposition::Stays,
            },
            follower: self.follower.map(|n| self.clients[n].clone()),
            is_lease: true,
        }
    }

    /// Whether the short way has to look for those who are silent.
    fn looks_for_silent(&self) -> bool {
        let is_there = self.line.iter().any(|waiter| !waiter.is_silent);
        self.tombstone.is_none() && is_there && !self.line[0].reads
    }

    /// How many scripts a holder sends who knows its token.
    fn scripts(&self) -> usize {
        let is_for_the_short_one = self.follower.is_none() && self.tombstone.is_none();
        // A queue of which all are silent has expired.
        let is_there = self.line.iter().any(|waiter| !waiter.is_silent);
        let has_own_ticket = self.leaves.is_some_and(|place| place < self.line.len());
        let is_silent = self.line.iter().any(|waiter| waiter.is_silent);
        let is_unusual = is_there && (self.line[0].reads || is_silent || has_own_ticket);
        1 + usize::from(is_for_the_short_one && is_unusual)
    }

    /// What the state machine says: whom the release tells, and how it is seen then.
    fn expected(&self) -> (Vec<String>, Reply) {
        let mut state = LockState::default();
        let now = |elapsed| Now {
            elapsed,
            wall_micros: 0,
        };
        for command in self.before() {
            state.apply(&command, now(Duration::ZERO));
        }
        let mut told = Vec::new();
        let reply = state.apply_and_wake(&self.release(), now(LONG_AFTER), |wake| {
            let place = match (wake.first, wake.everywhere) {
                (true, true) => '0',
                (true, false) => '1',
                _ => '2',
            };
            told.push(format!("{place}{}", wake.ticket.as_str()));
        });
        assert_eq!(reply, Reply::Released);
        told.sort();
        (told, state.apply(&Command::Inspect, now(LONG_AFTER)))
    }
}

/// Everything that is published up to the mark, by the lock of those who are told.
async fn heard(messages: impl StreamExt<Item = redis::Msg> + Unpin) -> BTreeMap<u128, Vec<String>> {
    let mut messages = messages.map(|message| message.get_payload::<String>().unwrap());
    let mut heard = BTreeMap::<_, Vec<_>>::new();
    while let Some(message) = messages.next().await
        && message != MARK
    {
        let client = u128::from_str_radix(&message[1..33], 16).unwrap();
        heard.entry(client / 2).or_default().push(message);
    }
    heard
}

fn calls(server: &RedisServer, command: &str) -> usize {
    let stats = server.cli(&["INFO", "commandstats"]);
    let line = stats.lines().find_map(|line| line.strip_prefix(command));
    let calls = line.and_then(|line| line.strip_prefix(":calls=")?.split(',').next());
    calls.map_or(0, |calls| calls.parse().unwrap())
}

#[tokio::test]
async fn a_release_comes_to_the_same_on_the_short_way_and_on_the_long_one() {
    every_release(None).await;
}

#[tokio::test]
async fn a_release_by_a_holder_that_knows_its_token_comes_to_the_same() {
    every_release(Some(token())).await;
}

async fn every_release(held_with: Option<FencingToken>) {
    let server = RedisServer::start();
    let node = open(&server.url());
    let client = redis::Client::open(server.url()).unwrap();
    let mut listening = client.get_async_pubsub().await.unwrap();
    listening.psubscribe("fencepost:wake:*").await.unwrap();
    within(LATE, node.ready()).await;
    let cases = cases();
    let before = cases.iter().map(async |case| {
        for command in case.before() {
            node.call(&case.name, command).await.unwrap();
        }
    });
    within(LATE, join_all(before)).await;
    tokio::time::sleep(LONG_AFTER).await;
    // The search for old registers counts members, too.
    let looked = calls(&server, "cmdstat_zcount");
    let sent = calls(&server, "cmdstat_evalsha");
    let released = cases
        .iter()
        .map(|case| node.send(&Request::new(&case.name, case.release()).held_with(held_with)));
    let heard = tokio::spawn(heard(listening.into_on_message()));
    for reply in within(LATE, join_all(released)).await {
        assert_eq!(reply, Ok(Reply::Released));
    }
    match held_with.filter(|_| server.has_plain_commands()) {
        None => {
            let looks = cases.iter().filter(|case| case.looks_for_silent()).count();
            let looked = calls(&server, "cmdstat_zcount") - looked;
            assert_eq!(looked, looks, "not the short way");
        }
        Some(_) => {
            let sent = calls(&server, "cmdstat_evalsha") - sent;
            let expected: usize = cases.iter().map(Case::scripts).sum();
            assert_eq!(sent, expected, "not by the shorter script");
        }
    }
    server.cli(&["PUBLISH", "fencepost:wake:", MARK]);
    let mut heard = within(LATE, heard).await.unwrap();
    let seen = cases
        .iter()
        .map(|case| node.call(&case.name, Command::Inspect));
    let seen = within(LATE, join_all(seen)).await;
    for ((number, case), really_seen) in cases.iter().enumerate().zip(seen) {
        let (told, seen) = case.expected();
        let mut really_told = heard.remove(&(number as u128)).unwrap_or_default();
        really_told.sort();
        assert_eq!(really_told, told, "{case:?}");
        assert_eq!(really_seen, Ok(seen), "{case:?}");
    }
}
