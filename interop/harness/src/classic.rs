//! What is checked with every peer that keeps the classical key.
//!
//! Exclusion, extension, death and names go through the program, as a script would call it; hand-offs and the
//! soak through the library, because the start of a process would hide what is measured.

use std::time::{Duration, Instant};

use crate::peer::{Answer, Peer, Spec, step};
use crate::program::{Acquired, Handed, Program};
use crate::scene::{Effort, Scene, TTL, Times, WAIT, seconds};

/// What a check found: a cell of the report, or what went wrong.
pub type Outcome = Result<String, String>;

/// The TTL of those who die, and how much later than its end the lock must be another's.
const SHORT_TTL: Duration = Duration::from_millis(1500);
const LATE: Duration = Duration::from_secs(5);
/// Within what time whoever waits has to be woken, as a rule: a peer that polls sleeps longer.
pub(crate) const WOKEN: Duration = Duration::from_millis(50);
/// The longest name of a lock, in bytes.
const LONGEST_NAME: usize = 512;

/// The heads of the columns that [`meet`] fills.
pub const COLUMNS: [&str; 7] = [
    "exclude each other",
    "extend",
    "hand-off to us",
    "hand-off to them",
    "they die / we die",
    "names",
    "soak",
];

/// Everything that is checked with one peer on that many servers. The first item is its version.
#[must_use]
pub fn meet(spec: &Spec, nodes: usize, effort: Effort) -> (String, Vec<Outcome>) {
    let scene = Scene::of(nodes);
    let mut peer = scene.peer(spec);
    let program = scene.program();
    let who = format!("{}, nodes: {nodes}", spec.name);
    let mut outcomes = Vec::new();
    for what in COLUMNS {
        if what != "soak" {
            step(&who, what);
        }
        outcomes.push(match what {
            "exclude each other" => exclusion(spec, &mut peer, &program),
            "extend" => extension(spec, &mut peer, &program),
            "hand-off to us" => hand_off_to_us(spec, &mut peer, &mut scene.ours("plain"), effort),
            "hand-off to them" => {
                hand_off_to_them(spec, &mut peer, &mut scene.ours("plain"), effort)
            }
            "they die / we die" => death(spec, &scene, &program),
            "names" => names(spec, &mut peer, &program),
            _ => soak(spec, &scene, "plain", effort),
        });
    }
    (peer.version.clone(), outcomes)
}

/// Says what went wrong unless that is so.
pub(crate) fn expect(holds: bool, otherwise: impl FnOnce() -> String) -> Result<(), String> {
    holds.then_some(()).ok_or_else(otherwise)
}

pub(crate) fn theirs(peer: &mut Peer, name: &str) -> Result<(), String> {
    let answer = peer.try_lock(name, TTL);
    let ok = matches!(answer, Answer::Done(_));
    expect(ok, || format!("{name:?} is free, and they got {answer:?}"))
}

pub(crate) fn they_are_refused(peer: &mut Peer, name: &str) -> Result<(), String> {
    let answer = peer.try_lock(name, TTL);
    expect(answer == Answer::Held, || {
        format!("{name:?} is ours, and they got {answer:?}")
    })
}

pub(crate) fn they_release(peer: &mut Peer, name: &str) -> Result<u64, String> {
    let answer = peer.release(name);
    answer
        .at()
        .map_err(|error| format!("their release of {name:?}: {error}"))
}

fn ours(program: &Program, key: &str, ttl: Duration) -> Result<Handed, String> {
    match program.acquire(key, ttl, Duration::ZERO) {
        Acquired::Ours(handed) => Ok(handed),
        other => Err(format!("{key:?} is free, and we got {other:?}")),
    }
}

fn we_are_refused(program: &Program, key: &str) -> Result<(), String> {
    let acquired = program.acquire(key, TTL, Duration::ZERO);
    expect(matches!(acquired, Acquired::Held), || {
        format!("{key:?} is theirs, and we got {acquired:?}")
    })
}

/// They keep us out, we keep them out, and neither releases what is not its own.
fn exclude(peer: &mut Peer, program: &Program, name: &str, key: &str) -> Result<(), String> {
    theirs(peer, name)?;
    we_are_refused(program, key)?;
    they_release(peer, name)?;
    let handed = ours(program, key, TTL)?;
    they_are_refused(peer, name)?;
    program.release(key, &handed)?;
    theirs(peer, name)?;
    expect(program.release(key, &handed).is_err(), || {
        format!("we released {key:?}, which is theirs")
    })?;
    we_are_refused(program, key)?;
    they_release(peer, name)?;
    Ok(())
}

fn exclusion(spec: &Spec, peer: &mut Peer, program: &Program) -> Outcome {
    for _ in 0..3 {
        exclude(peer, program, "exclusion", &spec.key("exclusion"))?;
    }
    Ok("yes".to_owned())
}

/// Whoever extends keeps the other out beyond the first TTL.
fn extension(spec: &Spec, peer: &mut Peer, program: &Program) -> Outcome {
    const FIRST: Duration = Duration::from_secs(2);
    let (name, key) = ("extension", spec.key("extension"));
    let begin = Instant::now();
    let until = |time: Duration| std::thread::sleep(time.saturating_sub(begin.elapsed()));
    peer.try_lock(name, FIRST).at()?;
    until(FIRST / 2);
    let answer = peer.extend(name, FIRST);
    let extends = answer != Answer::Unsupported;
    if extends {
        answer.at()?;
        until(FIRST + FIRST / 5);
        we_are_refused(program, &key)?;
    }
    they_release(peer, name)?;
    let begin = Instant::now();
    let until = |time: Duration| std::thread::sleep(time.saturating_sub(begin.elapsed()));
    let handed = ours(program, &key, FIRST)?;
    until(FIRST / 2);
    let extended = program.extend(&key, &handed, FIRST)?;
    expect(extended, || "we cannot extend our own".to_owned())?;
    until(FIRST + FIRST / 5);
    they_are_refused(peer, name)?;
    program.release(&key, &handed)?;
    Ok(if extends {
        "yes"
    } else {
        "ours; they have none"
    }
    .to_owned())
}

/// At another moment of the waiter's pauses each time, whatever they are.
pub(crate) fn let_wait(round: usize) {
    std::thread::sleep(Duration::from_millis(120 + (round as u64 * 53) % 210));
}

pub(crate) fn hand_off_to_us(
    spec: &Spec,
    peer: &mut Peer,
    us: &mut Peer,
    effort: Effort,
) -> Outcome {
    // The nodes tell of a foreign release, too: behind one we poll four times a second only.
    is_woken(&times_to_us(spec, peer, us, effort)?, WOKEN)
}

/// Every second time within the limit: a machine that does other things as well is late now and then.
pub(crate) fn is_woken(times: &Times, within: Duration) -> Outcome {
    expect(times.median() < within, || {
        format!("not woken within {within:?}: {}", times.text())
    })?;
    Ok(times.text())
}

pub(crate) fn times_to_us(
    spec: &Spec,
    peer: &mut Peer,
    us: &mut Peer,
    effort: Effort,
) -> Result<Times, String> {
    let (name, key) = ("to us", spec.key("to us"));
    let mut times = Times::default();
    for round in 0..effort.hand_offs {
        theirs(peer, name)?;
        us.send_lock(&key, TTL, WAIT);
        let_wait(round);
        let from = they_release(peer, name)?;
        times.add(from, us.answer().at()?);
        us.release(&key).at()?;
    }
    Ok(times)
}

pub(crate) fn hand_off_to_them(
    spec: &Spec,
    peer: &mut Peer,
    us: &mut Peer,
    effort: Effort,
) -> Outcome {
    Ok(times_to_them(spec, peer, us, effort)?.text())
}

pub(crate) fn times_to_them(
    spec: &Spec,
    peer: &mut Peer,
    us: &mut Peer,
    effort: Effort,
) -> Result<Times, String> {
    let (name, key) = ("to them", spec.key("to them"));
    let mut times = Times::default();
    for round in 0..effort.hand_offs {
        us.try_lock(&key, TTL).at()?;
        peer.send_lock(name, TTL, WAIT);
        let_wait(round);
        let from = us.release(&key).at()?;
        times.add(from, peer.answer().at()?);
        they_release(peer, name)?;
    }
    Ok(times)
}

/// Whoever is killed with -9 keeps the other out until its TTL is over, and not for ever.
fn death(spec: &Spec, scene: &Scene, program: &Program) -> Outcome {
    let (name, key) = ("death", spec.key("death"));
    let mut peer = scene.peer(spec);
    let begin = Instant::now();
    peer.try_lock(name, SHORT_TTL).at()?;
    peer.kill();
    we_are_refused(program, &key)?;
    let handed = match program.acquire(&key, TTL, WAIT) {
        Acquired::Ours(handed) => handed,
        other => return Err(format!("they are dead, and we got {other:?}")),
    };
    let they_died = within_ttl("they died", begin)?;
    program.release(&key, &handed)?;
    let mut peer = scene.peer(spec);
    let mut run = program.hold(&key, SHORT_TTL)?;
    // Renewed until now: the TTL counts from the last renewal, which is up to a third of it ago.
    run.kill();
    let begin = Instant::now();
    they_are_refused(&mut peer, name)?;
    peer.lock(name, TTL, WAIT).at()?;
    let we_died = begin.elapsed();
    expect(we_died < SHORT_TTL + LATE, || {
        format!("we died, and they waited {}", seconds(we_died))
    })?;
    they_release(&mut peer, name)?;
    Ok(format!("{} / {}", seconds(they_died), seconds(we_died)))
}

fn within_ttl(who: &str, begin: Instant) -> Result<Duration, String> {
    let took = begin.elapsed();
    // Redis counts milliseconds; the other's clock began a moment later than ours.
    let soonest = SHORT_TTL.saturating_sub(Duration::from_millis(5));
    expect(took >= soonest && took < SHORT_TTL + LATE, || {
        format!("{who}, and it was free after {}", seconds(took))
    })?;
    Ok(took)
}

fn names(spec: &Spec, peer: &mut Peer, program: &Program) -> Outcome {
    let longest = "x".repeat(LONGEST_NAME - spec.prefix.len());
    let wide = "täglich-作業-🔒";
    let names = [
        "{tenant}:job",
        "job with spaces",
        wide,
        "a:b/c*?[x]'\"$",
        &longest,
    ];
    for name in names {
        exclude(peer, program, name, &spec.key(name))?;
    }
    Ok(format!("{} of {}", names.len(), names.len()))
}

/// Short, because node-redlock 5 keeps what it got of the nodes in a failed try until all its retries have
/// failed, or this is over.
const SOAK_TTL: Duration = Duration::from_secs(3);

/// A counter that is read and written in two commands, by two of their processes, two of ours, and the program.
pub(crate) fn soak(spec: &Spec, scene: &Scene, kind: &str, effort: Effort) -> Outcome {
    step(
        &format!("{}, nodes: {}", spec.name, scene.servers.len()),
        "soak",
    );
    let mut peers = [scene.peer(spec), scene.peer(spec)];
    let mut us = [scene.ours(kind), scene.ours(kind)];
    let (rounds, counter) = (effort.soak.to_string(), "soak counter");
    // A soak before on the same servers has left its count.
    scene.first().cli(&["DEL", counter]);
    let (ttl, wait) = (crate::peer::millis(SOAK_TTL), "120000");
    for peer in &mut peers {
        peer.send(&["soak", "soak", counter, &rounds, &ttl, wait]);
    }
    for peer in &mut us {
        peer.send(&["soak", &spec.key("soak"), counter, &rounds, &ttl, wait]);
    }
    // The program has plain locks only.
    let by_program = match kind {
        "plain" => {
            let port = scene.first().port();
            let rounds = effort.soak / 10;
            let counter = format!("'{counter}'");
            scene
                .program()
                .soak(&spec.key("soak"), &counter, port, rounds)?
        }
        _ => 0,
    };
    let answers = peers.iter_mut().chain(&mut us).map(Peer::answer);
    for answer in answers.collect::<Vec<_>>() {
        let done = Answer::Done(vec![rounds.clone()]);
        expect(answer == done, || format!("in the soak: {answer:?}"))?;
    }
    let expected = 4 * effort.soak + by_program;
    let counted = scene.first().cli(&["GET", counter]);
    expect(counted == expected.to_string(), || {
        format!("{counted} counted in {expected} rounds: two were inside at once")
    })?;
    Ok(format!("{counted} = {expected}"))
}

/// That the soak can fail: the same work, with a lock of its own for each process.
///
/// # Errors
/// Nothing was lost, so that the soak shows nothing.
pub fn control(spec: &Spec, effort: Effort) -> Outcome {
    step(spec.name, "the soak without a common lock");
    let scene = Scene::of(1);
    let mut peers = [scene.peer(spec), scene.peer(spec)];
    let mut us = [scene.ours("plain"), scene.ours("plain")];
    let (rounds, ttl) = (effort.soak.to_string(), crate::peer::millis(SOAK_TTL));
    for (at, peer) in peers.iter_mut().chain(&mut us).enumerate() {
        let name = format!("soak {at}");
        peer.send(&["soak", &name, "counter", &rounds, &ttl, "120000"]);
    }
    for peer in peers.iter_mut().chain(&mut us) {
        peer.answer();
    }
    let expected = 4 * effort.soak;
    let counted = scene.first().cli(&["GET", "counter"]);
    expect(counted != expected.to_string(), || {
        "nothing was lost without a common lock: the soak shows nothing".to_owned()
    })?;
    Ok(format!("{counted} counted in {expected} rounds"))
}

/// That a peer on a part of the nodes does not meet us: it and we hold the lock at once.
///
/// # Errors
/// They did not, and the documentation is wrong.
pub fn subset(spec: &Spec) -> Outcome {
    step(spec.name, "on one of our three nodes");
    let scene = Scene::of(3);
    let mut peer = spec.start(&scene.first().url());
    theirs(&mut peer, "subset")?;
    let acquired = scene
        .program()
        .acquire(&spec.key("subset"), TTL, Duration::ZERO);
    beside_subset(matches!(acquired, Acquired::Ours(_)), &acquired)
}

/// What is found beside a peer that has one of three nodes.
pub(crate) fn beside_subset(is_ours: bool, acquired: &dyn std::fmt::Debug) -> Outcome {
    expect(is_ours, || {
        format!("we were expected to hold two of three nodes, and got {acquired:?}")
    })?;
    Ok("both hold the lock at once: unsafe".to_owned())
}
