//! Runs a program of the system with a time limit, and returns the end of its output.

use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(10);
/// Limit of the output, in bytes.
const MAX_OUTPUT_BYTES: u64 = 4 << 20;

/// The output of a program; none if it is not installed, fails, or takes longer than ten seconds.
pub fn output(program: &str, args: &[&str]) -> Option<String> {
    let mut command = Command::new(program);
    command.args(args).env("LC_ALL", "C").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().ok()?;
    let stdout = child.stdout.take()?;
    let (send, receive) = mpsc::channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = stdout.take(MAX_OUTPUT_BYTES).read_to_end(&mut bytes);
        let _ = send.send(bytes);
    });
    let bytes = receive.recv_timeout(TIMEOUT).ok();
    // After the whole output, or after the time limit, it is no longer needed.
    let _ = child.kill();
    let _ = child.wait();
    Some(String::from_utf8_lossy(&bytes?).into_owned())
}

#[cfg(test)]
mod tests {
    use super::output;

    #[test]
    fn a_program_that_does_not_exist_is_nothing() {
        assert_eq!(output("/nonexistent/program", &[]), None);
        assert_eq!(output("echo", &["word"]).as_deref(), Some("word\n"));
    }
}
