//! What the tests of the documentation share.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Once;

/// Builds the program, which `cargo test -p` does not.
pub(crate) fn build_program() {
    static BUILT: Once = Once::new();
    BUILT.call_once(|| {
        let mut cargo = Command::new(env!("CARGO"));
        // Build scripts that look at what cargo told this test would run again, each time.
        let told = std::env::vars_os().map(|(name, _)| name);
        for name in told.filter(|name| name.to_string_lossy().starts_with("CARGO_")) {
            if name != "CARGO_HOME" && name != "CARGO_TARGET_DIR" {
                cargo.env_remove(name);
            }
        }
        let built = cargo
            .current_dir(file(""))
            .args(["build", "--quiet", "--bin", "fencepost"])
            .status();
        assert!(
            built.expect("cargo").success(),
            "the program does not build"
        );
    });
}

/// A file of the repository.
pub(crate) fn file(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path)
}
