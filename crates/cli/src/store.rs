//! [`Store`]: where the locks are.

use std::path::PathBuf;

use etcetera::{BaseStrategy, base_strategy::Xdg};
use fencepost::internals::split_urls;
use fencepost::{Builder, Client};

use crate::exit::Failure;

const SCHEMES: &str = "--store must begin with file:, redis://, rediss://, redis+unix://, redis+sentinel://, \
                       redis+cluster:// or https://";

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
        match split_urls(&urls).iter().find_map(|url| misuse(url)) {
            Some(why) => Err(Failure::usage(why)),
            None => Ok(Self::Urls(urls)),
        }
    }

    /// Whether any of it is reached over TLS.
    pub(crate) fn has_tls(&self) -> bool {
        match self {
            Self::Urls(urls) => split_urls(urls).iter().any(|url| {
                let scheme = url.split([':', '+']).next();
                matches!(scheme, Some("rediss" | "valkeys" | "https"))
            }),
            Self::File(_) => false,
        }
    }

    /// Whether it is a lock service.
    pub(crate) fn is_service(&self) -> bool {
        match self {
            Self::Urls(urls) => split_urls(urls)
                .iter()
                .any(|url| url.starts_with("http:") || url.starts_with("https:")),
            Self::File(_) => false,
        }
    }

    /// The files that are not there yet, as nodes are named: whoever uses one creates it.
    pub(crate) fn missing_files(&self) -> Vec<String> {
        let paths: Vec<PathBuf> = match self {
            Self::File(path) => vec![path.clone()],
            Self::Urls(urls) => split_urls(urls)
                .iter()
                .filter_map(|url| file(url))
                .collect(),
        };
        let missing = paths.iter().filter(|path| !path.exists());
        missing
            .map(|path| format!("file:{}", path.display()))
            .collect()
    }

    fn default_file() -> Result<Self, Failure> {
        match Xdg::new().ok().and_then(|home| home.state_dir()) {
            Some(state) => Ok(Self::File(state.join("fencepost").join("locks.db"))),
            None => Err(Failure::usage(
                "no home directory to keep the locks in; set HOME, or give --store file:PATH",
            )),
        }
    }

    /// A client of it, to set up further.
    pub(crate) fn builder(&self) -> Builder {
        // All runtimes here have it.
        let builder = Client::builder().enable_io();
        match self {
            Self::Urls(urls) => builder.url(urls),
            Self::File(path) => builder.file(path),
        }
    }
}

/// The path of a file: without the options behind it.
fn file(url: &str) -> Option<PathBuf> {
    let path = url.strip_prefix("file:")?;
    let path = path.strip_prefix("//").unwrap_or(path);
    path.split('?').next().map(PathBuf::from)
}

/// What is wrong with a URL whose beginning says so. It may have a password in it, so that nothing is
/// shown of it but what can only be a path.
fn misuse(url: &str) -> Option<String> {
    let beginning = url.split_once(':').map(|(scheme, _)| scheme);
    match beginning {
        Some(
            "file" | "redis" | "rediss" | "redis+unix" | "valkey" | "valkeys" | "valkey+unix"
            | "unix" | "redis+sentinel" | "rediss+sentinel" | "valkey+sentinel"
            | "valkeys+sentinel" | "redis+cluster" | "rediss+cluster" | "valkey+cluster"
            | "valkeys+cluster" | "http" | "https",
        ) => None,
        Some("memory") => Some(
            "--store memory: excludes no other process, because each has its own; use file:PATH or \
             redis://HOST"
                .into(),
        ),
        _ if url.starts_with(['/', '.', '~']) => Some(format!(
            "{SCHEMES}; for a file write file:{url}"
        )),
        _ => Some(format!(
            "{SCHEMES}; write redis://HOST:PORT for a server, and separate several by commas"
        )),
    }
}
