//! A lock taken, kept and given back by hand.

use std::time::Duration;

use clap::builder::FalseyValueParser;
use clap::{ArgMatches, Args};
use fencepost::{DetachedLock, FencingToken, LockName};

use super::RawJson;
use super::claim::{Claim, RawClaim, checked_ttl};
use super::place::{Place, RawPlace};
use crate::duration;
use crate::exit::{Exit, Failure};
use crate::holder::ForPid;
use crate::names::Names;
use crate::target::Target;
use crate::voice::Voice;

/// Take a lock and leave it to a script
///
/// Prints the lock's value and its fencing token, which `extend` and `release` want. Nobody renews
/// the lock: it ends after its TTL unless it is extended. In a file it also ends with the process
/// that it was taken for, which is the script that runs this command; see --for-pid. For a command
/// that needs a lock while it runs, use `run`.
///
///   out=$(fencepost acquire nightly --ttl 60s --export) || exit
///   eval "$out"
///   … fencepost extend nightly …
///   fencepost release nightly
#[derive(Args)]
#[command(verbatim_doc_comment, after_help = EXIT_CODES)]
pub(super) struct RawAcquire {
    /// The lock's name
    #[arg(value_parser = Names::parse_one)]
    name: LockName,

    #[command(flatten)]
    place: RawPlace,

    #[command(flatten)]
    claim: RawClaim,

    #[command(flatten)]
    holder: RawHolder,

    /// Print lines that a shell can evaluate, which set FENCEPOST_LOCK, FENCEPOST_VALUE,
    /// FENCEPOST_TOKEN and FENCEPOST_DEADLINE
    #[arg(long, value_parser = FalseyValueParser::new())]
    #[arg(env = "FENCEPOST_EXPORT", hide_env_values = true)]
    export: bool,

    #[command(flatten)]
    json: RawJson,
}

const EXIT_CODES: &str = "\
Exit codes:
  0   the lock is ours
  64  the arguments cannot be used
  69  no quorum, or the store cannot be reached
  75  somebody else has the lock, or still had it when the wait was over (-E changes it)
  79  the lock was lost before it could be handed over

Times are written 250ms, 10s, 2m or 1h.";

#[derive(Args)]
struct RawHolder {
    /// The process with whose end a lock in a file is free at once, or `none`: then only the TTL
    /// ends it, as it does on Redis [default: the script that runs this command]
    #[arg(long, value_name = "PID", value_parser = ForPid::parse)]
    #[arg(env = "FENCEPOST_FOR_PID", hide_env_values = true)]
    for_pid: Option<ForPid>,
}

// What `acquire` has printed.
#[derive(Args)]
struct RawReceipt {
    /// The lock's name
    #[arg(value_parser = Names::parse_one)]
    name: LockName,

    /// The value that `acquire` printed
    #[arg(long, env = "FENCEPOST_VALUE", hide_env_values = true)]
    value: String,
}

/// Keep a lock that `acquire` took for another TTL
///
/// Exits with 0 when a majority of the nodes still had it, with 79 when it is lost, and with 69 when
/// too few nodes could be asked: then it may be ours still or not, until its old deadline.
#[derive(Args)]
pub(super) struct RawExtend {
    #[command(flatten)]
    receipt: RawReceipt,

    /// The fencing token that `acquire` printed
    #[arg(long, env = "FENCEPOST_TOKEN", hide_env_values = true)]
    token: u64,

    /// How long to keep it from now
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration::parse)]
    #[arg(env = "FENCEPOST_TTL", hide_env_values = true)]
    ttl: Duration,

    /// The process with whose end a lock in a file is free at once [default: as it was]
    #[arg(long, value_name = "PID", value_parser = ForPid::parse)]
    #[arg(env = "FENCEPOST_FOR_PID", hide_env_values = true)]
    for_pid: Option<ForPid>,

    #[command(flatten)]
    place: RawPlace,

    #[command(flatten)]
    json: RawJson,
}

/// Give back a lock that `acquire` took
///
/// Exits with 0 when a majority of the nodes had it, with 79 when it was lost before, and with 69
/// when too few nodes could be asked: then it ends by its TTL.
#[derive(Args)]
pub(super) struct RawRelease {
    #[command(flatten)]
    receipt: RawReceipt,

    #[command(flatten)]
    place: RawPlace,

    #[command(flatten)]
    json: RawJson,
}

/// Take a lock from whoever has it
///
/// An operator's act, for a holder that hangs. The old holder is told when it next renews the lock,
/// and until then may go on working: only a resource that checks the fencing token is safe from it.
/// Then the lock is ours, as after `acquire`; with --free it is given back at once, to whoever waits.
#[derive(Args)]
pub(super) struct RawSteal {
    /// The lock's name
    #[arg(value_parser = Names::parse_one)]
    name: LockName,

    /// Do not ask. Without a terminal it is needed
    #[arg(short, long, value_parser = FalseyValueParser::new())]
    #[arg(env = "FENCEPOST_YES", hide_env_values = true)]
    yes: bool,

    /// Give it back at once
    #[arg(long, value_parser = FalseyValueParser::new())]
    #[arg(env = "FENCEPOST_FREE", hide_env_values = true)]
    free: bool,

    /// How long it is ours
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration::parse)]
    #[arg(env = "FENCEPOST_TTL", hide_env_values = true)]
    ttl: Duration,

    #[command(flatten)]
    holder: RawHolder,

    #[command(flatten)]
    place: RawPlace,

    #[command(flatten)]
    json: RawJson,
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

/// A lock that is to be given back.
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
    pub(crate) ttl: Duration,
    pub(crate) holder: ForPid,
    pub(crate) form: Form,
}

impl RawAcquire {
    pub(super) fn checked(self, matches: &ArgMatches) -> Result<AcquireJob, Failure> {
        let form = match (self.export, Form::of(&self.json)) {
            (true, Form::Json) => {
                return Err(Failure::usage(
                    "--export and --json exclude each other; give one of them",
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
    fn checked(self, token: u64) -> Result<DetachedLock, Failure> {
        let token = FencingToken::new(token).ok_or_else(|| {
            let most = FencingToken::MAX;
            Failure::usage(format!("there is no token {token}; the largest is {most}"))
        })?;
        DetachedLock::new(self.name.as_str(), self.value, token)
            .map_err(|error| Failure::of(&error, Exit::BUSY))
    }
}

impl RawExtend {
    pub(super) fn checked(self, matches: &ArgMatches) -> Result<ExtendJob, Failure> {
        checked_ttl(self.ttl)?;
        Ok(ExtendJob {
            receipt: self.receipt.checked(self.token)?,
            ttl: self.ttl,
            holder: match self.for_pid {
                Some(ForPid::Nobody) => {
                    return Err(Failure::usage(
                        "an extension cannot untie a lock from its process; leave --for-pid out, \
                         or give another process",
                    ));
                }
                Some(holder) => holder.checked()?,
                None => ForPid::Nobody,
            },
            place: self.place.checked(matches)?,
            form: Form::of(&self.json),
        })
    }
}

impl RawRelease {
    pub(super) fn checked(self, matches: &ArgMatches) -> Result<ReleaseJob, Failure> {
        Ok(ReleaseJob {
            // A release asks for the value only.
            receipt: self.receipt.checked(0)?,
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
            ttl: self.ttl,
            holder: self.holder.checked()?,
            form: Form::of(&self.json),
        })
    }
}
