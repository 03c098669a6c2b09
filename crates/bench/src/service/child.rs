//! A replica as a process of its own: this program again, which serves until its input ends. Or the control: HTTP
//! by what the service is built on, with nothing behind it.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use axum::body::Bytes;
use axum::serve::ListenerExt as _;
use fencepost::{Client, HolderProcess, Lease, LockOptions, RestartPolicy};
use fencepost_server::{Options, serve};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};

use crate::contender::TTL;

/// What it is started by: the store follows.
pub(crate) const COMMAND: &str = "serve-for-the-benchmark";

/// In place of a store: answers as long as those of the service, and no lock.
pub(crate) const HTTP_ALONE: &str = "http-alone";
/// Before a store: locks of the library by HTTP, and nothing that makes it a service: see [`least`].
const LEAST: &str = "least+";
/// What it answers: as long as an answer to an acquire.
const ANSWER: &str = r#"{"name":"plain-0000","lease":"00000000000000000000000000000000","token":1795003355525976,"valid_for_ms":9898,"waited_ms":0}"#;

/// A replica, which ends with its handle.
pub(crate) struct Replica {
    child: Child,
    /// `127.0.0.1:PORT`
    pub(crate) address: String,
}

impl Replica {
    pub(crate) fn start(store: &str) -> Self {
        let program = std::env::current_exe().expect("this program");
        let mut child = Command::new(program)
            .args([COMMAND, store])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program can be started");
        let mut address = String::new();
        let out = child.stdout.take().expect("piped");
        BufReader::new(out)
            .read_line(&mut address)
            .expect("its address");
        let address = address.trim().to_owned();
        assert!(!address.is_empty(), "the replica did not start");
        Self { child, address }
    }

    /// What is least, in place of the service.
    pub(crate) fn least(store: &str) -> Self {
        Self::start(&format!("{LEAST}{store}"))
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn pid(&self) -> u64 {
        self.child.id().into()
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The process.
pub(crate) fn run() {
    let store = std::env::args().nth(2).expect("a store");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    // The benchmark may be killed: then its end of the pipe is closed.
    let parent_is_gone = || async {
        let end = tokio::task::spawn_blocking(|| {
            let _ = std::io::stdin().read(&mut [0]);
        });
        let _ = end.await;
    };
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        if store == HTTP_ALONE {
            println!("{address}");
            let answer = || async { ([("content-type", "application/json")], ANSWER) };
            let router = axum::Router::new().fallback(answer);
            let served = axum::serve(listener.tap_io(without_delay), router);
            return served
                .with_graceful_shutdown(parent_is_gone())
                .await
                .expect("it serves");
        }
        let (store, is_least) = match store.strip_prefix(LEAST) {
            Some(store) => (store.to_owned(), true),
            None => (store, false),
        };
        let builder = Client::builder().url(store);
        let builder = builder.restart_policy(RestartPolicy::Trust);
        let builder = builder.holder_process(HolderProcess::Unbound).replica();
        let client = builder.connect().await.expect("our own store");
        println!("{address}");
        if is_least {
            let served = axum::serve(listener.tap_io(without_delay), least(client));
            return served
                .with_graceful_shutdown(parent_is_gone())
                .await
                .expect("it serves");
        }
        let mut options = Options::new();
        options.limits.waits_per_principal = options.limits.waits;
        serve(listener, client, options, parent_is_gone())
            .await
            .expect("it serves");
    });
}

/// The least that any server of locks over HTTP does which is built on the library: it reads a name, acquires, and keeps
/// the lease until it is asked to release it. No lease id of a client, no other replica, no rights, limits, metrics or
/// request ids; and whoever goes away leaves its lock behind.
fn least(client: Client) -> axum::Router {
    type Held = Arc<Mutex<HashMap<String, Lease>>>;
    let held = Held::default();
    let kept = Arc::clone(&held);
    let asked = |body: Bytes| serde_json::from_slice::<Value>(&body).expect("JSON");
    let answer = |body: Value| ([("content-type", "application/json")], body.to_string());
    let acquire = async move |body: Bytes| {
        let asked = asked(body);
        let name = asked["name"].as_str().expect("a name");
        let options = LockOptions::new().ttl(TTL).renew(false);
        let lease = client.try_lock(name).options(options).await.expect("free");
        let granted = json!({
            "name": name, "lease": lease.value(), "token": lease.token().get(),
            "valid_for_ms": lease.remaining().as_millis() as u64, "waited_ms": 0,
        });
        kept.lock()
            .expect("no panic")
            .insert(name.to_owned(), lease);
        answer(granted)
    };
    let release = async move |body: Bytes| {
        let asked = asked(body);
        let name = asked["name"].as_str().expect("a name");
        let lease = held.lock().expect("no panic").remove(name);
        lease.expect("held").release().await.expect("released");
        answer(json!({ "name": name, "outcome": "released" }))
    };
    axum::Router::new()
        .route("/v1/acquire", axum::routing::post(acquire))
        .route("/v1/release", axum::routing::post(release))
}

fn without_delay(stream: &mut TcpStream) {
    stream.set_nodelay(true).expect("a socket");
}
