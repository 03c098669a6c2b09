//! Whom to trust, and who we are, for servers that are reached over TLS.
//!
//! What is typed here must never be passed over: a server that is reached without TLS would see the
//! password all the same.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use clap::parser::ValueSource;
use clap::{ArgMatches, Args};
use fencepost::Error;
use fencepost::internals::redis::TlsOptions;

use crate::exit::Failure;
use crate::fault;
use crate::store::Store;

/// The most bytes of a file of certificates: what is longer is no such file.
const MOST_BYTES: u64 = 1 << 20;

const CA: &str = "tls-ca";
const CERT: &str = "tls-cert";
const KEY: &str = "tls-key";

/// A certificate and its key.
type Identity = (Vec<u8>, Vec<u8>);

// No doc comment: it would become the help of the whole command.
#[derive(Args)]
#[command(next_help_heading = "TLS (rediss:// and https://)")]
pub(super) struct RawTls {
    /// CA certificates (PEM) to verify the servers with [default: the system's]
    #[arg(long = CA, value_name = "FILE", id = CA)]
    #[arg(env = "FENCEPOST_TLS_CA", hide_env_values = true)]
    ca: Option<PathBuf>,

    /// Client certificate (PEM) for mutual TLS
    #[arg(long = CERT, value_name = "FILE", id = CERT)]
    #[arg(env = "FENCEPOST_TLS_CERT", hide_env_values = true)]
    cert: Option<PathBuf>,

    /// Private key (PEM) of --tls-cert; may be in the same file
    #[arg(long = KEY, value_name = "FILE", id = KEY)]
    #[arg(env = "FENCEPOST_TLS_KEY", hide_env_values = true)]
    key: Option<PathBuf>,
}

impl RawTls {
    pub(super) fn checked(
        self,
        store: &Store,
        matches: &ArgMatches,
    ) -> Result<TlsOptions, Failure> {
        if !store.has_tls() {
            // In the environment and in the config file they may be for another store.
            return match [CA, CERT, KEY].into_iter().find(|id| is_typed(matches, id)) {
                None => Ok(TlsOptions::default()),
                Some(option) => Err(Failure::usage(format!(
                    "--{option} is for TLS, and no URL of --store begins with rediss:// or \
                     https://; write rediss://HOST"
                ))),
            };
        }
        Ok(TlsOptions {
            ca_pem: self.ca.as_deref().map(authorities).transpose()?,
            client_pem: client(self.cert.as_deref(), self.key.as_deref())?,
        })
    }
}

fn is_typed(matches: &ArgMatches, id: &str) -> bool {
    matches.value_source(id) == Some(ValueSource::CommandLine)
}

fn authorities(path: &Path) -> Result<Vec<u8>, Failure> {
    let pem = read(CA, path)?;
    let options = TlsOptions {
        ca_pem: Some(pem.clone()),
        client_pem: None,
    };
    let checked = options.check();
    checked.map_err(|error| refused(&format!("--{CA} {}", path.display()), &error))?;
    Ok(pem)
}

fn client(cert: Option<&Path>, key: Option<&Path>) -> Result<Option<Identity>, Failure> {
    let missing = |given, missing| {
        Failure::usage(format!(
            "--{given} is of use with --{missing} only; give --{missing} FILE, too: it may be the \
             same file"
        ))
    };
    let (cert, key) = match (cert, key) {
        (None, None) => return Ok(None),
        (Some(cert), Some(key)) => (cert, key),
        (Some(_), None) => return Err(missing(CERT, KEY)),
        (None, Some(_)) => return Err(missing(KEY, CERT)),
    };
    let pem = (read(CERT, cert)?, read(KEY, key)?);
    let options = TlsOptions {
        ca_pem: None,
        client_pem: Some(pem.clone()),
    };
    let words = format!("--{CERT} {} --{KEY} {}", cert.display(), key.display());
    options.check().map_err(|error| refused(&words, &error))?;
    Ok(Some(pem))
}

pub(super) fn read(option: &str, path: &Path) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| {
        let mut beginning = file.take(MOST_BYTES + 1);
        beginning.read_to_end(&mut bytes)
    });
    let path = path.display();
    match read {
        Err(error) => Err(Failure::usage(format!(
            "--{option} {path} cannot be read: {error}; give the path of a file that can be read"
        ))),
        Ok(length) if length as u64 > MOST_BYTES => Err(Failure::usage(format!(
            "--{option} {path} cannot be used: it is longer than 1 MiB"
        ))),
        Ok(_) => Ok(bytes),
    }
}

/// What the library says of the files that are named by these words.
fn refused(words: &str, error: &Error) -> Failure {
    let why = fault::reason(error);
    Failure::usage(format!("{words} cannot be used: {why}"))
}
