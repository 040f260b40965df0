//! Paths of the programs under test.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the command under test: `SHUNT_BIN`; in the lab `shunt` from `PATH`; otherwise the one that cargo built together
/// with this test, in the same profile.
///
/// # Panics
/// If it has not been built.
pub fn shunt() -> PathBuf {
    if let Some(given) = std::env::var_os("SHUNT_BIN") {
        return given.into();
    }
    if std::env::var_os("SHUNT_LAB").is_some() {
        return "/usr/bin/shunt".into();
    }
    // A test executable is in <profile>/deps/, the command in <profile>/.
    let test = std::env::current_exe().expect("the path of this program");
    let profile = test.parent().and_then(Path::parent).expect("a directory of cargo's");
    let shunt = profile.join("shunt");
    assert!(shunt.exists(), "no {}: run `cargo build --workspace`, or set SHUNT_BIN", shunt.display());
    shunt
}

/// A `Command` of `shunt` with these arguments.
pub fn command(args: &[&str]) -> Command {
    let mut command = Command::new(shunt());
    command.args(args);
    command
}

/// Returns the root of the repository.
pub fn root() -> PathBuf {
    let here = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
    here.parent().expect("tests/ is in the repository").to_owned()
}
