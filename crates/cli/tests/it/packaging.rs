//! What is in `packaging/` fits the program: dashboards and alerts name metrics that exist, and manifests
//! have commands that can be run. Schemas are checked by `packaging/check`.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use fencepost_tests::free_port;
use serde_json::Value;

use crate::bench::{Bench, end_of, pid_of, send};

fn file(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(name);
    fs::read_to_string(path).expect(name)
}

/// Every word of the text that is the name of a metric.
fn named(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    let words = words.filter(|word| word.starts_with("fencepost_"));
    words.map(str::to_owned).collect()
}

/// What a query names: a histogram by the series that it is made of.
fn queried(text: &str) -> BTreeSet<String> {
    let ends = ["_bucket", "_sum", "_count"];
    let whole = |name: String| {
        let mut stems = ends.iter().filter_map(|end| name.strip_suffix(end));
        stems.next().map_or_else(|| name.clone(), str::to_owned)
    };
    named(text).into_iter().map(whole).collect()
}

/// The metrics of a service that runs.
fn of_the_service() -> BTreeSet<String> {
    let bench = Bench::new();
    let address = format!("127.0.0.1:{}", free_port());
    let service = bench.start(&["serve", "--listen", &address]);
    let script = format!(
        "curl -sf --retry 50 --retry-delay 1 --retry-connrefused -H 'accept: text/plain' \
         -d name=a http://{address}/v1/acquire >granted; . ./granted; \
         curl -s -d name=a -d lease=$LEASE http://{address}/v1/release >/dev/null; \
         curl -s -H 'content-type: application/json' \
         -d '{{\"leases\":[{{\"name\":\"a\",\"lease\":\"x\",\"token\":1}}],\"ttl\":\"5s\"}}' \
         http://{address}/v1/extend >/dev/null; \
         curl -sf http://{address}/metrics"
    );
    let text = bench.script(&script).out;
    send("TERM", pid_of(&service));
    end_of(service);
    let types = text.lines().filter_map(|line| {
        let (name, kind) = line.strip_prefix("# TYPE ")?.split_once(' ')?;
        Some(match kind {
            "counter" => format!("{name}_total"),
            _ => name.to_owned(),
        })
    });
    let found: BTreeSet<_> = types.collect();
    assert!(found.len() >= 8, "{text}");
    found
}

/// The metrics of the library: what it describes to a recorder.
fn of_the_library() -> BTreeSet<String> {
    let source = file("crates/fencepost/src/events.rs");
    let (_, code) = source.split_once("mod count {").expect("the counters");
    let found = named(code);
    assert!(found.len() >= 12, "{found:?}");
    found
}

#[test]
fn dashboards_alerts_and_pages_name_metrics_that_exist() {
    let exist: BTreeSet<_> = of_the_service().union(&of_the_library()).cloned().collect();
    let dashboard: Value = serde_json::from_str(&file("packaging/grafana/fencepost.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels
        .iter()
        .flat_map(|panel| panel["targets"].as_array().unwrap());
    let queries: String = targets
        .map(|target| format!("{}\n", target["expr"].as_str().unwrap()))
        .collect();
    let alerts = file("packaging/prometheus/alerts.yaml");
    let rules = alerts
        .lines()
        .filter(|line| line.trim_start().starts_with("expr:"));
    let rules: Vec<_> = rules.collect();
    assert!(rules.len() >= 8 && panels.len() >= 10);
    for (what, names) in [
        ("the dashboard", queried(&queries)),
        ("the alerts", queried(&rules.join("\n"))),
        ("the page", queried(&file("docs/metrics.md"))),
    ] {
        let unknown: Vec<_> = names
            .difference(&exist)
            .filter(|name| *name != "fencepost_service_")
            .collect();
        assert!(
            unknown.is_empty(),
            "{what} names {unknown:?}; there are {exist:?}"
        );
    }
    // And nobody has to look for those that are not on the page or the dashboard.
    for (what, names) in [
        ("the dashboard", queried(&queries)),
        ("the page", queried(&file("docs/metrics.md"))),
    ] {
        let missing: Vec<_> = exist.difference(&names).collect();
        assert!(missing.is_empty(), "{what} lacks {missing:?}");
    }
}

#[test]
fn the_commands_of_the_manifests_can_be_run() {
    let bench = Bench::new();
    let mut seen = 0;
    for name in ["cronjob", "leader"] {
        let manifest = file(&format!("packaging/kubernetes/{name}.yaml"));
        let commands = manifest
            .lines()
            .filter_map(|line| line.trim().strip_prefix("command: [fencepost, "));
        for command in commands {
            let words = command.trim_end_matches(']').split(", ");
            let words: Vec<_> = words.map(|word| word.trim_matches('"')).collect();
            let end = words.iter().position(|word| *word == "--").unwrap();
            let ran = bench.run(&[&words[..=end], &["true"]].concat());
            assert_eq!(ran.code, Some(0), "{name}: {words:?}: {ran:?}");
            seen += 1;
        }
    }
    assert_eq!(seen, 2);
    // The options of the service are read; what is missing are the files.
    let service = file("packaging/kubernetes/service.yaml");
    let options = service
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- --"));
    let options: Vec<_> = options.map(|option| format!("--{option}")).collect();
    let words: Vec<_> = options.iter().map(String::as_str).collect();
    let ran = bench.run(&[&["serve"], &words[..]].concat());
    assert!(
        ran.code == Some(64) && ran.err.contains("/etc/fencepost/"),
        "{ran:?}"
    );
}

/// Whoever builds the image finds out otherwise, and nobody does here.
#[test]
fn what_the_image_copies_is_what_is_built() {
    let build = file("packaging/build");
    let image = file("packaging/Containerfile");
    let copied = image.lines().filter_map(|line| {
        let (source, _) = line.strip_prefix("COPY ")?.split_once(' ')?;
        Some(source)
    });
    let copied: Vec<_> = copied.collect();
    assert!(copied.contains(&"fencepost"), "{copied:?}");
    for source in copied {
        let as_named = format!("\"$out/{source}\"");
        let into = format!("/{source} \"$out/\"");
        let is_made = build.lines().any(|line| {
            let makes = ["install ", "cp "]
                .iter()
                .any(|it| line.trim().starts_with(it));
            makes && (line.ends_with(&as_named) || line.ends_with(&into))
        });
        assert!(is_made, "packaging/build does not make {source}");
    }
}

/// The options are read. That nothing listens at the store is found after that.
#[test]
fn the_commands_of_compose_and_the_variables_of_all_manifests_are_those_of_the_program() {
    let bench = Bench::new();
    let compose = file("packaging/compose.yaml");
    let hints = compose.lines().filter_map(|line| {
        let (_, words) = line
            .strip_prefix("#   ")?
            .split_once(" run --rm locks-1 ")?;
        Some(words.split(' ').collect())
    });
    let commands = compose.lines().filter_map(|line| {
        let words = line.trim().strip_prefix("command: [")?.strip_suffix(']')?;
        let words = words.split(", ").map(|word| word.trim_matches('"'));
        Some(words.collect())
    });
    let commands: Vec<Vec<&str>> = commands.chain(hints).collect();
    let ours = commands.iter().filter(|words| words[0] != "valkey-server");
    let nobody = "redis://127.0.0.1:1,redis://127.0.0.1:2,redis://127.0.0.1:3";
    let mut seen = Vec::new();
    for words in ours {
        let ran = bench.run(&[&words[..], &["--store", nobody]].concat());
        assert_eq!(ran.code, Some(69), "{words:?}: {ran:?}");
        seen.push(words[0]);
    }
    assert_eq!(seen, ["serve", "init"]);
    // It is what `--durable` asserts.
    for option in ["--appendonly, \"yes\"", "--appendfsync, always"] {
        assert!(compose.contains(option), "{option}");
    }

    let mut known = BTreeSet::new();
    for command in ["run", "elect", "serve"] {
        let help = bench.run(&[command, "--help"]).out;
        let variables = help.split("[env: ").skip(1);
        let variables = variables.filter_map(|rest| rest.split([']', '=']).next());
        known.extend(variables.map(str::to_owned));
    }
    let files = ["cronjob", "leader", "service"].map(|name| format!("kubernetes/{name}"));
    for name in files.iter().map(String::as_str).chain(["compose"]) {
        let text = file(&format!("packaging/{name}.yaml"));
        let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        let set: BTreeSet<_> = words
            .filter(|word| word.starts_with("FENCEPOST_"))
            .collect();
        assert!(set.contains("FENCEPOST_STORE"), "{name}: {set:?}");
        for variable in set {
            assert!(known.contains(variable), "{name}: {variable}");
        }
    }
}

#[test]
fn the_monitor_looks_where_the_service_offers_metrics() {
    let monitor = file("packaging/kubernetes/servicemonitor.yaml");
    let service = file("packaging/kubernetes/service.yaml");
    assert!(monitor.contains("path: /metrics") && monitor.contains("port: metrics"));
    assert!(
        service.contains("name: metrics, port: 9323")
            && service.contains("--metrics-listen=0.0.0.0:9323")
    );
    let label = "app.kubernetes.io/name: fencepost";
    assert!(monitor.contains(label) && service.contains(label));
}

#[test]
fn the_numbers_of_the_first_page_are_those_of_the_reports() {
    let page = file("docs/introduction.md");
    let faults = file("crates/faults/report.md");
    let line = faults.lines().find(|line| line.contains("violations**"));
    let line = line.expect("the summary of the faults");
    let number = |what: &str| {
        let (before, _) = line.split_once(what).expect(what);
        before
            .rsplit([' ', '*'])
            .find(|word| !word.is_empty())
            .expect(what)
            .to_owned()
    };
    let shown = format!(
        "{} faults, {} acquisitions | {} |",
        number(" faults"),
        number(" acquisitions"),
        number(" violations")
    );
    assert!(page.contains(&shown), "the report says {shown:?}");
    let sim = file("crates/sim/report.md");
    let row = |what: &str| {
        let line = sim.lines().find(|line| line.starts_with(what)).expect(what);
        line.rsplit('|').nth(1).expect("a number").trim().to_owned()
    };
    let shown = format!(
        "{} runs, {} locks acquired | {} |",
        row("| runs |"),
        row("| locks acquired |"),
        row("| **runs that broke a rule** |")
    );
    assert!(page.contains(&shown), "the report says {shown:?}");
    let planted = file("crates/sim/planted.md");
    let bugs = planted.lines().filter(|line| line.starts_with("| "));
    let bugs: Vec<_> = bugs
        .skip_while(|line| !line.starts_with("| ---"))
        .skip(1)
        .collect();
    let found = bugs.iter().filter(|line| {
        let seeds = line.rsplit('|').nth(1).unwrap_or_default().trim();
        seeds.parse::<u64>().is_ok()
    });
    let harmless = bugs
        .iter()
        .filter(|line| line.contains("| harmless: "))
        .count();
    let harmful = bugs.len() - harmless;
    let shown = format!(
        "[{} of {harmful} found, {harmless} more are harmless]",
        found.count()
    );
    assert!(page.contains(&shown), "the report says {shown:?}");
}
