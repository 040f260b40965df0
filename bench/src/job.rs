//! Commands that a workload runs: one at a time, each in a process group of its own, so that an interrupt or a time limit kills
//! the command with all its children while the guards above it still run.

use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process_group};

/// Time limit of a single command of a workload.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(1800);

struct Running {
    group: Pid,
    deadline: Instant,
}

static RUNNING: Mutex<Option<Running>> = Mutex::new(None);
static INTERRUPTED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Catches SIGINT and SIGTERM and starts the thread that enforces the time limit of the running command.
///
/// # Errors
/// When a signal handler cannot be installed.
pub fn watch() -> Result<()> {
    let flag = INTERRUPTED.get_or_init(Arc::default);
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(flag)).context("install a signal handler")?;
    }
    thread::Builder::new().name("watch".into()).spawn(|| {
        loop {
            thread::sleep(Duration::from_millis(100));
            let running = RUNNING.lock().expect("no panic while locked");
            if let Some(job) = &*running
                && (interrupted() || Instant::now() > job.deadline)
            {
                // The command may have ended already; then there is nothing to kill.
                let _ = kill_process_group(job.group, Signal::KILL);
            }
        }
    })?;
    Ok(())
}

/// Reports whether the user asked to stop.
pub fn interrupted() -> bool {
    INTERRUPTED.get().is_some_and(|flag| flag.load(Ordering::Relaxed))
}

/// Returns an error once the user asked to stop; long loops call it.
///
/// # Errors
/// After SIGINT or SIGTERM.
pub fn check() -> Result<()> {
    if interrupted() {
        bail!("interrupted");
    }
    Ok(())
}

/// Runs `command` to its end and returns its standard output.
///
/// # Errors
/// When it cannot start, fails, or is killed by an interrupt or the time limit; the message carries the last lines it wrote to
/// standard error.
pub fn run(command: &mut Command) -> Result<Vec<u8>> {
    check()?;
    let name = command.get_program().to_owned();
    let output = output(command).with_context(|| format!("run {}", name.display()))?;
    check()?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        let lines: Vec<&str> = stderr.lines().collect();
        let tail = lines[lines.len().saturating_sub(3)..].join(" | ");
        bail!(
            "{} failed ({}): {}",
            name.display(),
            output.status,
            tail.chars().take(400).collect::<String>()
        );
    }
    Ok(output.stdout)
}

/// Runs a shell script in `directory`; `$1`, `$2`, ... are `arguments`.
///
/// # Errors
/// The errors of [`run`].
pub fn shell(directory: &std::path::Path, script: &str, arguments: &[&std::ffi::OsStr]) -> Result<Vec<u8>> {
    run(Command::new("sh").arg("-ec").arg(script).arg("sh").args(arguments).current_dir(directory))
}

fn output(command: &mut Command) -> Result<Output> {
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()?;
    let group = Pid::from_raw(child.id().cast_signed()).context("a child has a pid")?;
    set_running(Some(Running { group, deadline: Instant::now() + COMMAND_TIMEOUT }));
    let output = child.wait_with_output();
    set_running(None);
    Ok(output?)
}

fn set_running(job: Option<Running>) {
    *RUNNING.lock().expect("no panic while locked") = job;
}
