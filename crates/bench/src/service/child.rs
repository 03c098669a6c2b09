//! A replica as a process of its own: this program again, which serves until its input ends. Or the control: HTTP
//! by what the service is built on, with nothing behind it.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Command, Stdio};

use axum::serve::ListenerExt as _;
use fencepost::{Client, HolderProcess, RestartPolicy};
use fencepost_server::{Options, serve};
use tokio::net::{TcpListener, TcpStream};

/// What it is started by: the store follows.
pub(crate) const COMMAND: &str = "serve-for-the-benchmark";

/// In place of a store: answers as long as those of the service, and no lock.
pub(crate) const HTTP_ALONE: &str = "http-alone";
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
        let builder = Client::builder().url(store);
        let builder = builder.restart_policy(RestartPolicy::Trust);
        let builder = builder.holder_process(HolderProcess::Unbound).replica();
        let client = builder.connect().await.expect("our own store");
        println!("{address}");
        let mut options = Options::new();
        options.limits.waits_per_principal = options.limits.waits;
        serve(listener, client, options, parent_is_gone())
            .await
            .expect("it serves");
    });
}

fn without_delay(stream: &mut TcpStream) {
    stream.set_nodelay(true).expect("a socket");
}
