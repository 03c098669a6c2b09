//! The library as a client of the service: the same leases, the same loss.

use std::time::Duration;

use fencepost::{Client, DetachedLock, ErrorKind, FencingToken, NamePattern};
use fencepost_server::{Options, Tokens, hash_token};
use serde_json::json;

use crate::service::Replica;
use crate::wire::{Fault, Wire};

const SHORT: Duration = Duration::from_millis(900);

/// Replicas over one store in this process.
pub(crate) fn replicas<const N: usize>(store: &str) -> [Replica; N] {
    let place = format!("memory:{store}");
    [(); N].map(|()| {
        let place = place.clone();
        Replica::start(Options::new(), async move || {
            Client::builder().url(place).replica().build().unwrap()
        })
    })
}

async fn connect(addresses: &[std::net::SocketAddr]) -> Client {
    let urls: Vec<_> = addresses.iter().map(|at| format!("http://{at}")).collect();
    Client::connect(urls.join(",")).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_of_the_service_renews_itself_and_excludes_others() {
    let [one] = replicas("renews");
    let locks = connect(&[one.address]).await;
    let lease = locks.lock("job").ttl(SHORT).await.unwrap();
    tokio::time::sleep(SHORT * 3).await;
    assert!(lease.is_valid(), "it is renewed");
    let refused = locks.try_lock("job").await.unwrap_err();
    assert!(refused.is_held() && refused.holder().is_some(), "{refused}");
    let limit = Duration::from_millis(50);
    let timed_out = locks.lock("job").timeout(limit).await.unwrap_err();
    assert!(timed_out.is_timeout(), "{timed_out}");
    let token = lease.token();
    lease.release().await.unwrap();
    let next = locks.try_lock("job").await.unwrap();
    assert!(next.token() > token);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_is_served_when_the_lock_is_released_and_leaves_nothing_when_it_goes() {
    let [one] = replicas("waits");
    let locks = connect(&[one.address]).await;
    let lease = locks.lock("job").await.unwrap();
    let waiting = tokio::spawn(locks.lock("job").into_future());
    let dropped = tokio::spawn(locks.lock("job").into_future());
    fencepost_tests::eventually("two wait", Duration::from_secs(20), || {
        one.get("/v1/locks?name=job").json()["waiting"] == 2
    });
    dropped.abort();
    lease.release().await.unwrap();
    let next = waiting.await.unwrap().unwrap();
    next.release().await.unwrap();
    let last = locks.lock("job").timeout(Duration::from_secs(20)).await;
    last.unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_whose_lock_is_stolen_is_told() {
    let [one] = replicas("stolen");
    let locks = connect(&[one.address]).await;
    let lease = locks.lock("job").ttl(SHORT).await.unwrap();
    let stolen = locks.steal("job", Duration::from_secs(30)).await.unwrap();
    assert!(stolen.from.is_some() && stolen.lease.token() > lease.token());
    let why = tokio::time::timeout(Duration::from_secs(20), lease.lost()).await;
    assert_eq!(why.unwrap().as_str(), "stolen");
    stolen.lease.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_outlives_a_replica_as_long_as_another_answers() {
    let [one, two] = replicas("outlives");
    let locks = connect(&[one.address, two.address]).await;
    let lease = locks.lock("job").ttl(SHORT).await.unwrap();
    drop(one);
    tokio::time::sleep(SHORT * 3).await;
    assert!(lease.is_valid(), "renewed at the other");
    lease.release().await.unwrap();
    drop(two);
    let gone = locks.try_lock("job").await.unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::NoQuorum, "{gone}");
}

/// The service grants, and its answer never comes: a fresh lease id would wait for our own lock.
#[tokio::test(flavor = "multi_thread")]
async fn an_acquire_whose_answer_is_lost_gets_its_own_lock_by_the_same_lease_id() {
    let [one] = replicas("lost-answer");
    let wire = Wire::to(one.address);
    let locks = connect(&[wire.address()]).await;
    let first = locks.try_lock("job").await.unwrap();
    first.release().await.unwrap();
    wire.next_answer(Fault::Lost);
    let lease = locks.try_lock("job").await.unwrap();
    assert!(lease.is_valid());
    wire.next_answer(Fault::Lost);
    lease.release().await.unwrap();
    drop(locks.try_lock("job").await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn permits_readers_several_locks_and_elections_work_as_on_nodes() {
    let [one] = replicas("kinds");
    let locks = connect(&[one.address]).await;

    let workers = locks.semaphore("workers", 2);
    let (a, b) = (
        workers.acquire().await.unwrap(),
        workers.acquire().await.unwrap(),
    );
    assert_ne!(a.slot(), b.slot());
    assert!(workers.try_acquire().await.unwrap_err().is_held());
    assert_eq!(workers.holders().await.unwrap().len(), 2);
    a.release().await.unwrap();
    drop(workers.try_acquire().await.unwrap());

    let shelf = locks.read_write("shelf");
    let (x, y) = (shelf.read().await.unwrap(), shelf.read().await.unwrap());
    assert!(shelf.try_write().await.unwrap_err().is_held());
    assert_eq!(locks.status("shelf").await.unwrap().readers.len(), 2);
    x.release().await.unwrap();
    y.release().await.unwrap();
    shelf.write().await.unwrap().release().await.unwrap();

    let both = locks.lock_all(["one", "two"]).await.unwrap();
    assert!(locks.try_lock("two").await.unwrap_err().is_held());
    both.release().await.unwrap();

    let election = locks.election("scheduler");
    let leads = election.campaign("10.0.0.7:8080").await.unwrap();
    let leader = election.leader().await.unwrap().unwrap();
    assert_eq!(
        (leader.value.as_str(), leader.token),
        ("10.0.0.7:8080", leads.token())
    );
    leads.resign().await.unwrap();
    assert_eq!(election.leader().await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_service_does_not_offer_is_refused_and_says_so() {
    let [one] = replicas("offers");
    let locks = connect(&[one.address]).await;
    let refused = [
        locks.reentrant("r").try_lock().await.err(),
        locks.latch("l", 2).count_down().await.err(),
    ];
    for error in refused {
        let error = error.unwrap();
        assert_eq!(error.kind(), ErrorKind::InvalidOption, "{error}");
        assert!(error.to_string().contains("does not support"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_detached_lock_is_extended_and_released_by_another_process() {
    let [one, two] = replicas("detached");
    let ttl = Duration::from_secs(20);
    let first = connect(&[one.address]).await;
    let detached = first.lock("job").ttl(ttl).await.unwrap();
    let detached = detached.detach().await.unwrap();
    let (value, token) = (detached.value().to_owned(), detached.token());
    let other = connect(&[two.address]).await;
    let detached = DetachedLock::new("job", value, token).unwrap();
    assert!(other.extend_detached(&detached, ttl).await.unwrap() <= ttl);
    let names = other.list(&NamePattern::new("j*")).await.unwrap();
    assert_eq!(names.locks[0].token, Some(token));
    other.release_detached(&detached).await.unwrap();
    let over = other.extend_detached(&detached, ttl).await.unwrap_err();
    assert!(over.is_lost(), "{over}");
}

/// It counted the whole TTL, while the service freed the lock at its longest hold time.
#[tokio::test(flavor = "multi_thread")]
async fn an_extension_lasts_as_long_as_the_service_says_and_not_for_its_ttl() {
    const MOST: Duration = Duration::from_secs(2);
    let [one] = replicas("max-hold");
    let ask = json!({ "name": "job", "ttl": "1s", "max_hold": "2s" });
    let mine = one.post("/v1/acquire", &ask).json();
    let value = format!("{}:me", mine["lease"].as_str().unwrap());
    let token = FencingToken::new(mine["token"].as_u64().unwrap()).unwrap();
    let detached = DetachedLock::new("job", value, token).unwrap();
    let locks = connect(&[one.address]).await;
    let ttl = Duration::from_secs(20);
    let left = locks.extend_detached(&detached, ttl).await.unwrap();
    assert!(!left.is_zero() && left <= MOST, "{left:?}");
    tokio::time::sleep(MOST).await;
    let over = locks.extend_detached(&detached, ttl).await.unwrap_err();
    assert!(over.is_lost(), "{over}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_without_the_right_is_told_at_once_however_long_it_would_wait() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tokens.toml");
    let entry = |who: &str, token: &str, prefix: &str| {
        let hash = hash_token(token);
        format!(
            "[[token]]\nprincipal = \"{who}\"\nsha256 = \"{hash}\"\nverbs = [\"acquire\"]\nprefixes = [\"{prefix}\"]\n"
        )
    };
    std::fs::write(&path, entry("ci", "one", "ci/")).unwrap();
    let mut options = Options::new();
    options.tokens = Some(Tokens::load(path).unwrap());
    let service = Replica::in_memory(options);
    let url = format!("http://{}", service.address);
    let with = |token: &str| Client::builder().url(&url).service_token(token).build();
    for (token, name) in [("wrong", "ci/x"), ("one", "prod/x")] {
        let refused = with(token).unwrap().lock(name).await.unwrap_err();
        assert!(refused.to_string().contains("refused"), "{refused}");
        assert!(!refused.to_string().contains(token), "{refused}");
    }
    drop(with("one").unwrap().lock("ci/x").await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_that_repeats_what_is_sent_changes_nothing() {
    let [one] = replicas("repeats");
    let wire = Wire::to(one.address);
    wire.every_answer(Fault::Repeated);
    let locks = connect(&[wire.address()]).await;
    for _ in 0..10 {
        let lease = locks.lock("job").await.unwrap();
        assert!(locks.try_lock("job").await.unwrap_err().is_held());
        lease.extend().await.unwrap();
        lease.release().await.unwrap();
    }
    let seen = one.get("/v1/locks?name=job").json();
    assert_eq!(seen["holder"], json!(null), "{seen}");
}

/// The answer says how long the lease is valid from the moment in which it was asked for.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_delayed_past_the_ttl_is_no_lease() {
    let [one] = replicas("delays");
    let wire = Wire::to(one.address);
    let locks = connect(&[wire.address()]).await;
    let ttl = Duration::from_millis(200);
    wire.next_answer(Fault::Delayed(Duration::from_millis(600)));
    let late = locks.try_lock("job").ttl(ttl).await;
    assert!(
        late.as_ref()
            .is_err_and(|error| error.kind() == ErrorKind::TooLate),
        "{late:?}"
    );
    let next = locks.lock("job").ttl(ttl).timeout(Duration::from_secs(20));
    assert!(next.await.unwrap().is_valid());
}

/// By its own clock, before it does anything; and the service would refuse it, too.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_slept_past_its_deadline_is_lost_and_is_refused() {
    let [one] = replicas("slept");
    let locks = connect(&[one.address]).await;
    let ttl = Duration::from_millis(300);
    let lease = locks.lock("job").ttl(ttl).renew(false).await.unwrap();
    let by_hand = json!({ "name": "other", "ttl": "300ms" });
    let by_hand = one.post("/v1/acquire", &by_hand).json();
    // As if the machine had been suspended: nothing of the client runs.
    std::thread::sleep(ttl * 2);
    assert!(!lease.is_valid() && lease.loss().is_some());
    assert!(lease.extend().await.unwrap_err().is_lost());
    let late = json!({ "name": "other", "lease": by_hand["lease"], "token": by_hand["token"] });
    let late = one.post("/v1/extend", &json!({ "leases": [late] })).json();
    assert_eq!(late["leases"][0]["outcome"], "lost", "{late}");
}
