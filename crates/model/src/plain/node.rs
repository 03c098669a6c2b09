//! What a node does when a command arrives: `SET NX`, `ZADD GT CH`, and the scripts.

use super::state::{Answer, Call, Server, Stage, State};
use super::{Plain, PlainFlaw, Way};

impl Plain {
    pub(super) fn arrive(&self, state: &mut State, attempt: usize, node: usize) {
        let wire = &mut state.attempts[attempt].wires[node];
        let Some(call) = wire.call.take() else {
            return;
        };
        let server = &mut state.nodes[node];
        let proposed = self.proposals[attempt];
        let answer = match (call, self.ways[attempt]) {
            (Call::Raise(to), _) => {
                if server.key != Some(attempt) && !self.has(PlainFlaw::BlindRaise) {
                    Answer::NotHeld
                } else {
                    let lifted = self.lift(server, to);
                    let register = if lifted { to } else { server.register };
                    Answer::Granted { register, lifted }
                }
            }
            (Call::Acquire, Way::Commands) => {
                let done = match self.has(PlainFlaw::RegisterFirst) {
                    true => self.lift(server, proposed),
                    false => set(server, attempt),
                };
                wire.call = Some(Call::Rest(done));
                return;
            }
            (Call::Rest(done), _) => {
                let (granted, lifted) = match self.has(PlainFlaw::RegisterFirst) {
                    true => (set(server, attempt), done),
                    false => (done, self.lift(server, proposed)),
                };
                self.plain_answer(server, attempt, granted, lifted)
            }
            (Call::Acquire, Way::Multi) => {
                let granted = set(server, attempt);
                let lifted = self.lift(server, proposed);
                self.plain_answer(server, attempt, granted, lifted)
            }
            (Call::Acquire, Way::Script) => {
                let passes = !server.ticket || self.waited(attempt);
                if server.key.is_none_or(|key| key == attempt) && passes {
                    self.grant_by_script(server, attempt)
                } else {
                    Answer::Held { lifted: false }
                }
            }
            (Call::Acquire, Way::Steal) => {
                server.key = None;
                self.grant_by_script(server, attempt)
            }
        };
        let wanted = matches!(state.attempts[attempt].stage, Stage::Acquiring { .. });
        state.attempts[attempt].wires[node].answer = wanted.then_some(answer);
    }

    /// Whether this attempt is the one that waited in the queue.
    fn waited(&self, attempt: usize) -> bool {
        self.queue && attempt == 0
    }

    /// `ZADD GT CH`: whether it changed anything.
    fn lift(&self, server: &mut Server, to: u64) -> bool {
        let lifted = match self.has(PlainFlaw::EqualCounts) {
            true => server.register <= to,
            false => server.register < to,
        };
        server.register = server.register.max(to);
        lifted
    }

    fn plain_answer(&self, server: &Server, attempt: usize, granted: bool, lifted: bool) -> Answer {
        let is_kept_out = server.ticket && !self.waited(attempt) && !self.has(PlainFlaw::NoLook);
        match granted && !is_kept_out {
            // Where it was not lifted, nothing more is known than that.
            true => Answer::Granted {
                register: self.proposals[attempt],
                lifted,
            },
            false => Answer::Held { lifted },
        }
    }

    fn grant_by_script(&self, server: &mut Server, attempt: usize) -> Answer {
        server.register = self.proposals[attempt].max(server.register + 1);
        set(server, attempt);
        if self.waited(attempt) {
            server.ticket = false;
        }
        Answer::Granted {
            register: server.register,
            lifted: true,
        }
    }
}

/// `SET NX`: whether it was set.
fn set(server: &mut Server, attempt: usize) -> bool {
    if server.key.is_some() {
        return false;
    }
    server.key = Some(attempt);
    server.held.retain(|other| *other != attempt);
    server.held.push(attempt);
    true
}
