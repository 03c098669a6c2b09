//! A replica on a free port, gone when its handle is dropped, and a client that knows no Rust API.

use std::net::SocketAddr;
use std::time::Duration;

use fencepost::Client;
use fencepost_server::{Options, serve};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

pub(crate) struct Replica {
    pub(crate) address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Replica {
    /// Starts one over that store.
    pub(crate) fn start(
        options: Options,
        client: impl AsyncFnOnce() -> Client + Send + 'static,
    ) -> Self {
        let (stop, stopped) = oneshot::channel();
        let (tell, told) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                tell.send(listener.local_addr().unwrap()).unwrap();
                let stopped = async {
                    let _ = stopped.await;
                };
                serve(listener, client().await, options, stopped)
                    .await
                    .unwrap();
            });
        });
        Self {
            address: told.recv().unwrap(),
            stop: Some(stop),
            thread: Some(thread),
        }
    }

    pub(crate) fn in_memory(options: Options) -> Self {
        Self::start(options, async || Client::memory().unwrap())
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Reply {
        Reply::post(self.address, path, body)
    }

    pub(crate) fn get(&self, path: &str) -> Reply {
        self.send("GET", path, &[], "")
    }

    /// Any request, also one that no proper client would send.
    pub(crate) fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Reply {
        Reply::ask(self.address, method, path, headers, body)
    }
}

impl Reply {
    /// What is answered at that address.
    pub(crate) fn get(address: SocketAddr, path: &str) -> Self {
        Self::ask(address, "GET", path, &[], "")
    }

    /// What is answered to a POST there.
    pub(crate) fn post(address: SocketAddr, path: &str, body: &Value) -> Self {
        let kind = [("content-type", "application/json")];
        Self::ask(address, "POST", path, &kind, &body.to_string())
    }

    fn ask(
        address: SocketAddr,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Self {
        let agent: ureq::Agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(Duration::from_secs(30)))
            .build()
            .into();
        let mut request = ureq::http::Request::builder()
            .method(method)
            .uri(format!("http://{address}{path}"));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut answer = agent.run(request.body(body.to_owned()).unwrap()).unwrap();
        let header = |name: &str| {
            let value = answer.headers().get(name);
            value
                .map(|value| value.to_str().unwrap().to_owned())
                .unwrap_or_default()
        };
        let (kind, token) = (header("content-type"), header("fencing-token"));
        Reply {
            status: answer.status().as_u16(),
            kind,
            token,
            text: answer.body_mut().read_to_string().unwrap(),
        }
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) kind: String,
    pub(crate) token: String,
    pub(crate) text: String,
}

impl Reply {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// That it is a problem of this kind.
    pub(crate) fn is_problem(&self, status: u16, code: &str) {
        assert_eq!(self.status, status, "{self:?}");
        assert_eq!(self.kind, "application/problem+json", "{self:?}");
        assert_eq!(self.json()["code"], code, "{self:?}");
        assert_eq!(self.json()["status"], status, "{self:?}");
    }
}
