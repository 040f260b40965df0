//! `--daemon`: the command starts itself once more and waits until that process serves.
//!
//! No fork: the new process begins with one thread and nothing inherited by accident. Its standard output is a pipe
//! to us, on which it says one thing: a digit, which is 0 or the exit code of a failure, and a line.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitCode, Stdio};

use shunt_fuse::guardian::HandOver;

use crate::args::LogArgs;
use crate::error::{Code, Failure, Result, failed};
use crate::log;

/// More than the one line that is expected.
const MAX_LINE: u64 = 64 << 10;

/// Starts `argv` again in the background and returns the line that it says when it serves. The command and the name of the
/// program are its first `words`.
///
/// # Errors
/// The failure of that process, or how it ended without a word.
pub fn launch(argv: &[OsString], words: usize) -> Result<String> {
    let ([program, command @ ..], rest) = argv.split_at(words.min(argv.len())) else {
        return Err(failed("there is nothing to start"));
    };
    let mut daemon = Command::new("/proc/self/exe");
    daemon.arg0(program).args(command).arg("--background").args(rest);
    start(daemon).map(|(_, line)| line)
}

/// Starts a command with `--background` on it, and waits until it serves; gives also the line that it says then.
///
/// # Errors
/// As of [`launch`].
pub fn start(mut command: Command) -> Result<(Child, String)> {
    let cannot = |error: io::Error| failed(format_args!("cannot start the daemon (/proc/self/exe): {error}"));
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map_err(cannot)?;
    let mut said = String::new();
    let pipe = child.stdout.take().expect("it was asked for");
    pipe.take(MAX_LINE).read_to_string(&mut said).map_err(cannot)?;
    match understand(&said) {
        Some(Ok(line)) => Ok((child, line)),
        Some(Err(failure)) => {
            // It ends by itself.
            let _ = child.wait();
            Err(failure)
        }
        None => {
            let status = child.wait().map_err(cannot)?;
            Err(failed(format_args!("the daemon ended without a word ({status}); try without --daemon")))
        }
    }
}

/// What the background process said; none if it said nothing of use.
fn understand(said: &str) -> Option<Result<String>> {
    let mut letters = said.trim_end().chars();
    let code = letters.next()?.to_digit(10)? as u8;
    let line = letters.as_str();
    Some(if code == 0 { Ok(line.to_owned()) } else { Err(Failure::new(Code::from_number(code), line)) })
}

/// The process that [`launch`] started: runs `serve`, which is to call [`Departure::ready`] and go on.
pub fn run(log: &LogArgs, serve: impl FnOnce() -> Result<()>) -> ExitCode {
    // We lead no process group: whoever started us does, or its shell.
    if let Err(errno) = rustix::process::setsid() {
        tracing::debug!(%errno, "setsid");
    }
    // /proc/self/exe would be shown as "exe".
    let _ = rustix::thread::set_name(c"shunt");
    let Err(failure) = log::start(log).and_then(|()| serve()) else { return ExitCode::SUCCESS };
    if log.log_file.is_some() {
        tracing::error!("{failure}");
    }
    // After [`Departure::ready`] this goes to /dev/null.
    say(failure.code as u8, &failure.message);
    ExitCode::from(failure.code as u8)
}

/// The process that a guardian started to go on where another daemon ended: runs `serve` with what is left of that.
pub fn take_over(log: &LogArgs, serve: impl FnOnce(HandOver) -> Result<()>) -> ExitCode {
    let _ = rustix::process::setsid();
    let _ = rustix::thread::set_name(c"shunt");
    let outcome = HandOver::receive().map_err(failed).and_then(|mut hand_over| {
        log::start_in(log, hand_over.take_log());
        serve(hand_over)
    });
    let Err(failure) = outcome else { return ExitCode::SUCCESS };
    tracing::error!("{failure}");
    ExitCode::from(failure.code as u8)
}

/// What it takes to go into the background, had before the process is locked in.
pub struct Departure {
    null: File,
}

impl Departure {
    /// Lets go of the directory. All paths are resolved by now.
    ///
    /// # Errors
    /// No /dev/null.
    pub fn prepare() -> io::Result<Self> {
        // A daemon that is locked in may not, and is there already.
        let _ = std::env::set_current_dir("/");
        Ok(Self { null: OpenOptions::new().write(true).open("/dev/null")? })
    }

    /// Tells the process that waits in [`launch`] that we serve, and lets go of standard output and error.
    ///
    /// # Errors
    /// Those of `dup2(2)`.
    pub fn ready(self, line: &str) -> io::Result<()> {
        say(0, line);
        rustix::stdio::dup2_stdout(&self.null)?;
        rustix::stdio::dup2_stderr(&self.null)?;
        Ok(())
    }
}

fn say(code: u8, line: &str) {
    // Nobody listens any more: then nobody wants to know.
    let _ = writeln!(io::stdout(), "{code}{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_digit_and_a_line() {
        assert_eq!(understand("0/m shows /s\n").unwrap().unwrap(), "/m shows /s");
        let failure = understand("5cannot mount\n").unwrap().unwrap_err();
        assert_eq!((failure.code, failure.message.as_str()), (Code::Privilege, "cannot mount"));
        for nothing in ["", "\n", "x", "panicked"] {
            assert!(understand(nothing).is_none(), "{nothing}");
        }
    }
}
