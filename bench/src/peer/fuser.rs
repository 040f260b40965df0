//! The passthrough example of the crate `fuser`, taken from the registry at a pinned version.
//!
//! It serves one read-only file, `passthrough`, of a fixed size, backed by `/etc/profile`. So it takes part only in reads of that
//! file; a file of the right size is bind-mounted over `/etc/profile` in a mount namespace of the daemon's own.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::guarded::guarded;
use crate::mounted::Mounted;

const VERSION: &str = "0.18.0";
const BACKING: &str = "/etc/profile";

/// The size that the example reports for its file.
pub const FILE_SIZE: u64 = 123_456;

/// The name that the example serves the file under; the source directory has it under the same name.
pub const SERVED_FILE: &str = "passthrough";

/// Builds the example into `root` unless it is there.
///
/// # Errors
/// When cargo fails.
pub fn install(root: &Path) -> Result<PathBuf> {
    let program = root.join("bin").join("passthrough");
    if !program.exists() {
        crate::progress::say(format_args!("building fuser {VERSION}'s passthrough example"));
        let mut cargo = Command::new("cargo");
        cargo.args(["install", "fuser", "--locked", "--example", "passthrough"]);
        cargo.args(["--version", VERSION, "--root"]).arg(root);
        cargo.env("CARGO_TARGET_DIR", root.join("target"));
        crate::job::run(&mut cargo).context("build fuser's example")?;
        std::fs::remove_dir_all(root.join("target"))?;
    }
    Ok(program)
}

/// Serves the file `passthrough` of `source`.
pub(super) fn start(program: &Path, source: &Path, at: &Path) -> Result<Mounted> {
    let script =
        format!("mount --make-private /; mount --bind \"$1\" {BACKING}; exec \"$2\" \"$3\" 2>/dev/null");
    let words: [OsString; 10] = [
        "unshare".into(),
        "--mount".into(),
        "--propagation=unchanged".into(),
        "sh".into(),
        "-ec".into(),
        script.into(),
        "sh".into(),
        source.join(SERVED_FILE).into(),
        program.into(),
        at.into(),
    ];
    Mounted::start(&mut guarded(&words, None), at)
}
