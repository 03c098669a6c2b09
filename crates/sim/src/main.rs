//! Runs seeds and tells what they came to: see `--help`.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use fencepost_sim::plan::Work;
use fencepost_sim::report::Tally;
use fencepost_sim::run::run;

const USAGE: &str = "\
usage: fencepost-sim [--work WORK] [--seeds N] [--from N] [--stop] [--report FILE]
       fencepost-sim [--work WORK] --hours H | --forever [--from N] [--report FILE]
       fencepost-sim [--work WORK] --seed N [--log]
  --work WORK     what the clients work with: mutex (default), semaphore, multi, election, read-write
  --seeds N       run so many seeds (default 1000)
  --from N        begin with this one (default 0)
  --stop          stop at the first seed that fails
  --hours H       run for so long
  --forever       run until somebody stops it
  --report FILE   write what they came to as Markdown
  --seed N        run this one only
  --log           and tell everything that happened";

/// How often a long run says how far it is.
const SIGN_OF_LIFE: Duration = Duration::from_secs(30);

#[derive(Default)]
struct Options {
    work: Work,
    from: u64,
    seeds: Option<u64>,
    hours: Option<f64>,
    forever: bool,
    stop: bool,
    report: Option<String>,
    seed: Option<u64>,
    log: bool,
}

fn main() -> ExitCode {
    match read(std::env::args().skip(1)) {
        Ok(None) => {
            println!("{USAGE}");
            ExitCode::SUCCESS
        }
        Ok(Some(options)) => match carry_out(&options) {
            Ok(code) => code,
            Err(error) => {
                eprintln!("fencepost-sim: {error}");
                ExitCode::FAILURE
            }
        },
        Err(why) => {
            eprintln!("{why}\n{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn read(mut arguments: impl Iterator<Item = String>) -> Result<Option<Options>, String> {
    let mut options = Options::default();
    while let Some(argument) = arguments.next() {
        let mut number = || -> Result<u64, String> {
            let number = arguments.next().and_then(|text| text.parse().ok());
            number.ok_or(format!("{argument} needs a number"))
        };
        match argument.as_str() {
            "--help" | "-h" => return Ok(None),
            "--work" => {
                let work = arguments.next().and_then(|name| Work::of(&name));
                options.work = work.ok_or_else(needs_a_work)?;
            }
            "--seeds" => options.seeds = Some(number()?),
            "--from" => options.from = number()?,
            "--seed" => options.seed = Some(number()?),
            "--hours" => {
                let hours = arguments.next().and_then(|text| text.parse().ok());
                options.hours = Some(hours.ok_or("--hours needs a number")?);
            }
            "--forever" => options.forever = true,
            "--stop" => options.stop = true,
            "--log" => options.log = true,
            "--report" => options.report = Some(arguments.next().ok_or("--report needs a file")?),
            unknown => return Err(format!("what is {unknown}?")),
        }
    }
    Ok(Some(options))
}

fn needs_a_work() -> String {
    let names = Work::ALL.map(Work::name).join(", ");
    format!("--work needs one of {names}")
}

fn carry_out(options: &Options) -> io::Result<ExitCode> {
    match options.seed {
        Some(seed) => one(seed, options.work, options.log),
        None => many(options),
    }
}

fn one(seed: u64, work: Work, log: bool) -> io::Result<ExitCode> {
    let outcome = run(seed, work, log)?;
    let mut out = io::stdout().lock();
    out.write_all(outcome.log.as_bytes())?;
    if !log {
        for violation in &outcome.violations {
            writeln!(out, "{violation}")?;
        }
    }
    if outcome.violations.is_empty() {
        writeln!(out, "seed {seed}: nothing wrong, {:?}", outcome.deeds)?;
        return Ok(ExitCode::SUCCESS);
    }
    writeln!(out, "seed {seed}: {} faults", outcome.violations.len())?;
    Ok(ExitCode::FAILURE)
}

fn many(options: &Options) -> io::Result<ExitCode> {
    let mut out = io::stdout().lock();
    let begin = Instant::now();
    let for_time = options
        .hours
        .map(|hours| Duration::from_secs_f64(hours * 3600.0));
    let endless = options.forever || for_time.is_some();
    let most = options
        .seeds
        .unwrap_or(if endless { u64::MAX } else { 1000 });
    let mut tally = Tally::from(options.from, options.work);
    let mut last_sign = begin;
    while tally.runs < most && for_time.is_none_or(|time| begin.elapsed() < time) {
        let seed = options.from + tally.runs;
        let outcome = run(seed, options.work, false)?;
        tally.add(&outcome);
        tally.took = begin.elapsed();
        if let Some(first) = outcome.violations.first() {
            writeln!(out, "seed {seed} fails: {first}")?;
            let work = options.work.name();
            writeln!(
                out,
                "replay it with: fencepost-sim --work {work} --seed {seed} --log\n"
            )?;
            if options.stop {
                break;
            }
        }
        if last_sign.elapsed() >= SIGN_OF_LIFE {
            last_sign = Instant::now();
            eprintln!("{} runs, {} failed", tally.runs, tally.failed.len());
            if endless && let Some(file) = &options.report {
                std::fs::write(file, tally.markdown())?;
            }
        }
    }
    if let Some(file) = &options.report {
        std::fs::write(file, tally.markdown())?;
    }
    out.write_all(tally.markdown().as_bytes())?;
    Ok(match tally.failed.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}
