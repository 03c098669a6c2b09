//! `schemathesis` reads the OpenAPI document and sends what fits it, and what does not.
//!
//! It is a Python program, kept in `target/schemathesis`: `FENCEPOST_SCHEMATHESIS=1` installs it there
//! from PyPI. Where it is missing, this is named as skipped.

use std::path::PathBuf;
use std::process::Command;

use fencepost_server::Options;

use crate::service::Replica;

/// What it looks for: failures of ours, and answers that the document does not have.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,\
                      response_schema_conformance";

fn program() -> Result<PathBuf, String> {
    let home = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/schemathesis");
    let program = home.join("bin/schemathesis");
    if program.exists() {
        return Ok(program);
    }
    if std::env::var_os("FENCEPOST_SCHEMATHESIS").is_none() {
        return Err("not installed; FENCEPOST_SCHEMATHESIS=1 installs it".into());
    }
    let run = |command: &mut Command| match command.output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        Err(error) => Err(error.to_string()),
    };
    run(Command::new("python3").args(["-m", "venv"]).arg(&home))?;
    run(Command::new(home.join("bin/pip")).args(["install", "--quiet", "schemathesis"]))?;
    Ok(program)
}

#[test]
fn what_the_document_allows_never_fails_and_is_never_answered_otherwise() {
    let program = match program() {
        Ok(program) => program,
        Err(why) => return eprintln!("skipped: schemathesis: {why}"),
    };
    let service = Replica::in_memory(Options::new());
    let url = format!("http://{}", service.address);
    let output = Command::new(program)
        .args(["run", &format!("{url}/openapi.json"), "--url", &url])
        .args(["--checks", CHECKS, "--max-examples", "10"])
        .args([
            "--phases",
            "examples,coverage,fuzzing",
            "--request-timeout",
            "20",
        ])
        // Streams do not end, and who waits for a lock that its own last example holds waits long.
        .args([
            "--exclude-path",
            "/v1/events",
            "--seed",
            "7",
            "--max-time",
            "120",
        ])
        .current_dir(std::env::temp_dir())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
}
