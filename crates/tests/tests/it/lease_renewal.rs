//! A lease lives as long as its holder wants it to, whatever becomes of single nodes, and not a
//! moment longer.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use fencepost::{Client, Lease, LossReason, RestartPolicy};
use fencepost_tests::{Cluster, RedisServer, Stalls, wait_until};

/// How soon something has to happen that is not the matter of a test.
const SOON: Duration = Duration::from_secs(10);

/// Every three seconds one of five nodes is killed, and started again a second later without any of
/// its data. With a `max_ttl` of 2 s and quarantine on, it votes again two seconds after it is found to
/// be up, which takes the client up to another second. So a node is out for at most four seconds, two
/// nodes are out at times, and the three others are just enough, at all times.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_a_minute_of_nodes_killed_and_restarted_empty_does_not_cost_the_lease() {
    const TTL: Duration = Duration::from_secs(2);
    const EVERY: Duration = Duration::from_secs(3);
    let mut cluster = Cluster::start(5);
    let locks = Client::builder()
        .url(cluster.urls())
        .max_ttl(TTL)
        .restart_policy(RestartPolicy::Delay)
        .connect()
        .await
        .unwrap();
    // They have been started just now, and do not vote before two seconds have passed.
    let lease = locks.lock("job").ttl(TTL).timeout(SOON).await.unwrap();
    let token = lease.token();
    let start = Instant::now();
    let kills = tokio::task::spawn_blocking(move || {
        let mut kills = 0;
        while start.elapsed() < Duration::from_secs(30) {
            let next = start + EVERY * (kills as u32 + 1);
            let server = &mut cluster.servers[kills % 5];
            server.kill();
            std::thread::sleep(Duration::from_secs(1));
            server.restart();
            kills += 1;
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
        }
        (kills, cluster)
    });
    let (kills, cluster) = tokio::select! {
        why = lease.lost() => panic!("lost after {:?}: {why}", start.elapsed()),
        kills = kills => kills.unwrap(),
    };
    assert!(kills >= 9, "only {kills}");
    assert!(lease.is_valid());
    assert_eq!(lease.token(), token);
    let stored = |server: &RedisServer| server.cli(&["ZSCORE", "fencepost:fences", "job"]);
    let known = cluster.servers.iter().map(stored);
    let known = known.filter(|stored| *stored == token.to_string()).count();
    assert!(known >= 3, "{known} nodes know the token");
    lease.release().await.unwrap();
}

mod after_release {
    use super::*;

    const TTL: Duration = Duration::from_millis(60);
    const TASKS: usize = 50;
    const CYCLES: usize = 200;
    /// What tells the commands apart that are no release: see the scripts.
    const ACQUIRE_KEYS: usize = 5;
    const RAISE_KEYS: usize = 3;
    /// On a busy machine a lease may have ended before it was given back, and the next one waits.
    const QUEUE_KEYS: usize = 4;

    /// What one value asked of a node, in the order in which the node carried it out.
    #[derive(Default)]
    struct Story {
        /// Seconds of the server's clock.
        extends: Vec<f64>,
        release: Option<f64>,
        after_release: Vec<String>,
    }

    /// Everything that reaches a server, until the word `enough`.
    fn monitor(server: &RedisServer) -> std::thread::JoinHandle<HashMap<String, Story>> {
        let mut stream = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
        stream.write_all(b"MONITOR\r\n").unwrap();
        let mut lines = BufReader::new(stream).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "+OK");
        std::thread::spawn(move || {
            let mut stories: HashMap<String, Story> = HashMap::new();
            for line in lines {
                let line = line.unwrap();
                if line.ends_with("\"enough\"") {
                    break;
                }
                // +1700000000.123456 [0 127.0.0.1:5000] "EVALSHA" "digest" "3" …
                let words: Vec<&str> = line.split(' ').collect();
                let Some(keys) = number_of_keys(&words) else {
                    continue;
                };
                let when: f64 = words[0].trim_start_matches('+').parse().unwrap();
                let verb = words.iter().position(|w| w.starts_with("\"EVAL")).unwrap();
                // Behind verb, script, number of keys and the keys: the value first. A look has none.
                let Some(value) = words.get(verb + 3 + keys) else {
                    continue;
                };
                // Up to the colon it is the same in all commands; the usual release names the token too.
                let unique = value.split(':').next().unwrap_or_default();
                let story = stories.entry(unique.to_owned()).or_default();
                let is_usual_release = keys == RAISE_KEYS && words.len() == verb + 3 + keys + 1;
                if story.release.is_some() {
                    story.after_release.push(line.clone());
                }
                match keys {
                    _ if is_usual_release || is_release(&line) => story.release = Some(when),
                    _ if is_extend(&line) => story.extends.push(when),
                    QUEUE_KEYS | RAISE_KEYS => {}
                    _ => assert_eq!(keys, ACQUIRE_KEYS, "{line}"),
                }
            }
            stories
        })
    }

    /// On a busy machine the time may be up before a majority has answered.
    async fn take(locks: &Client, name: &str) -> Lease {
        let end = Instant::now() + SOON;
        loop {
            match locks.lock(name).ttl(TTL).timeout(SOON).await {
                Ok(lease) => return lease,
                Err(error) => assert!(Instant::now() < end, "{error}"),
            }
        }
    }

    /// Each task takes its lock, keeps it until about the moment of a renewal, and gives it back.
    async fn cycles(locks: Client, task: usize) {
        let name = format!("job-{task}");
        for cycle in 0..CYCLES {
            let lease = take(&locks, &name).await;
            // From a little before the first renewal until a little after it.
            let jitter = Duration::from_micros((cycle * 37 % 30) as u64 * 100);
            tokio::time::sleep(TTL / 3 - Duration::from_micros(1500) + jitter).await;
            // On a busy machine it may have ended before.
            let _ = lease.release().await;
        }
    }

    /// Runs the cycles, and returns how many renewals there were and how many of them were followed
    /// by the release so closely that they were under way when it was called.
    async fn watched(cluster: &Cluster) -> (usize, usize) {
        let locks = cluster.client().await;
        let monitors: Vec<_> = cluster.servers.iter().map(monitor).collect();
        let tasks: Vec<_> = (0..TASKS)
            .map(|task| tokio::spawn(cycles(locks.clone(), task)))
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        locks.shutdown().await;
        for server in &cluster.servers {
            server.cli(&["ECHO", "enough"]);
        }
        let (mut renewals, mut close) = (0, 0);
        for monitor in monitors {
            let stories = monitor.join().unwrap();
            assert!(stories.len() >= TASKS * CYCLES, "{} values", stories.len());
            for story in stories.values() {
                let late = story.after_release.iter();
                let extends: Vec<_> = late.filter(|line| !is_release(line)).collect();
                assert!(extends.is_empty(), "after its release: {extends:?}");
                renewals += story.extends.len();
                let last = story.extends.last().zip(story.release);
                // A round trip takes about this long.
                close += usize::from(last.is_some_and(|(extend, release)| release - extend < 2e-4));
            }
        }
        println!("{renewals} renewals, {close} of them under way when the release was called");
        (renewals, close)
    }

    /// It says what becomes of a ticket, as no other command does.
    fn is_release(line: &str) -> bool {
        let fates = ["\"stays\"", "\"leaves\"", "\"returns\""];
        fates.iter().any(|fate| line.contains(fate))
    }

    /// It says whether a lock that was forgotten is acquired again, as no other command does.
    fn is_extend(line: &str) -> bool {
        ["\"always\"", "\"compares\""]
            .iter()
            .any(|word| line.contains(word))
    }

    /// How many keys the script has, if the line is one of ours.
    fn number_of_keys(words: &[&str]) -> Option<usize> {
        let verb = words.iter().position(|word| word.starts_with("\"EVAL"))?;
        let keys = words.get(verb + 2)?.trim_matches('"');
        // A script that is sent with its source has spaces in it: it says nothing of any value.
        (3..=4).contains(&verb).then(|| keys.parse().ok())?
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn nothing_for_the_value_reaches_one_node_in_ten_thousand_cycles() {
        let (renewals, close) = watched(&Cluster::start(1)).await;
        assert!(renewals > 2000 && close > 200, "{renewals}, {close}");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn no_renewal_reaches_any_of_three_nodes_in_ten_thousand_cycles() {
        let (renewals, close) = watched(&Cluster::start(3)).await;
        assert!(renewals > 6000 && close > 600, "{renewals}, {close}");
    }
}

mod side_by_side {
    use super::*;

    const TTL: Duration = Duration::from_millis(1800);
    /// How long a renewal would be late that waits for a node.
    const NODE_TIMEOUT: Duration = Duration::from_millis(800);
    /// What is left of a lease just before its renewal, less what a busy machine may take.
    const LEAST: Duration = Duration::from_millis(1800 * 2 / 3 - 20 - 500);

    async fn hold(locks: &Client, many: usize) -> Vec<Lease> {
        let mut leases = Vec::new();
        for i in 0..many {
            leases.push(locks.lock(format!("job-{i}")).ttl(TTL).await.unwrap());
        }
        leases
    }

    async fn client(cluster: &Cluster) -> Client {
        let builder = cluster.builder().node_timeout(NODE_TIMEOUT);
        cluster.connect(builder).await
    }

    /// Watches the leases for that time: none may ever have less left than if it were renewed in time, by
    /// a machine that stalls as this one does.
    async fn are_renewed_in_time(leases: &[Lease], time: Duration) {
        let (stalls, end) = (Stalls::watch(), Instant::now() + time);
        let mut least = TTL;
        while Instant::now() < end {
            let left = leases.iter().map(Lease::remaining).min();
            least = least.min(left.unwrap_or(TTL));
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let stalled = stalls.allowance();
        println!("{least:?} left at the least, by a machine that stalls for {stalled:?}");
        assert!(least + stalled >= LEAST, "{least:?}, {stalled:?}");
    }

    /// For many TTLs: first with the connection that has gone mute, then without one.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_frozen_node_delays_no_renewal() {
        let cluster = Cluster::start(3);
        let locks = client(&cluster).await;
        let leases = hold(&locks, 50).await;
        cluster.all_have("job-49").await;
        cluster.servers[0].freeze();
        are_renewed_in_time(&leases, TTL * 4).await;
        cluster.servers[0].thaw();
        for lease in leases {
            lease.release().await.unwrap();
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_killed_node_delays_no_renewal() {
        let mut cluster = Cluster::start(3);
        let locks = client(&cluster).await;
        let leases = hold(&locks, 50).await;
        cluster.all_have("job-49").await;
        cluster.servers[1].kill();
        are_renewed_in_time(&leases, TTL * 3).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn leases_that_are_lost_delay_no_other() {
        let cluster = Cluster::start(1);
        let locks = client(&cluster).await;
        let mut leases = hold(&locks, 50).await;
        let others = leases.split_off(25);
        for lease in &leases {
            cluster.servers[0].cli(&["SET", lease.name(), "thief"]);
        }
        are_renewed_in_time(&others, TTL * 3).await;
        for lease in &leases {
            let why = lease.loss();
            assert!(matches!(why, Some(LossReason::Stolen { .. })), "{why:?}");
        }
    }
}

mod the_client {
    use super::*;

    const TTL: Duration = Duration::from_secs(1);

    #[tokio::test]
    async fn a_lease_outlives_its_client_and_goes_on_being_renewed() {
        let cluster = Cluster::start(1);
        let locks = cluster.client().await;
        let lease = locks.lock("job").ttl(TTL).await.unwrap();
        drop(locks);
        assert!(tokio::time::timeout(TTL * 2, lease.lost()).await.is_err());
        lease.release().await.unwrap();
        assert_eq!(cluster.servers[0].cli(&["EXISTS", "job"]), "0");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn shutdown_waits_until_dropped_leases_are_given_back() {
        let cluster = Cluster::start(1);
        let locks = cluster.builder().node_timeout(SOON);
        let locks = cluster.connect(locks).await;
        let lease = locks.lock("job").ttl(SOON).await.unwrap();
        cluster.servers[0].freeze();
        drop(lease);
        let mut shutdown = tokio::spawn(locks.shutdown());
        let early = tokio::time::timeout(Duration::from_millis(200), &mut shutdown).await;
        assert!(early.is_err(), "the node has not answered yet");
        cluster.servers[0].thaw();
        let done = tokio::time::timeout(SOON, shutdown).await;
        done.expect("in time").unwrap();
        assert_eq!(cluster.servers[0].cli(&["EXISTS", "job"]), "0");
    }

    #[tokio::test]
    async fn a_leaked_lease_ends_with_max_hold() {
        const MAX_HOLD: Duration = Duration::from_secs(2);
        let cluster = Cluster::start(1);
        let locks = cluster.client().await;
        let lease = locks.lock("job").ttl(TTL).max_hold(MAX_HOLD).await;
        let start = Instant::now();
        std::mem::forget(lease.unwrap());
        let gone = || cluster.servers[0].cli(&["EXISTS", "job"]) == "0";
        wait_until("it is free", SOON, gone).await;
        let took = start.elapsed();
        assert!(took >= MAX_HOLD - TTL / 3, "{took:?}: renewed until then");
    }
}
