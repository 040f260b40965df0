//! bonnie++ on one file that is larger than memory.

use std::path::Path;

use anyhow::{Context, Result};

use crate::cgroup::MemoryGroup;
use crate::job;

/// What it tells of a file: the name of the case, and the field of its line.
pub const CASES: [(&str, usize); 4] =
    [("bonnie-write", 11), ("bonnie-rewrite", 13), ("bonnie-read", 17), ("bonnie-seeks", 19)];

/// Runs it with a file of `mebibytes`; the page cache that it fills counts against the group. The figures of [`CASES`]:
/// MiB/s, and seeks/s; none of what took less than half a second, which it does not tell.
///
/// # Errors
/// When it fails.
pub fn run(root: &Path, mebibytes: u64, group: &MemoryGroup) -> Result<[Option<f64>; CASES.len()]> {
    let mut command = group.command();
    // -f: not a byte at a time; -n 0: no small files. Its own idea of the machine's memory would make the file larger.
    command.args(["bonnie++", "-q", "-f", "-n", "0", "-m", "x", "-u", "root", "-d"]).arg(root);
    command.arg("-s").arg(format!("{mebibytes}:8k")).arg("-r").arg((mebibytes / 2).to_string());
    let told = String::from_utf8(job::run(&mut command)?)?;
    let fields: Vec<&str> = told.lines().last().context("bonnie++ said nothing")?.split(',').collect();
    let mut figures = [None; CASES.len()];
    for (figure, (case, field)) in figures.iter_mut().zip(CASES) {
        let text = fields.get(field).with_context(|| format!("bonnie++ said: {told}"))?;
        if text.starts_with('+') {
            continue;
        }
        let value: f64 = text.parse().with_context(|| format!("{case}: {text}"))?;
        *figure = Some(if case == "bonnie-seeks" { value } else { value / 1024.0 });
    }
    Ok(figures)
}
