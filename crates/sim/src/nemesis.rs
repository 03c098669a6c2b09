//! The nemesis: one task for each kind of fault that comes and goes, until the healing.
//!
//! Each undoes what it did before it ends, so that all is well when all of them have ended. Faults
//! of single messages strike in `net`.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join, join_all};
use tokio::time::{sleep, sleep_until};

use crate::dice::Dice;
use crate::faults::Fault;
use crate::net::{Pair, Way};
use crate::plan::Rate;
use crate::world::World;

/// How far a wall clock jumps, either way, in microseconds.
const LONGEST_JUMP: i64 = 2 * 60 * 60 * 1_000_000;

/// Brings one kind of fault over the world, again and again.
pub(crate) async fn haunt(world: Arc<World>, fault: Fault, rate: Rate, mut dice: Dice) {
    let end = world.time.at(crate::net::nanos(world.plan.faults_until));
    loop {
        sleep(dice.time(Duration::ZERO, rate.every * 2)).await;
        if tokio::time::Instant::now() >= end {
            return;
        }
        let over = tokio::time::Instant::now() + dice.time(Duration::from_millis(1), rate.lasts);
        let strike = Strike {
            world: &world,
            dice: &mut dice,
            over: over.min(end),
        };
        strike.of(fault).await;
    }
}

/// One stroke.
struct Strike<'a> {
    world: &'a Arc<World>,
    dice: &'a mut Dice,
    over: tokio::time::Instant,
}

impl Strike<'_> {
    async fn of(self, fault: Fault) {
        match fault {
            Fault::CrashLosingData | Fault::RoleChange => self.many(fault).await,
            _ => self.one(fault).await,
        }
    }

    /// Some nodes at about the same time, as if they shared a rack or an operator: one that forgets alone is seldom the
    /// one on which a quorum depends.
    async fn many(self, fault: Fault) {
        // A copy, so that the first strikes as it would alone.
        let mut dice = self.dice.clone().fork();
        let others = dice.pick(&[0, 0, 1, 2, 3]);
        let mut others: Vec<_> = (0..others).map(|_| dice.fork()).collect();
        let (world, over) = (self.world, self.over);
        let others = others.iter_mut().map(|dice| {
            let strike = Strike { world, dice, over };
            strike.one(fault)
        });
        join(self.one(fault), join_all(others)).await;
    }

    async fn one(mut self, fault: Fault) {
        match fault {
            Fault::Reset => self.reset(),
            Fault::Partition | Fault::OneWay => self.partition(fault).await,
            Fault::CrashKeepingData | Fault::CrashLosingData => self.crash(fault).await,
            Fault::Flush => self.flush(),
            Fault::RoleChange => self.change_role().await,
            Fault::NodePause => self.pause_node().await,
            Fault::ClientPause => self.pause_client().await,
            Fault::ClientDeath => self.kill_client(),
            Fault::ClientWallJump => {
                let client = self.client();
                self.world.clocks[client].jump_wall(self.dice.around_zero(LONGEST_JUMP));
                self.note(fault, format!("client {client}"));
            }
            Fault::NodeWallJump => {
                let node = self.node();
                let clock = self.world.inside().servers[node].clock.clone();
                clock.jump_wall(self.dice.around_zero(LONGEST_JUMP));
                self.note(fault, format!("node {node}"));
            }
            // These strike single messages and futures, or last for the whole run, or have a task of their own.
            Fault::Delay
            | Fault::CommandLost
            | Fault::AnswerLost
            | Fault::NoticeLost
            | Fault::Duplicate
            | Fault::ClientRate
            | Fault::NodeRate
            | Fault::ListChange
            | Fault::Cancel => sleep_until(self.over).await,
        }
    }

    fn note(&self, fault: Fault, whom: String) {
        let mut inside = self.world.inside();
        inside.counts.note(fault);
        inside.log(|| format!("! {}: {whom}", fault.name()));
    }

    fn client(&mut self) -> usize {
        self.dice.index(self.world.plan.clients)
    }

    fn node(&mut self) -> usize {
        self.dice.index(self.world.plan.nodes)
    }

    fn reset(mut self) {
        let pair = Pair {
            client: self.client(),
            node: self.node(),
        };
        let late = self.dice.time(Duration::ZERO, Duration::from_millis(400));
        self.note(Fault::Reset, pair.to_string());
        self.world.act(|inside| {
            inside.hold_up(pair, late);
            inside.reset(pair, "replaced");
        });
    }

    async fn partition(self, fault: Fault) {
        let mut cuts = Vec::new();
        let one_way = [Way::ToNode, Way::ToClient];
        let one_way = self.dice.pick(&one_way);
        // Some clients are cut off from some nodes: one of them, all of them, or in between.
        let shares = (
            self.dice.pick(&[300, 600, 1000]),
            self.dice.pick(&[300, 600, 1000]),
        );
        let clients: Vec<bool> = (0..self.world.plan.clients)
            .map(|_| self.dice.per_mille(shares.0))
            .collect();
        let nodes: Vec<bool> = (0..self.world.plan.nodes)
            .map(|_| self.dice.per_mille(shares.1))
            .collect();
        for (client, _) in clients.iter().enumerate().filter(|(_, is_cut)| **is_cut) {
            for (node, _) in nodes.iter().enumerate().filter(|(_, is_cut)| **is_cut) {
                let pair = Pair { client, node };
                match fault {
                    Fault::OneWay => cuts.push((pair, one_way)),
                    _ => cuts.extend([(pair, Way::ToNode), (pair, Way::ToClient)]),
                }
            }
        }
        if cuts.is_empty() {
            return;
        }
        self.note(fault, format!("{cuts:?}"));
        self.world.act(|inside| {
            for (pair, way) in &cuts {
                inside.block(*pair, *way);
            }
        });
        sleep_until(self.over).await;
        self.world.act(|inside| {
            inside.log(|| "! the partition is over".into());
            for (pair, way) in &cuts {
                inside.unblock(*pair, *way);
            }
        });
    }

    async fn crash(mut self, fault: Fault) {
        let node = self.node();
        let is_told = self.dice.per_mille(700);
        if !self.world.inside().servers[node].is_up {
            return;
        }
        // Of a disk that is promised to keep every write, nobody puts an older copy back.
        let keeps_a_copy = self.dice.per_mille(500) && !self.world.plan.is_durable;
        let copy = match fault {
            Fault::CrashLosingData if keeps_a_copy => {
                let copy = self.world.inside().servers[node].copy();
                let left = self.over - tokio::time::Instant::now();
                sleep(left / 2).await;
                Some(copy)
            }
            _ => None,
        };
        if !self.world.inside().servers[node].is_up {
            return;
        }
        self.note(fault, format!("node {node}"));
        self.world.act(|inside| inside.crash(node, is_told));
        sleep_until(self.over).await;
        self.world.act(|inside| {
            inside.log(|| format!("! node {node} is back"));
            let server = &mut inside.servers[node];
            if fault == Fault::CrashLosingData {
                server.replace_data(copy);
            }
            server.restart();
        });
    }

    /// Some nodes at once: one, or all of them.
    fn flush(mut self) {
        let share = self.dice.pick(&[0, 300, 700]);
        let first = self.node();
        let nodes = (0..self.world.plan.nodes).collect::<Vec<_>>();
        for node in nodes {
            let is_struck = node == first || self.dice.per_mille(share);
            if !is_struck || !self.world.inside().servers[node].is_up {
                continue;
            }
            self.note(Fault::Flush, format!("node {node}"));
            self.world.act(|inside| {
                inside.servers[node].replace_data(None);
                inside.tell_of_marker(node);
            });
        }
    }

    /// What a node has carried out since the copy was made is forgotten.
    async fn change_role(mut self) {
        let node = self.node();
        let copy = self.world.inside().servers[node].copy();
        sleep_until(self.over).await;
        if !self.world.inside().servers[node].is_up {
            return;
        }
        self.note(Fault::RoleChange, format!("node {node}"));
        self.world.act(|inside| {
            let server = &mut inside.servers[node];
            server.replace_data(Some(copy));
            server.begin_new_history();
            inside.tell_of_marker(node);
        });
    }

    async fn pause_node(mut self) {
        let node = self.node();
        if self.world.inside().servers[node].is_paused {
            return;
        }
        self.note(Fault::NodePause, format!("node {node}"));
        self.world.act(|inside| inside.pause_node(node));
        sleep_until(self.over).await;
        self.world.act(|inside| {
            inside.log(|| format!("! node {node} goes on"));
            inside.resume_node(node);
        });
    }

    async fn pause_client(mut self) {
        let client = self.client();
        let time = self.over - tokio::time::Instant::now();
        self.world
            .clone()
            .pause_for(client, Duration::ZERO, time)
            .await;
    }

    fn kill_client(mut self) {
        let client = self.client();
        let runs = |client: &usize| !self.world.gates[*client].is_closed();
        let running = (0..self.world.plan.clients).filter(runs).count();
        // Somebody must be left to find the locks free in the end.
        let is_last = running < 2;
        // Where the list changes, those of the new one go on.
        let plan = &self.world.plan;
        let is_needed = plan.first_list.is_some() && plan.list_of(client) == plan.nodes;
        if !runs(&client) || is_last || is_needed {
            return;
        }
        self.note(Fault::ClientDeath, format!("client {client}"));
        self.world.kill_client(client);
    }
}
