use super::*;
use crate::words::value::AttemptValue;

fn attempt(n: usize) -> AcquireTally {
    AcquireTally::new(Quorum::of(n).unwrap())
}

fn granted(register: u64) -> Result<Reply, NodeError> {
    Ok(Reply::Granted {
        register: token(register),
        evicted: None,
    })
}

fn held(by: &str, millis: u64) -> Result<Reply, NodeError> {
    Ok(Reply::Held(Holder {
        value: AttemptValue::reported(by),
        token: None,
        remaining: Some(Duration::from_millis(millis)),
    }))
}

fn down() -> Result<Reply, NodeError> {
    Err(NodeError::Unreachable("refused".into()))
}

fn token(number: u64) -> FencingToken {
    FencingToken::new(number).unwrap()
}

fn nodes(which: &[usize]) -> NodeSet {
    let mut set = NodeSet::NONE;
    which.iter().for_each(|node| set.insert(*node));
    set
}

#[test]
fn grants_that_agree_decide_as_soon_as_they_are_a_majority() {
    for n in 1..=9 {
        let mut attempt = attempt(n);
        for node in 0..n / 2 {
            assert_eq!(attempt.answered(node, granted(7)), AcquireStep::Wait);
        }
        let last = attempt.answered(n - 1, granted(7));
        assert_eq!(last, AcquireStep::Certified(token(7)), "n = {n}");
    }
}

#[test]
fn grants_that_differ_are_raised_to_the_largest() {
    let mut attempt = attempt(3);
    attempt.answered(0, granted(5));
    let raise = AcquireStep::Raise {
        nodes: nodes(&[0]),
        to: token(7),
    };
    assert_eq!(attempt.answered(2, granted(7)), raise);
    let done = attempt.answered(0, Ok(Reply::Raised(token(7))));
    assert_eq!(done, AcquireStep::Certified(token(7)));
}

#[test]
fn a_late_grant_above_lifts_the_token_for_all() {
    let mut attempt = attempt(3);
    attempt.answered(0, granted(5));
    attempt.answered(1, granted(6));
    let raise = AcquireStep::Raise {
        nodes: nodes(&[0, 1]),
        to: token(9),
    };
    assert_eq!(attempt.answered(2, granted(9)), raise);
    // The answer to the first raise comes in late, and is too small by now. The second one is under way.
    let late = attempt.answered(0, Ok(Reply::Raised(token(6))));
    assert_eq!(late, AcquireStep::Wait);
    let done = attempt.answered(1, Ok(Reply::Raised(token(9))));
    assert_eq!(done, AcquireStep::Certified(token(9)));
}

fn not_raised(register: u64) -> Result<Reply, NodeError> {
    Ok(Reply::NotRaised(token(register)))
}

fn raise(which: &[usize], to: u64) -> AcquireStep {
    let (nodes, to) = (nodes(which), token(to));
    AcquireStep::Raise { nodes, to }
}

#[test]
fn a_register_that_was_there_already_is_no_vote() {
    let mut attempt = attempt(3);
    attempt.answered(0, granted(5));
    // All that granted are raised above everything seen: also the one that was lifted.
    assert_eq!(attempt.answered(1, not_raised(5)), raise(&[0, 1], 1005));
    // What was granted meanwhile does not count for the smaller token any more.
    assert_eq!(attempt.answered(2, granted(5)), raise(&[2], 1005));
    assert_eq!(
        attempt.answered(1, Ok(Reply::Raised(token(1005)))),
        AcquireStep::Wait
    );
    let done = attempt.answered(0, Ok(Reply::Raised(token(1005))));
    assert_eq!(done, AcquireStep::Certified(token(1005)));
    assert_eq!(attempt.counted_for(token(1005)), nodes(&[0, 1]));
}

#[test]
fn a_token_that_is_overtaken_twice_is_given_up() {
    let mut attempt = attempt(1);
    assert_eq!(attempt.answered(0, not_raised(5)), raise(&[0], 1005));
    assert_eq!(attempt.answered(0, not_raised(1005)), raise(&[0], 3005));
    assert_eq!(attempt.answered(0, not_raised(9000)), AcquireStep::Blocked);
    assert_eq!(attempt.denial(), Denial::Overtaken);
    assert_eq!(attempt.may_hold(), nodes(&[0]), "and given back");
}

#[test]
fn a_node_that_is_ahead_leaves_a_majority_of_the_others() {
    let mut attempt = attempt(3);
    attempt.answered(0, not_raised(5));
    attempt.answered(1, granted(5));
    // One round is under way by now; the third is asked to go along.
    attempt.answered(2, granted(5));
    attempt.answered(0, not_raised(2000));
    assert_eq!(
        attempt.answered(1, Ok(Reply::Raised(token(1005)))),
        AcquireStep::Wait
    );
    let done = attempt.answered(2, Ok(Reply::Raised(token(1005))));
    assert_eq!(done, AcquireStep::Certified(token(1005)));
}

#[test]
fn nothing_is_above_the_last_token() {
    let mut attempt = attempt(1);
    let last = FencingToken::MAX.get();
    assert_eq!(attempt.answered(0, not_raised(last)), AcquireStep::Blocked);
}

#[test]
fn a_late_grant_that_agrees_spares_the_raise() {
    let mut attempt = attempt(3);
    attempt.answered(0, granted(5));
    attempt.answered(1, granted(6));
    let done = attempt.answered(2, granted(6));
    assert_eq!(done, AcquireStep::Certified(token(6)));
}

#[test]
fn a_grant_that_is_gone_when_it_is_raised_no_longer_counts() {
    let mut attempt = attempt(3);
    attempt.answered(0, granted(5));
    attempt.answered(1, granted(6));
    let gone = attempt.answered(0, Ok(Reply::NotHeld(None)));
    assert_eq!(gone, AcquireStep::Wait, "the third may still grant");
    assert_eq!(attempt.answered(2, down()), AcquireStep::Blocked);
    assert_eq!(attempt.denial(), Denial::NoQuorum);
}

#[test]
fn an_attempt_is_blocked_as_soon_as_a_majority_is_out_of_reach() {
    let mut attempt = attempt(5);
    attempt.answered(0, held("a", 300));
    attempt.answered(1, held("a", 200));
    assert_eq!(attempt.answered(2, held("a", 100)), AcquireStep::Blocked);
    let Denial::Held { by, remaining, .. } = attempt.denial() else {
        panic!("{attempt:?}");
    };
    assert_eq!(by.as_str(), "a");
    // Two nodes are open, one more is needed: the first of the held ones to become free.
    assert_eq!(remaining, Some(Duration::from_millis(100)));
    assert_eq!(
        attempt.may_hold(),
        nodes(&[3, 4]),
        "a refusal leaves nothing"
    );
}

/// The one with most nodes, or the last of equals, was told to hold it.
#[test]
fn a_lock_that_nobody_has_on_a_majority_is_split_and_held_by_nobody() {
    let mut attempt = attempt(5);
    attempt.answered(0, held("a", 300));
    attempt.answered(1, held("b", 200));
    assert_eq!(attempt.answered(2, held("a", 100)), AcquireStep::Blocked);
    let between = ["a", "b"].map(|label| Owner::new(label).unwrap()).to_vec();
    assert_eq!(attempt.denial(), Denial::Split { between });
    attempt.answered(3, held("a", 100));
    assert!(matches!(attempt.denial(), Denial::Held { by, .. } if by.as_str() == "a"));
}

#[test]
fn the_remaining_time_is_when_a_majority_may_be_free() {
    let mut attempt = attempt(3);
    attempt.answered(0, down());
    attempt.answered(1, held("a", 100));
    attempt.answered(2, held("a", 900));
    let Denial::Held { remaining, .. } = attempt.denial() else {
        panic!("{attempt:?}");
    };
    assert_eq!(
        remaining,
        Some(Duration::from_millis(900)),
        "both are needed"
    );
}

#[test]
fn a_holder_without_an_end_is_told_as_such() {
    let mut attempt = attempt(1);
    let endless = Holder {
        value: AttemptValue::reported("by hand"),
        token: None,
        remaining: None,
    };
    attempt.answered(0, Ok(Reply::Held(endless)));
    let Denial::Held {
        by,
        remaining: None,
        ..
    } = attempt.denial()
    else {
        panic!("{attempt:?}");
    };
    assert_eq!(by.as_str(), "by hand");
}

#[test]
fn nodes_that_cannot_be_asked_are_another_matter_than_a_holder() {
    let mut attempt = attempt(5);
    attempt.answered(0, down());
    attempt.answered(1, held("a", 100));
    attempt.answered(2, down());
    assert_eq!(
        attempt.denial(),
        Denial::Held {
            by: Owner::new("a").unwrap(),
            token: None,
            remaining: Some(Duration::from_millis(100))
        }
    );
    attempt.answered(3, down());
    assert_eq!(attempt.denial(), Denial::NoQuorum);
    let outcomes: Vec<_> = attempt.outcomes().map(|o| o.to_string()).collect();
    assert_eq!(outcomes[1], "held by a (expires in 100ms)");
    assert_eq!(outcomes[3], "cannot connect: refused");
    assert_eq!(outcomes[4], "no answer yet");
}

#[test]
fn an_answer_out_of_place_is_no_vote() {
    let mut attempt = attempt(1);
    assert_eq!(
        attempt.answered(0, Ok(Reply::Extended)),
        AcquireStep::Blocked
    );
    assert_eq!(attempt.denial(), Denial::NoQuorum);
}

/// Every order in which two clients' messages can reach three nodes and come back, with holders
/// expiring at any moment in between, through the real decisions and the real state machine.
mod exhaustive {
    use std::collections::HashSet;
    use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

    use super::*;
    use crate::lock::{Command, LockState, Now};
    use crate::words::ttl::Ttl;

    const NODES: usize = 3;
    const CLIENTS: usize = 2;

    #[derive(Clone, Debug, Hash)]
    enum Message {
        ToNode(Command),
        ToClient(Reply),
    }

    #[derive(Clone, Debug, Hash)]
    struct Client {
        attempt: AcquireTally,
        /// The largest token that had been handed out before this attempt began.
        floor: Option<FencingToken>,
        token: Option<FencingToken>,
        decided: bool,
        /// What is on its way between this client and each node, oldest first.
        wires: [Vec<Message>; NODES],
    }

    #[derive(Clone, Debug, Hash)]
    struct World {
        nodes: [LockState; NODES],
        clients: Vec<Option<Client>>,
    }

    struct Search {
        certify: Certify,
        seen: HashSet<u64>,
        fault: Option<String>,
    }

    fn value(client: usize) -> AttemptValue {
        AttemptValue::reported(format!("client {client}"))
    }

    fn apply(node: &mut LockState, command: &Command) -> Reply {
        let now = Now {
            elapsed: Duration::ZERO,
            wall_micros: 1 << 40,
        };
        node.apply(command, now)
    }

    fn acquire(client: usize) -> Command {
        Command::Acquire {
            value: value(client),
            ttl: Ttl::new(Duration::from_secs(1)).unwrap(),
            // As of clients whose clocks are far behind: only the registers make tokens grow.
            proposed: FencingToken::ZERO,
            turn: Default::default(),
        }
    }

    impl Client {
        /// Answers no longer matter. Commands that are still on their way do.
        fn stop_listening(&mut self) {
            self.decided = true;
            for wire in &mut self.wires {
                wire.retain(|message| matches!(message, Message::ToNode(_)));
            }
        }
    }

    impl World {
        /// Three free nodes that have granted this often before.
        fn after(grants: [usize; NODES]) -> Self {
            let mut nodes: [LockState; NODES] = Default::default();
            for (node, grants) in nodes.iter_mut().zip(grants) {
                for _ in 0..grants {
                    apply(node, &acquire(99));
                    node.evict_holder();
                }
            }
            Self {
                nodes,
                clients: vec![None; CLIENTS],
            }
        }

        fn largest_token(&self) -> Option<FencingToken> {
            let tokens = self.clients.iter().flatten().filter_map(|c| c.token);
            tokens.max()
        }
    }

    impl Search {
        fn of(certify: Certify) -> Self {
            let mut search = Self {
                certify,
                seen: HashSet::new(),
                fault: None,
            };
            for grants in [[0, 0, 1], [0, 1, 2]] {
                search.from(World::after(grants));
            }
            search
        }

        fn from(&mut self, world: World) {
            let mut open = vec![world];
            while let Some(world) = open.pop() {
                if self.fault.is_some()
                    || !self
                        .seen
                        .insert(BuildHasherDefault::<DefaultHasher>::default().hash_one(&world))
                {
                    continue;
                }
                for client in 0..CLIENTS {
                    open.extend(self.begin(&world, client));
                    for node in 0..NODES {
                        open.extend(self.deliver(&world, client, node, false));
                        open.extend(self.deliver(&world, client, node, true));
                    }
                }
            }
        }

        fn begin(&self, world: &World, client: usize) -> Option<World> {
            if world.clients[client].is_some() {
                return None;
            }
            let mut next = world.clone();
            next.clients[client] = Some(Client {
                attempt: AcquireTally::certified_by(Quorum::of(NODES).unwrap(), self.certify),
                floor: world.largest_token(),
                token: None,
                decided: false,
                wires: std::array::from_fn(|_| vec![Message::ToNode(acquire(client))]),
            });
            Some(next)
        }

        /// The oldest message on that wire arrives. The node's holder may have expired before: not
        /// earlier than somebody can notice, which is no loss and makes far fewer states.
        fn deliver(
            &mut self,
            world: &World,
            client: usize,
            node: usize,
            expired: bool,
        ) -> Option<World> {
            let message = world.clients[client].as_ref()?.wires[node].first()?;
            let noticed = matches!(message, Message::ToNode(_));
            if expired && !(noticed && world.nodes[node].holder().is_some()) {
                return None;
            }
            let mut next = world.clone();
            if expired {
                next.nodes[node].evict_holder();
            }
            let me = next.clients[client].as_mut()?;
            match me.wires[node].remove(0) {
                Message::ToNode(command) => {
                    let reply = apply(&mut next.nodes[node], &command);
                    if !me.decided {
                        me.wires[node].push(Message::ToClient(reply));
                    }
                }
                Message::ToClient(reply) => match me.attempt.answered(node, Ok(reply)) {
                    AcquireStep::Raise { nodes, to } => {
                        for node in nodes.iter() {
                            let value = value(client);
                            let raise = Command::Raise { value, to };
                            me.wires[node].push(Message::ToNode(raise));
                        }
                    }
                    AcquireStep::Certified(token) => {
                        me.token = Some(token);
                        me.stop_listening();
                        let floor = me.floor;
                        let same = next.clients.iter().flatten();
                        let same = same.filter(|c| c.token == Some(token)).count();
                        if same > 1 || floor.is_some_and(|floor| token <= floor) {
                            self.fault = Some(format!("token {token} twice or too late: {next:?}"));
                        }
                    }
                    AcquireStep::Blocked => me.stop_listening(),
                    AcquireStep::Wait => {}
                },
            }
            Some(next)
        }
    }

    #[test]
    fn certified_tokens_are_unique_and_ordered_in_every_interleaving() {
        let search = Search::of(reported_exactly);
        assert_eq!(search.fault, None);
        assert!(search.seen.len() > 100_000, "{} states", search.seen.len());
    }

    #[test]
    fn counting_a_node_that_answers_above_the_token_hands_a_token_out_twice() {
        /// The largest token that so many nodes have reached *or passed*.
        fn reached(registers: &[FencingToken], needed: usize) -> Option<FencingToken> {
            let mut registers = registers.to_vec();
            registers.sort_unstable_by(|a, b| b.cmp(a));
            registers.get(needed - 1).copied()
        }
        assert!(Search::of(reached).fault.is_some());
    }
}
