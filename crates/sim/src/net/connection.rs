//! Connections: how they are given up and made again, what stands in their way, and what becomes of
//! them when a node dies or stands still.
//!
//! A connection must never outlive the process of the node that it leads to.

use std::time::Duration;

use fencepost::NodeError;
use fencepost::internals::Notice;

use super::{Load, Packet, Pair, State, Way, nanos};
use crate::world::Inside;

impl Inside {
    /// The client gives its connection up: what is open on it has failed, and a new one is made.
    pub(crate) fn reset(&mut self, pair: Pair, why: &str) {
        if pair.node >= self.plan.list_of(pair.client) {
            return;
        }
        self.log(|| format!("{pair} gives its connection up: {why}"));
        let now = self.now();
        let (least, most) = self.plan.messages_take(pair.client, self.is_healed);
        let takes = self.net.dice.time(least * 2, most.there + most.back);
        let link = self.net.link(pair);
        if !matches!(link.state, State::Up | State::Vetting) {
            return;
        }
        link.state = State::Connecting;
        link.connection += 1;
        link.waiting.clear();
        link.held_back.clear();
        link.watch.look = None;
        link.watch.is_alarmed = false;
        for (_, open) in std::mem::take(&mut link.open) {
            open.end(Err(NodeError::Disconnected(why.into())));
        }
        self.members[pair.client].lost_sight(pair.node);
        let link = self.net.link(pair);
        let connect = Packet {
            pair,
            connection: link.connection,
            process: 0,
            load: Load::Connect,
        };
        self.net.put(now + nanos(takes), connect);
    }

    /// What is on its way to the node on the present connection arrives so much later.
    pub(crate) fn hold_up(&mut self, pair: Pair, time: Duration) {
        let is_command = |packet: &Packet| {
            packet.pair == pair && matches!(packet.load, Load::Command { is_copy, .. } if !is_copy)
        };
        let packets = self.net.queue.iter();
        let on_their_way: Vec<(u64, u64)> = packets
            .filter(|(_, packet)| is_command(packet))
            .map(|(key, _)| *key)
            .collect();
        for key in on_their_way {
            if let Some(packet) = self.net.queue.remove(&key) {
                self.net.queue.insert((key.0 + nanos(time), key.1), packet);
            }
        }
    }

    pub(super) fn connect(&mut self, pair: Pair) {
        let now = self.now();
        let server = &self.servers[pair.node];
        let process = server.process;
        let answers = server.is_up && !server.is_paused;
        let client_runs = !self.gates[pair.client].is_closed();
        let link = self.net.link(pair);
        if answers && client_runs && link.to_node.blocks == 0 && link.to_client.blocks == 0 {
            link.state = State::Vetting;
            link.process = process;
            link.connected = link.connection;
            (link.to_node.latest, link.to_client.latest) = (now, now);
            self.log(|| format!("{pair} is connected"));
            return self.look(pair);
        }
        if client_runs {
            link.state = State::Down;
            for (id, ..) in std::mem::take(&mut link.waiting) {
                if let Some(open) = link.open.remove(&id) {
                    open.end(Err(NodeError::Unreachable("timed out".into())));
                }
            }
        }
        let connect = Packet {
            pair,
            connection: link.connection,
            process: 0,
            load: Load::Connect,
        };
        let pause = self
            .net
            .dice
            .time(self.plan.node_timeout / 4, self.plan.node_timeout);
        self.net.put(now + nanos(pause), connect);
    }

    /// The node may be asked: its marker has been looked at.
    pub(super) fn is_up(&mut self, pair: Pair) {
        let link = self.net.link(pair);
        link.state = State::Up;
        for waker in link.until_ready.drain(..) {
            waker.wake();
        }
        let waiting = std::mem::take(&mut link.waiting);
        self.log(|| format!("{pair} is admitted"));
        self.notice(pair, Notice::Listening);
        for (id, name, command) in waiting {
            self.transmit(pair, id, name, command, None);
        }
    }

    pub(crate) fn block(&mut self, pair: Pair, way: Way) {
        self.net.link(pair).way(way).blocks += 1;
    }

    pub(crate) fn unblock(&mut self, pair: Pair, way: Way) {
        let direction = self.net.link(pair).way(way);
        direction.blocks -= 1;
        if direction.blocks > 0 {
            return;
        }
        // At once: whatever else is on its way was sent later, and arrives later.
        for packet in std::mem::take(&mut direction.stuck) {
            self.arrives(packet);
        }
    }

    /// The node's process dies. Its machine may live to tell the clients.
    pub(crate) fn crash(&mut self, node: usize, is_told: bool) {
        self.servers[node].crash();
        for client in 0..self.plan.clients {
            let pair = Pair { client, node };
            let link = self.net.link(pair);
            let broken = Packet {
                pair,
                connection: link.connection,
                process: link.process,
                load: Load::Broken,
            };
            if is_told {
                self.dispatch(Way::ToClient, broken);
            }
        }
    }

    pub(crate) fn pause_node(&mut self, node: usize) {
        self.servers[node].is_paused = true;
    }

    pub(crate) fn resume_node(&mut self, node: usize) {
        self.servers[node].is_paused = false;
        let inbox = std::mem::take(&mut self.servers[node].inbox);
        for packet in inbox {
            self.arrives_at_node(packet);
        }
    }
}
