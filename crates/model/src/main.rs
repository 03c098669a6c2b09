//! Checks every variant of the model and prints a table. `--show NAME` tells a counter-example.

use std::io::{self, Write};
use std::process::ExitCode;

use fencepost_model::catalogue::{self, Expected, Variant, Verdict};
use fencepost_model::run::{Outcome, Reach};

const USAGE: &str = "\
usage: fencepost-model [--threads N] [--quick] [--show NAME] [NAME...]
  --threads N   check with N threads (default 1)
  --quick       only the variants that take seconds
  --show NAME   tell how the broken variant NAME comes to its fault, step by step
  NAME...       only these variants";

struct Options {
    threads: usize,
    quick: bool,
    show: Option<String>,
    names: Vec<String>,
}

fn main() -> ExitCode {
    let chosen = read(std::env::args().skip(1)).and_then(|options| {
        let variants = choose(&options)?;
        Ok((options, variants))
    });
    match chosen {
        Ok((options, variants)) => match run(&options, &variants) {
            Ok(code) => code,
            // Whoever read the table has had enough of it.
            Err(_) => ExitCode::FAILURE,
        },
        Err(why) => {
            eprintln!("{why}\n{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn read(mut arguments: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options {
        threads: 1,
        quick: false,
        show: None,
        names: Vec::new(),
    };
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--threads" => {
                let number = arguments.next().and_then(|number| number.parse().ok());
                options.threads = number.ok_or("--threads needs a number")?;
            }
            "--quick" => options.quick = true,
            "--show" => options.show = Some(arguments.next().ok_or("--show needs a name")?),
            name if !name.starts_with('-') => options.names.push(name.to_owned()),
            unknown => return Err(format!("what is {unknown}?")),
        }
    }
    Ok(options)
}

fn choose(options: &Options) -> Result<Vec<Variant>, String> {
    let all = catalogue::all();
    let wanted: Vec<&String> = options.names.iter().chain(&options.show).collect();
    for name in &wanted {
        if !all.iter().any(|variant| variant.name == **name) {
            let names: Vec<&str> = all.iter().map(|variant| variant.name).collect();
            return Err(format!(
                "no variant is called {name}; there are {}",
                names.join(", ")
            ));
        }
    }
    let is_wanted = |variant: &Variant| {
        (wanted.is_empty() || wanted.iter().any(|name| *name == variant.name))
            && (variant.quick || !options.quick)
    };
    Ok(all.into_iter().filter(is_wanted).collect())
}

fn run(options: &Options, variants: &[Variant]) -> io::Result<ExitCode> {
    let mut out = io::stdout().lock();
    writeln!(
        out,
        "{:<20} {:>11} {:>6} {:>9}  result",
        "variant", "states", "depth", "time"
    )?;
    let mut as_it_must_be = true;
    for variant in variants {
        let outcome = variant.check(options.threads);
        let verdict = variant.verdict(&outcome);
        as_it_must_be &= verdict != Verdict::Unexpected;
        writeln!(
            out,
            "{:<20} {:>11} {:>6} {:>8.1}s  {}",
            variant.name,
            outcome.states,
            outcome.depth,
            outcome.took.as_secs_f64(),
            result(variant, &outcome, verdict)
        )?;
        let show = options.show.as_deref() == Some(variant.name) || verdict == Verdict::Unexpected;
        if show && let Some(fault) = &outcome.fault {
            writeln!(out, "\n{}: {}", variant.name, variant.about)?;
            for (number, line) in fault.story.iter().enumerate() {
                writeln!(out, "{:>4}. {line}", number + 1)?;
            }
            writeln!(out, "so this does not hold: {}\n", fault.property)?;
        }
        out.flush()?;
    }
    Ok(if as_it_must_be {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn result(variant: &Variant, outcome: &Outcome, verdict: Verdict) -> String {
    match (verdict, &outcome.fault, variant.expected) {
        (Verdict::Holds, ..) => match variant.reach {
            Reach::Exhaustive => "holds in every state".into(),
            Reach::Steps(steps) => format!("holds in every state within {steps} steps"),
        },
        (Verdict::Broken, Some(fault), _) => format!("broken as it must be: {}", fault.property),
        (_, Some(fault), _) => format!("FAULT: {}", fault.property),
        (_, None, Expected::Breaks(_)) => "FAULT: should be broken, and no fault was found".into(),
        (_, None, Expected::Holds) => {
            format!("FAULT: never occurs: {}", outcome.missing.join(", "))
        }
    }
}
