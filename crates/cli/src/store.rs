//! [`Store`]: where the locks are.

use std::env;
use std::path::PathBuf;

use fencepost::{Builder, Client};

use crate::exit::Failure;

/// Where the locks are.
#[derive(Clone, Debug)]
pub(crate) enum Store {
    /// One URL, or several, separated by commas.
    Urls(String),
    /// A file: the default, in the user's state directory.
    File(PathBuf),
}

impl Store {
    /// What the user asked for, or the default.
    pub(crate) fn checked(urls: Option<String>) -> Result<Self, Failure> {
        let Some(urls) = urls else {
            return Self::default_file();
        };
        match urls.split(',').find_map(|url| misuse(url.trim())) {
            Some(why) => Err(Failure::usage(why)),
            None => Ok(Self::Urls(urls)),
        }
    }

    /// Whether any of it is reached over TLS.
    pub(crate) fn has_tls(&self) -> bool {
        match self {
            Self::Urls(urls) => urls.split(',').any(|url| {
                let url = url.trim();
                url.starts_with("rediss:") || url.starts_with("valkeys:")
            }),
            Self::File(_) => false,
        }
    }

    fn default_file() -> Result<Self, Failure> {
        // The XDG specification: a path that is not absolute is to be ignored.
        let absolute = |name| {
            env::var_os(name)
                .map(PathBuf::from)
                .filter(|p| p.is_absolute())
        };
        let state = absolute("XDG_STATE_HOME")
            .or_else(|| Some(absolute("HOME")?.join(".local").join("state")));
        match state {
            Some(state) => Ok(Self::File(state.join("fencepost").join("locks.db"))),
            None => Err(Failure::usage(
                "there is no home directory to keep the locks in; \
                 set HOME, or say where they are with --store file:PATH",
            )),
        }
    }

    /// A client of it, to set up further.
    pub(crate) fn builder(&self) -> Builder {
        match self {
            Self::Urls(urls) => Client::builder().url(urls),
            Self::File(path) => Client::builder().file(path),
        }
    }
}

/// What is wrong with a URL whose beginning says so. It may have a password in it, so that nothing is
/// shown of it but what can only be a path.
fn misuse(url: &str) -> Option<String> {
    let beginning = url.split_once(':').map(|(scheme, _)| scheme);
    match beginning {
        Some(
            "file" | "redis" | "rediss" | "redis+unix" | "valkey" | "valkeys" | "valkey+unix"
            | "unix",
        ) => None,
        Some("memory") => Some(
            "the store memory: is seen by one process only, so it would exclude nobody; use \
             file:PATH or redis://HOST"
                .into(),
        ),
        _ if url.starts_with(['/', '.', '~']) => Some(format!(
            "a store must begin with file:, redis://, rediss:// or redis+unix://; for a file write \
             file:{url}"
        )),
        _ => Some(
            "a store must begin with file:, redis://, rediss:// or redis+unix://; write \
             redis://HOST:PORT for a server, and several with commas between them"
                .into(),
        ),
    }
}
