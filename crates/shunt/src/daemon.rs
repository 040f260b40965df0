//! `--daemon`: the command starts itself once more and waits until that process serves.
//!
//! It does not fork: the new process begins with one thread and inherits nothing by accident. Its standard output is a pipe to
//! this process, to which it writes once: a digit, which is 0 or the exit code of a failure, and a line.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitCode, Stdio};

use shunt_fuse::guardian::HandOver;

use crate::args::LogArgs;
use crate::error::{Code, Failure, Result, failed};
use crate::log;

/// Limit of the line that is expected.
const MAX_LINE_BYTES: u64 = 64 << 10;

/// Starts `argv` again in the background and returns the line that it prints when it serves. The first `words` of `argv` are the
/// program and the command.
///
/// # Errors
/// The failure of that process, or its exit status if it printed nothing.
pub fn launch(argv: &[OsString], words: usize) -> Result<String> {
    let ([program, command @ ..], rest) = argv.split_at(words.min(argv.len())) else {
        return Err(failed("cannot start the daemon: empty command line"));
    };
    let mut daemon = Command::new("/proc/self/exe");
    daemon.arg0(program).args(command).arg("--background").args(rest);
    start(daemon).map(|(_, line)| line)
}

/// Starts a command with `--background` on it, and waits until it serves; also returns the line that it prints then.
///
/// # Errors
/// The errors of [`launch`].
pub fn start(mut command: Command) -> Result<(Child, String)> {
    let cannot = |error: io::Error| failed(format_args!("cannot start the daemon (/proc/self/exe): {error}"));
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map_err(cannot)?;
    let mut output = String::new();
    let pipe = child.stdout.take().expect("stdout is piped");
    pipe.take(MAX_LINE_BYTES).read_to_string(&mut output).map_err(cannot)?;
    match parse_report(&output) {
        Some(Ok(line)) => Ok((child, line)),
        Some(Err(failure)) => {
            // It exits by itself.
            let _ = child.wait();
            Err(failure)
        }
        None => {
            let status = child.wait().map_err(cannot)?;
            Err(failed(format_args!(
                "the daemon exited without a message ({status}); run without --daemon to see its output"
            )))
        }
    }
}

/// Parses the output of the background process; none if it is empty or invalid.
fn parse_report(output: &str) -> Option<Result<String>> {
    let mut letters = output.trim_end().chars();
    let code = letters.next()?.to_digit(10)? as u8;
    let line = letters.as_str();
    Some(if code == 0 { Ok(line.to_owned()) } else { Err(Failure::new(Code::from_number(code), line)) })
}

/// The main function of the process that [`launch`] started: runs `serve`, which has to call [`Detach::report_ready`] before it
/// serves.
pub fn run(log: &LogArgs, serve: impl FnOnce() -> Result<()>) -> ExitCode {
    // The process leads no process group (its parent or the shell does), so setsid succeeds.
    if let Err(errno) = rustix::process::setsid() {
        tracing::debug!(%errno, "setsid");
    }
    // /proc/self/exe would be shown as "exe".
    let _ = rustix::thread::set_name(c"shunt");
    let Err(failure) = log::start(log).and_then(|()| serve()) else { return ExitCode::SUCCESS };
    if log.log_file.is_some() {
        tracing::error!("{failure}");
    }
    // After [`Detach::report_ready`] this is written to /dev/null.
    report(failure.code as u8, &failure.message);
    ExitCode::from(failure.code as u8)
}

/// The main function of the process that a guardian started to take over from another daemon: runs `serve` with the inherited
/// state.
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

/// The resources for going into the background, acquired before the process is sandboxed.
pub struct Detach {
    null: File,
}

impl Detach {
    /// Leaves the working directory. All paths are resolved by now.
    ///
    /// # Errors
    /// /dev/null cannot be opened.
    pub fn prepare() -> io::Result<Self> {
        // A sandboxed daemon may not, and is in / already.
        let _ = std::env::set_current_dir("/");
        Ok(Self { null: OpenOptions::new().write(true).open("/dev/null")? })
    }

    /// Reports to the process that waits in [`launch`] that this one serves, and detaches from standard output and error.
    ///
    /// # Errors
    /// The errors of `dup2(2)`.
    pub fn report_ready(self, line: &str) -> io::Result<()> {
        report(0, line);
        rustix::stdio::dup2_stdout(&self.null)?;
        rustix::stdio::dup2_stderr(&self.null)?;
        Ok(())
    }
}

fn report(code: u8, line: &str) {
    // A write error means that the parent has exited.
    let _ = writeln!(io::stdout(), "{code}{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_digit_and_a_line() {
        assert_eq!(parse_report("0/m shows /s\n").unwrap().unwrap(), "/m shows /s");
        let failure = parse_report("5cannot mount\n").unwrap().unwrap_err();
        assert_eq!((failure.code, failure.message.as_str()), (Code::Privilege, "cannot mount"));
        for nothing in ["", "\n", "x", "panicked"] {
            assert!(parse_report(nothing).is_none(), "{nothing}");
        }
    }
}
