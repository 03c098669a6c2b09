//! How fast a lock could pass from one client to another: the library's scripts, sent and heard by one
//! task that does nothing else. Whoever wants to be faster needs other scripts, or another machine.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::direct::{Connection, answered, connect_all, send};
use super::resp::Script;
use super::{Kind, LABEL, Lock, QUEUE, Scripts, connect, majority};

/// Two who hand a lock to each other, all the time.
pub(crate) struct Pair {
    sides: [Side; 2],
    queue: Script,
    tickets: u64,
}

struct Side {
    client: String,
    lock: Lock,
    nodes: Vec<Connection>,
    /// Where it is woken.
    ears: Vec<Connection>,
}

impl Side {
    async fn new(number: usize, ports: &[u16], scripts: &Scripts) -> Self {
        let client = format!("{number:032x}");
        let channel = format!("fencepost:wake:{client}");
        let length = channel.len();
        let subscribe = format!("*2\r\n$9\r\nSUBSCRIBE\r\n${length}\r\n{channel}\r\n");
        let mut ears = connect_all(ports).await;
        send(&mut ears, subscribe.as_bytes()).await;
        answered(&mut ears, ports.len()).await;
        Self {
            client,
            lock: Lock::new("hand-off", 0, scripts),
            nodes: connect_all(ports).await,
            ears,
        }
    }
}

impl Pair {
    pub(crate) async fn new(ports: &[u16]) -> Self {
        let scripts = Scripts::load(Kind::Fenced, ports).await;
        let mut queue = None;
        for port in ports {
            queue = Some(Script::load(&mut connect(*port).await, QUEUE).await);
        }
        let sides = [
            Side::new(1, ports, &scripts).await,
            Side::new(2, ports, &scripts).await,
        ];
        Self {
            sides,
            queue: queue.expect("at least one node"),
            tickets: 0,
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
        // The first has the lock, from here on.
        let [first, _] = &mut self.sides;
        let all = first.nodes.len();
        send(&mut first.nodes, first.lock.acquire()).await;
        answered(&mut first.nodes, all).await;
        while Instant::now() < end {
            let [giver, taker] = &mut self.sides;
            let enough = majority(all);
            let ticket = format!("{}{:016x}d:{LABEL}", taker.client, self.tickets);
            self.tickets += 1;
            send(&mut taker.nodes, taker.lock.queue(&self.queue, &ticket)).await;
            answered(&mut taker.nodes, all).await;
            work().await;
            for ear in &mut taker.ears {
                ear.pending += 1;
            }
            let released = Instant::now();
            send(&mut giver.nodes, giver.lock.release()).await;
            answered(&mut taker.ears, enough).await;
            // The others may not have had the release yet.
            let (free, rest): (Vec<_>, Vec<_>) =
                (0..all).partition(|node| taker.ears[*node].pending == 0);
            let acquire = taker.lock.acquire_in_turn(Some(&ticket));
            for node in free {
                send(&mut taker.nodes[node..=node], acquire).await;
            }
            answered(&mut taker.nodes, enough + rest.len()).await;
            seen.saturating_record(released.elapsed().as_nanos() as u64);
            answered(&mut taker.ears, all).await;
            for node in rest {
                send(&mut taker.nodes[node..=node], acquire).await;
            }
            for late in [&mut taker.nodes, &mut giver.nodes] {
                answered(late, all).await;
            }
            self.sides.swap(0, 1);
        }
        let [last, _] = &mut self.sides;
        send(&mut last.nodes, last.lock.release()).await;
        answered(&mut last.nodes, all).await;
    }
}
