//! Fairness: whoever had its place before another began is served before it, whatever their clocks
//! say, and whoever is cut off from the majority stands in nobody's way.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fencepost::internals::clock::{Clock, Moment, SystemClock};
use fencepost::internals::memory::MemoryNode;
use fencepost::internals::{Call, Listener, Node, WakeSink};
use fencepost::{Client, LockName, NodeError, Progress};
use fencepost_core::lock::Command;
use fencepost_core::ticket::{ClientId, Standing, TICKET_LEASE, Ticket, TicketId, TicketNumber};
use fencepost_tests::Cluster;
use tokio::sync::Notify;
use tokio::time::timeout;

const LATE: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_secs(1);
/// For the machine.
const SLACK: Duration = Duration::from_secs(1);

/// A clock whose wall time is wrong.
struct Skewed {
    micros: i64,
}

impl Clock for Skewed {
    fn now(&self) -> Moment {
        SystemClock.now()
    }

    fn wall_micros(&self) -> u64 {
        SystemClock.wall_micros().saturating_add_signed(self.micros)
    }
}

/// One turn, in the order of one counter that all share.
#[derive(Clone, Copy, Debug)]
struct Precedence {
    began: u64,
    /// When a majority had agreed on its place, if it had to wait.
    seated: Option<u64>,
    served: u64,
}

/// Pairs of which the second was served first, though the first had its place before it began.
fn inversions(turns: &[Precedence]) -> Vec<(Precedence, Precedence)> {
    let mut found = Vec::new();
    let mut by_service = turns.to_vec();
    by_service.sort_by_key(|turn| turn.served);
    // From the last served on: who of the later ones was seated first?
    let mut earliest: Option<Precedence> = None;
    for turn in by_service.iter().rev() {
        if let Some(first) = earliest
            && first.seated.is_some_and(|seated| seated < turn.began)
        {
            found.push((first, *turn));
        }
        let is_earlier = |other: Precedence| turn.seated < other.seated;
        if turn.seated.is_some() && earliest.is_none_or(is_earlier) {
            earliest = Some(*turn);
        }
    }
    found
}

#[test]
fn the_checker_finds_one_who_was_passed() {
    let turn = |began, seated, served| Precedence {
        began,
        seated,
        served,
    };
    let good = [turn(1, Some(2), 5), turn(3, Some(4), 6), turn(1, None, 2)];
    assert!(inversions(&good).is_empty());
    // It began while the other was not seated yet: anything may happen.
    let open = [turn(1, Some(4), 9), turn(3, Some(5), 7)];
    assert!(inversions(&open).is_empty());
    let passed = [turn(1, Some(2), 9), turn(3, Some(5), 7)];
    assert_eq!(inversions(&passed).len(), 1);
    let by_a_newcomer = [turn(1, Some(2), 9), turn(3, None, 7)];
    assert_eq!(inversions(&by_a_newcomer).len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_is_passed_in_ten_thousand_hand_offs_with_clocks_ten_seconds_wrong() {
    const CLIENTS: usize = 8;
    const TURNS: usize = 1250;
    let cluster = Cluster::start(3);
    let counter = Arc::new(AtomicU64::new(0));
    let mut workers = Vec::new();
    for n in 0..CLIENTS {
        let micros = [10_000_000, -10_000_000, 0, 3_000_000][n % 4];
        let clock = Arc::new(Skewed { micros });
        // No node is away: one that is slow is waited for.
        let builder = cluster.builder().clock(clock).node_timeout(LATE);
        let locks = cluster.connect(builder).await;
        workers.push(tokio::spawn(work(locks, TURNS, Arc::clone(&counter))));
    }
    let mut turns = Vec::new();
    for worker in workers {
        turns.extend(worker.await.unwrap());
    }
    let waited = turns.iter().filter(|turn| turn.seated.is_some()).count();
    println!("{} turns, {waited} of them waited", turns.len());
    assert_eq!(turns.len(), CLIENTS * TURNS);
    assert!(waited > TURNS, "hardly anybody waited: {waited}");
    assert_eq!(
        inversions(&turns).first().map(|pair| format!("{pair:?}")),
        None
    );
}

async fn work(locks: Client, turns: usize, counter: Arc<AtomicU64>) -> Vec<Precedence> {
    let tick = move || counter.fetch_add(1, Ordering::SeqCst) + 1;
    let mut done = Vec::new();
    for _ in 0..turns {
        let began = tick();
        let seated = Arc::new(AtomicU64::new(0));
        let (tell, now) = (Arc::clone(&seated), tick.clone());
        let request = locks.lock("job").fair(true).timeout(LATE);
        let request = request.on_progress(move |progress: Progress| {
            if progress.is_settled && tell.load(Ordering::SeqCst) == 0 {
                tell.store(now(), Ordering::SeqCst);
            }
        });
        let lease = request.await.unwrap();
        let served = tick();
        let seated = seated.load(Ordering::SeqCst);
        done.push(Precedence {
            began,
            seated: (seated > 0).then_some(seated),
            served,
        });
        lease.release().await.unwrap();
    }
    done
}

/// A node that a client can be cut off from.
struct Cuttable {
    node: MemoryNode,
    is_cut: Arc<AtomicBool>,
}

impl Node for Cuttable {
    fn call(&self, name: &LockName, command: Command) -> Call {
        match self.is_cut.load(Ordering::SeqCst) {
            false => self.node.call(name, command),
            true => Box::pin(std::future::ready(Err(NodeError::Unreachable(
                "cut".into(),
            )))),
        }
    }

    fn listen(&self, client: &ClientId, sink: Arc<dyn WakeSink>) -> Listener {
        self.node.listen(client, sink)
    }

    fn address(&self) -> &str {
        self.node.address()
    }

    fn hello(&self) -> Pin<Box<dyn Future<Output = Result<(), NodeError>> + Send + '_>> {
        self.node.hello()
    }
}

/// A client of these nodes, and what cuts it off from each.
fn client_of(nodes: &[MemoryNode]) -> (Client, Vec<Arc<AtomicBool>>) {
    let mut builder = Client::builder();
    let mut cuts = Vec::new();
    for node in nodes {
        let is_cut = Arc::new(AtomicBool::new(false));
        cuts.push(Arc::clone(&is_cut));
        let node = node.clone();
        builder = builder.node(Cuttable { node, is_cut });
    }
    (builder.build().unwrap(), cuts)
}

async fn seat(
    locks: &Client,
) -> tokio::task::JoinHandle<Result<fencepost::Lease, fencepost::Error>> {
    let seated = Arc::new(Notify::new());
    let tell = Arc::clone(&seated);
    let request = locks.lock("job").fair(true);
    let request = request.on_progress(move |progress| {
        if progress.is_settled {
            tell.notify_one();
        }
    });
    let task = tokio::spawn(request.into_future());
    timeout(LATE, seated.notified()).await.unwrap();
    task
}

/// The head sees one node of three, the next sees all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_head_on_the_minority_side_costs_the_others_one_ticket_lease() {
    let nodes = [MemoryNode::new(), MemoryNode::new(), MemoryNode::new()];
    let (holder, _) = client_of(&nodes);
    let (first, cuts) = client_of(&nodes);
    let (second, _) = client_of(&nodes);
    let lease = holder.lock("job").await.unwrap();
    let head = seat(&first).await;
    let next = seat(&second).await;
    cuts[0].store(true, Ordering::SeqCst);
    cuts[1].store(true, Ordering::SeqCst);
    let begin = Instant::now();
    lease.release().await.unwrap();
    let lease = timeout(LATE, next).await.unwrap().unwrap().unwrap();
    let took = begin.elapsed();
    assert!(took < TICKET_LEASE + POLL + SLACK, "{took:?}");
    // And when the cut heals, the head has its place again.
    for cut in &cuts {
        cut.store(false, Ordering::SeqCst);
    }
    lease.release().await.unwrap();
    drop(timeout(LATE, head).await.unwrap().unwrap().unwrap());
}

/// The head can reach one node, which the others need: it refreshes its ticket there and could
/// block them for ever if it did not withdraw.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_head_that_hears_too_few_nodes_withdraws_from_those_it_hears() {
    let nodes = [MemoryNode::new(), MemoryNode::new(), MemoryNode::new()];
    let (holder, _) = client_of(&nodes);
    let (first, first_cuts) = client_of(&nodes);
    let (second, second_cuts) = client_of(&nodes);
    let lease = holder.lock("job").await.unwrap();
    let _head = seat(&first).await;
    let next = seat(&second).await;
    // The first reaches only the middle one, the second has only the first and the middle one.
    first_cuts[0].store(true, Ordering::SeqCst);
    first_cuts[2].store(true, Ordering::SeqCst);
    second_cuts[2].store(true, Ordering::SeqCst);
    let begin = Instant::now();
    lease.release().await.unwrap();
    drop(timeout(LATE, next).await.unwrap().unwrap().unwrap());
    let took = begin.elapsed();
    assert!(took < TICKET_LEASE + POLL + SLACK, "{took:?}");
}

/// A node whose answers come late, to this client and for a while.
struct Slow {
    node: MemoryNode,
    is_slow: Arc<AtomicBool>,
}

impl Node for Slow {
    fn call(&self, name: &LockName, command: Command) -> Call {
        let answer = self.node.call(name, command);
        let is_slow = self.is_slow.load(Ordering::SeqCst);
        Box::pin(async move {
            let answer = answer.await;
            if is_slow {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            answer
        })
    }

    fn address(&self) -> &str {
        self.node.address()
    }
}

/// Two of three nodes had agreed on a waiter's number. The third, which had not been heard, had put
/// it far behind another, and at the next look its larger number was taken over: whoever had come
/// in between was served first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_place_that_is_agreed_on_is_not_lost_to_a_node_that_answers_late() {
    let nodes = [MemoryNode::new(), MemoryNode::new(), MemoryNode::new()];
    let name = LockName::new("job").unwrap();
    let owner = fencepost::Owner::new("from the future").unwrap();
    let id = TicketId::new(&ClientId::of(1), 0, true, &owner);
    let in_ten_minutes = SystemClock.wall_micros() + 600_000_000;
    let ticket = Ticket {
        id: id.clone(),
        number: Standing::Agreed(TicketNumber::saturating(in_ten_minutes)),
    };
    let queue = Command::Enqueue {
        tickets: vec![ticket],
        lease: LATE,
    };
    nodes[2].call(&name, queue).await.unwrap();

    let (holder, _) = client_of(&nodes);
    let (second, cuts) = client_of(&nodes);
    let is_slow = Arc::new(AtomicBool::new(true));
    let first = Client::builder()
        .node(nodes[0].clone())
        .node(nodes[1].clone())
        .node(Slow {
            node: nodes[2].clone(),
            is_slow: Arc::clone(&is_slow),
        });
    let first = first.build().unwrap();
    let lease = holder.lock("job").await.unwrap();
    let head = seat(&first).await;
    is_slow.store(false, Ordering::SeqCst);
    let leave = Command::Leave { tickets: vec![id] };
    nodes[2].call(&name, leave).await.unwrap();
    cuts[2].store(true, Ordering::SeqCst);
    let next = seat(&second).await;
    // Both have looked again, of which they say nothing.
    tokio::time::sleep(POLL * 3 / 2).await;
    lease.release().await.unwrap();
    let lease = timeout(LATE, head).await.unwrap().unwrap().unwrap();
    assert!(!next.is_finished());
    lease.release().await.unwrap();
    drop(timeout(LATE, next).await.unwrap().unwrap().unwrap());
}
