//! A lock acquired, extended and released by hand.

use std::path::PathBuf;
use std::time::Duration;

use clap::parser::ValueSource;
use clap::{ArgMatches, Args};
use fencepost::{DetachedLock, FencingToken, LockName};

use super::claim::{Claim, RawClaim, checked_ttl};
use super::place::{Place, RawPlace};
use super::{RawJson, flag};
use crate::duration;
use crate::exit::{Exit, Failure};
use crate::fault;
use crate::holder::ForPid;
use crate::names::{Names, suffix, typed};
use crate::target::Target;
use crate::voice::Voice;

/// Acquire a lock for a script
///
/// Prints the lock's value and its fencing token, which `extend` and `release` need. The lock
/// is not renewed: it expires after its TTL unless it is extended. In a file it also ends with the process
/// that it was acquired for, the script that runs this command; see --for-pid. For a command that
/// needs a lock while it runs, use `run`.
#[derive(Args)]
pub(super) struct RawAcquire {
    /// Name of the lock
    #[arg(value_parser = Names::parse_one)]
    name: LockName,

    #[command(flatten)]
    claim: RawClaim,

    #[command(flatten)]
    holder: RawHolder,

    /// Print `export` lines for a shell: FENCEPOST_LOCK, FENCEPOST_VALUE, FENCEPOST_TOKEN,
    /// FENCEPOST_DEADLINE, and for scripts with several locks FENCEPOST_VALUE_NAME and
    /// FENCEPOST_TOKEN_NAME
    #[arg(long, value_parser = flag)]
    #[arg(env = "FENCEPOST_EXPORT", hide_env_values = true)]
    #[arg(help_heading = "Output")]
    export: bool,

    #[command(flatten)]
    json: RawJson,

    #[command(flatten)]
    place: RawPlace,
}

#[derive(Args)]
struct RawHolder {
    /// In a file, release the lock when this process ends; `none`: only the TTL ends it, as on Redis
    /// [default: the script that runs this command]
    #[arg(long, value_name = "PID", value_parser = ForPid::parse)]
    #[arg(env = "FENCEPOST_FOR_PID", hide_env_values = true)]
    #[arg(help_heading = "Holding")]
    for_pid: Option<ForPid>,
}

// What `acquire` has printed.
#[derive(Args)]
struct RawReceipt {
    /// Name of the lock
    #[arg(value_parser = Names::parse_one)]
    name: LockName,

    /// Value that `acquire` printed [default: FENCEPOST_VALUE_NAME]
    #[arg(long, env = VALUE, hide_env_values = true)]
    value: Option<String>,

    /// Fencing token that `acquire` printed; `release` does not need it [default:
    /// FENCEPOST_TOKEN_NAME]
    #[arg(long, env = TOKEN, hide_env_values = true)]
    token: Option<String>,
}

/// What `acquire --export` sets for the last lock that a script acquired.
const VALUE: &str = "FENCEPOST_VALUE";
const TOKEN: &str = "FENCEPOST_TOKEN";
/// Which lock that was.
const LOCK: &str = "FENCEPOST_LOCK";

/// Extend a lock that `acquire` acquired by another TTL
///
/// Exits with 0 if a majority of the nodes still had it, with 79 if it is lost, and with 69 if too few
/// nodes answered: then it may or may not be ours until its old deadline.
#[derive(Args)]
pub(super) struct RawExtend {
    #[command(flatten)]
    receipt: RawReceipt,

    /// New TTL, counted from now
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration::parse)]
    #[arg(env = "FENCEPOST_TTL", hide_env_values = true)]
    ttl: Duration,

    /// In a file, release the lock when this process ends [default: as it was]
    #[arg(long, value_name = "PID", value_parser = ForPid::parse)]
    #[arg(env = "FENCEPOST_FOR_PID", hide_env_values = true)]
    for_pid: Option<ForPid>,

    #[command(flatten)]
    json: RawJson,

    #[command(flatten)]
    place: RawPlace,
}

/// Release a lock that `acquire` acquired
///
/// Exits with 0 if a majority of the nodes had it, with 79 if it was lost before, and with 69 if too
/// few nodes answered: then it expires with its TTL.
#[derive(Args)]
pub(super) struct RawRelease {
    #[command(flatten)]
    receipt: RawReceipt,

    #[command(flatten)]
    json: RawJson,

    #[command(flatten)]
    place: RawPlace,
}

/// Take a lock away from its holder
///
/// For operators, when a holder hangs. The old holder notices at its next renewal and may go on working
/// until then: only a resource that checks the fencing token is protected from it. The lock is then
/// held by the caller, as after `acquire`; --free releases it at once, for the next waiter. It refuses a
/// free lock (exit code 1), and a key that fencepost did not write, unless --overwrite-foreign is given.
/// Each steal is logged on stderr, and in the --audit file.
#[derive(Args)]
pub(super) struct RawSteal {
    /// Name of the lock
    #[arg(value_parser = Names::parse_one)]
    name: LockName,

    /// Do not ask for confirmation; required without a terminal
    // Neither from the environment nor from a config file, as --overwrite-foreign: said for this steal, not for all.
    #[arg(short, long)]
    yes: bool,

    /// Release the lock at once
    #[arg(long, value_parser = flag)]
    #[arg(env = "FENCEPOST_FREE", hide_env_values = true)]
    free: bool,

    /// Overwrite the key even if it was not written by fencepost: a lock of another client, or data of
    /// an application
    #[arg(long)]
    overwrite_foreign: bool,

    /// Reason, recorded in the audit line and, with a lock service, in its log
    // Not FENCEPOST_REASON, which tells the command of --on-lost why a lock was lost.
    #[arg(long, value_name = "TEXT")]
    #[arg(env = "FENCEPOST_STEAL_REASON", hide_env_values = true)]
    reason: Option<String>,

    /// Append a line of JSON for the steal to this file; if it cannot be opened, nothing is stolen
    #[arg(long, value_name = "FILE")]
    #[arg(env = "FENCEPOST_AUDIT", hide_env_values = true)]
    audit: Option<PathBuf>,

    /// Lock TTL
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration::parse)]
    #[arg(env = "FENCEPOST_TTL", hide_env_values = true)]
    ttl: Duration,

    #[command(flatten)]
    holder: RawHolder,

    #[command(flatten)]
    json: RawJson,

    #[command(flatten)]
    place: RawPlace,
}

/// How a lock that was taken is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Table,
    Export,
    Json,
}

impl Form {
    fn of(json: &RawJson) -> Self {
        match json.json {
            true => Self::Json,
            false => Self::Table,
        }
    }
}

/// A lock for a script.
pub(crate) struct AcquireJob {
    pub(crate) target: Target,
    pub(crate) place: Place,
    pub(crate) claim: Claim,
    pub(crate) holder: ForPid,
    pub(crate) form: Form,
    pub(crate) voice: Voice,
}

/// A lock that is to be kept.
pub(crate) struct ExtendJob {
    pub(crate) receipt: DetachedLock,
    pub(crate) ttl: Duration,
    pub(crate) holder: ForPid,
    pub(crate) place: Place,
    pub(crate) form: Form,
}

/// A lock to release.
pub(crate) struct ReleaseJob {
    pub(crate) receipt: DetachedLock,
    pub(crate) place: Place,
    pub(crate) json: bool,
}

/// A lock that is to be taken from its holder.
pub(crate) struct StealJob {
    pub(crate) name: LockName,
    pub(crate) place: Place,
    pub(crate) yes: bool,
    pub(crate) free: bool,
    /// Whether what is no lock of ours may be overwritten.
    pub(crate) overwrite_foreign: bool,
    /// Why, if anybody said so.
    pub(crate) reason: Option<String>,
    /// Where each steal is logged.
    pub(crate) audit: Option<PathBuf>,
    pub(crate) ttl: Duration,
    pub(crate) holder: ForPid,
    pub(crate) form: Form,
}

impl RawAcquire {
    pub(super) fn checked(self, matches: &ArgMatches) -> Result<AcquireJob, Failure> {
        let form = match (self.export, Form::of(&self.json)) {
            (true, Form::Json) => {
                return Err(Failure::usage(
                    "--export and --json cannot be used together",
                ));
            }
            (true, _) => Form::Export,
            (false, form) => form,
        };
        Ok(AcquireJob {
            claim: self.claim.checked(matches)?,
            target: Target::One(self.name),
            place: self.place.checked(matches)?,
            holder: self.holder.checked()?,
            form,
            voice: Voice::of(form == Form::Json, self.claim.quiet),
        })
    }
}

impl RawHolder {
    fn checked(self) -> Result<ForPid, Failure> {
        match self.for_pid {
            Some(holder) => holder.checked(),
            None => Ok(ForPid::of_the_script()),
        }
    }
}

impl RawReceipt {
    fn checked(self, matches: &ArgMatches, needs_token: bool) -> Result<DetachedLock, Failure> {
        let (name, of_name) = (&self.name, suffix(self.name.as_str()));
        // What was printed for another lock must not be taken for this one's.
        let last = std::env::var(LOCK).ok();
        let is_of_name = last.as_deref().is_none_or(|last| last == typed([name]));
        let find = |id, given: Option<String>, variable| {
            let is_typed = matches.value_source(id) == Some(ValueSource::CommandLine);
            let of_name = || std::env::var(format!("{variable}_{of_name}")).ok();
            match is_typed {
                true => given,
                false => of_name().or(given.filter(|_| is_of_name)),
            }
        };
        let missing = |what: &str| {
            let of_last = last.as_ref().filter(|_| !is_of_name);
            let of_last = of_last.map(|last| {
                format!(
                    "; FENCEPOST_{} is that of lock \"{last}\"",
                    what.to_ascii_uppercase()
                )
            });
            Failure::usage(format!(
                "no {what} for lock \"{name}\": give --{what} as `acquire` printed it, or evaluate \
                 what `acquire --export` prints{}",
                of_last.unwrap_or_default()
            ))
        };
        let value = find("value", self.value, VALUE).ok_or_else(|| missing("value"))?;
        let token = match find("token", self.token, TOKEN) {
            Some(token) => checked_token(&token)?,
            None if needs_token => return Err(missing("token")),
            None => FencingToken::default(),
        };
        DetachedLock::new(name.as_str(), value, token)
            .map_err(|error| fault::failure(&error, Exit::BUSY))
    }
}

fn checked_token(text: &str) -> Result<FencingToken, Failure> {
    let most = FencingToken::MAX;
    let token = text.parse().ok().and_then(FencingToken::new);
    token.ok_or_else(|| {
        Failure::usage(format!(
            "invalid value '{text}' for --token: expected a number, the largest is {most}"
        ))
    })
}

impl RawExtend {
    pub(super) fn checked(self, matches: &ArgMatches) -> Result<ExtendJob, Failure> {
        checked_ttl(self.ttl)?;
        Ok(ExtendJob {
            receipt: self.receipt.checked(matches, true)?,
            ttl: self.ttl,
            holder: match self.for_pid {
                Some(ForPid::Unbound) => {
                    return Err(Failure::usage(
                        "--for-pid none cannot be used with `extend`: leave it out, or give another \
                         process",
                    ));
                }
                Some(holder) => holder.checked()?,
                None => ForPid::Unbound,
            },
            place: self.place.checked(matches)?,
            form: Form::of(&self.json),
        })
    }
}

impl RawRelease {
    pub(super) fn checked(self, matches: &ArgMatches) -> Result<ReleaseJob, Failure> {
        Ok(ReleaseJob {
            receipt: self.receipt.checked(matches, false)?,
            place: self.place.checked(matches)?,
            json: self.json.json,
        })
    }
}

impl RawSteal {
    pub(super) fn checked(self, matches: &ArgMatches) -> Result<StealJob, Failure> {
        checked_ttl(self.ttl)?;
        Ok(StealJob {
            name: self.name,
            place: self.place.checked(matches)?,
            yes: self.yes,
            free: self.free,
            overwrite_foreign: self.overwrite_foreign,
            reason: self.reason,
            audit: self.audit,
            ttl: self.ttl,
            holder: self.holder.checked()?,
            form: Form::of(&self.json),
        })
    }
}
