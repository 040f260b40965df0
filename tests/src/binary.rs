//! Where the programs under test are.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The command `shunt`.
///
/// # Panics
/// When it has not been built.
pub fn shunt() -> PathBuf {
    if let Some(given) = std::env::var_os("SHUNT_BIN") {
        return given.into();
    }
    if std::env::var_os("SHUNT_LAB").is_some() {
        return "shunt".into();
    }
    let mut places: Vec<PathBuf> =
        ["target/release/shunt", "target/debug/shunt"].iter().map(|p| root().join(p)).collect();
    // A test executable lives in <profile>/deps/, the command in <profile>/.
    if let Some(profile) =
        std::env::current_exe().ok().as_deref().and_then(Path::parent).and_then(Path::parent)
    {
        places.push(profile.join("shunt"));
    }
    places
        .iter()
        .find(|p| p.exists())
        .unwrap_or_else(|| {
            panic!("no shunt in {places:?}: run `cargo build --release -p shunt`, or set SHUNT_BIN")
        })
        .clone()
}

/// A `Command` of `shunt` with these arguments.
pub fn command(args: &[&str]) -> Command {
    let mut command = Command::new(shunt());
    command.args(args);
    command
}

/// A tool that `tests/setup` put into `target/tools`, or one in `PATH`.
pub fn tool(name: &str) -> Option<PathBuf> {
    let built = root().join("target/tools/bin").join(name);
    if built.exists() {
        return Some(built);
    }
    crate::skip::have(&[name]).then(|| name.into())
}

/// The repository.
pub fn root() -> PathBuf {
    let here = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
    here.parent().expect("tests/ is in the repository").to_owned()
}
