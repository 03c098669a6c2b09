//! [`Config`]: the config file: what is to hold where neither an argument nor the environment says
//! otherwise.
//!
//! A key that no option has must never be passed over: a mistyped `stroe` would lock elsewhere.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Command;
use toml::{Table, Value};

use crate::exit::Failure;

/// Options that are about one call and have no place in a file.
const ONCE: [&str; 11] = [
    "config", "value", "token", "yes", "free", "for-pid", "export", "svg", "slots", "shared",
    "watch",
];

/// What a config file says: options by their long names.
#[derive(Debug)]
pub(crate) struct Config {
    path: PathBuf,
    options: BTreeMap<String, String>,
}

/// Reads the file that the user named, which has to be there, or the usual one, if it is.
pub(crate) fn find(named: Option<&Path>) -> Result<Option<Config>, Failure> {
    let Some(path) = named.map(Path::to_owned).or_else(usual) else {
        return Ok(None);
    };
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if named.is_none() && error.kind() == std::io::ErrorKind::NotFound => {
            return Ok(None);
        }
        Err(error) => {
            let path = path.display();
            let message = format!("the config file {path} cannot be read: {error}");
            return Err(Failure::usage(message));
        }
    };
    Config::read(path, &text).map(Some)
}

fn usual() -> Option<PathBuf> {
    // The XDG specification: a path that is not absolute is to be ignored.
    let absolute = |name| {
        let path = std::env::var_os(name).map(PathBuf::from);
        path.filter(|path| path.is_absolute())
    };
    let home = absolute("XDG_CONFIG_HOME").or_else(|| Some(absolute("HOME")?.join(".config")));
    Some(home?.join("fencepost").join("config.toml"))
}

impl Config {
    fn read(path: PathBuf, text: &str) -> Result<Self, Failure> {
        let mut config = Self {
            path,
            options: BTreeMap::new(),
        };
        let table: Table = text
            .parse()
            .map_err(|error: toml::de::Error| config.blame(error.message()))?;
        for (key, value) in table {
            let value = as_text(&value).ok_or_else(|| {
                config.blame(&format!(
                    "the value of {key} is neither a string, a number, true or false, nor a list \
                     of strings"
                ))
            })?;
            config.options.insert(key, value);
        }
        Ok(config)
    }

    /// The same definition, with what the file says as the defaults.
    pub(crate) fn defaults_of(&self, mut definition: Command) -> Result<Command, Failure> {
        for key in self.options.keys() {
            let known = is_option(&definition, key);
            if !known || ONCE.contains(&key.as_str()) {
                return Err(self.blame(&format!("there is no option {key:?} to set")));
            }
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
        for (key, value) in &self.options {
            let arg = command
                .get_arguments()
                .find(|arg| arg.get_long() == Some(key));
            if let Some(id) = arg.map(|arg| arg.get_id().clone()) {
                command = command.mut_arg(id, |arg| arg.default_value(value.clone()));
            }
        }
        command
    }

    /// An error that is the file's.
    pub(crate) fn blame(&self, why: &str) -> Failure {
        let path = self.path.display();
        // What the TOML parser says may have several lines.
        let why: Vec<_> = why.lines().map(str::trim).collect();
        let why = why.join(" ");
        Failure::usage(format!("the config file {path} cannot be used: {why}"))
    }
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
