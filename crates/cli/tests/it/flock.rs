//! A line that calls flock does the same with `fencepost run` in its place.

use std::process::Child;

use crate::bench::{Bench, Ran, end_of, send};

/// Who has the lock meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    Not,
    Shared,
    Exclusively,
}

/// Lines as they stand in crontabs and scripts: `L` is the word `flock` or ours.
const LINES: &[&str] = &[
    "L -n jobs.lock echo ran",
    "L -xn jobs.lock echo ran",
    "L --nonblock jobs.lock echo ran",
    "L --nb -e jobs.lock echo ran",
    "L -n jobs.lock -c 'echo ran; exit 3'",
    "L -n jobs.lock --command 'echo ran | cat'",
    "L -E 7 -n jobs.lock echo ran",
    "L --conflict-exit-code 9 --nonblock jobs.lock echo ran",
    "L -w 0.2 jobs.lock echo ran",
    "L -w 0 -E 4 jobs.lock echo ran",
    "L --timeout 1 -E 5 jobs.lock echo ran",
    "L --wait 1 -E 6 jobs.lock echo ran",
    "L -s -n jobs.lock echo ran",
    "L --shared --nonblock jobs.lock echo ran",
    "L -s -x -n jobs.lock echo ran",
    "L -x -s -n jobs.lock echo ran",
    "L --exclusive -n jobs.lock echo ran",
    "L -o -n jobs.lock echo ran",
    "L --close -n jobs.lock echo ran",
    "L -F -n jobs.lock echo ran",
    "L --no-fork -n jobs.lock echo ran",
    "L -n -w 5 -E 8 jobs.lock echo ran",
    // flock tells of itself on stdout.
    "L --verbose -n jobs.lock echo ran | grep -c '^ran' | cat",
    // What stands behind the command is the command's.
    "L -n jobs.lock echo -n -x -w ran",
    "L -n jobs.lock sh -c 'echo ran; kill -TERM $$'",
    "L -n jobs.lock no-such-command 2>/dev/null",
    "L -n jobs.lock echo ran || echo did not run",
    "L -n -E 0 jobs.lock echo ran && echo fine",
];

fn ran(bench: &Bench, line: &str, word: &str) -> Ran {
    let line = line.strip_prefix("L ").expect("a line");
    bench.script(&format!("{word} {line}"))
}

fn holders(bench: &Bench, held: Held) -> Vec<Child> {
    let option = match held {
        Held::Not => return vec![],
        Held::Shared => "-s",
        Held::Exclusively => "-x",
    };
    let line = "echo >up-ours; sleep 60";
    let ours = bench.start_until("up-ours", &["run", option, "jobs.lock", "-c", line]);
    let line = "echo >up-theirs; sleep 60";
    let mut theirs = std::process::Command::new("flock");
    theirs.args([option, "jobs.lock", "-c", line]);
    let theirs = theirs.current_dir(bench.path("")).spawn().expect("flock");
    bench.await_file("up-theirs");
    vec![ours, theirs]
}

#[test]
fn a_line_of_flock_does_the_same_with_the_word_exchanged() {
    for held in [Held::Not, Held::Shared, Held::Exclusively] {
        let bench = Bench::new();
        let holders = holders(&bench, held);
        for line in LINES {
            let (theirs, ours) = (ran(&bench, line, "flock"), ran(&bench, line, "\"$F\" run"));
            assert_eq!(ours.out, theirs.out, "{held:?}: {line}: {ours:?}");
            // The code for a conflict is a documented difference, if none is given.
            let (conflict, is_said) = (
                theirs.code == Some(1),
                line.contains("-E") || line.contains("--conf"),
            );
            let expected = match theirs.code {
                Some(1) if conflict && !is_said => Some(75),
                // No such command: as shells have it.
                Some(69) => Some(127),
                code => code,
            };
            assert_eq!(ours.code, expected, "{held:?}: {line}: {theirs:?} {ours:?}");
        }
        for holder in holders {
            // The command of flock is in no group of its own.
            let pid = i32::try_from(holder.id()).unwrap();
            send("TERM", pid);
            end_of(holder);
        }
    }
}

#[test]
fn a_file_descriptor_is_refused_with_a_word_of_what_to_do() {
    let bench = Bench::new();
    let ran = bench.script("exec 9>jobs.lock; \"$F\" run -n 9");
    assert_eq!(ran.code, Some(64), "{ran:?}");
    assert!(ran.err.contains("fencepost acquire"), "{ran:?}");
}

#[test]
fn durations_are_typed_as_people_do() {
    let bench = Bench::new();
    for time in ["1h30m", "90", "2.5", "1 min", "250ms"] {
        let ran = bench.run(&["run", "job", "--wait", time, "--", "true"]);
        assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""), "{time}");
    }
    let ran = bench.run(&[
        "run",
        "job",
        "--ttl",
        "20",
        "--shell",
        "echo $FENCEPOST_DEADLINE",
    ]);
    let deadline: u128 = ran.out.trim().parse().unwrap();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let left = deadline - now.unwrap().as_millis();
    assert!((10_000..20_000).contains(&left), "{left}");
}
