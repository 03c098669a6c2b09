//! Every wrong URL, name, TTL and option gets an error that says what to do, and nothing panics.

use std::time::Duration;

use fencepost::{Client, Drift, ErrorKind};

const TTL: Duration = Duration::from_secs(1);

#[tokio::test]
async fn a_wrong_url_says_what_would_be_right() {
    for (url, hint) in [
        ("", "must begin with"),
        ("localhost:6379", "must begin with"),
        ("ftp://localhost", "must begin with"),
        ("redis", "must begin with"),
        ("file:", "path"),
        ("redis://", "host"),
        ("redis://localhost:notaport", ""),
        ("redis://localhost/notadb", "database"),
        ("redis://localhost,", "must begin with"),
        ("redis://localhost,redis://localhost", "duplicate"),
        ("memory:,memory:", "duplicate"),
        ("redis+unix://", ""),
    ] {
        let error = Client::builder().url(url).build().unwrap_err();
        assert!(error.kind() == ErrorKind::InvalidUrl, "{url}: {error:?}");
        assert!(error.to_string().contains(hint), "{url}: {error}");
    }
}

#[tokio::test]
async fn no_error_shows_a_password() {
    for url in [
        "redis://user:hunter2@localhost:notaport",
        "redis://:hunter2@127.0.0.1:1",
        "reddis://user:hunter2@localhost",
        "redis://user:hunter2@/",
        "user:hunter2@localhost",
    ] {
        let error = Client::connect(url).await.unwrap_err();
        for text in [
            format!("{error}"),
            format!("{error:#}"),
            format!("{error:?}"),
        ] {
            assert!(!text.contains("hunter2"), "{url}: {text}");
        }
    }
}

#[tokio::test]
async fn a_store_that_is_not_there_is_named_with_its_reason() {
    let port = fencepost_tests::free_port();
    let url = format!("redis://127.0.0.1:{port}");
    let error = Client::connect(&url).await.unwrap_err();
    assert!(error.is_no_quorum(), "{error:?}");
    let text = error.to_string();
    assert!(text.contains(&url) && text.contains("refused"), "{text}");

    let dir = tempfile::tempdir().unwrap();
    let error = Client::builder().file(dir.path()).build().unwrap_err();
    assert!(error.kind() == ErrorKind::Store, "{error:?}");
}

#[tokio::test]
async fn a_wrong_name_or_ttl_is_refused_before_anything_is_sent() {
    let locks = Client::memory().unwrap();
    for name in ["", "a\nb", "{a}:queue"] {
        let error = locks
            .try_lock(name)
            .ttl(TTL)
            .renew(false)
            .await
            .unwrap_err();
        assert!(error.kind() == ErrorKind::InvalidName, "{error:?}");
        let error = locks.lock(name).await.unwrap_err();
        assert!(error.kind() == ErrorKind::InvalidName, "{error:?}");
        assert!(locks.status(name).await.is_err());
        assert!(locks.steal(name, TTL).await.is_err());
    }
    for (ttl, hint) in [
        (Duration::ZERO, "shortest"),
        (Duration::from_millis(9), "shortest"),
        (Duration::from_secs(61), "max_ttl, which is 1m"),
        (Duration::MAX, "longest"),
    ] {
        let error = locks
            .try_lock("job")
            .ttl(ttl)
            .renew(false)
            .await
            .unwrap_err();
        assert!(error.kind() == ErrorKind::InvalidTtl, "{error:?}");
        assert!(error.to_string().contains(hint), "{error}");
        assert!(locks.lock("job").ttl(ttl).await.is_err());
    }
    // On a busy machine it is over before it is granted; refused it is not.
    let shortest = locks
        .try_lock("job")
        .ttl(Duration::from_millis(10))
        .renew(false)
        .await;
    assert!(
        shortest.as_ref().is_ok_and(|_| true)
            || shortest
                .as_ref()
                .is_err_and(|error| error.kind() == ErrorKind::TooLate),
        "{shortest:?}"
    );
}

#[tokio::test]
async fn an_option_out_of_range_is_refused() {
    let memory = || Client::builder().url("memory:");
    assert!(memory().max_ttl(Duration::ZERO).build().is_err());
    assert!(memory().ttl(Duration::from_secs(90)).build().is_err());
    assert!(memory().node_timeout(Duration::ZERO).build().is_err());
    assert!(memory().owner("two\nlines").build().is_err());
    assert!(Drift::new(-0.1, Duration::ZERO).is_err());
    let none = Client::builder().build().unwrap_err();
    assert!(none.to_string().contains("1 to 9 nodes"), "{none}");
    let ten = (0..10).fold(Client::builder(), |builder, n| {
        builder.url(format!("memory:{n}"))
    });
    assert!(ten.build().unwrap_err().to_string().contains("got 10"));
}

#[test]
fn outside_of_a_runtime_there_is_an_error_and_no_panic() {
    assert_eq!(Client::memory().unwrap_err().kind(), ErrorKind::NoRuntime);
}

#[tokio::test]
async fn a_drift_that_eats_the_ttl_is_never_reported_as_held() {
    let locks = Client::builder()
        .url("memory:drift")
        .drift(Drift::new(0.0, Duration::from_secs(5)).unwrap())
        .build()
        .unwrap();
    let error = locks
        .try_lock("job")
        .ttl(TTL)
        .renew(false)
        .await
        .unwrap_err();
    assert!(!error.is_held(), "{error}");
    // And what the node granted has been given back.
    let status = locks.status("job").await.unwrap();
    assert_eq!(status.holder, None);
}
