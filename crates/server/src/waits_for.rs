//! Who waits for whom, across locks; and cycles of that. Pure.
//!
//! By session ids alone, which holder and waiter share: two parties with the same label are two. A
//! session that does several things at once may be in a cycle that ends by itself, so a cycle is
//! shown as what was seen: each of these sessions waits for a lock that the next one holds.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use fencepost::SessionId;

/// One lock, as far as waiting goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contended {
    /// Its name.
    pub lock: String,
    /// Which sessions hold it, and under which label.
    pub holders: Vec<(SessionId, String)>,
    /// Which sessions wait for it, and under which label.
    pub waiters: Vec<(SessionId, String)>,
}

/// One session that waits for a lock which the next one holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Who waits.
    pub session: SessionId,
    /// The label under which it waits.
    pub owner: String,
    /// For which lock.
    pub lock: String,
}

/// Each of these waits for a lock that the next one holds, and the last for one of the first's.
pub type Cycle = Vec<Step>;

/// The shortest cycle of every knot of sessions that wait for each other, the oldest name first.
#[must_use]
pub fn cycles(locks: &[Contended]) -> Vec<Cycle> {
    let mut edges: BTreeMap<SessionId, Vec<(SessionId, Step)>> = BTreeMap::new();
    for lock in locks {
        for (waiter, owner) in &lock.waiters {
            for (holder, _) in &lock.holders {
                // Tasks of one client may wait for each other, and end by themselves.
                if holder == waiter {
                    continue;
                }
                let step = Step {
                    session: *waiter,
                    owner: owner.clone(),
                    lock: lock.lock.clone(),
                };
                edges.entry(*waiter).or_default().push((*holder, step));
            }
        }
    }
    let mut done = BTreeSet::new();
    let mut found = Vec::new();
    for start in edges.keys() {
        if done.contains(start) {
            continue;
        }
        if let Some(cycle) = shortest_from(*start, &edges) {
            done.extend(cycle.iter().map(|step| step.session));
            found.push(cycle);
        }
    }
    found.sort_by(|a, b| a[0].lock.cmp(&b[0].lock));
    found
}

/// By breadth, so that the first way back is the shortest.
fn shortest_from(
    start: SessionId,
    edges: &BTreeMap<SessionId, Vec<(SessionId, Step)>>,
) -> Option<Cycle> {
    let mut came_by: BTreeMap<SessionId, &Step> = BTreeMap::new();
    let mut queue = VecDeque::from([start]);
    while let Some(session) = queue.pop_front() {
        for (next, step) in edges.get(&session).into_iter().flatten() {
            if *next == start {
                let mut cycle = vec![step.clone()];
                let mut at = session;
                while at != start {
                    let step = came_by.get(&at)?;
                    cycle.push((*step).clone());
                    at = step.session;
                }
                cycle.reverse();
                return Some(cycle);
            }
            if !came_by.contains_key(next) {
                came_by.insert(*next, step);
                queue.push_back(*next);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(name: &str, holders: &[u128], waiters: &[u128]) -> Contended {
        let party = |number: &u128| (SessionId::of(number << 80), format!("owner-{number}"));
        Contended {
            lock: name.to_owned(),
            holders: holders.iter().map(party).collect(),
            waiters: waiters.iter().map(party).collect(),
        }
    }

    fn names(cycle: &Cycle) -> Vec<&str> {
        cycle.iter().map(|step| step.lock.as_str()).collect()
    }

    #[test]
    fn a_chain_is_no_cycle_and_three_in_a_ring_are_one() {
        let chain = [lock("a", &[1], &[2]), lock("b", &[2], &[3])];
        assert!(cycles(&chain).is_empty());
        let ring = [
            lock("a", &[1], &[3, 9]),
            lock("b", &[2], &[1]),
            lock("c", &[3], &[2]),
            lock("d", &[8], &[7]),
        ];
        let found = cycles(&ring);
        assert_eq!(found.len(), 1);
        assert_eq!(names(&found[0]), ["b", "c", "a"]);
        assert_eq!(found[0][0].owner, "owner-1");
    }

    #[test]
    fn a_session_that_waits_for_its_own_lock_is_no_cycle() {
        assert!(cycles(&[lock("a", &[1], &[1])]).is_empty());
    }

    #[test]
    fn two_rings_are_two_and_a_tail_belongs_to_none() {
        let locks = [
            lock("a", &[1], &[2]),
            lock("b", &[2], &[1]),
            lock("x", &[5], &[6]),
            lock("y", &[6], &[5]),
            lock("z", &[9], &[1]),
            lock("w", &[1], &[4]),
        ];
        let found = cycles(&locks);
        assert_eq!(found.len(), 2);
        assert!(found.iter().all(|cycle| cycle.len() == 2));
    }

    #[test]
    fn a_reader_among_many_blocks_a_writer() {
        let locks = [lock("a", &[1, 2, 3], &[7]), lock("b", &[7], &[3])];
        assert_eq!(cycles(&locks).len(), 1);
    }
}
