//! Builds the library that bends a server's clock, from `crates/clockbend`.
//!
//! Cargo cannot yet give a crate the shared library of another one; and linked into this one, it
//! would bend our own clock. It has no dependencies, so that the compiler alone is enough.

#![forbid(unsafe_code)]

use std::env;
use std::path::PathBuf;
use std::process::Command;

const SOURCE: &str = "../clockbend/src/lib.rs";

fn main() {
    println!("cargo::rerun-if-changed={SOURCE}");
    let variable = |name: &str| env::var(name).unwrap_or_default();
    let for_linux = variable("CARGO_CFG_TARGET_OS") == "linux";
    if !for_linux || variable("CARGO_CFG_TARGET_POINTER_WIDTH") != "64" {
        // The rows that need it say that it is not there.
        println!("cargo::rustc-env=CLOCKBEND_LIBRARY=");
        return;
    }
    let library = PathBuf::from(variable("OUT_DIR")).join("libfencepost_clockbend.so");
    let built = Command::new(variable("RUSTC"))
        .args(["--crate-name", "fencepost_clockbend", "--edition", "2024"])
        .args(["--crate-type", "cdylib", "-C", "opt-level=2"])
        .args(["-C", "panic=abort", "--target", &variable("TARGET"), "-o"])
        .arg(&library)
        .arg(SOURCE)
        .status();
    match built {
        Ok(status) if status.success() => {
            println!("cargo::rustc-env=CLOCKBEND_LIBRARY={}", library.display());
        }
        other => println!("cargo::error=cannot build {SOURCE}: {other:?}"),
    }
}
