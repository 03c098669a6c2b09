//! The dashboard in a real browser, on real Redis servers: `crates/server/ui-tests/run.mjs`, whose
//! scenes are the promises. What it needs beside Redis is node, Chromium and the packages that
//! `npm ci` installs; `./test` installs Chromium and those. Where they are missing, the test is named
//! as skipped.
//!
//! - `UI_SCENES=locks,steal`: some scenes only
//! - `UI_MINUTES=5`: how long 5,000 locks are watched, instead of seconds
//! - `UPDATE_PICTURES=1`: writes the pictures of `docs/pictures` anew

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fencepost_tests::RedisServer;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::bench::{Bench, LIMIT};

/// How long all scenes may take on a busy machine, beside the minutes that are asked for.
const ALL_SCENES: Duration = Duration::from_secs(500);
const CHROMIUMS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

fn ui_tests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../server/ui-tests")
}

fn found(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let mut places = std::env::split_paths(&path).map(|dir| dir.join(program));
    places.find(|path| path.is_file())
}

/// Says by name what is not tested here, past the harness, which hides what a test that passes says.
fn skipped(test: &str, why: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED {test}: {why}");
}

fn packages_are_there() -> bool {
    let modules = ui_tests().join("node_modules");
    ["playwright-core", "axe-core", "typescript"]
        .iter()
        .all(|package| modules.join(package).is_dir())
}

/// Ends node, and by its own hand what it has started.
struct Scenes(Child);

impl Drop for Scenes {
    fn drop(&mut self) {
        let _ = kill(Pid::from_raw(self.0.id().cast_signed()), Signal::SIGTERM);
        let end = Instant::now() + LIMIT;
        while matches!(self.0.try_wait(), Ok(None)) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_scripts_of_the_dashboard_are_sound_to_the_type_checker() {
    const TEST: &str = "the_scripts_of_the_dashboard_are_sound_to_the_type_checker";
    if found("node").is_none() || !packages_are_there() {
        return skipped(TEST, "needs node, and npm ci in crates/server/ui-tests");
    }
    let mut command = Command::new("node");
    command
        .arg("node_modules/typescript/bin/tsc")
        .current_dir(ui_tests());
    let output = command.output().expect("node");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
}

#[test]
fn the_dashboard_keeps_its_promises_in_a_browser() {
    const TEST: &str = "the_dashboard_keeps_its_promises_in_a_browser";
    let chromium = CHROMIUMS.iter().find_map(|name| found(name));
    let Some(chromium) = chromium else {
        return skipped(TEST, "Chromium is not installed");
    };
    if found("node").is_none() || !packages_are_there() {
        return skipped(TEST, "needs node, and npm ci in crates/server/ui-tests");
    }
    let bench = Bench::new();
    // Three that are trusted after a restart, which most scenes need, and three that are not.
    let mut servers = RedisServer::start_many(6);
    let urls: Vec<_> = servers.iter().map(RedisServer::url).collect();
    let (trusted, cluster) = urls.split_at(3);
    let minutes: u64 = std::env::var("UI_MINUTES").map_or(0, |text| text.parse().expect("minutes"));

    // The program's environment, for node, and so for what node starts.
    let program = bench.command(&[]);
    let mut command = Command::new("node");
    for (name, value) in program.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command
        .arg(ui_tests().join("run.mjs"))
        .current_dir(bench.path(""))
        .env("UI_PROGRAM", env!("CARGO_BIN_EXE_fencepost"))
        .env("UI_CHROMIUM", chromium)
        .env("UI_STORE", trusted.join(","))
        .env("UI_CLUSTER", cluster.join(","))
        .env("UI_DIR", bench.path(""))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit());
    if std::env::var_os("UPDATE_PICTURES").is_some() {
        let pictures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/pictures");
        command.env("UI_SHOTS", pictures);
    }
    let mut scenes = Scenes(command.spawn().expect("node"));
    let over = Arc::new(AtomicBool::new(false));
    let limit = ALL_SCENES + Duration::from_secs(60 * minutes);
    let watchdog = {
        let (over, pid) = (
            Arc::clone(&over),
            Pid::from_raw(scenes.0.id().cast_signed()),
        );
        std::thread::spawn(move || {
            let end = Instant::now() + limit;
            while Instant::now() < end && !over.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(50));
            }
            if !over.load(Ordering::Relaxed) {
                let _ = kill(pid, Signal::SIGTERM);
            }
        })
    };

    // The scenes ask for what only this process can do: the servers are its children.
    let mut said = String::new();
    let lines = BufReader::new(scenes.0.stdout.take().expect("piped")).lines();
    for line in lines.map_while(Result::ok) {
        match line.split_once(' ') {
            Some(("kill", node)) => servers[node.parse::<usize>().expect("a number")].kill(),
            Some(("restart", node)) => servers[node.parse::<usize>().expect("a number")].restart(),
            _ => {
                println!("{line}");
                said.push_str(&line);
                said.push('\n');
            }
        }
    }
    let status = scenes.0.wait().expect("node");
    over.store(true, Ordering::Relaxed);
    watchdog.join().expect("it only waits");
    assert!(status.success(), "{status}:\n{said}");
    assert!(said.contains("ok "), "some scene was played:\n{said}");
}
