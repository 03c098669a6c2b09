//! What is checked with Redisson: its `RLock` and our reentrant lock are one lock, which each wakes the other for;
//! and where its other locks meet ours, and where they do not.

use std::time::{Duration, Instant};

use fencepost_tests::RedisServer;

use crate::classic::{
    self, Outcome, WOKEN, expect, is_woken, let_wait, they_are_refused, they_release,
};
use crate::monitor::Monitor;
use crate::peer::{Answer, Peer, Spec, step};
use crate::program::Acquired;
use crate::scene::{Effort, Scene, TTL, Times, WAIT, eventually, seconds};

/// What was checked with one kind of lock: the kind, the question, and what came of it.
pub type Row = (&'static str, &'static str, Outcome);

/// As [`WOKEN`], for `RedissonRedLock`, which waits for its locks one after the other. Who is not woken needs a second and more.
const WOKEN_ON_THREE: Duration = Duration::from_millis(200);
/// The lease of its watchdog, as `Peer.java` sets it.
const WATCHDOG: Duration = Duration::from_secs(3);
const LATE: Duration = Duration::from_secs(5);

/// What is asked of several kinds.
const TO_US: &str = "hand-off to us, median / worst";
const TO_THEM: &str = "hand-off to them, median / worst";
const DEATH: &str = "they die / we die, TTL 1.5 s";
const SOAK: &str = "soak, exact counter";

const RLOCK: Spec = Spec::redisson("RLock", "lock");
const FENCED: Spec = Spec::redisson("RFencedLock", "fenced");
const FAIR: Spec = Spec::redisson("RFairLock", "fair");
const READ: Spec = Spec::redisson("RReadWriteLock, read", "read");
const WRITE: Spec = Spec::redisson("RReadWriteLock, write", "write");
/// What `Peer.java` has on several servers.
const REDLOCK: Spec = Spec::redisson("RedissonRedLock, 3 nodes", "lock");
/// How long an `RFairLock` and we hold it who do not wake each other.
const FAIR_TTL: Duration = Duration::from_secs(2);

/// Everything that is checked. The first item is its version.
#[must_use]
pub fn meet(effort: Effort) -> (String, Vec<Row>) {
    let scene = Scene::of(1);
    let server = scene.first();
    let mut they = scene.peer(&RLOCK);
    let mut us = scene.ours("reentrant");
    // Classes are loaded at the first use, which would be taken for a slow wake-up.
    let warm_up = Effort {
        hand_offs: 3,
        soak: 0,
    };
    let _warm = times(&RLOCK, server, &mut they, &mut us, warm_up);
    let hand_offs = woken(
        RLOCK.name,
        times(&RLOCK, server, &mut they, &mut us, effort),
    );
    let mut rows = vec![
        (
            RLOCK.name,
            "exclude each other, 5 names",
            exclusion(&mut they, &mut us),
        ),
        (
            RLOCK.name,
            "enter again",
            entering_again(&mut they, &mut us),
        ),
    ];
    rows.extend(hand_offs);
    rows.extend([
        (
            RLOCK.name,
            "its watchdog renews; then it dies",
            watchdog(&scene, &mut us),
        ),
        (RLOCK.name, DEATH, death(&RLOCK, &scene)),
        (
            RLOCK.name,
            SOAK,
            classic::soak(&RLOCK, &scene, "reentrant", effort),
        ),
        (
            RLOCK.name,
            "what its unlock publishes",
            published(server, &mut they),
        ),
        (
            RLOCK.name,
            "what its unlock latch leaves",
            latch(server, &mut they),
        ),
        (
            RLOCK.name,
            "beside our plain lock",
            beside_plain(&scene, &mut they),
        ),
    ]);
    rows.extend(fenced(&scene, &mut us, effort));
    rows.extend(fair(&scene, &mut us, effort));
    rows.extend(read_write(&scene, &mut us));
    rows.extend(on_three(effort));
    (they.version.clone(), rows)
}

fn exclusion(they: &mut Peer, us: &mut Peer) -> Outcome {
    step("Redisson", "exclude each other");
    let longest = "x".repeat(512);
    let names = [
        "job",
        "{tenant}:job",
        "job with spaces",
        "täglich-作業-🔒",
        &longest,
    ];
    for name in names {
        exclude(they, us, name)?;
    }
    Ok("yes".to_owned())
}

fn exclude(they: &mut Peer, us: &mut Peer, name: &str) -> Result<(), String> {
    classic::theirs(they, name)?;
    we_are_refused(us, name)?;
    they_release(they, name)?;
    us.try_lock(name, TTL).at()?;
    they_are_refused(they, name)?;
    us.release(name).at()?;
    Ok(())
}

fn we_are_refused(us: &mut Peer, name: &str) -> Result<(), String> {
    let answer = us.try_lock(name, TTL);
    expect(answer == Answer::Held, || {
        format!("{name:?} is theirs, and we got {answer:?}")
    })
}

/// Whoever is inside twice has to leave twice.
fn entering_again(they: &mut Peer, us: &mut Peer) -> Outcome {
    step("RLock", "enter again");
    let name = "again";
    classic::theirs(they, name)?;
    classic::theirs(they, name)?;
    they_release(they, name)?;
    we_are_refused(us, name)?;
    they_release(they, name)?;
    us.try_lock(name, TTL).at()?;
    us.try_lock(name, TTL).at()?;
    us.release(name).at()?;
    they_are_refused(they, name)?;
    us.release(name).at()?;
    classic::theirs(they, name)?;
    they_release(they, name)?;
    Ok("yes, both".to_owned())
}

/// The times of hand-offs.
struct HandOffs {
    /// From the moment before their release is sent.
    to_us: Times,
    /// From the moment at which their release was published: what comes before is theirs.
    to_us_from_publish: Times,
    to_them: Times,
}

fn times(
    spec: &Spec,
    server: &RedisServer,
    they: &mut Peer,
    us: &mut Peer,
    effort: Effort,
) -> Result<HandOffs, String> {
    step(spec.name, "hand-off");
    let monitor = Monitor::of(server)?;
    let to_us = classic::times_to_us(spec, they, us, effort)?;
    let is_theirs = |words: &[String]| {
        words.len() == 3
            && words[0].eq_ignore_ascii_case("publish")
            && words[1].starts_with("redisson_lock__channel")
    };
    // Each release publishes: the odd ones are theirs, the even ones ours.
    let of_all = || monitor.moments(is_theirs);
    eventually("all releases are published", || {
        of_all().len() == 2 * effort.hand_offs
    })?;
    let theirs: Vec<_> = of_all().into_iter().step_by(2).collect();
    drop(monitor);
    Ok(HandOffs {
        to_us_from_publish: to_us.counted_from(&theirs),
        to_us,
        to_them: classic::times_to_them(spec, they, us, effort)?,
    })
}

/// How both were woken.
fn woken(kind: &'static str, times: Result<HandOffs, String>) -> [Row; 3] {
    let judged = |of: fn(&HandOffs) -> &Times| is_woken(of(times.as_ref()?), WOKEN);
    [
        (kind, TO_US, judged(|times| &times.to_us)),
        (
            kind,
            "the same from its publish on",
            judged(|times| &times.to_us_from_publish),
        ),
        (kind, TO_THEM, judged(|times| &times.to_them)),
    ]
}

/// A lock without a lease is kept beyond the watchdog's time, and free at its end after they died.
fn watchdog(scene: &Scene, us: &mut Peer) -> Outcome {
    step("RLock", "its watchdog renews; then it dies");
    let mut they = scene.peer(&RLOCK);
    they.try_lock("watched", Duration::ZERO).at()?;
    std::thread::sleep(WATCHDOG + WATCHDOG / 2);
    we_are_refused(us, "watched")?;
    they.kill();
    let begin = Instant::now();
    us.lock("watched", TTL, WAIT).at()?;
    let took = begin.elapsed();
    us.release("watched").at()?;
    expect(took < WATCHDOG + LATE, || {
        format!("they died, and we waited {}", seconds(took))
    })?;
    Ok(format!(
        "kept out for {}, free {} after",
        seconds(WATCHDOG * 3 / 2),
        seconds(took)
    ))
}

/// Whoever is killed with -9 keeps the other out until the TTL is over, and no longer.
fn death(spec: &Spec, scene: &Scene) -> Outcome {
    step(spec.name, "they die / we die");
    const SHORT: Duration = Duration::from_millis(1500);
    // A JVM takes longer to start than the TTL.
    let (mut they, mut next) = (scene.peer(spec), scene.peer(spec));
    let mut us = scene.ours("reentrant");
    let begin = Instant::now();
    they.try_lock("death", SHORT).at()?;
    they.kill();
    we_are_refused(&mut us, "death")?;
    us.lock("death", SHORT, WAIT).at()?;
    let they_died = begin.elapsed();
    // Redis counts milliseconds; the other's clock began a moment later than ours.
    let soonest = SHORT.saturating_sub(Duration::from_millis(5));
    expect(they_died >= soonest, || {
        format!("they died, and it was free after {}", seconds(they_died))
    })?;
    us.kill();
    let begin = Instant::now();
    they_are_refused(&mut next, "death")?;
    next.lock("death", TTL, WAIT).at()?;
    let we_died = begin.elapsed();
    they_release(&mut next, "death")?;
    for took in [they_died, we_died] {
        expect(took < SHORT + LATE, || {
            format!("free after {}", seconds(took))
        })?;
    }
    Ok(format!("{} / {}", seconds(they_died), seconds(we_died)))
}

/// Which command wakes, and where: ours has to be heard there, and to listen there.
fn published(server: &RedisServer, they: &mut Peer) -> Outcome {
    step("RLock", "what its unlock publishes");
    let monitor = Monitor::of(server)?;
    classic::theirs(they, "wire")?;
    they_release(they, "wire")?;
    let is = |words: &[String]| words.len() == 3 && words[1].starts_with("redisson_lock__channel");
    eventually("its unlock is seen", || monitor.any(is))?;
    let words = monitor.take(is).unwrap_or_default();
    let expected = ["publish", "redisson_lock__channel:{wire}", "0"];
    let lower: Vec<_> = words.iter().map(|word| word.to_lowercase()).collect();
    expect(lower == expected, || format!("it says {words:?}"))?;
    Ok(format!("`{}`", words.join(" ")))
}

/// The key by which it makes its unlock idempotent: beside the lock's, for a while, and gone afterwards.
fn latch(server: &RedisServer, they: &mut Peer) -> Outcome {
    step("RLock", "what its unlock latch leaves");
    const LATCH: &str = "redisson_unlock_latch:{latch}:";
    let monitor = Monitor::of(server)?;
    classic::theirs(they, "latch")?;
    they_release(they, "latch")?;
    let is = |words: &[String], verb: &str| {
        words.len() < 8 && words[0].eq_ignore_ascii_case(verb) && words[1].starts_with(LATCH)
    };
    eventually("its latch is deleted", || {
        monitor.any(|words| is(words, "del"))
    })?;
    let set = monitor
        .take(|words| is(words, "set"))
        .ok_or("it is never set")?;
    let [_, _, value, px, time] = &set[..] else {
        return Err(format!("it is set otherwise: {set:?}"));
    };
    expect(px.eq_ignore_ascii_case("px"), || {
        format!("it never expires: {set:?}")
    })?;
    let left = server.cli(&["KEYS", "redisson_unlock_latch*"]);
    expect(left.is_empty(), || format!("it leaves {left}"))?;
    Ok(format!(
        "set to {value} for {time} ms, then deleted by it; nothing left"
    ))
}

/// The classical key is a string and `RLock` a hash: each refuses the other's, with an error.
fn beside_plain(scene: &Scene, they: &mut Peer) -> Outcome {
    step("RLock", "beside our plain lock");
    let program = scene.program();
    classic::theirs(they, "kind")?;
    let acquired = program.acquire("kind", TTL, Duration::ZERO);
    expect(matches!(&acquired, Acquired::Failed(69, _)), || {
        format!("it is an RLock, and we got {acquired:?}")
    })?;
    they_release(they, "kind")?;
    let Acquired::Ours(handed) = program.acquire("kind", TTL, Duration::ZERO) else {
        return Err("it is free, and we did not get it".to_owned());
    };
    let answer = they.try_lock("kind", TTL);
    expect(
        matches!(&answer, Answer::Error(why) if why.contains("WRONGTYPE")),
        || format!("it is a string, and they got {answer:?}"),
    )?;
    program.release("kind", &handed)?;
    Ok("each refused with WRONGTYPE: use our reentrant lock".to_owned())
}

fn fenced(scene: &Scene, us: &mut Peer, effort: Effort) -> Vec<Row> {
    step(FENCED.name, "tokens");
    let mut they = scene.peer(&FENCED);
    let exclusion = exclusion(&mut they, us);
    let warm_up = Effort {
        hand_offs: 2,
        soak: 0,
    };
    let _warm = times(&FENCED, scene.first(), &mut they, us, warm_up);
    let hand_offs = woken(
        FENCED.name,
        times(&FENCED, scene.first(), &mut they, us, effort),
    );
    let tokens = (|| {
        us.try_lock("fenced", TTL).at()?;
        let ours = number(&us.ask(&["token", "fenced"]))?;
        us.release("fenced").at()?;
        classic::theirs(&mut they, "fenced")?;
        let theirs = number(&they.ask(&["token", "fenced"]))?;
        they_release(&mut they, "fenced")?;
        expect(theirs < ours, || {
            format!("theirs is {theirs}, and came after ours, {ours}")
        })?;
        Ok(format!("do not compare: {theirs} came after {ours}"))
    })();
    let mut rows = vec![(FENCED.name, "exclude each other, 5 names", exclusion)];
    rows.extend(hand_offs);
    rows.push((FENCED.name, "its tokens and ours", tokens));
    rows.push((FENCED.name, DEATH, death(&FENCED, scene)));
    let soak = classic::soak(&FENCED, scene, "reentrant", effort);
    rows.push((FENCED.name, SOAK, soak));
    rows
}

fn number(answer: &Answer) -> Result<u64, String> {
    match answer {
        Answer::Done(words) => words[0].parse().map_err(|_| format!("{words:?}")),
        other => Err(format!("no token: {other:?}")),
    }
}

/// It wakes the next of its own queue, on a channel for each of its threads: it and we exclude each other, and
/// do not wake each other. One who waits there sleeps until our key would expire.
fn fair(scene: &Scene, us: &mut Peer, effort: Effort) -> Vec<Row> {
    step(FAIR.name, "hand-off");
    let mut they = scene.peer(&FAIR);
    let exclusion = exclusion(&mut they, us);
    let mut meet = |to_us: bool| {
        let (name, mut times) = ("fair", Times::default());
        for round in 0..4 {
            let (holder, waiter): (&mut Peer, &mut Peer) = match to_us {
                true => (&mut they, us),
                false => (us, &mut they),
            };
            holder.try_lock(name, FAIR_TTL).at()?;
            waiter.send_lock(name, FAIR_TTL, WAIT);
            let_wait(round);
            let from = holder.release(name).at()?;
            times.add(from, waiter.answer().at()?);
            waiter.release(name).at()?;
        }
        not_woken(&times)
    };
    let (to_us, to_them) = (meet(true), meet(false));
    // Whoever is not woken sleeps for seconds: each round is long.
    let few = Effort {
        soak: (effort.soak / 15).max(1),
        ..effort
    };
    vec![
        (FAIR.name, "exclude each other, 5 names", exclusion),
        (FAIR.name, "hand-off to us, TTL 2 s", to_us),
        (FAIR.name, "hand-off to them, TTL 2 s", to_them),
        (FAIR.name, DEATH, death(&FAIR, scene)),
        (
            FAIR.name,
            SOAK,
            classic::soak(&FAIR, scene, "reentrant", few),
        ),
    ]
}

/// That nobody was woken, as the guide says, and that all the same nobody waited for much longer than the TTL.
fn not_woken(times: &Times) -> Outcome {
    expect(times.median() > WOKEN, || {
        format!("woken, and the guide says otherwise: {}", times.text())
    })?;
    expect(times.worst() < FAIR_TTL + LATE, || {
        format!("its TTL was over long ago: {}", times.text())
    })?;
    Ok(format!("not woken: {}", times.text()))
}

/// Its layout has a field "mode" beside the holders'. Where that is missing it takes the lock for free: also where
/// an `RLock`, ours or its own, is held.
fn read_write(scene: &Scene, us: &mut Peer) -> Vec<Row> {
    step("RReadWriteLock", "on a name of ours");
    let mut rows = Vec::new();
    for spec in [WRITE, READ] {
        let mut they = scene.peer(&spec);
        let beside = (|| {
            us.try_lock("mode", TTL).at()?;
            let answer = they.try_lock("mode", TTL);
            expect(matches!(answer, Answer::Done(_)), || {
                format!("it was expected to get in beside us, and got {answer:?}")
            })?;
            scene.first().cli(&["DEL", "mode"]);
            let _lost = (they.release("mode"), us.release("mode"));
            Ok("it gets in beside us: NEVER the same name".to_owned())
        })();
        let ours = (|| {
            classic::theirs(&mut they, "mode")?;
            let answer = us.try_lock("mode", TTL);
            expect(
                matches!(&answer, Answer::Error(why) if why.contains("2 fields")),
                || format!("it is theirs, and we got {answer:?}"),
            )?;
            they_release(&mut they, "mode")?;
            Ok("refused with an error".to_owned())
        })();
        rows.push((spec.name, "on a name that our reentrant lock has", beside));
        rows.push((spec.name, "our reentrant lock on its name", ours));
    }
    let plain = (|| {
        let mut plain = scene.ours("write");
        let mut they = scene.peer(&WRITE);
        plain.try_lock("modes", TTL).at()?;
        let answer = they.try_lock("modes", TTL);
        expect(
            matches!(&answer, Answer::Error(why) if why.contains("WRONGTYPE")),
            || format!("it is ours, and they got {answer:?}"),
        )?;
        plain.release("modes").at()?;
        classic::theirs(&mut they, "modes")?;
        let answer = plain.try_lock("modes", TTL);
        expect(matches!(&answer, Answer::Error(_)), || {
            format!("it is theirs, and we got {answer:?}")
        })?;
        they_release(&mut they, "modes")?;
        Ok("each refused with WRONGTYPE".to_owned())
    })();
    rows.push((WRITE.name, "beside our read-write lock", plain));
    rows
}

/// `RedissonRedLock` over three servers, and our reentrant lock over the same; and an `RLock` on one of them.
fn on_three(effort: Effort) -> Vec<Row> {
    step(REDLOCK.name, "exclude each other, hand-off");
    let scene = Scene::of(3);
    let mut they = scene.peer(&REDLOCK);
    let mut us = scene.ours("reentrant");
    let exclusion = exclusion(&mut they, &mut us);
    // Classes are loaded, and channels subscribed to, at the first use.
    let warm_up = Effort {
        hand_offs: 2,
        soak: 0,
    };
    let _warm = classic::times_to_them(&REDLOCK, &mut they, &mut us, warm_up);
    let to_us = classic::times_to_us(&REDLOCK, &mut they, &mut us, effort);
    let to_them = classic::times_to_them(&REDLOCK, &mut they, &mut us, effort);
    let judged = |times: Result<Times, String>| is_woken(&times?, WOKEN_ON_THREE);
    vec![
        (REDLOCK.name, "exclude each other, 5 names", exclusion),
        (REDLOCK.name, TO_US, judged(to_us)),
        (REDLOCK.name, TO_THEM, judged(to_them)),
        (REDLOCK.name, DEATH, death(&REDLOCK, &scene)),
        (
            REDLOCK.name,
            SOAK,
            classic::soak(&REDLOCK, &scene, "reentrant", effort),
        ),
        (RLOCK.name, "on one of our three nodes", subset(&scene)),
    ]
}

/// It and we hold the lock at once.
fn subset(scene: &Scene) -> Outcome {
    step(RLOCK.name, "on one of our three nodes");
    let mut they = RLOCK.start(&scene.first().url());
    classic::theirs(&mut they, "subset")?;
    let answer = scene.ours("reentrant").try_lock("subset", TTL);
    classic::beside_subset(matches!(answer, Answer::Done(_)), &answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(millis: &[u64]) -> Times {
        let mut times = Times::default();
        millis.iter().for_each(|ms| times.add(0, ms * 1000));
        times
    }

    /// Once this row said "not woken" whatever was measured.
    #[test]
    fn a_fair_lock_that_wakes_or_sleeps_for_ever_fails_its_row() {
        assert!(not_woken(&times(&[700, 900])).is_ok());
        let error = not_woken(&times(&[4, 9])).unwrap_err();
        assert!(error.starts_with("woken"), "{error}");
        let error = not_woken(&times(&[700, 30_000])).unwrap_err();
        assert!(error.contains("30000 ms"), "{error}");
    }
}
