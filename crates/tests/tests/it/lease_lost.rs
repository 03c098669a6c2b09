//! A holder that can no longer rely on its lock is told, in time and with the reason: whatever
//! happened to the nodes, to the lock, or to the holder itself.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fencepost::internals::clock::{Clock, Moment, SystemClock};
use fencepost::{Client, Lease, LockRequest, LossReason};
use fencepost_tests::{Cluster, RedisServer, Stalls, until, wait_until};
use rustix::process::{Pid, Signal, kill_process};

/// How soon something has to happen that is not the matter of a test.
const SOON: Duration = Duration::from_secs(10);
/// How much before its end a lease may be given up.
const NOTICE: Duration = Duration::from_millis(25);

fn now() -> Moment {
    SystemClock.now()
}

fn nanos(moment: Moment) -> u64 {
    moment.since_start().as_nanos() as u64
}

async fn within<T>(limit: Duration, future: impl Future<Output = T>) -> T {
    let result = tokio::time::timeout(limit, future).await;
    result.unwrap_or_else(|_| panic!("not within {limit:?}"))
}

mod frozen {
    use super::*;

    const TTL: Duration = Duration::from_millis(500);
    const ROUNDS: usize = 5;
    const LEASES: usize = 20;

    /// A lease that was lost.
    struct Loss {
        /// Dropped only when all are lost: until then nobody gives anything back.
        lease: Lease,
        why: LossReason,
        at: Moment,
        deadline: Moment,
    }

    /// Waits for the loss, and notes until when the lease had said that it would be valid.
    async fn watch(lease: Lease, last_deadline: Arc<AtomicU64>) -> Loss {
        let mut deadline = now();
        loop {
            // In this order, so that a pause between the two makes it earlier, never later.
            let moment = now();
            deadline = deadline.max(moment + lease.remaining());
            last_deadline.fetch_max(nanos(deadline), Ordering::SeqCst);
            tokio::select! {
                biased;
                why = lease.lost() => {
                    let at = now();
                    return Loss { lease, why, at, deadline };
                }
                () = tokio::time::sleep(Duration::from_millis(10)) => {}
            }
        }
    }

    /// Tries to get the lock without a pause; when it had it.
    async fn compete(rival: Client, name: String) -> Moment {
        loop {
            if let Ok(lease) = rival.try_lock(&name).ttl(TTL).renew(false).await {
                let at = now();
                let _ = lease.release().await;
                return at;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// All nodes stop in the middle of holds and renewals, and go on the moment that the last
    /// lease's validity ends, whether or not its holder has been told.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_hundred_leases_on_frozen_nodes_are_told_lost_in_time_and_before_anyone_else_acquires()
     {
        let cluster = Cluster::start(3);
        let locks = cluster.client().await;
        let rival = cluster.builder().node_timeout(TTL / 10);
        let rival = cluster.connect(rival).await;
        let mut earliest = Duration::ZERO;
        let mut latest = Duration::MAX;
        for round in 0..ROUNDS {
            // A task is told as late as the machine lets it run.
            let stalls = Stalls::watch();
            let name = |i: usize| format!("job-{round}-{i}");
            let mut leases = Vec::new();
            for i in 0..LEASES {
                let lease = locks.lock(name(i)).ttl(TTL).timeout(SOON).await.unwrap();
                leases.push(lease);
            }
            // Another part of the renewal period each time.
            tokio::time::sleep(TTL / 3 * round as u32 / ROUNDS as u32).await;
            cluster.servers.iter().for_each(RedisServer::freeze);
            let last_deadline = Arc::new(AtomicU64::new(0));
            let watchers: Vec<_> = leases
                .into_iter()
                .map(|lease| tokio::spawn(watch(lease, last_deadline.clone())))
                .collect();
            let rivals: Vec<_> = (0..LEASES)
                .map(|i| tokio::spawn(compete(rival.clone(), name(i))))
                .collect();
            // By then all of them are watched.
            tokio::time::sleep(TTL / 2).await;
            while nanos(now()) < last_deadline.load(Ordering::SeqCst) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            cluster.servers.iter().for_each(RedisServer::thaw);
            let mut losses = Vec::new();
            for watcher in watchers {
                losses.push(within(SOON, watcher).await.unwrap());
            }
            let stalled = stalls.allowance();
            let told_at: Vec<_> = losses.iter().map(|loss| loss.at).collect();
            let ended_at: Vec<_> = losses.iter().map(|loss| loss.deadline).collect();
            for Loss {
                lease,
                why,
                at,
                deadline,
            } in losses
            {
                let late = at.since(deadline);
                assert!(
                    late <= stalled.saturating_sub(NOTICE),
                    "{}: told {late:?} late, by a machine that stalls for {stalled:?}",
                    lease.name()
                );
                // Told late, it looks as if the process had been stopped.
                let is_stopped = stalled > NOTICE && why == LossReason::Suspended;
                assert!(why == LossReason::NoQuorum || is_stopped, "{why}");
                assert!(!lease.is_valid() && lease.remaining().is_zero());
                let early = deadline.since(at);
                assert!(
                    early <= NOTICE + Duration::from_millis(2),
                    "{early:?} early"
                );
                earliest = earliest.max(early);
                latest = latest.min(early);
            }
            for ((told, ended), rival) in told_at.into_iter().zip(ended_at).zip(rivals) {
                let acquired = within(SOON, rival).await.unwrap();
                assert!(acquired > ended, "while it was valid");
                assert!(
                    acquired + stalled.saturating_sub(NOTICE) > told,
                    "acquired {:?} before",
                    told.since(acquired)
                );
            }
        }
        println!("told {latest:?} to {earliest:?} before the end");
    }
}

mod stopped {
    use super::*;

    const TTL: Duration = Duration::from_millis(1500);

    struct Holder {
        process: Child,
        lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
    }

    impl Holder {
        fn start(cluster: &Cluster, name: &str) -> Self {
            let mut process = Command::new(env!("CARGO_BIN_EXE_holder"))
                .args([&cluster.urls(), name, &TTL.as_millis().to_string()])
                .stdout(Stdio::piped())
                .spawn()
                .expect("our own program");
            let out = BufReader::new(process.stdout.take().expect("piped"));
            Self {
                process,
                lines: out.lines(),
            }
        }

        fn line(&mut self) -> String {
            self.lines.next().expect("a line").expect("text")
        }

        fn signal(&self, signal: Signal) {
            let pid = i32::try_from(self.process.id())
                .ok()
                .and_then(Pid::from_raw);
            kill_process(pid.expect("a pid"), signal).expect("our own child");
        }
    }

    impl Drop for Holder {
        fn drop(&mut self) {
            let _ = self.process.kill().and_then(|()| self.process.wait());
        }
    }

    #[tokio::test]
    async fn a_process_stopped_past_its_ttl_sees_the_loss_before_anything_else() {
        let cluster = Cluster::start(3);
        let rival = cluster.client().await;
        let name = |i: usize| format!("job-{i}");
        let mut holders = Vec::new();
        // One after the other: a renewal that fails because all of them start at once would be another reason.
        for i in 0..8 {
            let mut holder = Holder::start(&cluster, &name(i));
            assert_eq!(holder.line(), "holding");
            // At another point of its renewals each.
            tokio::time::sleep(Duration::from_millis(17 * i as u64)).await;
            holder.signal(Signal::STOP);
            holders.push(holder);
        }
        let mut taken = Vec::new();
        for i in 0..holders.len() {
            let lease = rival.lock(name(i)).ttl(SOON).timeout(SOON).await;
            taken.push(lease.unwrap());
        }
        // So that each of them has been stopped for longer than a whole TTL.
        tokio::time::sleep(TTL).await;
        for holder in &mut holders {
            holder.signal(Signal::CONT);
            assert_eq!(holder.line(), "false suspended lost suspended");
        }
        for lease in taken {
            assert!(lease.is_valid());
            lease
                .release()
                .await
                .expect("the old holder has not touched it");
        }
    }
}

mod by_hand {
    use super::*;

    const TTL: Duration = Duration::from_millis(4500);
    /// One renewal period, and some time for the machine: less than is left of the TTL.
    const PERIOD: Duration = Duration::from_millis(1500 + 1200);

    /// Holds a lock while something is done to the lock on two of its three nodes, and returns what
    /// the holder was told.
    async fn told_of(done: &[&str]) -> LossReason {
        let cluster = Cluster::start(3);
        let locks = cluster.client().await;
        let lease = locks.lock("job").ttl(TTL).await.unwrap();
        cluster.all_have("job").await;
        for server in &cluster.servers[1..] {
            server.cli(done);
        }
        let why = within(PERIOD, lease.lost()).await;
        assert!(!lease.is_valid());
        assert_eq!(lease.loss().as_ref(), Some(&why));
        why
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn flushed_on_a_majority_is_told_within_one_renewal_period() {
        assert_eq!(told_of(&["FLUSHALL"]).await, LossReason::Unknown);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn expired_by_hand_on_a_majority_is_told_within_one_renewal_period() {
        assert_eq!(told_of(&["PEXPIRE", "job", "1"]).await, LossReason::Unknown);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn deleted_on_a_majority_is_told_within_one_renewal_period() {
        assert_eq!(told_of(&["DEL", "job"]).await, LossReason::Unknown);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn overwritten_on_a_majority_names_who_did_it() {
        let why = told_of(&["SET", "job", "operator", "PX", "60000"]).await;
        let LossReason::Stolen { by } = why else {
            panic!("{why}");
        };
        assert_eq!(by.as_str(), "operator");
    }

    /// Whoever had it on one node was called the thief, though a majority had lost it before.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn overwritten_on_one_node_and_deleted_on_another_names_nobody() {
        let cluster = Cluster::start(3);
        let locks = cluster.client().await;
        let lease = locks.lock("job").ttl(TTL).await.unwrap();
        cluster.all_have("job").await;
        for server in &cluster.servers[1..] {
            server.cli(&["DEL", "job"]);
        }
        // A client of the plain kind, of one node.
        cluster.servers[1].cli(&["SET", "job", "passer-by", "PX", "60000"]);
        let why = within(PERIOD, lease.lost()).await;
        assert_eq!(why, LossReason::Unknown);
    }

    /// Nobody renews it, and its holder asks for an extension or releases it.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn deleted_before_its_end_is_expired_for_nobody() {
        let cluster = Cluster::start(3);
        let locks = cluster.client().await;
        for by_release in [true, false] {
            let lease = locks.lock("job").ttl(TTL).renew(false).await.unwrap();
            cluster.all_have("job").await;
            for server in &cluster.servers[1..] {
                server.cli(&["DEL", "job"]);
            }
            let told = match by_release {
                true => lease.release().await,
                false => lease.extend().await,
            };
            let told = told.unwrap_err();
            assert_eq!(told.loss(), Some(&LossReason::Unknown), "{told}");
            let detached = locks.lock("other").ttl(TTL).await.unwrap();
            let detached = detached.detach().await.unwrap();
            cluster.all_have("other").await;
            for server in &cluster.servers {
                server.cli(&["DEL", "other"]);
            }
            let told = match by_release {
                true => locks.release_detached(&detached).await,
                false => locks.extend_detached(&detached, TTL).await.map(drop),
            };
            let told = told.unwrap_err();
            assert_eq!(told.loss(), Some(&LossReason::Unknown), "{told}");
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn stolen_names_the_thief_within_one_renewal_period() {
        let cluster = Cluster::start(3);
        let locks = cluster.client().await;
        let thief = cluster.connect(cluster.builder().owner("thief")).await;
        let lease = locks.lock("job").ttl(TTL).await.unwrap();
        let stolen = thief.steal("job", TTL).await.unwrap();
        let why = within(PERIOD, lease.lost()).await;
        let LossReason::Stolen { by } = why else {
            panic!("{why}");
        };
        assert_eq!(by.as_str(), "thief");
        assert!(lease.release().await.unwrap_err().is_lost());
        stolen.lease.release().await.expect("it is the thief's");
    }

    /// Nobody had the lock any more, and the victim was told that it had expired.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn stolen_and_freed_is_told_as_stolen_by_extend_and_by_release() {
        let cluster = Cluster::start(3);
        let locks = cluster.client().await;
        let thief = cluster.connect(cluster.builder().owner("thief")).await;
        let request = || locks.lock("job").ttl(TTL).renew(false);
        for ask_first in [true, false] {
            let lease = request().await.unwrap();
            let stolen = thief.steal("job", TTL).await.unwrap();
            stolen.lease.release().await.unwrap();
            if ask_first {
                is_stolen(lease.extend().await.unwrap_err().loss());
                is_stolen(lease.loss().as_ref());
            }
            is_stolen(lease.release().await.unwrap_err().loss());
            let detached = request().await.unwrap().detach().await.unwrap();
            let stolen = thief.steal("job", TTL).await.unwrap();
            stolen.lease.release().await.unwrap();
            is_stolen(
                locks
                    .extend_detached(&detached, TTL)
                    .await
                    .unwrap_err()
                    .loss(),
            );
            is_stolen(locks.release_detached(&detached).await.unwrap_err().loss());
        }
    }

    /// What one of them acquired again, the other took for held all the time; then the first released it, having
    /// found it lost, and a rival was granted what the other was promised.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn neither_of_two_that_extend_an_expired_lock_at_once_is_promised_it() {
        let cluster = Cluster::start(3);
        let (locks, other) = (cluster.client().await, cluster.client().await);
        for n in 0..20 {
            let name = format!("job-{n}");
            let lease = locks.lock(&name).ttl(TTL).renew(false).await.unwrap();
            let detached = lease.detach().await.unwrap();
            for server in &cluster.servers {
                server.cli(&["DEL", &name]);
            }
            let (one, two) = tokio::join!(
                locks.extend_detached(&detached, TTL),
                other.extend_detached(&detached, TTL)
            );
            assert!(one.unwrap_err().is_lost() && two.unwrap_err().is_lost());
            let rival = other.try_lock(&name).renew(false).await;
            rival.expect("nobody holds it").release().await.unwrap();
        }
    }

    /// It is acquired again there once a majority has said that it was held all the time.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_detached_lock_is_repaired_where_a_minority_has_forgotten_it() {
        let cluster = Cluster::start(3);
        let locks = cluster.client().await;
        let lease = locks.lock("job").ttl(TTL).renew(false).await.unwrap();
        let detached = lease.detach().await.unwrap();
        let server = &cluster.servers[1];
        server.cli(&["DEL", "job"]);
        until("repaired", SOON, async || {
            locks.extend_detached(&detached, TTL).await.unwrap();
            server.cli(&["EXISTS", "job"]) == "1"
        })
        .await;
        locks.release_detached(&detached).await.unwrap();
    }

    fn is_stolen(why: Option<&LossReason>) {
        let by = |owner: &fencepost::Owner| owner.as_str() == "thief";
        assert!(
            matches!(why, Some(LossReason::Stolen { by: thief }) if by(thief)),
            "{why:?}"
        );
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_befalls_a_minority_is_mended_and_not_told() {
        let cluster = Cluster::start(3);
        let locks = cluster.client().await;
        let lease = locks.lock("job").ttl(TTL).await.unwrap();
        cluster.all_have("job").await;
        cluster.servers[0].cli(&["FLUSHALL"]);
        assert!(tokio::time::timeout(TTL, lease.lost()).await.is_err());
        let stored = fencepost_tests::stored(lease.value(), lease.token());
        let has_it = || cluster.servers[0].cli(&["GET", "job"]) == stored;
        wait_until("it is mended", PERIOD, has_it).await;
        lease.release().await.unwrap();
    }
}

mod limits {
    use super::*;

    const TTL: Duration = Duration::from_millis(1500);
    const MAX_HOLD: Duration = Duration::from_millis(2000);
    /// Two renewals, each after a third of the TTL, and then what 1500 ms are worth.
    const TWO_RENEWALS: Duration = Duration::from_millis(500 + 500 + 1483);
    /// A renewal may be late, the end of a hold may not. Less than a third renewal would add.
    const SLACK: Duration = Duration::from_millis(400);

    /// A lease, and between which moments it began: a busy machine may let some time pass between them.
    async fn begin(request: LockRequest) -> (Lease, [Instant; 2]) {
        let asked = Instant::now();
        let lease = request.ttl(TTL).await.unwrap();
        (lease, [asked, Instant::now()])
    }

    /// How long it lasted at most and at least.
    async fn lasted((lease, [asked, granted]): (Lease, [Instant; 2])) -> [Duration; 2] {
        let why = within(SOON, lease.lost()).await;
        let took = [asked.elapsed(), granted.elapsed()];
        assert!(!lease.is_valid());
        assert_eq!(why, LossReason::MaxHold);
        took
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn max_hold_ends_a_lease_in_time_by_lock_and_by_client() {
        let cluster = Cluster::start(1);
        let by_lock = cluster.client().await;
        let by_client = cluster.builder().max_hold(MAX_HOLD);
        let by_client = cluster.connect(by_client).await;
        let unlimited = by_lock.lock("free").ttl(TTL).await.unwrap();
        let stalls = Stalls::watch();
        let (first, second, third) = tokio::join!(
            async { lasted(begin(by_lock.lock("a").max_hold(MAX_HOLD)).await).await },
            async { lasted(begin(by_client.lock("b")).await).await },
            // What is said of the lock counts.
            async { lasted(begin(by_client.lock("c").max_hold(MAX_HOLD * 2)).await).await },
        );
        for ([most, least], limit) in [(first, MAX_HOLD), (second, MAX_HOLD), (third, MAX_HOLD * 2)]
        {
            let late = stalls.allowance().saturating_sub(NOTICE);
            assert!(
                least <= limit + late && most >= limit - NOTICE,
                "{least:?} to {most:?} of {limit:?}, by a machine that is {late:?} late"
            );
        }
        assert!(unlimited.is_valid());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn max_renewals_ends_a_lease_when_the_last_one_has_run_out() {
        let cluster = Cluster::start(1);
        let by_lock = cluster.client().await;
        let by_client = cluster.builder().max_renewals(2);
        let by_client = cluster.connect(by_client).await;
        let stalls = Stalls::watch();
        let (first, second, none) = tokio::join!(
            async { lasted(begin(by_lock.lock("a").max_renewals(2)).await).await },
            async { lasted(begin(by_client.lock("b")).await).await },
            async { lasted(begin(by_client.lock("c").max_renewals(0)).await).await },
        );
        let stalled = stalls.allowance();
        for [most, least] in [first, second] {
            assert!(most >= TWO_RENEWALS - NOTICE, "{most:?}");
            assert!(least <= TWO_RENEWALS + SLACK + stalled, "{least:?}");
        }
        let [_, none] = none;
        assert!(none <= TTL + stalled.saturating_sub(NOTICE), "{none:?}");
    }
}

mod waiting {
    use super::*;

    const TTL: Duration = Duration::from_millis(300);

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn all_who_wait_are_told_and_those_who_gave_up_do_not_matter() {
        let cluster = Cluster::start(1);
        let locks = cluster.client().await;
        let lease = locks.lock("job").ttl(TTL).renew(false).await.unwrap();
        let lease = Arc::new(lease);
        let waiters: Vec<_> = (0..300)
            .map(|i| {
                let lease = lease.clone();
                tokio::spawn(async move {
                    // Some give up and begin again, up to the very end.
                    let patience = Duration::from_millis(i % 40);
                    while i % 3 == 0 && tokio::time::timeout(patience, lease.lost()).await.is_err()
                    {
                    }
                    match i % 3 {
                        1 => drop(lease.watch().ended().await),
                        _ => assert_eq!(lease.lost().await, LossReason::Expired),
                    }
                    assert!(!lease.is_valid());
                })
            })
            .collect();
        let quitters: Vec<_> = (0..300)
            .map(|_| {
                let lease = lease.clone();
                tokio::spawn(async move { lease.lost().await })
            })
            .collect();
        // Somewhere in between.
        tokio::time::sleep(TTL / 3).await;
        quitters.iter().for_each(tokio::task::JoinHandle::abort);
        for waiter in waiters {
            within(SOON, waiter).await.unwrap();
        }
        assert_eq!(
            within(SOON, lease.lost()).await,
            LossReason::Expired,
            "again"
        );
    }

    #[tokio::test]
    async fn who_watches_is_told_of_release_of_drop_and_of_loss() {
        let cluster = Cluster::start(1);
        let locks = cluster.client().await;
        let renewed = Duration::from_millis(1500);
        let lease = locks.lock("job").ttl(renewed).await.unwrap();
        let (early, second) = (lease.watch(), lease.watch());
        tokio::time::sleep(renewed * 4 / 3).await;
        assert!(early.is_valid(), "renewed");
        lease.release().await.unwrap();
        assert!(!early.is_valid() && !second.is_valid());
        assert_eq!(within(SOON, second.ended()).await, None);

        let lease = locks.lock("job").ttl(TTL).await.unwrap();
        let watch = lease.watch();
        drop(lease);
        assert!(!watch.is_valid());

        let lease = locks.lock("job").ttl(TTL).timeout(SOON).renew(false).await;
        let lease = lease.unwrap();
        let watch = lease.watch();
        assert!(within(SOON, watch.ended()).await.is_some());
        assert!(!lease.watch().is_valid(), "also one asked for later");
    }
}

mod without_a_runtime {
    use super::*;

    fn runtime() -> tokio::runtime::Runtime {
        let builder = &mut tokio::runtime::Builder::new_current_thread();
        builder.enable_all().build().unwrap()
    }

    #[test]
    fn a_lease_whose_runtime_is_gone_says_so_to_whoever_waits_elsewhere() {
        let cluster = Cluster::start(1);
        let first = runtime();
        let (on_redis, in_memory) = first.block_on(async {
            let on_redis = cluster.client().await.lock("job").await.unwrap();
            let memory = Client::memory().unwrap();
            (on_redis, memory.lock("job").await.unwrap())
        });
        let second = runtime();
        let waiting = second.spawn(async move {
            let told = (on_redis.lost().await, in_memory.lost().await);
            assert!(!on_redis.is_valid() && !in_memory.is_valid());
            assert!(on_redis.extend().await.unwrap_err().is_lost());
            told
        });
        second.block_on(tokio::task::yield_now());
        drop(first);
        let told = second.block_on(within(SOON, waiting)).unwrap();
        assert_eq!(told, (LossReason::ClientGone, LossReason::ClientGone));
    }
}
