//! Every shell command of every page runs: in a directory of its own, with the real program and real
//! servers, and with the output that the page shows.
//!
//! - A ` ```console ` block is a session: `$ ` before each command, then its output. `…` in a line stands for
//!   anything, a line of nothing but `…` for any number of lines.
//! - A ` ```sh ` block is a script that must succeed.
//! - `<!-- not run: WHY -->` before a block says why it cannot run here; such blocks are counted.
//! - `<!-- stage: cluster a b c; servers d -->` starts servers, and makes `redis://a` their address; those of
//!   a cluster have been initialised.
//! - `<!-- setup: COMMANDS -->` runs them at this place.
//! - `<!-- needs: postgres -->` before a block: it runs where that server is installed, and is named as skipped
//!   elsewhere.
//!
//! The blocks of one page run in one shell, one after the other. Ports 7001 to 7009 and 7323 stand for free
//! ones; a page may start servers there itself.

use std::collections::BTreeSet;
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};

use fencepost_tests::RedisServer;

use crate::bench::Bench;

/// Pages whose commands are run elsewhere: by `interop/run`, or by tests of their own.
const ELSEWHERE: [&str; 2] = ["docs/migrate/", "docs/protocol.md"];
/// How many blocks are marked as not run. Another one has to be counted here, too.
const NOT_RUN: usize = 14;
/// How many commands and scripts run at least.
const RUN: usize = 60;

/// Marks in the output where a step begins and ends: no page has this character.
const MARK: char = '\u{1}';

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// All pages, as paths from the root.
fn pages() -> Vec<String> {
    fn below(directory: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(directory).expect("the docs can be read") {
            let path = entry.expect("an entry of the docs").path();
            match path.is_dir() {
                true => below(&path, found),
                false if path.extension().is_some_and(|it| it == "md") => found.push(path),
                false => {}
            }
        }
    }
    let root = root();
    let mut found = vec![root.join("README.md"), root.join("crates/cli/README.md")];
    below(&root.join("docs"), &mut found);
    let from_root = |path: PathBuf| {
        path.strip_prefix(&root)
            .expect("a page below the root")
            .display()
            .to_string()
    };
    let mut pages: Vec<_> = found.into_iter().map(from_root).collect();
    pages.sort();
    pages
}

/// What is to be done on a page.
#[derive(Debug)]
enum Step {
    /// One command, and what it prints.
    Command { line: String, output: Vec<String> },
    /// A script that must succeed.
    Script(String),
}

#[derive(Debug, Default)]
struct Page {
    steps: Vec<Step>,
    not_run: usize,
    /// Databases that some blocks need.
    needs: BTreeSet<String>,
    skipped: usize,
    /// Which servers are there: their names, and which of them are a cluster.
    cluster: Vec<String>,
    servers: Vec<String>,
}

impl Page {
    fn parse(text: &str) -> Self {
        let mut page = Self::default();
        let mut lines = text.lines();
        let mut comment = "";
        while let Some(line) = lines.next() {
            let line = line.trim_start();
            if let Some(stage) = directive(line, "stage:") {
                page.stage(stage);
            }
            if let Some(setup) = directive(line, "setup:") {
                page.steps.push(Step::Script(format!("{setup}\n")));
            }
            let Some(kind) = line.strip_prefix("```") else {
                if !line.is_empty() {
                    comment = line;
                }
                continue;
            };
            let block = lines.by_ref().map_while(|line| {
                let is_end = line.trim_start().starts_with("```");
                (!is_end).then_some(line)
            });
            let block: Vec<_> = block.collect();
            let comment = std::mem::take(&mut comment);
            let not_run = directive(comment, "not run:");
            if let Some(server) = directive(comment, "needs:") {
                if database(server).is_none() {
                    page.skipped += 1;
                    continue;
                }
                page.needs.insert(server.to_owned());
            }
            match (kind.split([' ', ',']).next(), not_run) {
                (Some("console" | "sh"), Some(why)) => {
                    assert!(why.len() > 5, "say why it is not run");
                    page.not_run += 1;
                }
                (Some("console"), None) => page.session(&block),
                (Some("sh"), None) => page.steps.push(Step::Script(script(&block))),
                _ => {}
            }
        }
        page
    }

    fn stage(&mut self, stage: &str) {
        for part in stage.split(';') {
            let mut words = part.split_whitespace().map(str::to_owned);
            match words.next().as_deref() {
                Some("cluster") => self.cluster.extend(words),
                Some("servers") => self.servers.extend(words),
                other => panic!("no stage {other:?}"),
            }
        }
    }

    fn session(&mut self, block: &[&str]) {
        for line in block {
            let line = line.trim_end();
            match (line.strip_prefix("$ "), self.steps.last_mut()) {
                (Some(line), _) => self.steps.push(Step::Command {
                    line: line.to_owned(),
                    output: Vec::new(),
                }),
                (None, Some(Step::Command { line: before, .. })) if before.ends_with('\\') => {
                    before.push('\n');
                    before.push_str(line);
                }
                (None, Some(Step::Command { output, .. })) => output.push(line.to_owned()),
                (None, _) => panic!("a session begins with `$ `: {line:?}"),
            }
        }
    }
}

/// A script that starts a database in `$DATA` and waits for it, where it is installed.
fn database(name: &str) -> Option<String> {
    let there = |path: &str| Path::new(path).exists();
    match name {
        "postgres" => {
            let versions = fs::read_dir("/usr/lib/postgresql").ok()?;
            let bin = versions.flatten().map(|it| it.path().join("bin")).max()?;
            let bin = bin.join("initdb").exists().then_some(bin)?;
            // It refuses to run as root.
            Some(format!(
                "user=$(id -un); as=; \
                 if [ \"$user\" = root ]; then as='runuser -u postgres --'; user=postgres; \
                 chown postgres \"$DATA\"; fi\n\
                 cd \"$DATA\"\n\
                 $as {bin}/initdb -U postgres -A trust -D \"$DATA/pg\" >/dev/null\n\
                 $as {bin}/pg_ctl -D \"$DATA/pg\" -w -o \"-k $DATA -c listen_addresses=\" \
                 -l \"$DATA/log\" start >/dev/null\n\
                 cd - >/dev/null\n\
                 export PGHOST=$DATA PGUSER=postgres\n\
                 stop_database() {{ (cd \"$DATA\"; $as {bin}/pg_ctl -D \"$DATA/pg\" -m immediate stop) >/dev/null; }}\n",
                bin = bin.display()
            ))
        }
        "mariadb" => there("/usr/sbin/mariadbd").then(|| {
            "mariadb-install-db --no-defaults --user=$(id -un) --datadir=\"$DATA/my\" \
             --auth-root-authentication-method=normal >/dev/null 2>&1\n\
             /usr/sbin/mariadbd --no-defaults --user=$(id -un) --datadir=\"$DATA/my\" --socket=\"$DATA/my.sock\" \
             --pid-file=\"$DATA/my.pid\" --skip-networking >\"$DATA/my.log\" 2>&1 &\n\
             printf '[client]\\nsocket=%s\\nuser=root\\ndatabase=test\\n' \"$DATA/my.sock\" >~/.my.cnf\n\
             until mariadb -e 'SELECT 1' >/dev/null 2>&1; do sleep 0.2; done\n"
                .to_owned()
        }),
        other => panic!("no database {other:?}"),
    }
}

/// What a comment of that kind says.
fn directive<'a>(line: &'a str, kind: &str) -> Option<&'a str> {
    let line = line.strip_prefix("<!-- ")?.strip_prefix(kind)?;
    Some(line.strip_suffix("-->")?.trim())
}

/// The block without the indentation that it has in a list. What goes on until ^C is ended after a second.
fn script(block: &[&str]) -> String {
    let indented = block.iter().filter(|line| !line.trim().is_empty());
    let indent = indented.map(|line| line.len() - line.trim_start().len());
    let indent = indent.min().unwrap_or(0);
    let lines = block.iter().map(|line| {
        let line = line.get(indent..).unwrap_or_default();
        let command = line.split('#').next().unwrap_or_default();
        let goes_on = command.starts_with("fencepost watch ")
            || (command.starts_with("fencepost ") && command.contains(" --watch"));
        match goes_on {
            true => format!("! timeout -s INT 1 {line}\n"),
            false => format!("{line}\n"),
        }
    });
    lines.collect()
}

/// What is another each time, and what stands for it on the pages.
struct Names(Vec<(String, String)>);

impl Names {
    fn real(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (on_the_page, real) in &self.0 {
            text = replaced(&text, on_the_page, real);
        }
        text
    }

    fn on_the_page(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (on_the_page, real) in &self.0 {
            text = replaced(&text, real, on_the_page);
        }
        text
    }
}

/// Only whole words: `redis://a` is no part of `redis://a.example`.
fn replaced(text: &str, from: &str, to: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(from) {
        let (before, after) = (&rest[..at], &rest[at + from.len()..]);
        let goes_on = |c: char| c.is_ascii_alphanumeric() || c == '.' || c == '-';
        let is_digit = |c: char| c.is_ascii_digit();
        let whole = !after.starts_with(goes_on) && !before.ends_with(is_digit);
        out.push_str(before);
        out.push_str(if whole { to } else { from });
        rest = after;
    }
    out + rest
}

/// Runs a page, and returns how many steps it has, or which of them is not as it is shown.
fn run(name: &str, page: &Page) -> Result<usize, String> {
    let bench = Bench::new();
    let named = |names: &[String]| {
        let servers = names
            .iter()
            .map(|name| (name.clone(), RedisServer::start()));
        servers.collect::<Vec<_>>()
    };
    let (cluster, servers) = (named(&page.cluster), named(&page.servers));
    let mut names = Names(Vec::new());
    for (name, server) in cluster.iter().chain(&servers) {
        names.0.push((format!("redis://{name}"), server.url()));
    }
    for port in (7001..=7009).chain([7323]) {
        names.0.push((port.to_string(), page_port().to_string()));
    }
    if !cluster.is_empty() {
        let urls: Vec<_> = cluster.iter().map(|(_, server)| server.url()).collect();
        let ran = bench.run(&["init", "--fresh", "--store", &urls.join(",")]);
        assert_eq!(ran.code, Some(0), "{ran:?}");
    }
    let script = whole_script(page, &names);
    stubs(&bench, &script);
    let program = Path::new(env!("CARGO_BIN_EXE_fencepost"));
    let programs = format!(
        "{}:{}:{}",
        program
            .parent()
            .expect("a program in a directory")
            .display(),
        bench.path("").display(),
        std::env::var("PATH").unwrap_or_default()
    );
    let mut bash = Command::new("timeout");
    bash.args(["-k", "5", "180", "bash", "-c", &script]);
    bash.current_dir(bench.path(""));
    // The same environment as everywhere here.
    for (name, value) in bench.command(&[]).get_envs() {
        match value {
            Some(value) => bash.env(name, value),
            None => bash.env_remove(name),
        };
    }
    let listen = names.real("127.0.0.1:7323");
    let output = bash
        .env("PATH", programs)
        .env("HOME", bench.path(""))
        .env("FENCEPOST_LISTEN", listen)
        .stdin(Stdio::null())
        .output()
        .expect("bash");
    let said = names.on_the_page(&String::from_utf8_lossy(&output.stdout));
    for (number, step) in page.steps.iter().enumerate() {
        let end = format!("{MARK}end {number} ");
        let seen = said
            .split_once(&format!("{MARK}begin {number}{MARK}"))
            .and_then(|(_, rest)| rest.split_once(&end))
            .map(|(seen, _)| seen.trim_matches('\n'));
        let Some(seen) = seen else {
            return Err(format!("{name}: {step:?} failed:\n{said}"));
        };
        if let Step::Command { line, output } = step {
            let seen: Vec<_> = seen.lines().map(str::trim_end).collect();
            let output: Vec<_> = output.iter().map(String::as_str).collect();
            if !is_like(&output, &seen) && !is_like(&output, &without_waiting(&seen)) {
                let (output, seen) = (output.join("\n"), seen.join("\n"));
                return Err(format!(
                    "{name}: $ {line}\nthe page shows:\n{output}\nit printed:\n{seen}\n"
                ));
            }
        }
    }
    Ok(page.steps.len())
}

/// A free port that nobody is given who asks the system for any: a page uses its ports only later.
fn page_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(20_000);
    let listens = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    let mut ports = std::iter::repeat_with(|| NEXT.fetch_add(1, Ordering::Relaxed));
    let mut below_the_systems = ports.by_ref().take_while(|port| *port < 30_000);
    below_the_systems.find(listens).expect("a free port")
}

/// All steps in one shell; each is marked in the output. Whatever still runs in the end is stopped: only what was
/// started here, for another test's server may have got a port that this page did not use.
fn whole_script(page: &Page, names: &Names) -> String {
    let ports: Vec<_> = (7001..=7009)
        .map(|port: u16| names.real(&port.to_string()))
        .collect();
    let mut script = format!(
        "exec 2>&1\n\
         finish() {{\n\
           for port in {}; do\n\
             pid=$(redis-cli -p $port info server 2>/dev/null | sed -n 's/^process_id:\\([0-9]*\\).*/\\1/p')\n\
             [ -z \"$pid\" ] && continue\n\
             case $(readlink /proc/$pid/cwd) in \"$HERE\"*|\"$DATA\"*) kill $pid; esac\n\
           done\n\
           kill $(jobs -p) 2>/dev/null; wait 2>/dev/null\n\
           stop_database; rm -rf \"$DATA\"\n\
         }}\n\
         stop_database() {{ :; }}\n\
         HERE=$(pwd -P)\n\
         DATA=$(mktemp -d /tmp/fencepost-page.XXXXXX)\n\
         trap finish EXIT\n",
        ports.join(" ")
    );
    for name in &page.needs {
        script += &database(name).unwrap_or_default();
    }
    for (number, step) in page.steps.iter().enumerate() {
        script += &format!("printf '\\001begin {number}\\001\\n'\n");
        match step {
            Step::Command { line, .. } => {
                script += &format!("(exit ${{code-0}})\n{}\ncode=$?\n", names.real(line));
            }
            Step::Script(text) => {
                script += &format!("set -e\n{}set +e\ncode=0\n", names.real(text))
            }
        }
        script += &format!("printf '\\001end {number} %s\\001\\n' \"$code\"\n");
    }
    script
}

/// What stands for the reader's own programs on the pages: it does nothing, and succeeds.
fn stubs(bench: &Bench, script: &str) {
    let words = script.split(|c: char| c.is_whitespace() || "'\"();".contains(c));
    let own = words.filter_map(|word| word.strip_prefix("./"));
    let own: BTreeSet<_> = own.chain(["COMMAND"]).collect();
    for name in own {
        let path = bench.path(name);
        if name.is_empty() || name.contains('/') || path.exists() {
            continue;
        }
        fs::write(&path, "#!/bin/sh\n").expect("a stand-in can be written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))
            .expect("a stand-in can be made executable");
    }
}

/// What was printed but for the lines of a wait that passed: on a busy machine a node may be late once.
fn without_waiting<'a>(seen: &[&'a str]) -> Vec<&'a str> {
    let waits = |line: &&str| {
        line.starts_with("fencepost: waiting: ") && line.contains(" was not granted: ")
            || line.starts_with("fencepost: acquired lock ")
    };
    seen.iter().copied().filter(|line| !waits(line)).collect()
}

/// Whether the lines are those that a page shows.
fn is_like(shown: &[&str], seen: &[&str]) -> bool {
    match shown {
        [] => seen.is_empty(),
        ["…"] => true,
        ["…", rest @ ..] => (0..=seen.len()).any(|at| is_like(rest, &seen[at..])),
        [first, rest @ ..] => match seen {
            [line, others @ ..] => is_line(first, line) && is_like(rest, others),
            [] => false,
        },
    }
}

fn is_line(shown: &str, seen: &str) -> bool {
    let mut parts = shown.split('…');
    let Some(mut rest) = parts.next().and_then(|first| seen.strip_prefix(first)) else {
        return false;
    };
    let parts: Vec<_> = parts.collect();
    let Some((last, middle)) = parts.split_last() else {
        return rest.is_empty();
    };
    for part in middle {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[test]
fn every_command_of_every_page_runs_as_it_is_shown() {
    let (mut run_in_all, mut not_run) = (0, 0);
    let mut wrong = Vec::new();
    for name in pages() {
        if ELSEWHERE.iter().any(|it| name.starts_with(it)) {
            continue;
        }
        let text = fs::read_to_string(root().join(&name)).unwrap();
        let page = Page::parse(&text);
        not_run += page.not_run;
        if !page.steps.is_empty() {
            let steps = run(&name, &page).unwrap_or_else(|why| {
                wrong.push(why);
                0
            });
            let (not_run, skipped) = (page.not_run, page.skipped);
            println!("{name}: {steps} run, {not_run} not run, {skipped} skipped: no database");
            run_in_all += steps;
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(run_in_all >= RUN, "{run_in_all}");
    assert_eq!(not_run, NOT_RUN, "blocks that are marked as not run");
}

#[test]
fn the_summary_has_every_page_and_every_link_leads_somewhere() {
    let docs = root().join("docs");
    let summary = fs::read_to_string(docs.join("SUMMARY.md")).unwrap();
    let listed: BTreeSet<_> = links(&summary).collect();
    for name in pages() {
        if let Some(page) = name.strip_prefix("docs/")
            && page != "SUMMARY.md"
        {
            assert!(listed.contains(page), "{page} is not in SUMMARY.md");
        }
    }
    let all = pages()
        .into_iter()
        .chain(["CONTRIBUTING.md", "GUARANTEES.md"].map(str::to_owned));
    for name in all {
        let text = fs::read_to_string(root().join(&name)).unwrap();
        let directory = root().join(&name).parent().unwrap().to_owned();
        for link in links(&text) {
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            let target = match path {
                "" => root().join(&name),
                path => directory.join(path),
            };
            assert!(target.exists(), "{name}: {link} leads nowhere");
            if !anchor.is_empty() {
                let text = with_includes(&target);
                let titles = text.lines().filter(|line| line.starts_with('#'));
                let anchors: BTreeSet<_> = titles.map(anchor_of).collect();
                assert!(anchors.contains(anchor), "{name}: {link}: {anchors:?}");
            }
        }
    }
}

/// The page with the files of the repository that it includes.
fn with_includes(page: &Path) -> String {
    let read = |path: &Path| fs::read_to_string(path).expect("a page, or what it includes");
    let text = read(page);
    let lines = text.lines().map(|line| {
        let included = line.strip_prefix("{{#include ");
        match included.and_then(|rest| rest.strip_suffix("}}")) {
            Some(path) => read(&page.with_file_name("").join(path)),
            None => format!("{line}\n"),
        }
    });
    lines.collect()
}

/// The path without `.` and `..`; `None` when it leads out of where it begins.
fn plain(path: &Path) -> Option<PathBuf> {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(part) => plain.push(part),
            Component::CurDir => {}
            _ => plain.pop().then_some(())?,
        }
    }
    Some(plain)
}

/// The book is built of `docs/` alone: a link to `../GUARANTEES.md` was one to `../GUARANTEES.html`, which is nowhere.
#[test]
fn no_link_leaves_the_book() {
    let docs = root().join("docs");
    let book = fs::read_to_string(docs.join("book.toml")).unwrap();
    let summary = fs::read_to_string(docs.join("SUMMARY.md")).unwrap();
    let mut seen = 0;
    for page in links(&summary) {
        let text = with_includes(&docs.join(page));
        for link in links(&text) {
            let path = link.split('#').next().unwrap_or_default();
            if link.contains("://") || path.is_empty() {
                continue;
            }
            let target = plain(&Path::new(page).with_file_name("").join(path));
            let target = target.unwrap_or_else(|| panic!("{page}: {link} leaves the book"));
            // Such a page is `index.html` in the book.
            let is_there = docs.join(&target).exists() && !target.ends_with("README.md");
            let redirect = format!("\"/{}\" = ", target.with_extension("html").display());
            assert!(
                is_there || book.contains(&redirect),
                "{page}: {link} leads nowhere in the book"
            );
            seen += 1;
        }
    }
    assert!(seen > 60, "{seen}");
}

/// What mdbook and GitHub make of a title.
fn anchor_of(title: &str) -> String {
    let title = title.trim_start_matches('#').trim().to_lowercase();
    let kept = title.chars().filter_map(|c| match c {
        ' ' => Some('-'),
        c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c),
        _ => None,
    });
    kept.collect()
}

/// The targets of all links outside of code blocks.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let mut is_code = false;
    let prose = text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    });
    prose.flat_map(|line| {
        let parts = line.split("](").skip(1);
        parts.filter_map(|part| part.split_once(')').map(|(target, _)| target))
    })
}

#[test]
fn the_runner_tells_a_page_from_another_output() {
    assert!(is_like(&["a … c", "…", "z"], &["a b c", "1", "2", "z"]));
    assert!(is_like(&["…"], &[]));
    assert!(!is_like(&["a"], &["a", "b"]));
    assert!(!is_like(&["a … c"], &["a b d"]));
    assert!(!is_like(&["a"], &[]));
    let names = Names(vec![("redis://a".into(), "redis://127.0.0.1:99".into())]);
    assert_eq!(
        names.real("redis://a,redis://a.example"),
        "redis://127.0.0.1:99,redis://a.example"
    );
    let page = Page::parse(
        "```console\n$ x \\\n  y\nout\n$ z\n```\n\n<!-- not run: needs root -->\n\n```sh\nq\n```\n",
    );
    assert_eq!((page.steps.len(), page.not_run), (2, 1));
}
