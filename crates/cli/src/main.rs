//! `fencepost`: holds a lock while a command runs, tells who holds one, and looks after the nodes.
//!
//! | file | what it answers |
//! | --- | --- |
//! | `args` | what did the user ask for? Raw arguments become checked ones here and nowhere else |
//! | `config` | what does the config file say? |
//! | `run` | the command under the lock: `run` and `elect` |
//! | `target`, `held` | what is to be held, and what is: a lock, several, a slot, the leadership |
//! | `names` | names of locks as they are typed |
//! | `acquire`, `extend`, `release`, `steal` | a lock in the hands of a script |
//! | `status`, `slots`, `list`, `watch` | who holds which lock, and which slot? |
//! | `majority` | what a majority of the nodes says of a lock |
//! | `leader` | who leads? |
//! | `serve` | the lock service |
//! | `ui`, `top`, `deadlocks` | the dashboard; what of it fits a terminal; who waits for whom in a cycle |
//! | `doctor` | what is unsafe about the nodes, and how is it mended? |
//! | `init` | which servers form a cluster? |
//! | `bench` | how fast are they? |
//! | `explain` | what does an exit code or an error mean? |
//! | `pages` | completions and man pages |
//! | `wait` | from a name to a lock that is ours, and what people see meanwhile |
//! | `holder`, `owner` | for which process is a lock, and how is that shown? |
//! | `handed`, `table` | how is it printed? |
//! | `client` | a runtime and a client for one job |
//! | `shim` | what runs between our fork and the user's command |
//! | `guard` | what ends the user's command if we are killed |
//! | `terminal` | which process group has the terminal's foreground? |
//! | `signals` | what would end us |
//! | `orphans` | children that are ours because their parents have ended |
//! | `voice`, `teller` | what people and programs read on stderr, and who writes it |
//! | `exit` | exit codes, and errors with theirs |
//! | `fault` | the library's errors in the program's own words |
//! | `duration` | `250ms`, `10s`, `2m`, `1h30m` |
//! | `store` | where the locks are |

mod acquire;
mod args;
mod bench;
mod client;
mod config;
mod deadlocks;
mod doctor;
mod duration;
mod exit;
mod explain;
mod extend;
mod fault;
mod guard;
mod handed;
mod held;
mod holder;
mod init;
mod leader;
mod list;
mod log;
mod majority;
mod names;
mod orphans;
mod owner;
mod pages;
mod release;
mod run;
mod serve;
mod shim;
mod signals;
mod slots;
mod status;
mod steal;
mod store;
mod table;
mod target;
mod teller;
mod terminal;
mod top;
mod ui;
mod voice;
mod wait;
mod watch;

use std::process::ExitCode;

use args::{Asked, Job};
use voice::{Event, Voice};

fn main() -> ExitCode {
    let code = work();
    // Nothing is held any more, so that it may take as long as it takes.
    teller::finish(None);
    code
}

fn work() -> ExitCode {
    let words: Vec<_> = std::env::args_os().collect();
    if let Some(call) = shim::Call::parse(&words) {
        return call.become_command();
    }
    if let Some(call) = guard::Call::parse(&words) {
        return call.watch();
    }
    let (job, origins) = match args::parse(words) {
        Ok(Asked::Job(job, origins)) => (job, origins),
        Ok(Asked::Answer(text)) => return voice::print(&text),
        Err(failure) => {
            Voice::Plain.tell(&Event::Failed(&failure));
            return failure.exit.into();
        }
    };
    let voice = job.voice();
    let outcome = match *job {
        Job::Run(job) => run::run(&job),
        Job::Acquire(job) => acquire::run(&job),
        Job::Extend(job) => extend::run(&job),
        Job::Release(job) => release::run(&job),
        Job::Status(job) => status::run(&job),
        Job::List(job) => list::run(&job),
        Job::Watch(job) => watch::run(&job),
        Job::Leader(job) => leader::run(&job),
        Job::Steal(job) => steal::run(&job),
        Job::Serve(job) => serve::run(&job),
        Job::Ui(job) => ui::run(&job),
        Job::Top(job) => top::run(&job),
        Job::Deadlocks(job) => deadlocks::run(&job),
        Job::Doctor(job) => doctor::run(&job),
        Job::Init(job) => init::run(&job),
        Job::Bench(job) => bench::run(&job),
        Job::Explain(job) => explain::run(&job),
        Job::Completions(job) => Ok(pages::completions(&job)),
        Job::Man(job) => pages::man(&job),
    };
    match outcome {
        Ok(code) => code,
        Err(failure) => {
            let failure = origins.told(failure);
            voice.tell(&Event::Failed(&failure));
            failure.exit.into()
        }
    }
}
