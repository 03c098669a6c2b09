//! Examples and exit codes of each command: for its help and for its man page.

use clap::Command;

/// What a command line does, and the line.
pub(crate) type Example = (&'static str, &'static str);
/// An exit code, and when it is that.
pub(crate) type ExitCase = (&'static str, &'static str);

/// How durations are written.
pub(crate) const TIMES: &str =
    "Times are written 250ms, 10s, 2m, 1h30m, or as a number of seconds.";

const EXPLAIN: &str = "`fencepost explain CODE` explains an exit code or an error.";

const USAGE: ExitCase = ("64", "the arguments or the config file cannot be used");
const UNAVAILABLE: ExitCase = ("69", "no quorum, or the store cannot be reached");
const BUSY: ExitCase = (
    "75",
    "the lock is held by another process, or still held when --wait ran out (-E changes it)",
);

/// The examples of a command; of the whole program for `fencepost`.
pub(crate) fn examples(command: &str) -> &'static [Example] {
    match command {
        "fencepost" => &[
            (
                "a second one waits until the first is done",
                "fencepost run nightly -- ./report.sh",
            ),
            ("who holds it?", "fencepost status nightly"),
            (
                "on three servers",
                "fencepost run nightly --store redis://a,redis://b,redis://c -- ./report.sh",
            ),
        ],
        "run" => &[
            (
                "a second one waits until the first is done",
                "fencepost run nightly -- ./report.sh",
            ),
            (
                "skip it if it still runs, as a cron job does",
                "fencepost run sync -n -q -E 0 -- ./sync.sh",
            ),
            (
                "give up after ten seconds",
                "fencepost run deploy -w 10 -- ./deploy.sh",
            ),
            (
                "a shell command, as with flock",
                "fencepost run -n /tmp/x.lock -c 'make && make install'",
            ),
            (
                "up to three at once",
                "fencepost run encode --slots 3 -- ./encode.sh",
            ),
            (
                "many readers, or one writer",
                "fencepost run catalogue -s -- ./export.sh",
            ),
            (
                "two locks, all or none",
                "fencepost run account-7,account-3 -- ./transfer.sh",
            ),
        ],
        "elect" => &[
            (
                "one scheduler at a time, on whichever machine",
                "fencepost elect scheduler --value \"$HOST:8080\" -- ./scheduler",
            ),
            (
                "campaign again after a loss",
                "fencepost elect scheduler --again lost -- ./scheduler",
            ),
        ],
        "acquire" => &[
            (
                "a lock for a part of a script",
                "eval \"$(fencepost acquire nightly --ttl 60s --export)\"",
            ),
            ("before it expires", "fencepost extend nightly --ttl 60s"),
            ("when done", "fencepost release nightly"),
        ],
        "extend" => &[
            (
                "a lock that was acquired with --export",
                "fencepost extend nightly --ttl 60s",
            ),
            (
                "any other",
                "fencepost extend nightly --value VALUE --token TOKEN",
            ),
        ],
        "release" => &[
            (
                "a lock that was acquired with --export",
                "fencepost release nightly",
            ),
            ("any other", "fencepost release nightly --value VALUE"),
        ],
        "status" => &[
            (
                "one lock, and what each node says",
                "fencepost status nightly",
            ),
            ("several", "fencepost status nightly deploy"),
            (
                "the slots of a semaphore",
                "fencepost status encode --slots 3",
            ),
        ],
        "list" => &[
            ("all locks that are held", "fencepost list"),
            (
                "some of them, again whenever they change",
                "fencepost list 'invoice-*' --watch",
            ),
        ],
        "watch" => &[(
            "a line of JSON for each change",
            "fencepost watch nightly --json",
        )],
        "leader" => &[
            ("who leads?", "fencepost leader scheduler"),
            (
                "a line for each new leader",
                "fencepost leader scheduler --watch",
            ),
        ],
        "steal" => &[
            ("asks first", "fencepost steal nightly"),
            (
                "from a script, for the next waiter",
                "fencepost steal nightly --yes --free",
            ),
        ],
        "ui" => &[
            ("of the locks on this machine", "fencepost ui"),
            (
                "of three servers, and it may steal",
                "fencepost ui --store redis://a,redis://b,redis://c --allow-steal",
            ),
        ],
        "top" => &[(
            "of three servers",
            "fencepost top --store redis://a,redis://b,redis://c",
        )],
        "deadlocks" => &[(
            "send mail when there is one",
            "fencepost deadlocks || notify-oncall",
        )],
        "serve" => &[
            ("on this machine, with nothing installed", "fencepost serve"),
            (
                "a replica over three servers, for others",
                "fencepost serve --store redis://a,redis://b,redis://c --listen 0.0.0.0:7323 \
                 --serve-cert cert.pem --serve-key key.pem --tokens tokens.toml",
            ),
        ],
        "doctor" => &[(
            "are these servers fit to hold locks?",
            "fencepost doctor --store redis://a,redis://b,redis://c",
        )],
        "init" => &[
            (
                "three new servers",
                "fencepost init --fresh --store redis://a,redis://b,redis://c",
            ),
            (
                "put d in the place of c, which is dead",
                "fencepost init --store redis://a,redis://b,redis://d --replace redis://a,redis://b,redis://c",
            ),
        ],
        "bench" => &[("fifty tasks at once", "fencepost bench --tasks 50")],
        "explain" => &[
            ("what does this exit code mean?", "fencepost explain 69"),
            ("why was the lock lost?", "fencepost explain max_hold"),
        ],
        "completions" => &[
            (
                "bash",
                "fencepost completions bash >~/.local/share/bash-completion/completions/fencepost",
            ),
            ("zsh", "fencepost completions zsh >~/.zfunc/_fencepost"),
            (
                "fish",
                "fencepost completions fish >~/.config/fish/completions/fencepost.fish",
            ),
        ],
        "man" => &[(
            "for `man fencepost-run`",
            "fencepost man ~/.local/share/man/man1",
        )],
        _ => &[],
    }
}

/// The exit codes of a command; of the whole program for `fencepost`.
pub(crate) fn exits(command: &str) -> &'static [ExitCase] {
    match command {
        "run" | "elect" => &[
            ("N", "the command's own; 128+n if signal n killed it"),
            USAGE,
            UNAVAILABLE,
            BUSY,
            (
                "79",
                "the lock was lost, and the command was stopped or not started",
            ),
            ("126", "the command cannot be executed"),
            ("127", "command not found"),
        ],
        "acquire" => &[
            ("0", "the lock was acquired"),
            USAGE,
            UNAVAILABLE,
            ("74", "stdout cannot be written; the lock is released"),
            BUSY,
            ("79", "the lock was lost before its value was printed"),
        ],
        "extend" | "release" => &[
            ("0", "a majority of the nodes had it"),
            USAGE,
            ("69", "too few nodes answered"),
            ("79", "the lock is lost"),
        ],
        "steal" => &[
            ("0", "the lock was stolen"),
            ("1", "the lock is free"),
            (
                "64",
                "the arguments cannot be used, or the key was not written by fencepost",
            ),
            UNAVAILABLE,
            (
                "73",
                "the --audit file cannot be opened: nothing was stolen; or not written: the lock was stolen",
            ),
            ("75", "not confirmed"),
        ],
        "leader" => &[
            ("0", "there is a leader"),
            ("1", "there is no leader"),
            USAGE,
            ("69", "too few nodes answered"),
        ],
        "doctor" => &[
            ("0", "nothing is unsafe"),
            ("1", "something is unsafe"),
            USAGE,
            ("69", "fewer than a majority of the nodes could vote"),
        ],
        "ui" => &[("0", "stopped by a signal"), USAGE, UNAVAILABLE],
        "top" => &[("0", "--count snapshots were shown"), USAGE, UNAVAILABLE],
        "deadlocks" => &[
            ("0", "no cycle"),
            ("1", "a cycle was found; it is printed"),
            USAGE,
            UNAVAILABLE,
        ],
        "serve" => &[
            ("0", "stopped by a signal, and drained"),
            USAGE,
            UNAVAILABLE,
        ],
        "status" | "list" | "watch" | "bench" | "init" => &[("0", "done"), USAGE, UNAVAILABLE],
        "completions" | "man" => &[("0", "done"), USAGE, ("73", "a file cannot be written")],
        "explain" => &[("0", "done"), ("64", "no such page")],
        _ => &[
            (
                "N",
                "of `run` and `elect`: the command's own; 128+n if signal n killed it",
            ),
            (
                "1",
                "`doctor`: something is unsafe; `leader`: there is none; `steal`: the lock is free; `deadlocks`: a cycle was found",
            ),
            USAGE,
            UNAVAILABLE,
            ("73", "a file cannot be written"),
            ("74", "stdout cannot be written"),
            BUSY,
            ("79", "the lock was lost"),
            ("126, 127", "the command cannot be executed, is not found"),
        ],
    }
}

/// What stands below the options in the help of a command.
pub(super) fn with_help(command: Command) -> Command {
    let name = command.get_name().to_owned();
    let lines = examples(&name).iter();
    let lines: String = lines
        .map(|(what, line)| format!("  {line}\n      {what}\n"))
        .collect();
    let exits = exits(&name).iter();
    let exits: String = exits
        .map(|(code, when)| format!("  {code:<3}  {when}\n"))
        .collect();
    command.after_help(format!(
        "Examples:\n{lines}\nExit codes:\n{exits}\n{TIMES}\n{EXPLAIN}"
    ))
}

#[cfg(test)]
mod tests {
    use super::super::definition;
    use super::*;

    /// As a shell splits a line without variables.
    fn words(line: &str) -> Vec<String> {
        let (mut words, mut word, mut quote) = (Vec::new(), String::new(), None);
        for c in line.chars().chain([' ']) {
            match (c, quote) {
                ('\'' | '"', None) => quote = Some(c),
                (c, Some(open)) if c == open => quote = None,
                (' ', None) if word.is_empty() => {}
                (' ', None) => words.push(std::mem::take(&mut word)),
                _ => word.push(c),
            }
        }
        words
    }

    #[test]
    fn every_example_can_be_typed() {
        let mut seen = 0;
        let definition = definition();
        let commands = definition.get_subcommands().map(Command::get_name);
        for command in commands.chain(["fencepost"]) {
            assert!(!examples(command).is_empty(), "{command}");
            for (_, line) in examples(command) {
                let line = line.trim_start_matches("eval \"$(").trim_end_matches(")\"");
                let line = [" >", " ||"].iter().fold(line, |line, end| {
                    line.split_once(end).map_or(line, |(command, _)| command)
                });
                let parsed = definition.clone().try_get_matches_from(words(line));
                assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
                seen += 1;
            }
        }
        assert!(seen > 25, "{seen}");
    }
}
