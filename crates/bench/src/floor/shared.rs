//! One pipelined connection per node, shared by all tasks. A writer sends whatever has gathered, a
//! reader hands the answers out.
//!
//! With [`Writing::ByCaller`] the caller writes itself: the least that a client costs one task if its
//! connections can be used by others too, so that another task has to read them.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicIsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::Notify;

use super::resp::{Inbox, Request};
use super::{Kind, Lock, Scripts, connect, majority};
use crate::contender::Contender;

pub(crate) struct Shared {
    lock: Lock,
    nodes: Arc<Vec<Arc<Node>>>,
}

/// Who writes what is sent.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Writing {
    ByTask,
    /// For one task alone: nothing gathers.
    ByCaller,
}

struct Node {
    lines: Mutex<Lines>,
    more: Notify,
    /// For a caller that writes itself.
    stream: Option<OwnedWriteHalf>,
}

#[derive(Default)]
struct Lines {
    /// What the writer has not taken yet.
    bytes: Vec<u8>,
    /// Who waits for how many more answers, in the order of the requests.
    waiting: VecDeque<(Arc<Waiter>, usize)>,
}

/// One request to all nodes.
struct Waiter {
    /// Answers that are still needed; late ones take it below zero.
    needed: AtomicIsize,
    decided: Notify,
}

pub(crate) async fn clients(
    kind: Kind,
    ports: &[u16],
    tasks: usize,
    writing: Writing,
) -> Vec<Shared> {
    let place = match writing {
        Writing::ByTask => format!("shared-{}", ports.len()),
        Writing::ByCaller => format!("hop-{}", ports.len()),
    };
    let scripts = Scripts::load(kind, ports).await;
    let mut nodes = Vec::new();
    for port in ports {
        let (reader, writer) = connect(*port).await.into_split();
        let (by_caller, by_task) = match writing {
            Writing::ByTask => (None, Some(writer)),
            Writing::ByCaller => (Some(writer), None),
        };
        let node = Arc::new(Node {
            lines: Mutex::default(),
            more: Notify::new(),
            stream: by_caller,
        });
        if let Some(writer) = by_task {
            tokio::spawn(write(node.clone(), writer));
        }
        tokio::spawn(read(node.clone(), reader));
        nodes.push(node);
    }
    let nodes = Arc::new(nodes);
    (0..tasks)
        .map(|task| Shared {
            lock: Lock::new(&place, task, &scripts),
            nodes: nodes.clone(),
        })
        .collect()
}

impl Contender for Shared {
    type Held = ();

    async fn acquire(&mut self) {
        ask(&self.nodes, self.lock.acquire()).await;
    }

    async fn release(&mut self, (): ()) {
        ask(&self.nodes, self.lock.release()).await;
    }
}

async fn ask(nodes: &[Arc<Node>], request: &Request) {
    let waiter = Arc::new(Waiter {
        needed: AtomicIsize::new(majority(nodes.len()) as isize),
        decided: Notify::new(),
    });
    for node in nodes {
        let mut lines = node.lines();
        lines.waiting.push_back((waiter.clone(), request.replies));
        let Some(stream) = &node.stream else {
            lines.bytes.extend_from_slice(request.bytes());
            drop(lines);
            node.more.notify_one();
            continue;
        };
        drop(lines);
        let written = stream.try_write(request.bytes());
        assert_eq!(written.expect("our own server"), request.bytes().len());
    }
    waiter.decided.notified().await;
}

impl Node {
    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn write(node: Arc<Node>, mut stream: OwnedWriteHalf) {
    let mut sending = Vec::new();
    loop {
        node.more.notified().await;
        std::mem::swap(&mut sending, &mut node.lines().bytes);
        stream.write_all(&sending).await.expect("our own server");
        sending.clear();
    }
}

async fn read(node: Arc<Node>, mut stream: OwnedReadHalf) {
    let mut inbox = Inbox::default();
    let mut space = vec![0; 64 * 1024];
    loop {
        let length = stream.read(&mut space).await.expect("our own server");
        if length == 0 {
            return;
        }
        let answers = inbox.take(&space[..length]);
        let mut lines = node.lines();
        lines.answered(answers);
    }
}

impl Lines {
    /// Wakes those whose last answers these are.
    fn answered(&mut self, mut answers: usize) {
        while let Some((waiter, missing)) = self.waiting.front_mut() {
            let taken = answers.min(*missing);
            *missing -= taken;
            answers -= taken;
            if *missing > 0 {
                return;
            }
            if waiter.needed.fetch_sub(1, Ordering::AcqRel) == 1 {
                waiter.decided.notify_one();
            }
            self.waiting.pop_front();
        }
    }
}
