//! bonnie++ on one file that is larger than memory.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::cgroup::MemoryGroup;
use crate::job;

/// What it tells of a file: the name of the case, and the field of its line.
pub const CASES: [(&str, usize); 4] =
    [("bonnie-write", 11), ("bonnie-rewrite", 13), ("bonnie-read", 17), ("bonnie-seeks", 19)];

/// Runs it with a file of `mebibytes`; the page cache that it fills counts against the group. The figures of [`CASES`]:
/// MiB/s, and seeks/s.
///
/// # Errors
/// When it fails, or went too fast to tell.
pub fn run(root: &Path, mebibytes: u64, group: &MemoryGroup) -> Result<[f64; CASES.len()]> {
    let mut command = Command::new("sh");
    command.args(["-ec", "echo $$ > \"$0\"; exec \"$@\""]).arg(group.procs());
    // -f: not a byte at a time; -n 0: no small files. Its own idea of the machine's memory would make the file larger.
    command.args(["bonnie++", "-q", "-f", "-n", "0", "-m", "x", "-u", "root", "-d"]).arg(root);
    command.arg("-s").arg(format!("{mebibytes}:8k")).arg("-r").arg((mebibytes / 2).to_string());
    let told = String::from_utf8(job::run(&mut command)?)?;
    let fields: Vec<&str> = told.lines().last().context("bonnie++ said nothing")?.split(',').collect();
    let mut figures = [0.0; CASES.len()];
    for (figure, (case, field)) in figures.iter_mut().zip(CASES) {
        let text = fields.get(field).with_context(|| format!("bonnie++ said: {told}"))?;
        ensure!(!text.starts_with('+'), "{case}: done in less than half a second");
        *figure = text.parse().with_context(|| format!("{case}: {text}"))?;
        if case != "bonnie-seeks" {
            *figure /= 1024.0;
        }
    }
    Ok(figures)
}
