//! [`Config`]: the config files: what is to hold where neither an argument nor the environment says
//! otherwise. The user's file beats that of the system.
//!
//! A key that no option has must never be passed over: a mistyped `stroe` would lock elsewhere.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::Command;
use etcetera::{BaseStrategy, base_strategy::Xdg};
use toml::de::DeTable;
use toml::{Table, Value};

use crate::exit::Failure;

/// The file for all users.
pub(crate) const SYSTEM: &str = "/etc/fencepost/config.toml";
/// Another one in its place; empty for none.
pub(crate) const SYSTEM_VARIABLE: &str = "FENCEPOST_SYSTEM_CONFIG";

/// Options that are about one call and have no place in a file. Those that assert something (`fresh`, `yes`) would
/// assert it of every call.
const ONCE: [&str; 18] = [
    "config",
    "value",
    "token",
    "yes",
    "free",
    "overwrite-foreign",
    "reason",
    "fresh",
    "durable",
    "replace",
    "for-pid",
    "export",
    "names",
    "svg",
    "slots",
    "shared",
    "exclusive",
    "watch",
];

/// What the config files say: options by their long names.
#[derive(Debug, Default)]
pub(crate) struct Config {
    options: BTreeMap<String, Setting>,
}

/// What a file says of an option.
#[derive(Debug)]
struct Setting {
    value: String,
    path: PathBuf,
    /// From 1.
    line: usize,
}

/// Reads the file that the user named, which has to be there, or the usual one, if it is, and below
/// it that of the system, if it is there.
pub(crate) fn find(named: Option<&Path>) -> Result<Config, Failure> {
    let mut config = Config::default();
    let system = std::env::var_os(SYSTEM_VARIABLE).unwrap_or_else(|| SYSTEM.into());
    if system != OsString::new() {
        config.read(Path::new(&system), false)?;
    }
    match named {
        Some(path) => config.read(path, true)?,
        None => {
            if let Some(path) = usual() {
                config.read(&path, false)?;
            }
        }
    }
    Ok(config)
}

fn usual() -> Option<PathBuf> {
    let home = Xdg::new().ok()?;
    Some(home.config_dir().join("fencepost").join("config.toml"))
}

impl Config {
    /// Adds what the file says, which beats what was there before.
    fn read(&mut self, path: &Path, must_be_there: bool) -> Result<(), Failure> {
        use std::io::ErrorKind::{NotADirectory, NotFound};
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if !must_be_there && matches!(error.kind(), NotFound | NotADirectory) => {
                return Ok(());
            }
            Err(error) => {
                let path = path.display();
                let message = format!("config file {path} cannot be read: {error}");
                return Err(Failure::usage(message));
            }
        };
        let table = text.parse::<Table>();
        let table = table.map_err(|error| {
            let line = error.span().map_or(1, |span| line_of(&text, span.start));
            blame(path, line, error.message())
        })?;
        let lines = lines(&text);
        for (key, value) in table {
            let line = lines.get(&key).copied().unwrap_or(1);
            let value = as_text(&value).ok_or_else(|| {
                blame(
                    path,
                    line,
                    &format!(
                        "the value of {key} must be a string, a number, true or false, or a list \
                         of strings"
                    ),
                )
            })?;
            let path = path.to_owned();
            self.options.insert(key, Setting { value, path, line });
        }
        Ok(())
    }

    /// The same definition, with what the files say as the defaults.
    pub(crate) fn defaults_of(&self, mut definition: Command) -> Result<Command, Failure> {
        for (key, setting) in &self.options {
            let why = if ONCE.contains(&key.as_str()) {
                format!("option {key:?} belongs to a single call; give it on the command line")
            } else if !is_option(&definition, key) {
                format!("there is no option {key:?} to set")
            } else {
                continue;
            };
            return Err(blame(&setting.path, setting.line, &why));
        }
        let names: Vec<_> = definition
            .get_subcommands()
            .map(|command| command.get_name().to_owned())
            .collect();
        for name in names {
            definition = definition.mut_subcommand(name, |command| self.of_command(command));
        }
        Ok(definition)
    }

    fn of_command(&self, mut command: Command) -> Command {
        for (key, setting) in &self.options {
            let arg = command
                .get_arguments()
                .find(|arg| arg.get_long() == Some(key));
            if let Some(id) = arg.map(|arg| arg.get_id().clone()) {
                command = command.mut_arg(id, |arg| arg.default_value(setting.value.clone()));
            }
        }
        command
    }

    /// An error in what the files say of that option.
    pub(crate) fn blame(&self, option: Option<&str>, why: &str) -> Failure {
        match option.and_then(|option| self.options.get(option)) {
            Some(Setting { path, line, .. }) => blame(path, *line, why),
            None => Failure::usage(format!("the config file cannot be used: {why}")),
        }
    }

    /// Where a file says something of that option.
    pub(crate) fn origin(&self, option: &str) -> Option<String> {
        let Setting { path, line, .. } = self.options.get(option)?;
        Some(format!("{}, line {line}", path.display()))
    }
}

/// An error that is that line's.
fn blame(path: &Path, line: usize, why: &str) -> Failure {
    let path = path.display();
    // What the TOML parser says may have several lines.
    let why: Vec<_> = why.lines().map(str::trim).collect();
    let why = why.join(" ");
    Failure::usage(format!("config file {path}, line {line}: {why}"))
}

/// The line of each key.
fn lines(text: &str) -> BTreeMap<String, usize> {
    let Ok(table) = DeTable::parse(text) else {
        return BTreeMap::new();
    };
    let keys = table.get_ref().keys();
    let keys = keys.map(|key| (key.get_ref().to_string(), line_of(text, key.span().start)));
    keys.collect()
}

fn line_of(text: &str, at: usize) -> usize {
    let before = text.as_bytes().iter().take(at);
    before.filter(|byte| **byte == b'\n').count() + 1
}

/// Flags among them.
fn is_option(definition: &Command, key: &str) -> bool {
    let mut commands = definition.get_subcommands();
    commands.any(|command| {
        let mut args = command.get_arguments();
        args.any(|arg| arg.get_long() == Some(key) && arg.get_env().is_some())
    })
}

/// The value as it would be typed.
fn as_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Integer(number) => Some(number.to_string()),
        Value::Boolean(flag) => Some(flag.to_string()),
        Value::Array(items) => {
            let items = items.iter().map(|item| item.as_str());
            Some(items.collect::<Option<Vec<_>>>()?.join(","))
        }
        Value::Float(_) | Value::Datetime(_) | Value::Table(_) => None,
    }
}
