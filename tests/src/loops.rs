//! Loop devices.

use std::path::Path;
use std::process::Command;

use crate::cmd::run;

/// A block device over a file, for as long as this lives.
#[derive(Debug)]
pub struct Loop(String);

impl Loop {
    /// `None` where there can be none.
    pub fn over(file: &Path) -> Option<Self> {
        let ran = run(Command::new("losetup").args(["-f", "--show"]).arg(file));
        ran.success().then(|| Self(ran.out.trim().to_owned()))
    }

    /// Its path.
    pub fn path(&self) -> &str {
        &self.0
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        run(Command::new("losetup").args(["-d", &self.0]));
    }
}
