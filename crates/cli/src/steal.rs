//! `fencepost steal`: takes a lock from whoever has it.
//!
//! It must never do so unasked: a person confirms it, or a script says `--yes`.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use fencepost::{Client, Status};
use serde_json::json;

use crate::args::{Form, StealJob};
use crate::client::{self, Connect, fault};
use crate::exit::{Exit, Failure};
use crate::handed::Handed;
use crate::table::left;
use crate::voice;

pub(crate) fn run(job: &StealJob) -> Result<ExitCode, Failure> {
    if !job.yes && !std::io::stdin().is_terminal() {
        return Err(Failure::usage(
            "to steal a lock without a terminal to confirm it at, say --yes",
        ));
    }
    let builder = || {
        let builder = job.place.builder().owner(job.holder.owner());
        builder.holder_process(job.holder.process())
    };
    client::with(builder, Connect::First, async |locks| {
        steal(job, locks).await
    })
}

async fn steal(job: &StealJob, locks: &Client) -> Result<ExitCode, Failure> {
    if !job.yes {
        let status = locks.status(job.name.as_str()).await;
        if !confirmed(&status.map_err(|error| fault(&error))?) {
            return Err(Failure::new(Exit::Busy(Exit::BUSY), "nothing was stolen"));
        }
    }
    let stolen = locks.steal(job.name.as_str(), job.ttl).await;
    let stolen = stolen.map_err(|error| fault(&error))?;
    let from = stolen.from.as_ref().map(ToString::to_string);
    let remaining = stolen.lease.remaining();
    let receipt = match job.free {
        true => {
            let token = stolen.lease.token();
            stolen
                .lease
                .release()
                .await
                .map_err(|error| fault(&error))?;
            Err(token)
        }
        false => Ok(stolen.lease.detach().await.map_err(|error| fault(&error))?),
    };
    let handed = receipt
        .as_ref()
        .ok()
        .map(|receipt| Handed { receipt, remaining });
    let text = match job.form {
        Form::Json => {
            let mut json = match (&handed, &receipt) {
                (Some(handed), _) => handed.json(),
                (None, Err(token)) => json!({
                    "lock": job.name.as_str(),
                    "token": token.get(),
                    "released": true,
                }),
                (None, Ok(_)) => json!({}),
            };
            json["stolen_from"] = json!(from);
            format!("{json:#}\n")
        }
        form => {
            let lock = &job.name;
            let from = match from {
                Some(owner) => format!("lock \"{lock}\" was taken from {owner}"),
                None => format!("nobody had lock \"{lock}\""),
            };
            match handed {
                Some(handed) => format!("{from}\n{}", handed.print(form)),
                None => format!("{from}; it is free now\n"),
            }
        }
    };
    Ok(voice::print(&text))
}

fn confirmed(status: &Status) -> bool {
    let lock = &status.name;
    let holder = match &status.holder {
        Some(holder) => format!("held by {} for {}", holder.owner, left(holder.remaining)),
        None => "not known to be held".to_owned(),
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
