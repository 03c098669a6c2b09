//! `fencepost`: holds a lock while a command runs, and tells who holds one.
//!
//! | file | what it answers |
//! | --- | --- |
//! | `args` | what did the user ask for? Raw arguments become checked ones here and nowhere else |
//! | `run` | the command under the lock |
//! | `status` | who holds a lock |
//! | `shim` | what runs between our fork and the user's command |
//! | `guard` | what ends the user's command if we are killed |
//! | `voice` | what people and programs read on stderr |
//! | `exit` | exit codes, and errors with theirs |
//! | `duration` | `250ms`, `10s`, `2m`, `1h` |
//! | `store` | where the locks are |

mod args;
mod duration;
mod exit;
mod guard;
mod run;
mod shim;
mod status;
mod store;
mod voice;

use std::process::ExitCode;

use args::{Asked, Job};
use voice::{Event, Voice};

fn main() -> ExitCode {
    let words: Vec<_> = std::env::args_os().collect();
    if let Some(call) = shim::Call::parse(&words) {
        return call.become_command();
    }
    if let Some(call) = guard::Call::parse(&words) {
        return call.watch();
    }
    let job = match args::parse(words) {
        Ok(Asked::Job(job)) => job,
        Ok(Asked::Answer(text)) => return voice::print(&text),
        Err(failure) => {
            Voice::Plain.tell(&Event::Failed(&failure));
            return failure.exit.into();
        }
    };
    let voice = job.voice();
    let outcome = match job {
        Job::Run(job) => run::run(&job),
        Job::Status(job) => status::run(&job),
    };
    match outcome {
        Ok(code) => code,
        Err(failure) => {
            voice.tell(&Event::Failed(&failure));
            failure.exit.into()
        }
    }
}
