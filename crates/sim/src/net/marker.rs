//! The marker of a node: looked at when a connection is made, watched as long as it lives. A vote that was
//! given after a change of the marker must never be counted before it is known what has changed.

use std::time::Duration;

use fencepost::NodeError;
use fencepost::internals::clock::{Clock, Moment};
use fencepost_core::quorum::membership::{Marker, Sight, is_same_data};

use super::{LOOK_AGAIN, Load, Packet, Pair, State, Way, nanos};
use crate::member::Standing;
use crate::world::Inside;

/// How often a node is looked at that waits for others.
const WAITS_FOR_OTHERS: Duration = Duration::from_millis(100);

impl Inside {
    /// The time of a client's own clock.
    pub(super) fn own_now(&self, client: usize) -> Moment {
        self.clocks[client].now()
    }

    /// At the beginning all are connected, and have seen the markers; but for those who come with another list.
    pub(crate) fn begin_to_watch(&mut self) {
        let first = self.plan.first_list.unwrap_or(self.plan.nodes);
        let mut strangers = Vec::new();
        for (pair, link) in &mut self.net.links {
            if pair.node >= self.plan.list_of(pair.client) {
                continue;
            }
            if self.plan.list_of(pair.client) != first {
                link.state = State::Connecting;
                strangers.push(*pair);
                continue;
            }
            let server = &mut self.servers[pair.node];
            let marker = server.marker().map(|marker| marker.to_string());
            link.watch.marker = marker.unwrap_or_default();
            server
                .watched_by
                .insert(*pair, (link.connection, link.process));
        }
        for pair in strangers {
            self.connect(pair);
        }
    }

    /// Reads the marker, or does so later if the client stands still.
    pub(super) fn look(&mut self, pair: Pair) {
        if self.gates[pair.client].is_closed() {
            return self.look_after(pair, LOOK_AGAIN);
        }
        let number = self.members[pair.client].looks();
        let id = self.net.number();
        let now = self.now();
        let mute_after = nanos(self.plan.node_timeout) * 2;
        let link = self.net.link(pair);
        link.watch.look = Some((id, number));
        link.watch.looks_again = false;
        let packet = |load| Packet {
            pair,
            connection: link.connection,
            process: link.process,
            load,
        };
        let (look, watch) = (packet(Load::Look { id }), packet(Load::MuteWatch { id }));
        self.net.put(now + mute_after, watch);
        self.dispatch(Way::ToNode, look);
    }

    fn look_after(&mut self, pair: Pair, time: Duration) {
        let now = self.now();
        let link = self.net.link(pair);
        let due = Packet {
            pair,
            connection: link.connection,
            process: link.process,
            load: Load::LookDue,
        };
        self.net.put(now + nanos(time), due);
    }

    /// A look at the marker, or a write of it.
    pub(super) fn arrives_at_marker(
        &mut self,
        pair: Pair,
        connection: u64,
        process: u64,
        load: Load,
    ) {
        let server = &mut self.servers[pair.node];
        match load {
            Load::Look { id } => {
                server.watched_by.insert(pair, (connection, process));
                let (marker, sight) = (server.marker(), server.sight());
                let load = Load::Seen { id, marker, sight };
                let seen = Packet {
                    pair,
                    connection,
                    process,
                    load,
                };
                self.dispatch(Way::ToClient, seen);
            }
            Load::WriteMarker { old, new } if server.marker() == old => {
                self.write_marker(pair.node, new);
            }
            _ => {}
        }
    }

    /// Writes a marker, or takes it away.
    pub(crate) fn write_marker(&mut self, node: usize, marker: Option<Marker>) {
        self.log(|| {
            let stage = marker.as_ref().map(|m| (&m.cluster, m.epoch, m.stage));
            format!("node {node} has the marker {stage:?}")
        });
        self.servers[node].set_marker(marker);
        self.tell_of_marker(node);
    }

    /// Tells whoever has read the marker that it has changed.
    pub(crate) fn tell_of_marker(&mut self, node: usize) {
        let watched_by = std::mem::take(&mut self.servers[node].watched_by);
        for (pair, (connection, process)) in watched_by {
            let told = Packet {
                pair,
                connection,
                process,
                load: Load::Invalid,
            };
            self.dispatch(Way::ToClient, told);
        }
    }

    /// What a connection hears of the marker, or is to do about it.
    pub(super) fn hears_of_marker(&mut self, packet: Packet) {
        let pair = packet.pair;
        let link = self.net.link(pair);
        if link.connection != packet.connection || !matches!(link.state, State::Up | State::Vetting)
        {
            return;
        }
        match packet.load {
            Load::Invalid => {
                // In the order of the connection, whether the client runs or not.
                link.watch.is_alarmed = true;
                match link.watch.look {
                    Some(_) => link.watch.looks_again = true,
                    None => self.look(pair),
                }
            }
            Load::LookDue if link.watch.look.is_none() => self.look(pair),
            Load::Seen { id, marker, sight } => {
                let Some((_, number)) = link.watch.look.filter(|(look, _)| *look == id) else {
                    return;
                };
                if self.gates[pair.client].is_closed() {
                    let load = Load::Seen { id, marker, sight };
                    let later = self.now() + nanos(LOOK_AGAIN);
                    return self.net.put(later, Packet { load, ..packet });
                }
                link.watch.look = None;
                if link.watch.looks_again {
                    return self.look(pair);
                }
                self.vet(pair, marker, &sight, number);
            }
            _ => {}
        }
    }

    fn vet(&mut self, pair: Pair, marker: Option<Marker>, sight: &Sight, number: u64) {
        let own_now = self.own_now(pair.client);
        let incarnation = format!("client-{}-{}", pair.client, self.net.number());
        let rest = self.net.link(pair).watch.rest(own_now);
        let members = &mut self.members[pair.client];
        let standing = members.vet(pair.node, &marker, sight, number, rest, incarnation);
        let raw = marker.as_ref().map(ToString::to_string).unwrap_or_default();
        match standing {
            Standing::In(left) => {
                let link = self.net.link(pair);
                let is_new = link.state == State::Vetting;
                let watch = &mut link.watch;
                if !is_new && !watch.casts_no_vote && !is_same_data(&watch.marker, &raw) {
                    return self
                        .reset(pair, "its data were replaced while a command was in flight");
                }
                watch.marker = raw;
                watch.is_alarmed = false;
                watch.waits(left, own_now);
                for (id, answer) in std::mem::take(&mut link.held_back) {
                    if let Some(open) = link.open.remove(&id) {
                        open.end(answer);
                    }
                }
                if let Some(left) = left {
                    self.log(|| format!("{pair} does not count it for {left:?}"));
                    let time = self.clocks[pair.client].in_true_time(left);
                    self.look_after(pair, time + Duration::from_millis(1));
                }
                if is_new {
                    self.is_up(pair);
                }
            }
            Standing::Write(new) => {
                let link = self.net.link(pair);
                let write = Packet {
                    pair,
                    connection: link.connection,
                    process: link.process,
                    load: Load::WriteMarker { old: marker, new },
                };
                self.dispatch(Way::ToNode, write);
                self.look(pair);
            }
            Standing::Waiting => self.does_not_vote(pair, NodeError::NoCluster("waiting".into())),
            Standing::Refused(why) => self.does_not_vote(pair, NodeError::Differs(why)),
        }
    }

    /// Whatever waits for the node, or was answered by it, has no vote; it is looked at again later.
    fn does_not_vote(&mut self, pair: Pair, why: NodeError) {
        let link = self.net.link(pair);
        if link.state == State::Up {
            return self.reset(pair, "it may not vote any more");
        }
        link.waiting.clear();
        for (_, open) in std::mem::take(&mut link.open) {
            open.end(Err(why.clone()));
        }
        self.look_after(pair, WAITS_FOR_OTHERS);
    }
}
