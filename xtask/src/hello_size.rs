//! The cost of a dependency on `shunt-fuse` without features: the number of crates that `examples/hello` consists of, and the time
//! of a clean release build. A crate too many is a new dependency that every file system would compile; it belongs behind a feature.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

/// Maximum number of crates, the program itself included.
const MAX_CRATES: usize = 40;

/// Maximum time of a clean release build, on two processors.
const MAX_BUILD_TIME: Duration = Duration::from_secs(25);

/// Counts the crates, and with `build` also measures a clean release build. Prints what it finds; false if a limit is exceeded.
///
/// # Errors
///
/// When cargo fails.
pub fn check(root: &Path, build: bool) -> Result<bool> {
    let crates = crates(root)?;
    let mut passed = crates.len() <= MAX_CRATES;
    if !passed {
        println!("{}", crates.iter().cloned().collect::<Vec<_>>().join("\n"));
        println!("hello-size: {} crates; at most {MAX_CRATES}", crates.len());
    }
    if build {
        let time = build_time(root)?;
        println!(
            "hello-size: {} crates (at most {MAX_CRATES}), release build in {:.1} s (at most {} s on two processors)",
            crates.len(),
            time.as_secs_f64(),
            MAX_BUILD_TIME.as_secs()
        );
        passed &= time <= MAX_BUILD_TIME;
    }
    Ok(passed)
}

/// Names and versions of all crates that are compiled for the program, procedural macros and what these need included.
fn crates(root: &Path) -> Result<BTreeSet<String>> {
    let out = cargo(root)
        .args(["tree", "-p", "hello", "-e", "normal", "--prefix", "none", "--no-dedupe", "--format", "{p}"])
        .output()
        .context("running cargo tree")?;
    ensure!(out.status.success(), "cargo tree failed: {}", String::from_utf8_lossy(&out.stderr).trim());
    let text = String::from_utf8(out.stdout).context("cargo tree printed invalid UTF-8")?;
    // "name v1.2.3 (proc-macro)": the words after the version vary.
    Ok(text.lines().map(|line| line.split(' ').take(2).collect::<Vec<_>>().join(" ")).collect())
}

/// Builds the program in a new target directory, with cargo's own release profile instead of the workspace's. The crates must have
/// been downloaded.
fn build_time(root: &Path) -> Result<Duration> {
    let target = root.join("target/hello-size");
    if target.exists() {
        std::fs::remove_dir_all(&target).with_context(|| format!("removing {}", target.display()))?;
    }
    let profile = [("LTO", "false"), ("DEBUG", "false"), ("CODEGEN_UNITS", "16")];
    let began = Instant::now();
    let status = cargo(root)
        .args(["build", "--release", "--quiet", "-p", "hello", "--jobs", "2", "--target-dir"])
        .arg(&target)
        .envs(profile.map(|(name, value)| (format!("CARGO_PROFILE_RELEASE_{name}"), value)))
        .status()
        .context("running cargo build")?;
    let time = began.elapsed();
    ensure!(status.success(), "cargo build failed");
    std::fs::remove_dir_all(&target).with_context(|| format!("removing {}", target.display()))?;
    Ok(time)
}

fn cargo(root: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root).arg("--locked");
    command
}
