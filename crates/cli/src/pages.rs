//! Completions and man pages, from the one definition of the arguments.

use std::fs;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;

use crate::args::extra::{TIMES, examples, exits};
use crate::args::{CompletionsJob, ManJob, definition};
use crate::config;
use crate::exit::{Exit, Failure};
use crate::voice;

const PROGRAM: &str = "fencepost";
/// The commands whose first word is the name of a lock.
const NAMED: [&str; 9] = [
    "run", "elect", "acquire", "extend", "release", "status", "watch", "leader", "steal",
];

/// The environment of a command under a lock: a variable, which commands set it, and to what.
const TOLD: [(&str, &[&str], &str); 9] = [
    ("FENCEPOST_LOCK", BOTH, "the name, or the names"),
    ("FENCEPOST_TOKEN", BOTH, "the fencing token of its one lock"),
    (
        "FENCEPOST_TOKENS",
        &["run"],
        "of several locks, a line for each, TOKEN NAME",
    ),
    (
        "FENCEPOST_TOKEN_NAME",
        BOTH,
        "the token of each lock under its name, those of an outer run included; - is written __, and other \
         bytes than letters and digits as _ and two hexadecimal digits",
    ),
    (
        "FENCEPOST_SLOT",
        &["run"],
        "with --slots, the number of its slot",
    ),
    (
        "FENCEPOST_ELECT_VALUE",
        &["elect"],
        "the value that `fencepost leader` shows",
    ),
    (
        "FENCEPOST_DEADLINE",
        BOTH,
        "milliseconds since 1970, as of its start",
    ),
    (
        "FENCEPOST_SESSION",
        BOTH,
        "the session that holds the lock; a fencepost that the command runs belongs to the same session",
    ),
    (
        "FENCEPOST_REASON",
        BOTH,
        "if it is that of --on-lost, how the lock was lost",
    ),
];

const BOTH: &[&str] = &["run", "elect"];

pub(crate) fn completions(job: &CompletionsJob) -> ExitCode {
    let mut text = Vec::new();
    clap_complete::generate(job.shell, &mut definition(), PROGRAM, &mut text);
    let text = String::from_utf8_lossy(&text);
    voice::print(&with_names(job.shell, &text))
}

/// The script, and beside commands and options the names of locks.
fn with_names(shell: Shell, script: &str) -> String {
    let named = NAMED.join("|");
    match shell {
        Shell::Bash => format!(
            r#"{script}
# The name of a lock is the first word after its command that is no option. Others choose the names: they are
# compared and quoted, never expanded (`compgen -W` would expand them).
_fencepost_or_names() {{
    _fencepost "$@"
    local cur="${{COMP_WORDS[COMP_CWORD]}}" name quoted
    case "${{COMP_WORDS[1]}}" in
    {named})
        # After an opening quote, %q would quote twice.
        if [[ $COMP_CWORD -ge 2 && $cur != [-\'\"]* && ${{COMP_WORDS[COMP_CWORD - 1]}} != --[a-z]* ]]; then
            while IFS= read -r name; do
                # It would be read as an option.
                [[ $name != -* ]] || continue
                printf -v quoted %q "$name"
                if [[ $name == "$cur"* || $quoted == "$cur"* ]]; then
                    COMPREPLY+=("$quoted")
                fi
            done < <(fencepost list --all --names 2>/dev/null)
        fi
        ;;
    esac
}}
complete -F _fencepost_or_names -o bashdefault -o default fencepost
"#
        ),
        Shell::Zsh => {
            // What stands there completes files.
            let lines = script.lines().map(|line| {
                let is_name = [":name -- ", ":names -- ", "*::names -- ", ":NAME -- "]
                    .iter()
                    .any(|start| line.trim_start_matches('\'').starts_with(start));
                match is_name {
                    true => line.replace(":_default'", ":_fencepost_names'"),
                    false => line.to_owned(),
                }
            });
            let lines: Vec<_> = lines.collect();
            let script = lines.join("\n");
            let names = r#"
# Others choose the names of locks: compadd quotes them. One that begins with a dash would be read as an option.
_fencepost_names() {
    local -a names
    names=("${(@f)$(fencepost list --all --names 2>/dev/null)}")
    names=("${(@)names:#(|-*)}")
    compadd -a names
}
"#;
            // Functions have to be there before the last line calls the completion.
            match script.split_once("\n\n_fencepost() {") {
                Some((head, rest)) => format!("{head}\n{names}\n_fencepost() {{{rest}\n"),
                None => format!("{script}\n{names}"),
            }
        }
        // fish quotes what a command substitution yields. A name that begins with a dash would be read as an option.
        Shell::Fish => format!(
            "{script}
complete -c fencepost -n \"__fish_seen_subcommand_from {}\" -f -a \"(fencepost list --all --names \
             2>/dev/null | string match -v -- '-*')\" -d lock\n",
            NAMED.join(" ")
        ),
        _ => script.to_owned(),
    }
}

pub(crate) fn man(job: &ManJob) -> Result<ExitCode, Failure> {
    let directory = job.directory.display();
    let fault = |error: io::Error| {
        let message = format!("cannot write man pages into {directory}: {error}");
        Failure::new(Exit::CannotCreate, message)
    };
    fs::create_dir_all(&job.directory).map_err(fault)?;
    let mut all = definition();
    all.build();
    let commands = all
        .get_subcommands()
        .filter(|command| command.get_name() != "help");
    let pages = commands.map(|command| {
        // `fencepost-run` for the page's name, as `man fencepost run` looks for it.
        let name = format!("{PROGRAM}-{}", command.get_name());
        let typed = format!("{PROGRAM} {}", command.get_name());
        let page = command.clone().name(name.clone()).bin_name(typed);
        (name, command.get_name().to_owned(), page)
    });
    let mut pages: Vec<(String, String, Command)> = pages.collect();
    pages.insert(0, (PROGRAM.to_owned(), PROGRAM.to_owned(), all.clone()));
    let names: Vec<_> = pages.iter().map(|(name, ..)| name.clone()).collect();
    for (name, command, page) in pages {
        let text = render(&name, &command, page, &names).map_err(fault)?;
        fs::write(job.directory.join(format!("{name}.1")), text).map_err(fault)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn render(name: &str, command: &str, page: Command, names: &[String]) -> io::Result<Vec<u8>> {
    let (variables, aliases) = (environment(&page), aliases(&page));
    let has_commands = page.has_subcommands();
    let uses_service = page
        .get_arguments()
        .any(|arg| arg.get_long() == Some("service-token-file"));
    let man = Man::new(page);
    let mut out = Vec::new();
    man.render_title(&mut out)?;
    man.render_name_section(&mut out)?;
    man.render_synopsis_section(&mut out)?;
    man.render_description_section(&mut out)?;
    man.render_options_section(&mut out)?;
    if !aliases.is_empty() {
        paragraph(&mut out, &format!("Aliases: {}.", aliases.join("; ")))?;
    }
    if has_commands {
        man.render_subcommands_section(&mut out)?;
    }
    section(&mut out, "EXIT STATUS")?;
    for (code, when) in exits(command) {
        item(&mut out, code, when)?;
    }
    section(&mut out, "ENVIRONMENT")?;
    for (variable, what) in &variables {
        item(&mut out, variable, what)?;
    }
    for (variable, commands, what) in TOLD {
        if commands.contains(&command) {
            item(&mut out, variable, &format!("set for the command: {what}"))?;
        }
    }
    if uses_service {
        let what = "the token for a lock service, unless --service-token-file is given";
        item(&mut out, "FENCEPOST_SERVICE_TOKEN", what)?;
    }
    let what = "another file in place of /etc/fencepost/config.toml; empty for none";
    item(&mut out, config::SYSTEM_VARIABLE, what)?;
    let what = "where the config file and the default store are";
    item(&mut out, "XDG_CONFIG_HOME, XDG_STATE_HOME", what)?;
    item(
        &mut out,
        "NO_COLOR, COLUMNS",
        "no colours; the width where there is no terminal",
    )?;
    section(&mut out, "FILES")?;
    item(
        &mut out,
        "~/.config/fencepost/config.toml",
        "options by their long names",
    )?;
    item(
        &mut out,
        config::SYSTEM,
        "the same for all users; the user's file beats it",
    )?;
    let what = "the default store, for all processes of one user on one machine";
    item(&mut out, "~/.local/state/fencepost/locks.db", what)?;
    section(&mut out, "EXAMPLES")?;
    for (what, line) in examples(command) {
        item(&mut out, line, what)?;
    }
    paragraph(&mut out, TIMES)?;
    section(&mut out, "SEE ALSO")?;
    let others = names.iter().filter(|other| *other != name);
    let others: Vec<_> = others.map(|other| format!("{}(1)", roff(other))).collect();
    writeln!(out, "{}, flock(1)", others.join(", "))?;
    Ok(out)
}

/// The variables of a command's options, and what they set.
fn environment(page: &Command) -> Vec<(String, String)> {
    let args = page.get_arguments().filter(|arg| !arg.is_hide_set());
    let variables = args.filter_map(|arg| {
        let (variable, long) = (arg.get_env()?, arg.get_long()?);
        Some((variable.display().to_string(), format!("sets --{long}")))
    });
    variables.collect()
}

/// Other names of the options, which the section above it does not have.
fn aliases(page: &Command) -> Vec<String> {
    let aliases = page.get_arguments().filter_map(|arg| {
        let names = arg.get_visible_aliases()?.into_iter();
        let names: Vec<_> = names.map(|name| format!("--{name}")).collect();
        let long = arg.get_long().filter(|_| !names.is_empty())?;
        Some(format!("{} for --{long}", names.join(", ")))
    });
    aliases.collect()
}

fn section(out: &mut Vec<u8>, title: &str) -> io::Result<()> {
    writeln!(out, ".SH \"{title}\"")
}

fn item(out: &mut Vec<u8>, term: &str, what: &str) -> io::Result<()> {
    writeln!(out, ".TP\n\\fB{}\\fR\n{}", roff(term), roff(what))
}

fn paragraph(out: &mut Vec<u8>, text: &str) -> io::Result<()> {
    writeln!(out, ".PP\n{}", roff(text))
}

/// As roff reads it back: a dash that can be copied, and no line that looks like a request.
fn roff(text: &str) -> String {
    let text = text.replace('\\', "\\\\").replace('-', "\\-");
    match text.starts_with(['.', '\'']) {
        true => format!("\\&{text}"),
        false => text,
    }
}
