//! What the tests of the documentation share.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Once;

use fencepost_interop::peer::without_cargo;

/// Builds the program, which `cargo test -p` does not.
pub(crate) fn build_program() {
    static BUILT: Once = Once::new();
    BUILT.call_once(|| {
        let mut cargo = Command::new(env!("CARGO"));
        without_cargo(&mut cargo);
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
