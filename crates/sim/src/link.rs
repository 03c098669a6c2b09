//! [`SimNode`]: a simulated node as one client sees it: the library's [`Node`], over the simulated
//! network.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use fencepost::internals::{Call, Listener, Node, WakeSink};
use fencepost::{LockName, NodeError};
use fencepost_core::lock::Command;
use fencepost_core::ticket::ClientId;

use crate::net::Pair;
use crate::world::World;

/// One node, as one client sees it.
pub(crate) struct SimNode {
    world: Arc<World>,
    pair: Pair,
    address: String,
}

impl SimNode {
    pub(crate) fn new(world: &Arc<World>, pair: Pair) -> Self {
        Self {
            world: world.clone(),
            pair,
            address: format!("node-{}", pair.node),
        }
    }
}

impl Node for SimNode {
    fn call(&self, name: &LockName, command: Command) -> Call {
        let (world, pair, name) = (self.world.clone(), self.pair, name.as_str().to_owned());
        // Inside the future, so that one that is never polled sends nothing.
        Box::pin(async move {
            let answer = world.act(|inside| inside.send(pair, name, command))?;
            let gone = |_| Err(NodeError::Disconnected("the simulation is over".into()));
            answer.await.unwrap_or_else(gone)
        })
    }

    fn listen(&self, client: &ClientId, sink: Arc<dyn WakeSink>) -> Listener {
        let (world, pair) = (self.world.clone(), self.pair);
        world.inside().listen(pair, client.clone(), sink);
        Listener::until(move || world.inside().stop_listening(pair))
    }

    fn address(&self) -> &str {
        &self.address
    }

    fn hello(&self) -> Pin<Box<dyn Future<Output = Result<(), NodeError>> + Send + '_>> {
        let left = self.world.inside().quarantine_left(self.pair);
        let hello = left.map_or(Ok(()), |left| Err(NodeError::Quarantined(left)));
        Box::pin(std::future::ready(hello))
    }

    fn ready(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(poll_fn(|cx| {
            match self.world.inside().is_ready(self.pair, cx.waker()) {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        }))
    }
}
