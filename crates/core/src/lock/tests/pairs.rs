//! Every command after every other one, in every situation, by the same client and by another,
//! at every moment around an expiry. What must come out is [`Expected::rule`]: the table of the
//! design written down a second time, in another shape than the code has.

use super::*;

const CLIENTS: [&str; 2] = ["a", "b"];

#[derive(Clone, Copy, Debug)]
enum Kind {
    Acquire,
    Share,
    Raise,
    Extend,
    ExtendShared,
    Release,
    ReleaseUncertain,
    Inspect,
    Steal,
}

const KINDS: [Kind; 9] = [
    Kind::Acquire,
    Kind::Share,
    Kind::Raise,
    Kind::Extend,
    Kind::ExtendShared,
    Kind::Release,
    Kind::ReleaseUncertain,
    Kind::Inspect,
    Kind::Steal,
];

/// One command: by whom, and with which number for a proposal or a token.
#[derive(Clone, Copy, Debug)]
struct Step {
    kind: Kind,
    who: &'static str,
    number: u64,
}

impl Step {
    fn command(self) -> Command {
        match self.kind {
            Kind::Acquire => acquire(self.who, self.number),
            Kind::Share => share(self.who, self.number),
            Kind::Raise => raise(self.who, self.number),
            Kind::Extend => extend(self.who, self.number),
            Kind::ExtendShared => extend_shared(self.who, self.number),
            Kind::Release => release(self.who),
            Kind::ReleaseUncertain => withdraw(self.who, TTL),
            Kind::Inspect => Command::Inspect,
            Kind::Steal => steal(self.who, self.number),
        }
    }

    fn all(number: u64) -> impl Iterator<Item = Self> {
        KINDS
            .into_iter()
            .flat_map(move |kind| CLIENTS.map(|who| Self { kind, who, number }))
    }
}

/// How the asking client stands to the lock.
enum Standing {
    Free,
    FreeButWithdrawn,
    Mine,
    Theirs(&'static str),
    /// Read by the asking client, and maybe by others.
    ReadByMe,
    /// Read by others only; whether the asking client is refused.
    ReadByOthers {
        withdrawn: bool,
    },
}

/// What the design says about a lock.
#[derive(Clone, Debug, Default)]
struct Expected {
    holder: Option<(&'static str, Duration)>,
    /// In the order in which they came, or came again.
    readers: Vec<(&'static str, Duration)>,
    register: u64,
    withdrawn: Vec<(&'static str, Duration)>,
}

impl Expected {
    fn standing(&self, who: &str) -> Standing {
        match self.holder {
            Some((holder, _)) if holder == who => Standing::Mine,
            Some((holder, _)) => Standing::Theirs(holder),
            None if self.readers.iter().any(|(reader, _)| *reader == who) => Standing::ReadByMe,
            None if !self.readers.is_empty() => Standing::ReadByOthers {
                withdrawn: self.refuses(who),
            },
            None if self.refuses(who) => Standing::FreeButWithdrawn,
            None => Standing::Free,
        }
    }

    fn readers_seen(&self, now: Duration) -> Vec<Holder> {
        let mut readers = self.readers.clone();
        readers.sort_by_key(|(_, until)| *until);
        let seen = |(who, until): &(&str, Duration)| holder(who, *until - now);
        readers.iter().map(seen).collect()
    }

    fn refuses(&self, who: &str) -> bool {
        self.withdrawn.iter().any(|(gone, _)| *gone == who)
    }

    fn seen(&self, now: Duration) -> Option<Holder> {
        let last = self.readers.iter().map(|(_, until)| *until).max();
        let readers = last.map(|until| ("fencepost:shared", until));
        let held = self.holder.or(readers);
        held.map(|(who, until)| holder(who, until - now))
    }

    fn read(&mut self, who: &'static str, now: Duration, register: u64) {
        self.holder = None;
        self.readers.retain(|(reader, _)| *reader != who);
        self.readers.push((who, now + TTL));
        self.register = register;
    }

    fn leave(&mut self, who: &'static str) -> Reply {
        self.holder = None;
        self.readers.retain(|(reader, _)| *reader != who);
        Reply::Released
    }

    fn hold(&mut self, who: &'static str, now: Duration, register: u64) {
        self.holder = Some((who, now + TTL));
        self.readers.clear();
        self.register = register;
    }

    fn grant(&mut self, step: Step, now: Duration, evicted: Option<&str>) -> Reply {
        self.hold(step.who, now, step.number.max(self.register + 1));
        Reply::Granted {
            register: token(self.register),
            evicted: evicted.map(value),
        }
    }

    fn rule(&mut self, step: Step, now: Duration) -> Reply {
        self.expire(now);
        let Step { kind, who, number } = step;
        let held = self.seen(now);
        match (kind, self.standing(who)) {
            (Kind::Acquire | Kind::Steal, Standing::Free) => self.grant(step, now, None),
            (Kind::Acquire | Kind::Share | Kind::Steal, Standing::FreeButWithdrawn) => {
                Reply::Tombstoned
            }
            (Kind::Acquire | Kind::Steal, Standing::Mine) => granted(self.register),
            (Kind::Acquire, _) => Reply::Held(held.unwrap()),
            (Kind::Steal, _) if self.refuses(who) => Reply::Tombstoned,
            (Kind::Steal, Standing::Theirs(other)) => self.grant(step, now, Some(other)),
            (Kind::Steal, _) => self.grant(step, now, Some("fencepost:shared")),

            (Kind::Share, Standing::Free) => {
                self.read(who, now, number.max(self.register + 1));
                granted(self.register)
            }
            (Kind::Share, Standing::ReadByMe | Standing::ReadByOthers { withdrawn: true })
                if self.refuses(who) =>
            {
                Reply::Tombstoned
            }
            (Kind::Share, Standing::ReadByMe) => granted(self.register),
            (Kind::Share, Standing::ReadByOthers { .. }) => {
                self.read(who, now, self.register);
                granted(self.register)
            }
            (Kind::Share, Standing::Mine | Standing::Theirs(_)) => Reply::Held(held.unwrap()),
            (Kind::ExtendShared, Standing::Mine | Standing::ReadByMe) => {
                self.read(who, now, self.register.max(number));
                Reply::Extended
            }
            (Kind::ExtendShared, Standing::Free | Standing::ReadByOthers { withdrawn: false })
                if self.register <= number =>
            {
                self.read(who, now, number);
                Reply::Repaired
            }
            (Kind::ExtendShared, Standing::Theirs(_)) => Reply::NotHeld(held),
            (Kind::ExtendShared, _) => Reply::NotHeld(None),

            (Kind::Raise, Standing::Mine | Standing::ReadByMe) => {
                if self.register >= number {
                    return Reply::NotRaised(token(self.register));
                }
                self.register = number;
                Reply::Raised(token(number))
            }
            (Kind::Extend, Standing::Mine) => {
                self.hold(who, now, self.register.max(number));
                Reply::Extended
            }
            (Kind::Extend, Standing::Free) if self.register <= number => {
                self.hold(who, now, number);
                Reply::Repaired
            }
            (Kind::Release, Standing::Mine | Standing::ReadByMe) => self.leave(who),
            (Kind::ReleaseUncertain, standing) => {
                self.withdrawn.retain(|(gone, _)| *gone != who);
                self.withdrawn.push((who, now + TTL));
                match standing {
                    Standing::Mine | Standing::ReadByMe => self.leave(who),
                    _ => Reply::NotHeld(held),
                }
            }
            (Kind::Raise | Kind::Extend | Kind::Release, _) => Reply::NotHeld(held),

            (Kind::Inspect, _) => Reply::Snapshot(Snapshot {
                holder: held,
                readers: self.readers_seen(now),
                register: token(self.register),
                waiting: 0,
            }),
        }
    }

    fn expire(&mut self, now: Duration) {
        self.holder.take_if(|(_, until)| *until <= now);
        self.readers.retain(|(_, until)| *until > now);
        self.withdrawn.retain(|(_, until)| *until > now);
    }

    /// The moments around each end that lies ahead, and this one.
    fn moments(&self, now: Duration) -> Vec<Duration> {
        let ends = self.holder.iter().chain(&self.readers);
        let ends = ends.chain(&self.withdrawn);
        let mut moments = vec![now];
        for (_, end) in ends {
            moments.extend([*end - INSTANT, *end, *end + TTL]);
        }
        moments
    }
}

#[test]
fn every_command_after_every_other_keeps_to_the_table_around_every_expiry() {
    let number_of_the_setup = 100;
    let read = || share("a", number_of_the_setup);
    let setups = [
        (vec![], None, vec![]),
        (vec![acquire("a", number_of_the_setup)], Some("a"), vec![]),
        (vec![read()], None, vec!["a"]),
        (vec![read(), share("b", 1)], None, vec!["a", "b"]),
    ];
    let mut cases = 0;
    for (commands, holds, reads) in setups {
        // Numbers that lag, tie and lead, for both steps.
        for first in [99, 100, 200].into_iter().flat_map(Step::all) {
            for number in [99, 100, 200, 300] {
                cases += pairs_after(&commands, holds, &reads, first, number);
            }
        }
    }
    // Four setups, 54 first steps, 72 second steps, at least one moment.
    assert!(cases > 4 * 54 * 72, "{cases} cases are too few");
}

/// Runs `first` half a TTL after the setup and every second step at every moment after it.
fn pairs_after(
    setup: &[Command],
    holds: Option<&'static str>,
    reads: &[&'static str],
    first: Step,
    second_number: u64,
) -> usize {
    let mut bench = Bench::after(setup);
    let mut expected = Expected {
        holder: holds.map(|who| (who, TTL)),
        readers: reads.iter().map(|who| (*who, TTL)).collect(),
        register: bench.register(),
        withdrawn: Vec::new(),
    };
    bench.wait(TTL / 2);
    let now = bench.elapsed;
    let reply = bench.ask(&first.command());
    assert_eq!(
        reply,
        expected.rule(first, now),
        "{holds:?}, {reads:?}: {first:?}"
    );

    let mut cases = 0;
    for moment in expected.moments(now) {
        for second in Step::all(second_number) {
            let (mut lock, mut expected) = (bench.lock.clone(), expected.clone());
            let story = || format!("{holds:?}, {reads:?}: {first:?}, at {moment:?} {second:?}");
            let reply = lock.apply(&second.command(), at(moment));
            assert_eq!(reply, expected.rule(second, moment), "{}", story());
            let left = lock.apply(&Command::Inspect, at(moment));
            let inspect = Step {
                kind: Kind::Inspect,
                ..second
            };
            assert_eq!(left, expected.rule(inspect, moment), "{}", story());
            cases += 1;
        }
    }
    cases
}
