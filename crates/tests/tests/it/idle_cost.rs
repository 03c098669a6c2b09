//! What waiting costs a real server while nothing happens.

use std::sync::Arc;

use fencepost::internals::Node;
use fencepost::internals::clock::SystemClock;
use fencepost::internals::redis::{RedisNode, RedisOptions, Roster};
use fencepost::{LockName, Owner};
use fencepost_core::lock::{Command, Reply};
use fencepost_core::ticket::{ClientId, Standing, TICKET_LEASE, Ticket, TicketId, TicketNumber};
use fencepost_tests::RedisServer;

/// Commands that the server has run, those within scripts included.
fn commands(server: &RedisServer) -> u64 {
    let info = server.cli(&["INFO", "stats"]);
    let count = info
        .lines()
        .find_map(|line| line.strip_prefix("total_commands_processed:"));
    count.unwrap().trim().parse().unwrap()
}

/// It was fifteen: among them the register, which only a newcomer needs, and the time to live of the queue's
/// keys, which was set again with each look. Nine were left, with the holder of what nobody holds, the rank of one of the first
/// two, and the time to live that those two keep for all.
#[tokio::test]
async fn a_look_that_finds_all_as_it_was_costs_few_commands() {
    const LOOKS: u64 = 100;
    /// The script, the first two, the time, the silent, the ticket and its lease. Then its rank, or if it is one of the
    /// first two, whose rank is known, the queue's time to live.
    const MOST: u64 = 7;
    let server = RedisServer::start();
    let (roster, runtime) = (Roster::default(), tokio::runtime::Handle::current());
    let (options, clock) = (RedisOptions::default(), Arc::new(SystemClock));
    let node = RedisNode::open(&server.url(), options, &roster, clock, &runtime).unwrap();
    let queue = LockName::new("{pool}:semaphore").unwrap();
    let owner = Owner::new("waiter").unwrap();
    let show = async |waiter: u64| {
        let tickets = vec![Ticket {
            id: TicketId::new(&ClientId::of(waiter.into()), waiter, false, &owner),
            number: Standing::Agreed(TicketNumber::saturating(waiter)),
        }];
        let lease = TICKET_LEASE;
        let look = node.call(&queue, Command::Enqueue { tickets, lease });
        match look.await {
            Ok(Reply::Queue(seen)) => seen.places[0].ahead,
            other => panic!("{other:?}"),
        }
    };
    for waiter in 1..=3 {
        show(waiter).await;
    }
    for waiter in 1..=3 {
        let before = commands(&server);
        for _ in 0..LOOKS {
            assert_eq!(show(waiter).await as u64, waiter - 1);
        }
        let cost = commands(&server) - before;
        // Beside what the connection itself asks for now and then.
        assert!(
            cost <= LOOKS * MOST + 50,
            "{cost} for {LOOKS} looks of waiter {waiter}"
        );
    }
}
