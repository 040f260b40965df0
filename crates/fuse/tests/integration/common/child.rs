//! Child processes for tests: to be killed, or to be a program other than the server.
//!
//! The test binary starts itself with the name of a role; [`perform`] is called by the one test in the binary that exists for
//! this purpose.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

const ROLE: &str = "SHUNT_TEST_ROLE";
const ARGUMENT: &str = "SHUNT_TEST_ARGUMENT";

/// A running child, killed at the end of the test.
pub struct ChildProcess {
    child: Child,
    output: BufReader<ChildStdout>,
}

/// Starts this program in a role.
pub fn start(role: &str, argument: &Path) -> ChildProcess {
    let mut child = Command::new("/proc/self/exe")
        .args(["--exact", "interrupt::children_of_other_tests", "--nocapture", "--test-threads=1", "-q"])
        .env(ROLE, role)
        .env(ARGUMENT, argument)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    ChildProcess { child, output }
}

/// Returns the role and argument of a child; `None` in the test run itself.
pub fn role() -> Option<(String, std::path::PathBuf)> {
    Some((std::env::var(ROLE).ok()?, std::env::var_os(ARGUMENT)?.into()))
}

/// Sends a line from a child to the test.
pub fn report(text: &str) {
    let mut out = std::io::stdout();
    writeln!(out, "={text}").unwrap();
    out.flush().unwrap();
}

impl ChildProcess {
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_raw(self.pid() as i32).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Receives the next line from the child.
    pub fn read_line(&mut self) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            assert_ne!(self.output.read_line(&mut line).unwrap(), 0, "the child ended without output");
            if let Some((_, text)) = line.split_once('=') {
                return text.trim_end().to_owned();
            }
        }
    }

    /// Waits for the child to exit.
    pub fn wait(&mut self) -> std::process::ExitStatus {
        self.child.wait().unwrap()
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
