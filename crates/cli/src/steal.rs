//! `fencepost steal`: takes a lock away from its holder.
//!
//! It must never do so unasked: a person confirms it, or a script says `--yes`. It must never touch
//! what fencepost did not write: a mistyped name would destroy an application's data.

use std::fs::File;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use fencepost::{Client, Status};
use serde_json::{Value, json};

use crate::args::{Form, StealJob};
use crate::client::{self, Connect, fault};
use crate::exit::{Exit, Failure};
use crate::fault::{held, not_released};
use crate::handed::Handed;
use crate::majority::{is_held_somewhere, on_some_nodes, too_few};
use crate::voice::{self, Event, Voice};
use crate::{majority, teller};

/// What a lock service, which asks for a reason, is told where nobody gave one.
const NO_REASON: &str = "no reason given";

/// How long a stderr that is not read may keep the result back.
const TELLING_LIMIT: Duration = Duration::from_millis(50);

pub(crate) fn run(job: &StealJob) -> Result<ExitCode, Failure> {
    if !job.yes && !std::io::stdin().is_terminal() {
        return Err(Failure::usage(
            "no terminal to ask for confirmation; give --yes",
        ));
    }
    let audit = job.audit.as_deref().map(Audit::open).transpose()?;
    let builder = || {
        let builder = job.place.builder().owner(job.holder.owner());
        let reason = job.reason.as_deref().unwrap_or(NO_REASON);
        let builder = builder.service_steal(reason, job.overwrite_foreign);
        builder.holder_process(job.holder.process())
    };
    client::with(builder, Connect::First, async |locks| {
        steal(job, locks, audit).await
    })
}

/// The file that has a line for each steal.
struct Audit<'a> {
    file: File,
    path: &'a Path,
}

impl<'a> Audit<'a> {
    fn open(path: &'a Path) -> Result<Self, Failure> {
        let file = File::options().append(true).create(true).open(path);
        let file = file.map_err(|error| {
            let path = path.display();
            let message =
                format!("the audit file {path} cannot be opened: {error}; nothing was stolen");
            Failure::new(Exit::CannotCreate, message)
        })?;
        Ok(Self { file, path })
    }

    fn append(mut self, line: &str) -> Result<(), Failure> {
        let written = self.file.write_all(line.as_bytes());
        written.map_err(|error| {
            let path = self.path.display();
            let message = format!("the audit file {path} cannot be written: {error}");
            Failure::new(Exit::CannotCreate, message)
        })
    }
}

async fn steal(
    job: &StealJob,
    locks: &Client,
    audit: Option<Audit<'_>>,
) -> Result<ExitCode, Failure> {
    let seen = locks.status(job.name.as_str()).await;
    let seen = seen.map_err(|error| fault(&error))?;
    check(job, &seen)?;
    if !job.yes && !confirmed(&seen) {
        return Err(Failure::new(Exit::Busy(Exit::BUSY), "nothing was stolen"));
    }
    let stolen = locks.steal(job.name.as_str(), job.ttl).await;
    let stolen = stolen.map_err(|error| fault(&error));
    let mut record = json!({
        "event": "not_stolen",
        "time": humantime::format_rfc3339_millis(SystemTime::now()).to_string(),
        "lock": job.name.as_str(),
        "by": job.holder.owner(),
        "user": rustix::process::geteuid().as_raw(),
        "reason": job.reason,
        "foreign": !foreign(&seen).is_empty(),
    });
    let stolen = match stolen {
        Ok(stolen) => stolen,
        Err(failure) => {
            record["why"] = one_line(&failure).into();
            if let Err(unwritten) = tell(job, &record, audit) {
                Voice::Plain.tell(&Event::Failed(&unwritten));
            }
            return Err(failure);
        }
    };
    let from = stolen.from.as_ref().map(ToString::to_string);
    let (remaining, token) = (stolen.lease.remaining(), stolen.lease.token());
    record["event"] = "stolen".into();
    record["from"] = json!(from);
    record["token"] = token.get().into();
    // Before the line is written, which says how it went.
    let (lease, released) = match job.free {
        true => {
            let released = stolen.lease.release().await;
            (None, released.map_err(|error| not_released(&error)))
        }
        false => (Some(stolen.lease), Ok(())),
    };
    record["freed"] = (job.free && released.is_ok()).into();
    if let Err(failure) = &released {
        record["not_freed"] = one_line(failure).into();
    }
    // Before anything else can fail: what was done is done.
    let written = tell(job, &record, audit).map_err(|failure| Failure {
        message: format!("lock \"{}\" was stolen, but {failure}", job.name),
        ..failure
    });
    if let Err(failure) = released {
        let failure = Failure {
            message: format!(
                "lock \"{}\" was stolen, but not released: {}",
                job.name, failure.message
            ),
            ..failure
        };
        return Err(match written {
            Ok(()) => failure,
            Err(unwritten) => {
                Voice::Plain.tell(&Event::Failed(&failure));
                unwritten
            }
        });
    }
    let receipt = match lease {
        None => None,
        Some(lease) => Some(lease.detach().await.map_err(|error| fault(&error))?),
    };
    let handed = receipt.as_ref();
    let handed = handed.map(|receipt| Handed { receipt, remaining });
    let text = match job.form {
        Form::Json => {
            let mut json = match &handed {
                Some(handed) => handed.json(),
                None => json!({
                    "lock": job.name.as_str(),
                    "token": token.get(),
                    "released": true,
                }),
            };
            json["stolen_from"] = json!(from);
            format!("{json:#}\n")
        }
        form => {
            let lock = &job.name;
            let from = match from {
                Some(owner) => format!("lock \"{lock}\" was stolen from {owner}"),
                None => format!("lock \"{lock}\" was acquired: its holder had just released it"),
            };
            match handed {
                Some(handed) => format!("{from}\n{}", handed.print(form)),
                None => format!("{from}, and is free now\n"),
            }
        }
    };
    // Also without the line: the value is needed to release the lock.
    let printed = voice::print(&text);
    written.map(|()| printed)
}

/// Refuses what is not there to be stolen, and what is no lock.
fn check(job: &StealJob, seen: &Status) -> Result<(), Failure> {
    let lock = &job.name;
    if !is_held_somewhere(seen) {
        return Err(match majority::is_known(seen) {
            true => Failure::new(
                Exit::Nothing,
                format!("lock \"{lock}\" is free; nothing was stolen"),
            ),
            false => Failure {
                nodes: majority::reasons(seen),
                ..too_few(seen)
            },
        });
    }
    let foreign = foreign(seen);
    if foreign.is_empty() || job.overwrite_foreign {
        return Ok(());
    }
    let nodes = foreign.into_iter();
    Err(Failure {
        nodes: nodes
            .map(|node| (node.to_owned(), "not written by fencepost".into()))
            .collect(),
        hints: vec![
            "--overwrite-foreign overwrites it anyway: a lock of another client, or data of an \
             application"
                .into(),
        ],
        ..Failure::usage(format!(
            "the key of \"{lock}\" holds something that fencepost did not write; nothing was stolen"
        ))
    })
}

/// The nodes that have something there which is no lock of ours.
fn foreign(seen: &Status) -> Vec<&str> {
    let nodes = seen.nodes.iter().filter(|node| {
        let lock = node.lock.as_ref().ok();
        let holder = lock.and_then(|lock| lock.holder.as_ref());
        holder.is_some_and(|holder| !holder.value.is_ours())
    });
    nodes.map(|node| node.node.as_str()).collect()
}

/// The audit line: on stderr always, in words or as JSON, and in the file if there is one.
fn tell(job: &StealJob, record: &Value, audit: Option<Audit<'_>>) -> Result<(), Failure> {
    let line = format!("{record}\n");
    let written = audit.map_or(Ok(()), |audit| audit.append(&line));
    teller::say(match job.form {
        Form::Json => line,
        _ => format!("fencepost: audit: {}\n", in_words(record)),
    });
    // Before the result, where both are read together.
    teller::finish(Some(TELLING_LIMIT));
    written
}

fn in_words(record: &Value) -> String {
    let text = |key: &str| match &record[key] {
        Value::String(text) => text.clone(),
        Value::Null => "no holder".into(),
        other => other.to_string(),
    };
    let by = format!("by {} (uid {})", text("by"), text("user"));
    let mut line = format!("{} lock \"{}\" ", text("time"), text("lock"));
    match &record["why"] {
        Value::String(why) => line += &format!("not stolen {by}: {why}"),
        _ => {
            line += &format!("stolen from {} {by}, token {}", text("from"), text("token"));
            if record["freed"] == true {
                line += ", released";
            }
            if let Value::String(why) = &record["not_freed"] {
                line += &format!(", not released: {why}");
            }
        }
    }
    if let Value::String(reason) = &record["reason"] {
        line += &format!("; reason: {reason}");
    }
    line
}

/// The failure with each node's reason, for a log.
fn one_line(failure: &Failure) -> String {
    let text = failure.to_string();
    let lines: Vec<_> = text.lines().map(str::trim).collect();
    lines.join("; ")
}

fn confirmed(status: &Status) -> bool {
    let lock = &status.name;
    let holder = match &status.holder {
        Some(holder) => held(holder),
        None => on_some_nodes(&status.split),
    };
    let mut err = std::io::stderr();
    let question = format!(
        "lock \"{lock}\" is {holder}.\nIts holder may go on working until it notices. \
         Steal it? [y/N] "
    );
    if err.write_all(question.as_bytes()).is_err() {
        return false;
    }
    let mut answer = String::new();
    // An end of input is no answer, and no answer is no.
    let _ = std::io::stdin().read_line(&mut answer);
    matches!(answer.trim(), "y" | "Y" | "yes")
}
