//! One connection per task and node. The task writes and reads by itself.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;

use super::resp::{Inbox, Request};
use super::{Kind, Lock, Scripts, connect, majority};
use crate::contender::Contender;

pub(crate) struct Direct {
    lock: Lock,
    nodes: Vec<Connection>,
}

/// Answers come in the order of the requests, so counting them tells which is which. A node outside
/// the majority may lag behind; its late answers are counted when they come.
pub(super) struct Connection {
    stream: TcpStream,
    inbox: Inbox,
    pub(super) pending: usize,
}

/// One to each node.
pub(super) async fn connect_all(ports: &[u16]) -> Vec<Connection> {
    let mut nodes = Vec::new();
    for port in ports {
        nodes.push(Connection {
            stream: connect(*port).await,
            inbox: Inbox::default(),
            pending: 0,
        });
    }
    nodes
}

pub(crate) async fn clients(kind: Kind, ports: &[u16], tasks: usize) -> Vec<Direct> {
    let place = format!("direct-{}", ports.len());
    let scripts = Scripts::load(kind, ports).await;
    let mut clients = Vec::new();
    for task in 0..tasks {
        let nodes = connect_all(ports).await;
        let lock = Lock::new(&place, task, &scripts);
        clients.push(Direct { lock, nodes });
    }
    clients
}

impl Contender for Direct {
    type Held = ();

    async fn acquire(&mut self) {
        ask(&mut self.nodes, self.lock.acquire()).await;
    }

    async fn release(&mut self, (): ()) {
        ask(&mut self.nodes, self.lock.release()).await;
    }
}

async fn ask(nodes: &mut [Connection], request: &Request) {
    send(nodes, request).await;
    answered(nodes, majority(nodes.len())).await;
}

pub(super) async fn send(nodes: &mut [Connection], request: &Request) {
    for node in &mut *nodes {
        let written = node.stream.write_all(request.bytes()).await;
        written.expect("our own server");
        node.pending += request.replies;
    }
}

/// Waits until so many of them have nothing more to say.
pub(super) async fn answered(nodes: &mut [Connection], needed: usize) {
    poll_fn(|cx| {
        let mut answered = 0;
        for node in &mut *nodes {
            while node.pending > 0 && node.poll_read(cx).is_ready() {}
            answered += usize::from(node.pending == 0);
        }
        match answered >= needed {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    })
    .await;
}

impl Connection {
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut space = [0; 1024];
        let mut buffer = ReadBuf::new(&mut space);
        let read = Pin::new(&mut self.stream).poll_read(cx, &mut buffer);
        read.map(|outcome| {
            outcome.expect("our own server");
            assert!(
                !buffer.filled().is_empty(),
                "the server closed the connection"
            );
            self.pending -= self.inbox.take(buffer.filled());
        })
    }
}
