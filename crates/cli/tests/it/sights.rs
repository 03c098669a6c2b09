//! `doctor`, `status` and `list` at 60, 100 and 200 columns, as they are seen; and in which colours.
//!
//! The expected texts are in `sights/`; `UPDATE_SIGHTS=1` writes them anew.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fencepost_tests::{Cluster, RedisServer, eventually};

use unicode_width::UnicodeWidthStr;

use crate::bench::{Bench, LIMIT};
use crate::pty::Terminal;
use crate::terminal::{frames, shell};

/// Holds a lock since two hours and five minutes: only its token tells, and that is stored with it.
fn hold(bench: &Bench, server: &RedisServer, name: &str, owner: &str) {
    let words = ["acquire", name, "--ttl", "24h", "--max-ttl", "24h"];
    let ran = bench.run(&[&words[..], &["--store", &server.url()]].concat());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let since = SystemTime::now() - Duration::from_secs(2 * 3600 + 5 * 60 + 9);
    let since = since
        .duration_since(UNIX_EPOCH)
        .expect("a time after 1970")
        .as_micros();
    let stored = format!("{}:{since}:{owner}", "5".repeat(32));
    assert_eq!(server.cli(&["SET", name, &stored, "KEEPTTL"]), "OK");
}

/// A server's port differs from run to run.
fn without_port(text: &str, server: &RedisServer) -> String {
    let port = server.port().to_string();
    text.replace(&format!(":{port}"), &format!(":{}", &"63790"[..port.len()]))
}

/// The same for times of day, `17:40:59Z`, also where the end of the line has cut them off.
fn without_times(text: &str) -> String {
    const TIME: &str = "12:04:31Z";
    let chars: Vec<char> = text.chars().collect();
    let is_like = |c: &char, of: char| *c == of || (c.is_ascii_digit() && of.is_ascii_digit());
    let mut out = String::new();
    let mut at = 0;
    while at < chars.len() {
        let same = chars[at..].iter().zip(TIME.chars());
        let same = same.take_while(|(c, of)| is_like(c, *of)).count();
        // Two digits and a colon are enough to be one.
        let is_time = same == TIME.len() || (same >= 3 && chars.get(at + same) == Some(&'…'));
        if is_time {
            out.push_str(&TIME[..same]);
            at += same;
        } else {
            out.push(chars[at]);
            at += 1;
        }
    }
    out
}

/// Numbers that differ from run to run, each digit replaced, so that columns keep their widths.
fn without_tokens(text: &str) -> String {
    let text = without_times(text);
    let mut out = String::new();
    let mut number = String::new();
    for c in text.chars().chain(['\0']) {
        if c.is_ascii_digit() {
            number.push(c);
            continue;
        }
        match number.len() {
            // Microseconds since 1970.
            16 => out.push_str(&"7".repeat(16)),
            _ => out.push_str(&number),
        }
        number.clear();
        out.push(c);
    }
    out.trim_end_matches('\0').to_owned()
}

fn is_as_before(name: &str, seen: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/it/sights")
        .join(name);
    if std::env::var_os("UPDATE_SIGHTS").is_some() {
        fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
        fs::write(&path, seen).expect("a file");
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(seen, expected, "{name}");
}

fn at_width(bench: &Bench, words: &[&str], width: usize) -> String {
    let mut command = bench.command(words);
    let output = command
        .env("COLUMNS", width.to_string())
        .output()
        .expect("the program");
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn what_is_printed_fits_the_width() {
    let (bench, server) = (Bench::new(), RedisServer::start());
    let url = server.url();
    let store = ["--store", &url, "--max-ttl", "24h"];
    hold(
        &bench,
        &server,
        "nightly-report",
        "web-3.example.org:4711:report",
    );
    hold(&bench, &server, "夜間バッチ", "サーバー三号");
    let nodes = "redis://127.0.0.1:1,redis://127.0.0.1:2,redis://127.0.0.1:3";
    fs::write(
        bench.path("broken.db"),
        "this is no database, and long enough to be none",
    )
    .unwrap();
    for width in [60, 100, 200] {
        for (name, words) in [
            ("list", [&["list"], &store[..]].concat()),
            (
                "status",
                [&["status", "nightly-report"], &store[..]].concat(),
            ),
            ("doctor", vec!["doctor", "--store", nodes]),
            ("doctor-file", vec!["doctor", "--store", "file:broken.db"]),
        ] {
            let seen = at_width(&bench, &words, width);
            let seen = without_tokens(&without_port(&seen, &server));
            is_as_before(&format!("{name}-{width}.txt"), &seen);
            // Words that are longer than the line stay whole.
            let too_wide = seen.lines().filter(|line| line.width() > width);
            assert_eq!(too_wide.count(), 0, "{name} at {width}:\n{seen}");
        }
    }
    for width in [60, 100, 200] {
        let script = format!(
            r#"stty cols {width}; "$F" run nightly-report {} --wait 300ms -- true"#,
            store.join(" ")
        );
        let (_, seen) = shell(&bench, &script).end();
        // The first one: those after it tell another time, and our place in the queue.
        let frames = frames(&seen);
        let line = frames.first().unwrap_or_else(|| panic!("{seen:?}"));
        let line = format!("{}\n", without_tokens(line));
        is_as_before(&format!("spinner-{width}.txt"), &line);
    }
}

/// The values of these columns differ from run to run: this stands for all of them.
const CHANGING: [(&str, &str); 4] = [
    ("version", "Redis 7.0.0"),
    ("up", "1s"),
    ("clock", "0ms"),
    ("latency", "85us"),
];

/// What the doctor prints of several servers, with the same ports and values each time. The columns are as wide as the
/// values then are.
fn without_values(text: &str, urls: &str) -> String {
    let mut text = text.to_owned();
    for (place, url) in urls.split(',').enumerate() {
        let (host, port) = url.rsplit_once(':').expect("a port");
        let fixed = format!("6379{place}");
        text = text.replace(
            url,
            &format!("{host}:{}", &fixed[fixed.len() - port.len()..]),
        );
    }
    let head = text.split('\n').next().expect("a first line").to_owned();
    let titles: Vec<_> = head.split_whitespace().collect();
    let stands_for = |title: &str| CHANGING.iter().find(|(it, _)| *it == title);
    let Some((table, rest)) = text.split_once("\n\n").filter(|_| titles.len() > 2) else {
        // A block for each server.
        let lines = text.split('\n').map(|line| {
            let title = line.split(' ').next().unwrap_or_default();
            match stands_for(title).filter(|_| line.len() > title.len()) {
                Some((_, value)) => format!("{title:<11}  {value}"),
                None => line.to_owned(),
            }
        });
        return lines.collect::<Vec<_>>().join("\n");
    };
    let starts: Vec<_> = titles
        .iter()
        .map(|title| head.find(title).expect("its own title"))
        .collect();
    let rows = table.lines().skip(1).map(|line| {
        let cells = starts.iter().enumerate().map(|(place, start)| {
            let end = starts.get(place + 1).copied().unwrap_or(line.len());
            match stands_for(titles[place]) {
                Some((_, value)) => (*value).to_owned(),
                None => line[*start..end].trim().to_owned(),
            }
        });
        cells.collect::<Vec<_>>()
    });
    let mut rows: Vec<Vec<String>> = rows.collect();
    rows.insert(0, titles.iter().map(ToString::to_string).collect());
    let mut out = String::new();
    for row in &rows {
        let cells = row.iter().enumerate().map(|(place, cell)| {
            let width = rows.iter().map(|row| row[place].len()).max().unwrap_or(0);
            format!("{cell:<width$}")
        });
        let line = cells.collect::<Vec<_>>().join("  ");
        out += &format!("{}\n", line.trim_end());
    }
    format!("{out}\n{rest}")
}

/// Of several servers, whose versions and times differ from run to run: what has to be there, and no line too long.
#[test]
fn what_is_printed_of_three_servers_fits_the_width_also_when_one_is_away() {
    let (bench, mut cluster) = (Bench::new(), Cluster::start(3));
    let urls = cluster.urls();
    let ran = bench.run(&["init", "--fresh", "--store", &urls]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let held = bench.run(&[
        "acquire",
        "夜間バッチ",
        "--for-pid",
        "none",
        "--ttl",
        "60s",
        "--store",
        &urls,
    ]);
    assert_eq!(held.code, Some(0), "{held:?}");
    let seen_at = |words: &[&str], width: usize| {
        let words = [words, &["--store", &urls]].concat();
        let seen = at_width(&bench, &words, width);
        let too_wide: Vec<_> = seen.lines().filter(|line| line.width() > width).collect();
        assert!(too_wide.is_empty(), "{width}: {too_wide:?}");
        for url in urls.split(',') {
            assert!(seen.contains(url), "{width}:\n{seen}");
        }
        seen
    };
    for width in [60, 100, 200] {
        let seen = seen_at(&["doctor"], width);
        assert!(
            seen.ends_with("\n3 of 3 nodes can vote, 2 needed\n"),
            "{seen}"
        );
        assert!(!seen.contains("unsafe"), "{seen}");
        assert!(seen.contains("master"), "{seen}");
        // A server may be slow for a moment, and is said to be so.
        let mut seen = seen;
        eventually("no server is slow", LIMIT, || {
            seen = seen_at(&["doctor"], width);
            !["round trip", "clock is"]
                .iter()
                .any(|says| seen.contains(says))
        });
        let seen = without_values(&seen, &urls);
        is_as_before(&format!("doctor-three-{width}.txt"), &seen);
    }
    // A busy machine grants it on two, and on the third a moment later.
    eventually("all have it", LIMIT, || {
        let servers = &cluster.servers;
        servers
            .iter()
            .all(|server| server.keys().contains(&"夜間バッチ".to_owned()))
    });
    cluster.servers[2].kill();
    for width in [60, 100, 200] {
        let seen = seen_at(&["status", "夜間バッチ"], width);
        assert!(seen.contains("(cannot connect: "), "{seen}");
        assert_eq!(seen.matches("unknown").count(), 1, "{seen}");
    }
}

#[test]
fn the_doctor_colours_at_a_terminal_only_and_not_against_no_color() {
    let bench = Bench::new();
    let words = ["doctor", "--store", "redis://127.0.0.1:1"];
    let (_, seen) = Terminal::start(bench.command(&words)).end();
    assert!(
        seen.contains("\u{1b}[1m\u{1b}[31munsafe\u{1b}[0m"),
        "{seen:?}"
    );
    let mut plain = bench.command(&words);
    plain.env("NO_COLOR", "1");
    let (_, seen) = Terminal::start(plain).end();
    assert!(
        seen.contains("unsafe") && !seen.contains('\u{1b}'),
        "{seen:?}"
    );
    let piped = bench.run(&words).out;
    assert!(
        piped.contains("unsafe") && !piped.contains('\u{1b}'),
        "{piped:?}"
    );
}

#[test]
fn several_names_are_several_locks() {
    let bench = Bench::new();
    assert_eq!(bench.run(&["acquire", "b"]).code, Some(0));
    let ran = bench.run(&["status", "b", "a,c", "b"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let names: Vec<_> = ran
        .out
        .lines()
        .filter(|line| line.starts_with("lock "))
        .collect();
    assert_eq!(names, ["lock        b", "lock        a", "lock        c"]);
    let json = bench.run(&["status", "b", "a", "--json"]).out;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        (&json[0]["held"], &json[1]["held"]),
        (&true.into(), &false.into())
    );
    let ran = bench.run(&["status", "a", "b", "--slots", "2"]);
    assert_eq!(ran.code, Some(64), "{ran:?}");
}
