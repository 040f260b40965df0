//! bonnie++ on one file that is larger than memory.

use std::path::Path;

use anyhow::{Context, Result};

use crate::cgroup::MemoryGroup;
use crate::job;

/// The cases: each with its name and the field of bonnie++'s output line that holds its figure.
pub const CASES: [(&str, usize); 4] =
    [("bonnie-write", 11), ("bonnie-rewrite", 13), ("bonnie-read", 17), ("bonnie-seeks", 19)];

/// Seeks that bonnie++ makes.
const BONNIE_SEEKS: f64 = 8192.0;
/// The shortest duration of a case for which bonnie++ reports a figure.
const MIN_REPORTED_SECONDS: f64 = 0.5;

/// The figure that bonnie++ reports for one case.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Figure {
    /// MiB/s, or seeks/s.
    Exact(f64),
    /// A lower bound: the case ended too soon for bonnie++ to report a figure.
    AtLeast(f64),
}

/// Runs bonnie++ with a file of `mebibytes`; the page cache that it fills counts against the group. Returns the figures of
/// [`CASES`].
///
/// # Errors
/// When bonnie++ cannot be started, fails, or prints no figures.
pub fn run(root: &Path, mebibytes: u64, group: &MemoryGroup) -> Result<[Figure; CASES.len()]> {
    let mut command = group.command();
    // -f: no per-byte tests; -n 0: no small files; -r: bonnie++'s own estimate of the machine's memory would make the file
    // larger.
    command.args(["bonnie++", "-q", "-f", "-n", "0", "-m", "x", "-u", "root", "-d"]).arg(root);
    command.arg("-s").arg(format!("{mebibytes}:8k")).arg("-r").arg((mebibytes / 2).to_string());
    let output = String::from_utf8(job::run(&mut command)?)?;
    let fields: Vec<&str> = output.lines().last().context("bonnie++ printed nothing")?.split(',').collect();
    let mut figures = [Figure::Exact(0.0); CASES.len()];
    for (figure, (case, field)) in figures.iter_mut().zip(CASES) {
        let text = fields.get(field).with_context(|| format!("unexpected output of bonnie++: {output}"))?;
        let is_seeks = case == "bonnie-seeks";
        *figure = if text.starts_with('+') {
            Figure::AtLeast(if is_seeks { BONNIE_SEEKS } else { mebibytes as f64 } / MIN_REPORTED_SECONDS)
        } else {
            let value: f64 =
                text.parse().with_context(|| format!("invalid figure of bonnie++ for {case}: {text}"))?;
            Figure::Exact(if is_seeks { value } else { value / 1024.0 })
        };
    }
    Ok(figures)
}
