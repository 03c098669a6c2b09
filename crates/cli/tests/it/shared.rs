//! `run --shared`: beside others that share, and beside none that does not.

use fencepost_tests::Cluster;

use crate::bench::{Bench, end_of};

/// A directory of its own for each who shares; a writer looks for them, and they for the writer.
const READ: &str =
    "mkdir reader-$$; [ -e writer ] && echo $$ >>clashes; sleep 0.02; rmdir reader-$$";
const WRITE: &str = "mkdir writer || echo $$ >>clashes; ls | grep -q ^reader && echo $$ >>clashes; \
                     sleep 0.02; rmdir writer";

#[test]
fn all_who_share_run_at_once_and_one_who_does_not_waits_for_them() {
    let bench = Bench::new();
    let share = |n: &str| {
        let line = format!("echo >up-{n}; until [ -e go ]; do sleep 0.01; done");
        bench.start_until(
            &format!("up-{n}"),
            &["run", "job", "--shared", "-q", "--shell", &line],
        )
    };
    let both = [share("1"), share("2")];
    let ran = bench.run(&["run", "job", "--no-wait", "--", "touch", "began"]);
    assert_eq!(ran.code, Some(75), "{ran:?}");
    assert!(ran.err.contains("readers"), "{ran:?}");
    assert!(!bench.path("began").exists());
    std::fs::write(bench.path("go"), "").unwrap();
    for one in both {
        assert_eq!(end_of(one).code, Some(0));
    }
    let ran = bench.run(&["run", "job", "--no-wait", "--", "touch", "began"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
}

#[test]
fn a_shared_run_never_overlaps_an_exclusive_one() {
    const RUNS: usize = 24;
    let cluster = Cluster::start(3);
    let urls = cluster.urls();
    let servers = ["--store", &urls, "--restart-policy", "trust"];
    for store in [&[][..], &servers[..]] {
        let bench = Bench::new();
        let start = |n: usize| {
            let (how, line): (&[&str], _) = match n % 3 {
                0 => (&[], WRITE),
                _ => (&["--shared"], READ),
            };
            let words = [&["run", "job", "-q"], store, how, &["--shell", line]].concat();
            let run = bench.start(&words);
            (words, run)
        };
        bench.all_run((0..RUNS).map(start).collect());
        assert!(!bench.path("clashes").exists());
    }
}
