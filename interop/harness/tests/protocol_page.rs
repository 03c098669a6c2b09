//! `docs/protocol.md` says what is on the servers: the blocks that it marks as observed are made again here, by the
//! program and the library on a real server, and compared.
//!
//! After a change of the layout: `UPDATE_DOCS=1 cargo test -p fencepost-interop --test protocol_page` writes them
//! anew. Then read the words around them.

mod common;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use fencepost_interop::monitor::Monitor;
use fencepost_interop::program::{Acquired, Program};
use fencepost_interop::scene::{Scene, eventually};
use fencepost_tests::RedisServer;

const PAGE: &str = "docs/protocol.md";
/// Where the scripts' parts are.
const SCRIPTS: &str = "crates/fencepost/src/store/redis/encoding/scripts";
const TTL: Duration = Duration::from_secs(20);
const WAIT: Duration = Duration::from_secs(60);

/// The blocks, by name, as they are on a server.
type Blocks = BTreeMap<&'static str, String>;

#[test]
fn the_page_shows_what_is_on_the_servers() {
    common::build_program();
    let mut page = std::fs::read_to_string(common::file(PAGE)).expect("the page");
    let scripts = Scripts::of(&page);
    let observed = observe(&scripts);
    let mut wrong = Vec::new();
    for (name, now) in &observed {
        let shown = block(&page, name).unwrap_or_else(|| panic!("the page has no block {name:?}"));
        if shown != now {
            wrong.push(format!(
                "-- {name}, the page:\n{shown}-- {name}, a server:\n{now}"
            ));
            let marked = |text: &str| format!("<!-- observed: {name} -->\n{text}<!-- end -->");
            page = page.replace(&marked(shown), &marked(now));
        }
    }
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(common::file(PAGE), page).expect("the page can be written");
        return;
    }
    let how = "write them anew with UPDATE_DOCS=1, and read the words around them";
    assert!(wrong.is_empty(), "{how}\n{}", wrong.join("\n"));
    let marked = page.matches("<!-- observed: ").count();
    assert_eq!(
        marked,
        observed.len(),
        "a block of the page is made by nobody"
    );
}

/// What stands in the block of that name.
fn block<'p>(page: &'p str, name: &str) -> Option<&'p str> {
    let (_, rest) = page.split_once(&format!("<!-- observed: {name} -->\n"))?;
    let (block, _) = rest.split_once("<!-- end -->")?;
    Some(block)
}

/// What the page says of the scripts.
struct Scripts {
    /// Name, and the files that it is made of.
    rows: Vec<(String, String)>,
    digests: BTreeMap<String, String>,
}

impl Scripts {
    /// Reads names and files from the page, and lets a server tell the digests.
    fn of(page: &str) -> Self {
        let server = RedisServer::start();
        let table = block(page, "scripts").expect("a table of the scripts");
        let cells = |line: &str| {
            let cells = line.trim_matches('|').split('|');
            cells.map(|cell| cell.trim().to_owned()).collect::<Vec<_>>()
        };
        let rows: Vec<_> = table.lines().skip(2).map(cells).collect();
        let rows: Vec<_> = rows
            .into_iter()
            .map(|row| (row[0].clone(), row[1].clone()))
            .collect();
        let digest = |(name, files): &(String, String)| {
            let parts = files.split(' ').map(|file| {
                let path: PathBuf = common::file(SCRIPTS).join(format!("{file}.lua"));
                std::fs::read_to_string(&path).unwrap_or_else(|_| panic!("{}", path.display()))
            });
            let text: String = parts.collect();
            (server.cli(&["SCRIPT", "LOAD", &text]), name.clone())
        };
        let digests = rows.iter().map(digest).collect();
        Self { rows, digests }
    }

    fn table(&self) -> String {
        let mut text = String::from("| script | files | SHA-1 |\n| --- | --- | --- |\n");
        for (name, files) in &self.rows {
            let digest = self.digests.iter().find(|(_, one)| *one == name);
            let digest = digest.map_or("", |(digest, _)| digest);
            text.push_str(&format!("| {name} | {files} | {digest} |\n"));
        }
        text
    }

    /// Every script that the server has is on the page.
    fn know_all_of(&self, server: &RedisServer) {
        let known = self.digests.keys().map(String::as_str);
        let words: Vec<_> = ["SCRIPT", "EXISTS"].into_iter().chain(known).collect();
        let known = server
            .cli(&words)
            .lines()
            .filter(|line| *line == "1")
            .count();
        let memory = server.cli(&["INFO", "memory"]);
        let cached = memory
            .lines()
            .find_map(|line| line.strip_prefix("number_of_cached_scripts:"));
        let cached: usize = cached.expect("a number").trim().parse().expect("a number");
        assert_eq!(
            known, cached,
            "a server has scripts that the page does not list"
        );
    }
}

fn observe(scripts: &Scripts) -> Blocks {
    let scene = Scene::of(1);
    let (server, program) = (scene.first(), scene.program());
    let mut blocks = Blocks::new();
    held_and_released(server, &program, &mut blocks);
    slots(&scene, &mut blocks);
    waiting_for_a_slot(&scene, &mut blocks);
    waiting(&scene, scripts, &mut blocks);
    shared(&scene, &mut blocks);
    reentrant(&scene, &mut blocks);
    scripts.know_all_of(server);
    marker(&mut blocks);
    blocks.insert("scripts", scripts.table());
    blocks
}

fn held_and_released(server: &RedisServer, program: &Program, blocks: &mut Blocks) {
    let Acquired::Ours(handed) = program.acquire("job", TTL, Duration::ZERO) else {
        panic!("it is free");
    };
    blocks.insert("held", fenced(&contents(server)));
    program.release("job", &handed).expect("it is ours");
    blocks.insert("released", fenced(&contents(server)));
    server.cli(&["FLUSHALL"]);
}

fn slots(scene: &Scene, blocks: &mut Blocks) {
    let mut command = scene
        .program()
        .command(&["run", "encode", "--slots", "3", "--ttl", "20s"]);
    command.args(["--", "sleep", "600"]).stdout(Stdio::null());
    let mut child = command.spawn().expect("fencepost");
    let is_held = || !scene.first().keys().is_empty();
    eventually("a slot is held", is_held).expect("a free slot");
    blocks.insert("slots", fenced(&contents(scene.first())));
    child.kill().expect("our own child");
    child.wait().expect("our own child");
    scene.first().cli(&["FLUSHALL"]);
}

fn waiting_for_a_slot(scene: &Scene, blocks: &mut Blocks) {
    let server = scene.first();
    let run = |what: &[&str]| {
        let run = ["run", "encode", "--slots", "1", "--ttl", "20s", "-q", "--"];
        let mut command = scene.program().command(&[&run, what].concat());
        let command = command.stdout(Stdio::null());
        command.spawn().expect("fencepost")
    };
    let mut holder = run(&["sleep", "600"]);
    eventually("the slot is held", || !server.keys().is_empty()).expect("a free slot");
    let mut waiter = run(&["true"]);
    let queue = "{encode}:semaphore:queue";
    let waits = || server.cli(&["ZCARD", queue]) == "1";
    eventually("it waits", waits).expect("it waits");
    let keys = contents(server);
    let is_queue = |line: &&String| line.contains(":queue") || line.contains(":leases");
    let keys: Vec<_> = keys.iter().filter(is_queue).cloned().collect();
    blocks.insert("slots-waiting", fenced(&keys));
    let listens = || !server.cli(&["PUBSUB", "CHANNELS"]).is_empty();
    eventually("it listens", listens).expect("it listens");
    let monitor = Monitor::of(server).expect("a server to watch");
    let id = holder.id().to_string();
    let mut stop = std::process::Command::new("kill");
    stop.arg(&id).status().expect("our own child");
    holder.wait().expect("our own child");
    waiter.wait().expect("our own child");
    let is = |words: &[String]| words[0].eq_ignore_ascii_case("publish");
    let told = monitor.take(is).expect("it was told");
    blocks.insert("slots-wake", fenced(&[line(&told)]));
    server.cli(&["FLUSHALL"]);
}

fn waiting(scene: &Scene, scripts: &Scripts, blocks: &mut Blocks) {
    let server = scene.first();
    let mut holder = scene.ours("plain");
    let (mut first, mut second) = (scene.ours("plain"), scene.ours("fair"));
    let monitor = Monitor::of(server).expect("a server to watch");
    holder.try_lock("job", TTL).at().expect("it is free");
    blocks.insert("acquire", fenced(&plain(&monitor)));
    for (at, waiter) in [&mut first, &mut second].into_iter().enumerate() {
        waiter.send_lock("job", TTL, WAIT);
        let queued = || members(server) == at + 1;
        eventually("it waits", queued).expect("it waits");
    }
    blocks.insert("queue", fenced(&sent(&monitor, scripts, "queue")));
    blocks.insert("waiting", fenced(&contents(server)));
    let channels = || server.cli(&["PUBSUB", "CHANNELS"]);
    eventually("both listen", || channels().lines().count() == 2).expect("both listen");
    let shown: Vec<_> = channels().lines().map(normal).collect();
    blocks.insert("channels", fenced(&shown));
    let monitor = Monitor::of(server).expect("a server to watch");
    holder.release("job").at().expect("it is ours");
    first.answer().at().expect("it is the first");
    blocks.insert("release", fenced(&sent(&monitor, scripts, "release")));
    let wakes = monitor
        .all()
        .into_iter()
        .filter(|words| words[0].eq_ignore_ascii_case("publish"));
    let wakes: Vec<_> = wakes.map(|words| line(&words)).collect();
    blocks.insert("wake", fenced(&wakes[..2.min(wakes.len())]));
    first.release("job").at().expect("it is ours");
    second.answer().at().expect("it is the next");
    second.release("job").at().expect("it is ours");
    server.cli(&["FLUSHALL"]);
}

/// How many wait, whatever their queue is called: those keys that are sorted sets have a member for each.
fn members(server: &RedisServer) -> usize {
    let keys = server.keys();
    let sets = keys
        .iter()
        .filter(|key| server.cli(&["TYPE", key]) == "zset");
    let sizes = sets.map(|key| server.cli(&["ZCARD", key]).parse().expect("a number"));
    sizes.max().unwrap_or(0)
}

fn shared(scene: &Scene, blocks: &mut Blocks) {
    let mut readers = [scene.ours("read"), scene.ours("read")];
    for reader in &mut readers {
        reader.try_lock("job", TTL).at().expect("others may read");
    }
    blocks.insert("shared", fenced(&contents(scene.first())));
    for reader in &mut readers {
        reader.release("job").at().expect("it is held");
    }
    scene.first().cli(&["FLUSHALL"]);
}

fn reentrant(scene: &Scene, blocks: &mut Blocks) {
    let mut holder = scene.ours("reentrant");
    holder.try_lock("job", TTL).at().expect("it is free");
    blocks.insert("reentrant", fenced(&contents(scene.first())));
    let monitor = Monitor::of(scene.first()).expect("a server to watch");
    holder.release("job").at().expect("it is ours");
    let is = |words: &[String]| words[0].eq_ignore_ascii_case("publish");
    eventually("it is told", || monitor.any(is)).expect("it is told");
    let told = monitor.take(is).expect("just seen");
    blocks.insert("reentrant-told", fenced(&[line(&told)]));
    scene.first().cli(&["FLUSHALL"]);
}

/// A cluster of three that is made: its marker, how one is replaced, and how it is watched.
fn marker(blocks: &mut Blocks) {
    const KEY: &str = "fencepost:marker";
    let scene = Scene::of(3);
    let monitors: Vec<_> = scene.servers.iter().map(Monitor::of).collect();
    let mut init = scene.program().command(&["init", "--fresh"]);
    let made = init.env_remove("FENCEPOST_RESTART_POLICY").output();
    let made = made.expect("fencepost");
    assert!(made.status.success(), "{made:?}");
    let markers = scene.servers.iter().map(|server| server.cli(&["GET", KEY]));
    let markers: Vec<_> = markers.collect();
    let is_first = |at: &usize| markers[*at].contains("\nnode 0\n");
    let first = (0..3).find(is_first).expect("one node is the first");
    let nameless = |line: &str| {
        let (word, value) = line.split_once(' ').expect("a word and its value");
        let value = match word {
            "cluster" | "incarnation" if value.len() == 32 => "<32 hexadecimal digits>".to_owned(),
            "run_id" if value.len() == 40 => "<run_id>".to_owned(),
            "history" if value.is_empty() => "<nothing>".to_owned(),
            "nodes" => {
                let ports = scene.servers.iter().map(|server| server.port().to_string());
                ports.fold(value.to_owned(), |value, port| {
                    value.replace(&port, "<port>")
                })
            }
            _ => normal(value),
        };
        format!("{word} {value}")
    };
    let shown: Vec<_> = markers[first].lines().map(nameless).collect();
    blocks.insert("marker", fenced(&shown));
    let monitor = monitors[first].as_ref().expect("a server to watch");
    let sent = |words: &[&str]| {
        let is = |sent: &[String]| {
            let mut pairs = sent.iter().zip(words);
            sent.len() >= words.len() && pairs.all(|(sent, word)| sent.eq_ignore_ascii_case(word))
        };
        eventually(&format!("{words:?} is sent"), || monitor.any(is)).expect("it is sent");
        monitor.take(is).expect("just seen")
    };
    let watched = [
        &["CLIENT", "TRACKING"][..],
        &["CLIENT", "CACHING"],
        &["GET", KEY],
    ];
    let watched: Vec<_> = watched.iter().map(|words| sent(words).join(" ")).collect();
    blocks.insert("marker-watched", fenced(&watched));
    let replaced = sent(&["EVAL"]);
    let [eval, script, keys, key, old, new] = &replaced[..] else {
        panic!("a marker is replaced otherwise: {replaced:?}");
    };
    for marker in [old, new] {
        assert!(marker.starts_with("fencepost-marker 1"), "{marker}");
    }
    let replace =
        format!("{eval} \"{script}\" {keys} {key} <the marker that was read> <the new one>");
    blocks.insert("marker-replace", fenced(&[replace]));
}

fn fenced(lines: &[String]) -> String {
    format!("```text\n{}\n```\n", lines.join("\n"))
}

/// Every key: its type, its contents, and its time to live, rounded up.
fn contents(server: &RedisServer) -> Vec<String> {
    let all = server.cli(&["KEYS", "*"]);
    let mut keys: Vec<_> = all.lines().collect();
    keys.sort_unstable();
    let show = |key: &&str| {
        let kind = server.cli(&["TYPE", key]);
        let inside = match kind.as_str() {
            "string" => server.cli(&["GET", key]),
            "hash" => server.cli(&["HGETALL", key]),
            _ => server.cli(&["ZRANGE", key, "0", "-1", "WITHSCORES"]),
        };
        let words: Vec<_> = inside.lines().map(normal).collect();
        // A member and its score, a field and its value.
        let mut inside: Vec<_> = match kind.as_str() {
            "string" => words,
            _ => words.chunks(2).map(|pair| pair.join(" = ")).collect(),
        };
        // Whoever renewed last has the later end.
        inside.sort_unstable();
        let left: i64 = server.cli(&["PTTL", key]).parse().expect("a number");
        // A busy machine looks a few seconds later.
        let step = if left <= 3000 { 3 } else { 5 };
        let left = (left + 999) / 1000;
        let left = (left + step - 1) / step * step;
        let left = match left {
            0 => "no expiry".to_owned(),
            left => format!("PX {:9}", left * 1000),
        };
        let first = format!("{:23} {kind:6} {left:12}", normal(key));
        let others = format!("\n{:first$} ", "", first = first.len());
        format!("{first} {}", inside.join(&others))
    };
    keys.iter().map(show).collect()
}

/// The plain commands of an acquire.
fn plain(monitor: &Monitor) -> Vec<String> {
    let sent = |verb: &str| {
        let is = |words: &[String]| words[0].eq_ignore_ascii_case(verb);
        eventually(&format!("{verb} is sent"), || monitor.any(is)).expect("it is sent");
        line(&monitor.take(is).expect("just seen"))
    };
    ["SET", "ZADD", "ZRANGE"].map(sent).to_vec()
}

/// The first command of that script that was sent, with its name for its digest.
fn sent(monitor: &Monitor, scripts: &Scripts, name: &str) -> Vec<String> {
    let of = |words: &[String]| {
        let digest = words.get(1)?;
        let script = scripts.digests.get(digest)?;
        script.starts_with(name).then(|| script.clone())
    };
    let is = |words: &[String]| of(words).is_some();
    eventually(&format!("{name} is sent"), || monitor.any(is)).expect("it is sent");
    let mut words = monitor.take(is).expect("just seen");
    words[1] = format!("<{}>", of(&words).expect("just seen"));
    vec![line(&words)]
}

fn line(words: &[String]) -> String {
    let words: Vec<_> = words.iter().map(|word| normal(word)).collect();
    words.join(" ")
}

/// A word without what is another each time.
fn normal(word: &str) -> String {
    let is_hex = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let hex = |text: &str, at: usize, digits: usize| text.get(at..at + digits).is_some_and(is_hex);
    if word.is_empty() {
        return "\"\"".to_owned();
    }
    if word.len() >= 15 && word.len() <= 17 && word.bytes().all(|byte| byte.is_ascii_digit()) {
        return "<microseconds>".to_owned();
    }
    for (before, rest) in [
        ("", word),
        ("0", &word[1.min(word.len())..]),
        ("1", &word[1.min(word.len())..]),
        ("2", &word[1.min(word.len())..]),
    ] {
        let begins = word.starts_with(before);
        // Between colons, the slot that was released.
        let (slot, rest) = match rest.strip_prefix(':').and_then(|rest| rest.split_once(':')) {
            Some((slot, rest)) => (format!(":{slot}:"), rest),
            None => (String::new(), rest),
        };
        if begins && hex(rest, 0, 48) && rest.get(49..50) == Some(":") {
            let mode = &rest[48..49];
            return format!("{before}{slot}<client id><sequence>{mode}:<owner>");
        }
    }
    if let Some((entries, token)) = word.split_once(':')
        && entries.bytes().all(|byte| byte.is_ascii_digit())
        && normal(token) == "<microseconds>"
    {
        return format!("{entries}:<token>");
    }
    if hex(word, 0, 32) && word.get(32..33) == Some(":") {
        // A stored value has the holder's token in it; one that is sent has not.
        let behind = word[33..].split_once(':').map(|(token, _)| normal(token));
        return match behind.as_deref() {
            Some("<microseconds>") => "<lease id>:<token>:<owner>".to_owned(),
            _ => "<lease id>:<owner>".to_owned(),
        };
    }
    if hex(word, 0, 8) && word.get(8..9) == Some("-") && word.get(14..15) == Some("8") {
        return "<uuid, version 8>:<pid>".to_owned();
    }
    if let Some((before, id)) = word.rsplit_once(':')
        && hex(id, 0, 32)
        && id.len() == 32
    {
        let id = if before.ends_with("wake") {
            "<client id>"
        } else {
            "<lease id>"
        };
        return format!("{before}:{id}");
    }
    if let Some((before, behind)) = word.split_once(":semaphore:")
        && behind.starts_with(|c: char| c.is_ascii_digit())
    {
        // Which slot is free is found by chance.
        let ending = behind.trim_start_matches(|c: char| c.is_ascii_digit());
        return format!("{before}:semaphore:<slot>{ending}");
    }
    word.to_owned()
}
