//! The commands of `docs/migrate` are run, each guide on a server and in a directory of its own, where its tools are
//! there. What is skipped is named.
//!
//! A block ```` ```sh ```` is run by bash, which ends at the first command that fails. One with a file's name
//! behind its language is written to that file, for those behind it; `needs-TOOL` is run only where the tool is
//! installed: etcd and Consul are started here. Blocks in Rust are run by rustdoc (see `src/guides.rs`).

mod common;
#[path = "common/consul.rs"]
mod consul;

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use consul::Consul;
use fencepost_interop::peer::{INSTALL_LIMIT, NotInstalled, Spec, beside_us};
use fencepost_tests::{EtcdServer, RedisServer};

/// A fenced block: the words behind the fence, and its text.
struct Block {
    words: Vec<String>,
    text: String,
}

impl Block {
    fn is(&self, language: &str) -> bool {
        self.words.first().is_some_and(|word| word == language)
    }

    fn file(&self) -> Option<&str> {
        let word = self.words.get(1)?;
        word.contains('.').then_some(word)
    }

    fn needs(&self) -> Option<&str> {
        self.words.get(1)?.strip_prefix("needs-")
    }
}

fn blocks(guide: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut inside = false;
    for line in guide.lines() {
        match (inside, line.strip_prefix("```")) {
            (false, Some(words)) => {
                let words = words.split_whitespace().map(str::to_owned).collect();
                let text = String::new();
                blocks.push(Block { words, text });
                inside = true;
            }
            (true, Some(_)) => inside = false,
            (true, None) => {
                let block = blocks.last_mut().expect("just begun");
                block.text.push_str(line);
                block.text.push('\n');
            }
            (false, None) => {}
        }
    }
    assert!(!inside, "a block without an end");
    blocks
}

/// Runs every block of a guide. `peer` is whose dependencies it needs.
fn run(name: &str, peer: Option<&'static str>) {
    common::build_program();
    if let Some(dir) = peer {
        match Spec::of(dir).install_within(INSTALL_LIMIT) {
            Ok(()) => {}
            Err(NotInstalled::Skipped(why)) => {
                skipped(&format!("docs/migrate/{name}.md is skipped: {why}"));
                return;
            }
            Err(broken) => panic!("interop/peers/{dir}: {broken}"),
        }
    }
    let guide = common::file(&format!("docs/migrate/{name}.md"));
    let guide = std::fs::read_to_string(&guide).expect("the guide");
    let server = RedisServer::start();
    let dir = tempfile::tempdir().expect("a directory");
    // An installed client alone is not enough: without a server of its own the block could only fail.
    let blocks = blocks(&guide);
    let needs = |tool: &str| blocks.iter().any(|block| block.needs() == Some(tool));
    let can_use = |tool: &str| needs(tool) && is_installed(tool);
    let etcd = can_use("etcdctl").then(EtcdServer::start).flatten();
    let consul = can_use("consul").then(Consul::start).flatten();
    let can_run = |tool: &str| match tool {
        "etcdctl" => etcd.is_some(),
        "consul" => consul.is_some(),
        other => is_installed(other),
    };
    let servers = [
        ("ETCDCTL_ENDPOINTS", etcd.as_ref().map(EtcdServer::address)),
        ("CONSUL_HTTP_ADDR", consul.as_ref().map(Consul::address)),
    ];
    let mut runs = 0;
    for block in &blocks {
        if let Some(file) = block.file() {
            std::fs::write(dir.path().join(file), &block.text).expect("a file");
        } else if block.is("sh") {
            match block.needs() {
                Some(tool) if !can_run(tool) => {
                    skipped(&format!(
                        "a block of docs/migrate/{name}.md is skipped: no {tool} with a server"
                    ));
                }
                _ => {
                    bash(&block.text, dir.path(), &server, &servers, peer);
                    runs += 1;
                }
            }
        }
    }
    assert!(runs > 0, "nothing of the guide was run");
}

/// On the real stderr: libtest keeps what a passing test prints to itself.
fn skipped(what: &str) {
    // A closed stderr is nobody's business here.
    let _ = writeln!(std::io::stderr(), "\n{what}");
}

fn is_installed(tool: &str) -> bool {
    succeeds("which", &[tool])
}

fn succeeds(program: &str, args: &[&str]) -> bool {
    let ended = Command::new(program)
        .args(args)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    ended.is_ok_and(|status| status.success())
}

fn bash(
    script: &str,
    dir: &Path,
    server: &RedisServer,
    servers: &[(&str, Option<&str>)],
    peer: Option<&str>,
) {
    let fencepost = beside_us("fencepost");
    let ours = fencepost.parent().expect("its directory").to_owned();
    let mut path = vec![ours];
    // A block that waits for what never comes must not keep the test.
    let mut bash = Command::new("timeout");
    bash.args(["300", "bash", "-euo", "pipefail", "-c", script])
        .current_dir(dir)
        .env("REDIS_URL", server.url())
        .env("ETCDCTL_API", "3")
        .envs(
            servers
                .iter()
                .filter_map(|(name, address)| Some((name, (*address)?))),
        )
        .env("XDG_STATE_HOME", dir)
        .env("XDG_CONFIG_HOME", dir);
    if let Some(peer) = peer {
        let home = common::file("interop/peers").join(peer);
        path.push(home.join("venv/bin"));
        bash.env("NODE_PATH", home.join("node_modules"))
            .env("CLASSPATH", home.join("target/libs/*"));
        // A module of Go is found from the directory.
        for file in ["go.mod", "go.sum"] {
            if home.join(file).exists() {
                std::fs::copy(home.join(file), dir.join(file)).expect("a file");
            }
        }
    }
    path.extend(std::env::split_paths(
        &std::env::var_os("PATH").unwrap_or_default(),
    ));
    bash.env("PATH", std::env::join_paths(path).expect("a path"));
    let output = bash.output().expect("bash");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{}\n-- the block:\n{script}-- it printed:\n{}{}",
        output.status,
        text(&output.stdout),
        text(&output.stderr)
    );
}

#[test]
fn the_guide_from_redsync_works() {
    run("redsync", Some("redsync"));
}

#[test]
fn the_guide_from_redisson_works() {
    run("redisson", Some("redisson"));
}

#[test]
fn the_guide_from_node_redlock_works() {
    run("node-redlock", Some("node-redlock"));
}

#[test]
fn the_guide_from_redis_py_works() {
    run("redis-py", Some("redis-py"));
}

#[test]
fn the_guide_from_flock_works() {
    run("flock", None);
}

#[test]
fn the_guide_from_consul_works() {
    run("consul", None);
}

#[test]
fn the_guide_from_etcd_works() {
    run("etcd", None);
}

#[test]
fn every_guide_is_run_by_a_test() {
    let guides = std::fs::read_dir(common::file("docs/migrate")).expect("the guides");
    let tests = include_str!("guides.rs");
    for guide in guides {
        let name = guide.expect("a file").path();
        let name = name
            .file_stem()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        assert!(
            tests.contains(&format!("run(\"{name}\"")),
            "nobody runs {name}"
        );
    }
}
