//! `schemathesis` reads the OpenAPI document and sends what fits it, and what does not.
//!
//! It is a Python program, which `./test` installs into `target/schemathesis` from PyPI. Where it is
//! missing, this is named as skipped. What is made of the document is sent every time; random requests, of which
//! a machine sends as many as it can in a minute, with `FENCEPOST_SCHEMATHESIS=fuzz`.

use std::path::PathBuf;
use std::process::Command;

use fencepost_server::Options;

use crate::service::Replica;

/// What it looks for: failures of ours, and answers that the document does not have.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,\
                      response_schema_conformance";

fn program() -> Option<PathBuf> {
    let home = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/schemathesis");
    let program = home.join("bin/schemathesis");
    program.exists().then_some(program)
}

#[test]
fn what_the_document_allows_never_fails_and_is_never_answered_otherwise() {
    let Some(program) = program() else {
        return eprintln!("skipped: schemathesis is not installed; ./test installs it");
    };
    let phases = match std::env::var("FENCEPOST_SCHEMATHESIS").as_deref() {
        Ok("fuzz") => "examples,coverage,fuzzing",
        _ => "examples,coverage",
    };
    let service = Replica::in_memory(Options::new());
    let url = format!("http://{}", service.address);
    let output = Command::new(program)
        .args(["run", &format!("{url}/openapi.json"), "--url", &url])
        .args(["--checks", CHECKS, "--max-examples", "10"])
        .args(["--phases", phases, "--request-timeout", "20"])
        // Streams do not end, and who waits for a lock that its own last example holds waits long.
        .args([
            "--exclude-path",
            "/v1/events",
            "--seed",
            "7",
            "--max-time",
            "60",
        ])
        .current_dir(std::env::temp_dir())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
}
