//! What every node promises to those who wait: each behaviour is written once and run on each
//! engine.

use std::sync::Arc;
use std::time::Duration;

use fencepost::internals::{Node, Notice, WakeSink};
use fencepost::{AttemptValue, Client, FencingToken, LockName, NodeError, Owner};
use fencepost_core::Ttl;
use fencepost_core::lock::{Command, NodeQueue, Precedence, Reply, TicketDisposition};
use fencepost_core::ticket::{
    ClientId, Standing, Ticket, TicketId, TicketMode, TicketNumber, Wake,
};
use fencepost_tests::until;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use crate::engines::every_node_shows_that;

every_node_shows_that! {
    alone:
    newcomers_stand_behind_those_who_wait,
    an_agreed_number_is_taken_over,
    a_ticket_is_kept_for_its_lease_and_not_longer,
    a_fair_ticket_is_passed_by_nobody,
    a_grant_takes_the_ticket_out_and_a_failed_attempt_brings_it_back,
    a_release_wakes_the_first_and_the_second_and_nobody_else,
    a_release_does_not_wake_its_follower,
    a_release_passes_over_one_that_has_been_silent,
    the_next_is_woken_when_the_first_leaves_a_free_lock,
    a_release_wakes_all_readers_that_wait_side_by_side,
    a_writer_that_becomes_a_reader_wakes_readers_and_no_writer,
    a_writer_that_leaves_wakes_the_readers_behind_it,
    nobody_is_woken_who_does_not_listen_any_more,
    many_tickets_are_shown_and_taken_back_in_one_command,
    a_client_hands_the_lock_on_without_waiting_for_a_poll,
}

/// Longer than any test takes.
const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(200);
/// How late something may happen on a busy machine.
const LATE: Duration = Duration::from_secs(10);
/// How long it is waited for something that must not happen.
const QUIET: Duration = Duration::from_millis(150);

fn client(n: u128) -> ClientId {
    ClientId::of(n)
}

fn ticket(n: u64, fair: bool) -> TicketId {
    TicketId::new(&client(1), n, fair, &Owner::new("w").unwrap())
}

fn reader(n: u64) -> TicketId {
    let owner = Owner::new("r").unwrap();
    TicketId::of_mode(&client(1), n, TicketMode::Reader, &owner)
}

/// One lock of one node.
struct Lock<'a>(&'a Arc<dyn Node>);

impl Lock<'_> {
    async fn ask(&self, command: Command) -> Result<Reply, NodeError> {
        self.0.call(&LockName::new("job").unwrap(), command).await
    }

    async fn acquire(&self, who: &str, turn: Precedence) -> Reply {
        let command = Command::Acquire {
            value: AttemptValue::reported(who),
            ttl: Ttl::new(LONG).unwrap(),
            proposed: FencingToken::new(1).unwrap(),
            turn,
        };
        self.ask(command).await.unwrap()
    }

    async fn share(&self, who: &str, turn: Precedence) -> Reply {
        let command = Command::Share {
            value: AttemptValue::reported(who),
            ttl: Ttl::new(LONG).unwrap(),
            proposed: FencingToken::new(1).unwrap(),
            turn,
        };
        self.ask(command).await.unwrap()
    }

    async fn release(&self, who: &str, ticket: TicketDisposition) {
        self.release_before(who, ticket, None).await;
    }

    async fn release_before(
        &self,
        who: &str,
        ticket: TicketDisposition,
        follower: Option<ClientId>,
    ) {
        let command = Command::Release {
            value: AttemptValue::reported(who),
            tombstone: None,
            ticket,
            follower,
            is_lease: false,
        };
        assert_eq!(self.ask(command).await.unwrap(), Reply::Released);
    }

    async fn queue_all(&self, tickets: Vec<Ticket>, lease: Duration) -> NodeQueue {
        match self.ask(Command::Enqueue { tickets, lease }).await.unwrap() {
            Reply::Queue(line) => line,
            other => panic!("{other:?}"),
        }
    }

    /// The number and how many are ahead.
    async fn queue(&self, id: &TicketId, number: Standing, lease: Duration) -> (u64, usize) {
        let id = id.clone();
        let line = self.queue_all(vec![Ticket { id, number }], lease).await;
        (line.places[0].number.get(), line.places[0].ahead)
    }

    async fn wait(&self, id: &TicketId) -> (u64, usize) {
        self.queue(id, proposed(1), LONG).await
    }

    async fn leave(&self, tickets: Vec<TicketId>) {
        let left = self.ask(Command::Leave { tickets }).await.unwrap();
        assert_eq!(left, Reply::Left);
    }

    async fn waiting(&self) -> usize {
        match self.ask(Command::Inspect).await.unwrap() {
            Reply::Snapshot(seen) => seen.waiting,
            other => panic!("{other:?}"),
        }
    }
}

fn proposed(number: u64) -> Standing {
    Standing::Proposed(TicketNumber::saturating(number))
}

fn agreed(number: u64) -> Standing {
    Standing::Agreed(TicketNumber::saturating(number))
}

fn is_granted(reply: &Reply) -> bool {
    matches!(reply, Reply::Granted { .. })
}

/// What a node has said.
struct Heard(mpsc::UnboundedReceiver<Wake>);

struct Recorder {
    said: mpsc::UnboundedSender<Wake>,
    listening: mpsc::UnboundedSender<()>,
}

impl WakeSink for Recorder {
    fn notify(&self, notice: Notice) {
        match notice {
            Notice::Wake(wake) => drop(self.said.send(wake)),
            Notice::Listening => drop(self.listening.send(())),
            // Nobody follows or tracks a lock here.
            Notice::Freed(name) | Notice::Changed(name) => panic!("{name}"),
        }
    }
}

/// Listens, and waits until nothing is missed.
async fn listen(node: &Arc<dyn Node>) -> (fencepost::internals::Listener, Heard) {
    let (said, heard) = mpsc::unbounded_channel();
    let (listening, mut begun) = mpsc::unbounded_channel();
    let listener = node.listen(&client(1), Arc::new(Recorder { said, listening }));
    assert!(!listener.is_deaf());
    if node.address().starts_with("redis") {
        timeout(LATE, begun.recv()).await.unwrap().unwrap();
    }
    (listener, Heard(heard))
}

impl Heard {
    async fn next(&mut self) -> (TicketId, bool) {
        let wake = timeout(LATE, self.0.recv()).await.unwrap().unwrap();
        (wake.ticket, wake.first)
    }

    /// Hears that, whatever was said again before: the watch of a file does.
    async fn until(&mut self, ticket: &TicketId, first: bool) {
        while self.next().await != (ticket.clone(), first) {}
    }

    async fn nothing(&mut self) {
        let heard = timeout(QUIET, self.0.recv()).await;
        assert!(!matches!(heard, Ok(Some(_))), "{heard:?}");
    }
}

// ---- behaviours ---------------------------------------------------------------------------------

async fn newcomers_stand_behind_those_who_wait(node: &Arc<dyn Node>) {
    let lock = Lock(node);
    assert_eq!(
        lock.queue(&ticket(1, true), proposed(100), LONG).await,
        (100, 0)
    );
    assert_eq!(
        lock.queue(&ticket(2, true), proposed(5), LONG).await,
        (101, 1)
    );
    assert_eq!(
        lock.queue(&ticket(3, true), proposed(500), LONG).await,
        (500, 2)
    );
    assert_eq!(
        lock.queue(&ticket(1, true), proposed(900), LONG).await,
        (100, 0)
    );
    assert_eq!(lock.waiting().await, 3);
}

async fn an_agreed_number_is_taken_over(node: &Arc<dyn Node>) {
    let lock = Lock(node);
    lock.queue(&ticket(1, true), proposed(100), LONG).await;
    lock.queue(&ticket(2, true), proposed(100), LONG).await;
    assert_eq!(
        lock.queue(&ticket(1, true), agreed(200), LONG).await,
        (200, 1)
    );
    assert_eq!(
        lock.queue(&ticket(1, true), agreed(50), LONG).await,
        (50, 0)
    );
    assert_eq!(
        lock.queue(&ticket(3, true), agreed(20), LONG).await,
        (20, 0)
    );
}

async fn a_ticket_is_kept_for_its_lease_and_not_longer(node: &Arc<dyn Node>) {
    let lock = Lock(node);
    let begin = Instant::now();
    lock.queue(&ticket(1, true), proposed(1), SHORT).await;
    lock.queue(&ticket(2, true), proposed(1), SHORT).await;
    let is_first = async || lock.wait(&ticket(3, true)).await.1 == 0;
    until("the others are gone", LATE, is_first).await;
    assert!(begin.elapsed() >= SHORT - Duration::from_millis(2));
    assert_eq!(lock.waiting().await, 1, "both are gone together");
}

async fn a_fair_ticket_is_passed_by_nobody(node: &Arc<dyn Node>) {
    let lock = Lock(node);
    let (first, second) = (ticket(1, true), ticket(2, false));
    lock.wait(&first).await;
    lock.wait(&second).await;
    for turn in [
        Precedence::MayPass,
        Precedence::PassNobody,
        Precedence::Ticket(second),
    ] {
        match lock.acquire("x", turn).await {
            Reply::Held(head) => {
                assert_eq!(head.value.as_str(), first.as_str());
                assert_eq!(head.value.owner().as_str(), "w");
                assert!(head.remaining.unwrap() <= LONG);
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(is_granted(
        &lock.acquire("x", Precedence::Ticket(first)).await
    ));
}

async fn a_grant_takes_the_ticket_out_and_a_failed_attempt_brings_it_back(node: &Arc<dyn Node>) {
    let lock = Lock(node);
    let (a, b) = (ticket(1, true), ticket(2, true));
    let (number, _) = lock.wait(&a).await;
    lock.wait(&b).await;
    lock.acquire("x", Precedence::Ticket(a.clone())).await;
    assert_eq!(lock.wait(&b).await.1, 0);
    let back = TicketDisposition::Returns {
        id: a.clone(),
        number: TicketNumber::saturating(number),
        lease: LONG,
    };
    lock.release("x", back).await;
    assert_eq!(lock.wait(&b).await.1, 1);
    assert_eq!(lock.wait(&a).await, (number, 0));
}

async fn a_release_wakes_the_first_and_the_second_and_nobody_else(node: &Arc<dyn Node>) {
    let lock = Lock(node);
    let (_listener, mut heard) = listen(node).await;
    lock.acquire("x", Precedence::MayPass).await;
    let line = [ticket(1, false), ticket(2, false), ticket(3, false)];
    for id in &line {
        lock.wait(id).await;
    }
    lock.release("x", TicketDisposition::Stays).await;
    let (first, second) = ((line[0].clone(), true), (line[1].clone(), false));
    assert_eq!(heard.next().await, first);
    // The watch of a file may say again what has been said.
    let is_file = node.address().starts_with("file");
    let mut next = heard.next().await;
    while is_file && next == first {
        next = heard.next().await;
    }
    assert_eq!(next, second);
    if !is_file {
        heard.nothing().await;
    }
}

async fn a_release_passes_over_one_that_has_been_silent(node: &Arc<dyn Node>) {
    let lock = Lock(node);
    let (_listener, mut heard) = listen(node).await;
    let (silent, next) = (ticket(1, false), ticket(2, false));
    let lease = Duration::from_millis(100);
    lock.acquire("x", Precedence::MayPass).await;
    lock.queue(&silent, proposed(1), lease).await;
    lock.wait(&next).await;
    // Nothing but time ends a ticket, and to look would end it before the release does.
    tokio::time::sleep(lease * 2).await;
    lock.release("x", TicketDisposition::Stays).await;
    assert_eq!(heard.next().await, (next, true));
}

/// The client that follows by itself is not told; others are.
async fn a_release_does_not_wake_its_follower(node: &Arc<dyn Node>) {
    if node.address().starts_with("file") {
        // The watch of a file tells whoever is next in any case.
        return;
    }
    let lock = Lock(node);
    let (_listener, mut heard) = listen(node).await;
    let stranger = TicketId::new(&client(2), 1, false, &Owner::new("s").unwrap());
    let (ours, next) = (ticket(1, false), ticket(2, false));
    let (first, second) = ((ours.clone(), true), (ours.clone(), false));
    for (line, follower, told) in [
        ([&ours, &next], client(1), None),
        ([&ours, &stranger], client(1), None),
        ([&stranger, &ours], client(1), None),
        ([&ours, &stranger], client(2), Some(first)),
        ([&stranger, &ours], client(2), Some(second)),
    ] {
        lock.acquire("x", Precedence::MayPass).await;
        for id in line {
            lock.wait(id).await;
        }
        lock.release_before("x", TicketDisposition::Stays, Some(follower))
            .await;
        if let Some(told) = told {
            assert_eq!(heard.next().await, told);
        }
        heard.nothing().await;
        lock.leave(vec![ours.clone(), next.clone(), stranger.clone()])
            .await;
    }
}

async fn the_next_is_woken_when_the_first_leaves_a_free_lock(node: &Arc<dyn Node>) {
    let lock = Lock(node);
    let (_listener, mut heard) = listen(node).await;
    let (a, b) = (ticket(1, true), ticket(2, true));
    lock.acquire("x", Precedence::MayPass).await;
    lock.wait(&a).await;
    lock.wait(&b).await;
    lock.leave(vec![a.clone()]).await;
    heard.nothing().await;
    lock.wait(&a).await;
    lock.release("x", TicketDisposition::Leaves(b.clone()))
        .await;
    assert_eq!(heard.next().await, (a.clone(), true));
    lock.wait(&b).await;
    lock.leave(vec![a]).await;
    loop {
        // The watch of a file also tells of the second place in between.
        if heard.next().await == (b.clone(), true) {
            break;
        }
    }
}

async fn a_release_wakes_all_readers_that_wait_side_by_side(node: &Arc<dyn Node>) {
    let lock = Lock(node);
    let (_listener, mut heard) = listen(node).await;
    lock.acquire("x", Precedence::MayPass).await;
    let (a, b, writer, c) = (reader(1), reader(2), ticket(3, true), reader(4));
    for (id, ahead) in [(&a, 0), (&b, 0), (&writer, 2), (&c, 3)] {
        assert_eq!(lock.wait(id).await.1, ahead, "{id:?}");
    }
    lock.release("x", TicketDisposition::Stays).await;
    for (id, first) in [(&a, true), (&b, true), (&writer, false)] {
        heard.until(id, first).await;
    }
    for (who, id) in [("a", &a), ("b", &b)] {
        assert!(is_granted(
            &lock.share(who, Precedence::Ticket(id.clone())).await
        ));
    }
    assert!(!is_granted(
        &lock.share("c", Precedence::Ticket(c.clone())).await
    ));
    assert!(!is_granted(
        &lock.share("new", Precedence::PassNobody).await
    ));
    lock.release("a", TicketDisposition::Stays).await;
    if !node.address().starts_with("file") {
        heard.nothing().await;
    }
    lock.release("b", TicketDisposition::Stays).await;
    heard.until(&writer, true).await;
    heard.until(&c, false).await;
}

async fn a_writer_that_becomes_a_reader_wakes_readers_and_no_writer(node: &Arc<dyn Node>) {
    let lock = Lock(node);
    let (_listener, mut heard) = listen(node).await;
    let Reply::Granted { register, .. } = lock.acquire("x", Precedence::MayPass).await else {
        panic!("it was free");
    };
    let becomes_reader = || Command::ExtendShared {
        value: AttemptValue::reported("x"),
        ttl: Ttl::new(LONG).unwrap(),
        token: register,
    };
    let first = reader(1);
    lock.wait(&first).await;
    assert_eq!(lock.ask(becomes_reader()).await.unwrap(), Reply::Extended);
    heard.until(&first, true).await;
    let joined = lock.share("a", Precedence::Ticket(first)).await;
    let evicted = None;
    assert_eq!(joined, Reply::Granted { register, evicted });
    match lock.acquire("y", Precedence::MayPass).await {
        Reply::Held(holder) => assert!(holder.value.is_shared()),
        other => panic!("{other:?}"),
    }
    assert_eq!(lock.ask(becomes_reader()).await.unwrap(), Reply::Extended);
    lock.wait(&ticket(2, true)).await;
    assert_eq!(lock.ask(becomes_reader()).await.unwrap(), Reply::Extended);
    if !node.address().starts_with("file") {
        heard.nothing().await;
    }
}

async fn a_writer_that_leaves_wakes_the_readers_behind_it(node: &Arc<dyn Node>) {
    let lock = Lock(node);
    let (_listener, mut heard) = listen(node).await;
    lock.share("x", Precedence::MayPass).await;
    let (writer, a, b) = (ticket(1, true), reader(2), reader(3));
    for id in [&writer, &a, &b] {
        lock.wait(id).await;
    }
    lock.leave(vec![writer]).await;
    heard.until(&a, true).await;
    heard.until(&b, true).await;
}

async fn nobody_is_woken_who_does_not_listen_any_more(node: &Arc<dyn Node>) {
    let lock = Lock(node);
    let (listener, mut heard) = listen(node).await;
    lock.acquire("x", Precedence::MayPass).await;
    lock.wait(&ticket(1, true)).await;
    drop(listener);
    lock.release("x", TicketDisposition::Stays).await;
    heard.nothing().await;
}

async fn many_tickets_are_shown_and_taken_back_in_one_command(node: &Arc<dyn Node>) {
    let lock = Lock(node);
    let ids: Vec<_> = (0..1000).map(|n| ticket(n, n % 2 == 0)).collect();
    let number = proposed(7);
    let show = |id: &TicketId| Ticket {
        id: id.clone(),
        number,
    };
    let line = lock.queue_all(ids.iter().map(show).collect(), LONG).await;
    let seen: Vec<_> = line
        .places
        .iter()
        .map(|place| (place.number.get(), place.ahead))
        .collect();
    let expected: Vec<_> = (0..1000).map(|n| (7 + n as u64, n)).collect();
    assert_eq!(seen, expected);
    let (head, left) = line.head.unwrap();
    assert_eq!(head, ids[0]);
    assert!(left <= LONG);
    lock.leave(ids).await;
    assert_eq!(lock.waiting().await, 0);
}

async fn a_client_hands_the_lock_on_without_waiting_for_a_poll(node: &Arc<dyn Node>) {
    const TURNS: usize = 40;
    let locks = Client::builder()
        .shared_node(Arc::clone(node))
        .build()
        .unwrap();
    // It listens once it has waited.
    let lease = locks.lock("job").await.unwrap();
    let waited = locks.lock("job").timeout(SHORT).await;
    assert!(waited.unwrap_err().is_timeout());
    let waiting: Vec<_> = (0..TURNS)
        .map(|_| {
            let request = locks.lock("job").fair(true);
            tokio::spawn(async move { request.await.unwrap().release().await.unwrap() })
        })
        .collect();
    let status = async || locks.status("job").await.unwrap();
    let all = async || status().await.waiting == TURNS;
    until("all are in line", LATE, all).await;
    let begin = Instant::now();
    lease.release().await.unwrap();
    for task in waiting {
        timeout(LATE, task).await.unwrap().unwrap();
    }
    // By polling once a second it would take forty.
    assert!(begin.elapsed() < LATE, "{:?}", begin.elapsed());
    assert_eq!(status().await.waiting, 0);
}
