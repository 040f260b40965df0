//! Running programs with a deadline, so that a hang is a failure and not a hung suite.

use std::fs::File;
use std::io::{Read as _, Seek as _};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Result of a program.
#[derive(Debug)]
pub struct Ran {
    /// Exit status; `None` when the deadline passed and it was killed.
    pub status: Option<ExitStatus>,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
    /// The command line, for messages.
    pub what: String,
    /// Run time.
    pub took: Duration,
}

impl Ran {
    /// True when it ended with 0.
    pub fn success(&self) -> bool {
        self.status.is_some_and(|s| s.success())
    }

    /// Asserts success and returns the standard output.
    ///
    /// # Panics
    /// With the whole output, if it failed.
    #[track_caller]
    pub fn ok(self) -> String {
        assert!(self.success(), "failed: {self:#?}");
        self.out
    }

    /// Asserts an orderly failure (an exit code, no signal, no hang) and returns the standard error.
    ///
    /// # Panics
    /// If it succeeded, was killed or hung.
    #[track_caller]
    pub fn fails(self) -> String {
        let code = self.status.and_then(|s| s.code());
        assert!(code.is_some_and(|c| c != 0), "should have failed with a code: {self:#?}");
        self.err
    }
}

/// Runs to the end, for at most 60 seconds.
pub fn run(command: &mut Command) -> Ran {
    run_for(60, command)
}

/// Runs to the end, for at most `seconds`, scaled by the speed of the machine ([`pace`](crate::pace)).
///
/// # Panics
/// If the program cannot be started.
pub fn run_for(seconds: u64, command: &mut Command) -> Ran {
    // Files, not pipes: a daemon that keeps its parent's stderr must not keep us waiting for the end of it.
    let (mut out, mut err) =
        (tempfile::tempfile().expect("temp file"), tempfile::tempfile().expect("temp file"));
    let what = format!("{command:?}");
    let start = Instant::now();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(out.try_clone().expect("dup"))
        .stderr(err.try_clone().expect("dup"))
        .spawn()
        .unwrap_or_else(|e| panic!("{what}: {e}"));
    let mut pause = Duration::from_micros(500);
    let status = loop {
        match child.try_wait().expect("wait") {
            Some(status) => break Some(status),
            None if start.elapsed().as_secs() >= seconds
                && start.elapsed() > crate::pace::seconds(seconds) =>
            {
                let _ = child.kill();
                // It may be stuck in the kernel: give the kill a moment, then leave it.
                std::thread::sleep(Duration::from_millis(200));
                let _ = child.try_wait();
                break None;
            }
            None => {
                std::thread::sleep(pause);
                pause = (pause * 2).min(Duration::from_millis(20));
            }
        }
    };
    Ran { status, out: text(&mut out), err: text(&mut err), what, took: start.elapsed() }
}

/// Runs a line of shell in a directory.
pub fn sh(dir: &Path, line: &str) -> Ran {
    run_for(120, Command::new("sh").arg("-euc").arg(line).current_dir(dir))
}

/// Copies a program that is to be executed. Another process writes the copy: a child that another test is just starting could
/// hold a duplicate of this process's writable descriptor, and the copy could not be executed meanwhile (ETXTBSY).
///
/// # Panics
/// If it cannot be copied.
#[track_caller]
pub fn copy_program(from: impl AsRef<Path>, to: impl AsRef<Path>) {
    run(Command::new("cp").arg(from.as_ref()).arg(to.as_ref())).ok();
}

fn text(file: &mut File) -> String {
    let mut bytes = Vec::new();
    let _ = file.rewind();
    let _ = file.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Unmounts, retrying for three seconds. Until its exec, a child that another test is just starting holds copies of all files,
/// including files on the mount that were closed since.
pub fn patiently(mut umount: impl FnMut() -> Ran) -> Ran {
    let mut ran = umount();
    within(Duration::from_secs(3), || {
        if !ran.success() {
            ran = umount();
        }
        ran.success()
    });
    ran
}

/// Asserts that a program reported an error properly: in one line that contains this word, without a backtrace.
///
/// # Panics
/// If it did not.
#[track_caller]
pub fn one_line(err: &str, word: &str) {
    assert_eq!(err.trim_end().lines().count(), 1, "one line, please: {err:?}");
    assert!(err.to_lowercase().contains(word), "no word of {word:?} in {err:?}");
    assert!(!err.contains("panicked") && !err.contains("RUST_BACKTRACE"), "{err:?}");
}

/// Polls a condition every 5 ms; false after `limit`, scaled by the speed of the machine.
pub fn within(limit: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    loop {
        // Before the last poll, because the poll itself may take long.
        let late = start.elapsed() > limit && start.elapsed() > crate::pace::limit(limit);
        if condition() {
            return true;
        }
        if late {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A process that is terminated and waited for on drop.
#[derive(Debug)]
pub struct Ended(pub std::process::Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.0);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = self.0.wait();
    }
}
