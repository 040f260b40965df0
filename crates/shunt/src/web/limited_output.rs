//! Runs a program with limits of its time and of its output, so that a program that hangs or writes without end is an error.

use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Bytes read at once.
const READ_BYTES: usize = 64 << 10;

/// The result of a program that ended by itself.
#[derive(Debug)]
pub struct LimitedOutput {
    pub status: ExitStatus,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
}

impl LimitedOutput {
    /// Runs a program to its end, without standard input. Kills it at an error.
    ///
    /// # Errors
    /// It cannot be started, takes longer than `timeout`, or writes more than `max_bytes` to standard output or standard error.
    pub fn of(command: &mut Command, timeout: Duration, max_bytes: usize) -> io::Result<Self> {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let pipes = [child.stdout.take().map(OwnedFd::from), child.stderr.take().map(OwnedFd::from)];
        let output = read_all(pipes, Instant::now() + timeout, max_bytes);
        if output.is_err() {
            // It may have ended by itself.
            let _ = child.kill();
        }
        let status = child.wait()?;
        let [stdout, stderr] = output?;
        Ok(LimitedOutput { status, stdout, stderr })
    }
}

/// Reads both pipes until their ends.
fn read_all(pipes: [Option<OwnedFd>; 2], end: Instant, max_bytes: usize) -> io::Result<[Vec<u8>; 2]> {
    let mut pipes = pipes.map(|pipe| pipe.map(std::fs::File::from));
    let mut output = [Vec::new(), Vec::new()];
    let mut buffer = vec![0; READ_BYTES];
    loop {
        let mut polled: Vec<PollFd<'_>> = pipes
            .iter()
            .flatten()
            .map(|pipe| PollFd::from_borrowed_fd(pipe.as_fd(), PollFlags::IN))
            .collect();
        if polled.is_empty() {
            return Ok(output);
        }
        let left = end.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).map_err(|_| io::ErrorKind::InvalidInput)?;
        match poll(&mut polled, Some(&left)) {
            Ok(0) => return Err(io::Error::new(io::ErrorKind::TimedOut, "it took too long")),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let mut is_ready =
            polled.iter().map(|polled| !polled.revents().is_empty()).collect::<Vec<_>>().into_iter();
        for (pipe, output) in pipes.iter_mut().zip(&mut output) {
            let Some(file) = pipe else { continue };
            if is_ready.next() != Some(true) {
                continue;
            }
            match file.read(&mut buffer)? {
                0 => *pipe = None,
                len => output.extend_from_slice(&buffer[..len]),
            }
            if output.len() > max_bytes {
                return Err(io::Error::other(format!("it wrote more than {max_bytes} bytes")));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, timeout: Duration) -> io::Result<LimitedOutput> {
        LimitedOutput::of(Command::new("sh").args(["-c", script]), timeout, 1 << 20)
    }

    #[test]
    fn both_outputs_are_read() {
        let script = "head -c 200000 /dev/zero >&2; head -c 300000 /dev/zero; exit 3";
        let output = shell(script, Duration::from_secs(60)).unwrap();
        assert_eq!((output.stdout.len(), output.stderr.len()), (300_000, 200_000));
        assert_eq!(output.status.code(), Some(3));
    }

    #[test]
    fn time_and_output_are_limited() {
        let error = shell("exec sleep 600", Duration::from_millis(50)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        let error = shell("exec cat /dev/zero", Duration::from_secs(60)).unwrap_err();
        assert!(error.to_string().contains("1048576 bytes"), "{error}");
    }
}
