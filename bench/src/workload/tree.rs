//! The kernel's source as a tree: unpacked, listed, read, added to git and removed.

use anyhow::Result;

use super::Workload;
use crate::context::{Bench, Medium};
use crate::interleave::{Outcome, interleave};
use crate::model::{Row, Unit};
use crate::peer::Peer;
use crate::peer_mount::{MountSetup, PeerMount};
use crate::{job, kernel_source};

pub const SMALL: Workload = Workload {
    name: "tree-12600",
    about: "12,600 files of kernel source: untar, find, read, git add, rm; tmpfs",
    run: |bench| run(bench, "tree-12600", Some(bench.size(12_600, 2_000)), 5),
};

pub const WHOLE: Workload = Workload {
    name: "tree-whole",
    about: "whole kernel source, about 87,000 files: untar, find, read, git add, rm; tmpfs",
    run: |bench| run(bench, "tree-whole", bench.quick.then_some(5_000), 3),
};

/// A step, its script, and whether it is timed. Git's objects double the inodes: a peer that holds a descriptor for each may
/// manage the first 5,000 files but not all, so the tree is removed before.
const STEPS: [(&str, &str, bool); 8] = [
    ("untar", "mkdir tree; tar -xf \"$1\" -C tree", true),
    ("find", "find tree -printf '%p %s %m %i\\n' > /dev/null", true),
    ("read", "find tree -type f -print0 | xargs -0 cat > /dev/null", true),
    ("rm", "rm -rf tree", true),
    (
        "untar-again",
        "mkdir tree; tar -xf \"$1\" -C tree; cd tree; find . -type f | head -n 5000 > ../some",
        false,
    ),
    // Forced: the .gitignore of Debian's source excludes everything.
    ("git-add-5000", "cd tree; git init -q; git add --force --pathspec-from-file=../some", true),
    ("git-add", "cd tree; git -c gc.auto=0 add -A --force", true),
    ("clear", "rm -rf tree some", false),
];

fn run(bench: &Bench, name: &str, files: Option<u64>, rounds: u32) -> Result<Vec<Row>> {
    let archive = match files {
        Some(files) => kernel_source::first(bench, files)?,
        None => kernel_source::whole(bench)?,
    };
    let setup = MountSetup { medium: Medium::Tmpfs, descriptors: None, prepare: &|_| Ok(()) };
    let timed = STEPS.iter().filter(|(.., timed)| *timed);
    let cases: Vec<_> = timed.map(|(step, ..)| (*step, Unit::Seconds)).collect();
    let mut steps = |mount: &PeerMount, _| -> Result<Vec<Outcome>> {
        let mut outcomes = Vec::new();
        for (step, script, timed) in STEPS {
            let sample = mount.time(|root| {
                job::shell(root, script, &[archive.as_os_str()])?;
                Ok(())
            });
            // A step after a failed one would measure something else.
            let failed = sample.is_err();
            if timed || failed {
                outcomes.push((step, sample));
            }
            if failed {
                break;
            }
        }
        Ok(outcomes)
    };
    let mut rows = interleave(bench, name, &cases, &Peer::TREES, rounds, setup, &mut steps)?;
    for row in &mut rows {
        row.at_most("shunt", 0.5, "libfuse");
        if row.case == "untar" {
            row.at_most("shunt", 1.0, "libfuse-uring");
        }
        match row.case.as_str() {
            "untar" => row.at_most("shunt-uring", 0.5, "libfuse-uring"),
            _ => row.at_most_or_near_floor("shunt-uring", 0.8, "libfuse-uring", 1.3),
        }
    }
    Ok(rows)
}
