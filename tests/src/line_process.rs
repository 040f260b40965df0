//! A program that reads and writes lines.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// A running program, ended on drop.
#[derive(Debug)]
pub struct LineProcess {
    child: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
}

impl LineProcess {
    /// Starts it.
    ///
    /// # Panics
    /// If it cannot be started.
    #[track_caller]
    pub fn start(command: &mut Command) -> Self {
        let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = pipes.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let (to, from) = (child.stdin.take(), child.stdout.take().expect("a pipe"));
        Self { child, to, from: BufReader::new(from) }
    }

    /// Sends a line and waits for the reply; `None` when the program has ended, or does not read.
    pub fn ask(&mut self, what: &str) -> Option<String> {
        let to = self.to.as_mut()?;
        to.write_all(what.as_bytes()).and_then(|()| to.write_all(b"\n")).and_then(|()| to.flush()).ok()?;
        let mut line = String::new();
        match self.from.read_line(&mut line) {
            Ok(1..) => Some(line.trim_end().to_owned()),
            _ => None,
        }
    }
}

impl Drop for LineProcess {
    fn drop(&mut self) {
        drop(self.to.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
