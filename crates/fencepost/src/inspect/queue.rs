//! [`Waiter`]: the waiters for a lock, in order, as the nodes report them.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::future::join_all;
use tokio::time::timeout;

use crate::driver::shared::Shared;
use crate::error::{Error, NodeError, NodeOutcome};
use crate::store::Queued;
use fencepost_core::name::LockName;
use fencepost_core::ticket::{TicketId, TicketNumber};
use fencepost_core::{Owner, SessionId};

/// A waiter for a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Waiter {
    /// Its owner label.
    pub owner: Owner,
    /// Its session: `None` for a ticket that is not fencepost's.
    pub session: Option<SessionId>,
    /// Approximately since when: the number of its ticket.
    pub since: SystemTime,
    /// Whether it must not be passed.
    pub fair: bool,
    /// Whether it waits to read.
    pub reader: bool,
}

impl Waiter {
    fn new(id: &TicketId, number: TicketNumber) -> Self {
        Self {
            owner: id.owner(),
            session: id.session(),
            since: UNIX_EPOCH + Duration::from_micros(number.get()),
            fair: id.is_fair() && !id.is_reader(),
            reader: id.is_reader(),
        }
    }
}

pub(crate) async fn ask(shared: &Shared, name: LockName) -> Result<Vec<Waiter>, Error> {
    let waiting = tickets(shared, name).await?;
    let waiting = waiting.iter();
    Ok(waiting
        .map(|(number, id)| Waiter::new(id, *number))
        .collect())
}

/// The same, as their tickets.
pub(crate) async fn tickets(
    shared: &Shared,
    name: LockName,
) -> Result<Vec<(TicketNumber, TicketId)>, Error> {
    let nodes = shared.coordinator.nodes();
    let asked = nodes.iter().map(|node| async {
        match timeout(shared.node_timeout, node.queue(&name)).await {
            Ok(answer) => answer,
            Err(_) => Err(NodeError::Timeout(shared.node_timeout)),
        }
    });
    let answers = join_all(asked).await;
    let answered = answers.iter().filter(|answer| answer.is_ok()).count();
    if answered < shared.coordinator.quorum.needed() {
        let outcomes = answers.into_iter().map(|answer| match answer {
            Ok(_) => NodeOutcome::Agreed,
            Err(error) => NodeOutcome::Failed(error),
        });
        return Err(shared.coordinator.no_quorum(name, outcomes));
    }
    let answers = answers.into_iter().flatten();
    Ok(agreed(answers, answered / 2 + 1))
}

/// The waiters known to enough nodes, by number. A waiter that has just come or gone is known to
/// some nodes only.
fn agreed(
    answers: impl Iterator<Item = Vec<Queued>>,
    enough: usize,
) -> Vec<(TicketNumber, TicketId)> {
    let mut known: BTreeMap<TicketId, Vec<TicketNumber>> = BTreeMap::new();
    for (id, number) in answers.flatten() {
        known.entry(id).or_default().push(number);
    }
    known.retain(|_, numbers| numbers.len() >= enough);
    // Nodes may differ until a number is settled: they will settle on the largest.
    let largest = |numbers: Vec<TicketNumber>| numbers.into_iter().max().unwrap_or_default();
    let mut waiting: Vec<_> = known
        .into_iter()
        .map(|(id, numbers)| (largest(numbers), id))
        .collect();
    waiting.sort_unstable();
    waiting
}

#[cfg(test)]
mod tests {
    use super::*;
    use fencepost_core::ticket::ClientId;

    #[test]
    fn a_waiter_that_one_node_of_three_knows_is_not_shown_and_the_others_stand_in_order() {
        let owner = Owner::new("web").unwrap();
        let ticket = |client: u128, number: u64| {
            let id = TicketId::new(&ClientId::of(client), 1, false, &owner);
            (id, TicketNumber::saturating(number))
        };
        let answers = [
            vec![ticket(2, 10), ticket(1, 20)],
            vec![ticket(2, 10), ticket(1, 21), ticket(3, 5)],
            vec![ticket(2, 10)],
        ];
        let seen = agreed(answers.into_iter(), 2);
        let numbers: Vec<_> = seen.iter().map(|(number, _)| number.get()).collect();
        assert_eq!(numbers, [10, 21]);
    }

    #[tokio::test]
    async fn the_queue_shows_who_waits_under_the_session_that_holds_another_lock() {
        let locks = crate::Client::memory().unwrap();
        let _one = locks.try_lock("one").await.unwrap();
        let other = locks.clone();
        let waits = tokio::spawn(async move { other.lock("one").await.map(drop) });
        let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
        let queue = loop {
            let queue = locks.queue("one").await.unwrap();
            if !queue.is_empty() || tokio::time::Instant::now() > deadline {
                break queue;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        };
        assert_eq!(queue.len(), 1);
        assert_eq!(queue[0].session, Some(locks.session()));
        let status = locks.status("one").await.unwrap();
        let node = status.nodes[0].lock.as_ref().unwrap();
        let holder = node.holder.as_ref().unwrap();
        assert_eq!(holder.value.session(), Some(locks.session()));
        waits.abort();
    }
}
