//! The kernel's source as a tree: unpacked, listed, read, committed and removed.

use anyhow::Result;

use super::Workload;
use crate::bench::{Bench, Ground};
use crate::interleave::{Outcome, interleave};
use crate::model::{Row, Unit};
use crate::peer::Peer;
use crate::stage::{Setting, Stage};
use crate::{job, kernel_source};

pub const SMALL: Workload = Workload {
    name: "tree-12600",
    about: "12,600 files of kernel source: untar, find, read, git add, rm; tmpfs",
    run: |bench| run(bench, "tree-12600", Some(bench.size(12_600, 2_000)), 5),
};

pub const WHOLE: Workload = Workload {
    name: "tree-whole",
    about: "the whole kernel source, about 87,000 files, the same; tmpfs",
    run: |bench| run(bench, "tree-whole", bench.quick.then_some(5_000), 3),
};

const STEPS: [(&str, &str); 5] = [
    ("untar", "mkdir tree; tar -xf \"$1\" -C tree"),
    ("find", "find tree -printf '%p %s %m %i\\n' > /dev/null"),
    ("read", "find tree -type f -print0 | xargs -0 cat > /dev/null"),
    // Forced: the .gitignore of Debian's source excludes everything.
    ("git-add", "cd tree; git init -q; git -c gc.auto=0 add -A --force"),
    ("rm", "rm -rf tree"),
];

fn run(bench: &Bench, name: &str, files: Option<u64>, rounds: u32) -> Result<Vec<Row>> {
    let archive = match files {
        Some(files) => kernel_source::first(bench, files)?,
        None => kernel_source::whole(bench)?,
    };
    let setting = Setting { ground: Ground::Tmpfs, descriptors: None, prepare: &|_| Ok(()) };
    let cases = STEPS.map(|(step, _)| (step, Unit::Seconds));
    let peers = [Peer::NATIVE, Peer::BINDFS, Peer::LIBFUSE, Peer::LIBFUSE_URING, Peer::SHUNT];
    let mut steps = |stage: &Stage, _| -> Result<Vec<Outcome>> {
        let mut outcomes = Vec::new();
        for (step, script) in STEPS {
            let sample = stage.time(|root| {
                job::shell(root, script, &[archive.as_os_str()])?;
                Ok(())
            })?;
            outcomes.push((step, sample));
        }
        Ok(outcomes)
    };
    let mut rows = interleave(bench, name, &cases, &peers, rounds, setting, &mut steps)?;
    for row in &mut rows {
        row.at_most("shunt", 0.5, "libfuse");
        if row.case == "untar" {
            row.at_most("shunt", 1.0, "libfuse-uring");
        }
    }
    Ok(rows)
}
