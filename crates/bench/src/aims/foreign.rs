//! Behind clients of another make, which do not know our queue and wake nobody.

use std::time::{Duration, Instant};

use fencepost_interop::peer::{Answer, Peer, Spec, millis, ours};
use fencepost_tests::{RedisServer, until_somebody_waits};

use crate::contender::TTL;
use crate::peers::Slice;

/// How much longer than its slice a peer may take before it is said to hang.
const PATIENCE: Duration = Duration::from_secs(60);
const NAME: &str = "busy";

/// What one client got behind those who never pause.
pub(super) struct Got {
    /// Per second.
    pub(super) grants: f64,
    pub(super) longest: Duration,
}

/// One client of ours, or of redsync, beside two processes of rslock that hold the lock for a
/// millisecond and want it again at once.
///
/// # Errors
/// A peer is not there, or does not answer.
pub(super) fn never_pause(nodes: usize, time: Duration, who: Option<Spec>) -> Result<Got, String> {
    let servers = RedisServer::start_many(nodes);
    let urls: Vec<_> = servers.iter().map(RedisServer::url).collect();
    let urls = urls.join(",");
    let rslock = Spec::of("rslock").in_profile(crate::peers::profile());
    let mut others = [rslock.start(&urls), rslock.start(&urls)];
    let mut client = match who {
        Some(spec) => spec.start(&urls),
        None => ours(&urls, "plain"),
    };
    // They are at work before the measured one begins, and until after it has ended.
    for other in &mut others {
        let span = millis(time + Duration::from_secs(2));
        other.send(&["load", NAME, "shared", "1", &span, &millis(TTL), "0"]);
    }
    std::thread::sleep(Duration::from_millis(500));
    let slice = load(&mut client, time)?;
    Ok(Got {
        grants: slice.rate,
        longest: Duration::from_secs_f64(slice.longest / 1e6),
    })
}

fn load(client: &mut Peer, time: Duration) -> Result<Slice, String> {
    client.send(&["load", NAME, "shared", "1", &millis(time), &millis(TTL)]);
    match client.answer_within(time + PATIENCE) {
        Some(Answer::Done(words)) => Slice::read(&words),
        Some(other) => Err(format!("{other:?}")),
        None => Err("no answer".to_owned()),
    }
}

/// From the moment before rslock releases until our waiter has the lock.
pub(super) async fn after_release(nodes: usize, times: usize) -> Vec<f64> {
    let servers = RedisServer::start_many(nodes);
    let urls: Vec<_> = servers.iter().map(RedisServer::url).collect();
    let locks = crate::ours::connect(&urls).await;
    let manager = crate::rslock::manager(&urls);
    let mut taken = Vec::new();
    for round in 0..times {
        let held = manager.lock(NAME, TTL).await.expect("it is free");
        let request = locks.lock(NAME).ttl(TTL);
        let waiter = tokio::spawn(async move {
            let lease = request.await.expect("it waits as long as it takes");
            (Instant::now(), lease)
        });
        until_somebody_waits(&locks, NAME).await;
        // At another moment of the waiter's pauses each time, whatever they are.
        let pause = Duration::from_millis(120 + (round as u64 * 53) % 210);
        tokio::time::sleep(pause).await;
        let released = Instant::now();
        held.release().await;
        let (got, lease) = waiter.await.expect("it waits as long as it takes");
        taken.push((got - released).as_secs_f64() * 1e3);
        lease.release().await.expect("nobody else took it");
    }
    taken
}
