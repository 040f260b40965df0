//! A mirror with twenty rules beside one with none. Files that no rule matches should cost as much as without rules. Access that
//! a rule grants to some callers is checked for each request, since the kernel cannot check it.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;

use anyhow::{Context, Result};

use super::Workload;
use crate::context::{Bench, Medium};
use crate::interleave::interleave;
use crate::model::{Row, Unit};
use crate::peer::Peer;
use crate::peer_mount::MountSetup;

/// A directory that no rule matches.
const UNMATCHED_DIR: &str = "work";
/// A directory that its application and root see and that is hidden from all others, so that a reply to one caller holds for no
/// other.
const CALLER_DIR: &str = "Android/data/com.example.chat";

pub const WORKLOAD: Workload = Workload {
    name: "policy",
    about: "stat, open and read of 1000 cached files, with and without 20 rules",
    run: |bench| {
        let mut rows = run(bench, "policy", UNMATCHED_DIR)?;
        for row in rows.iter_mut().filter(|row| row.case != "look-up") {
            row.at_most("shunt-policy", 1.10, "shunt");
        }
        Ok(rows)
    },
};

pub const CALLER: Workload = Workload {
    name: "policy-caller",
    about: "stat, open and read of 1000 cached files whose rule depends on the caller",
    run: |bench| {
        let mut rows = run(bench, "policy-caller", CALLER_DIR)?;
        for row in &mut rows {
            // The additional cost is requests, which the table shows.
            row.works("shunt-policy");
        }
        Ok(rows)
    },
};

const FILES: usize = 1000;

fn path(root: &Path, dir: &str, file: usize) -> std::path::PathBuf {
    root.join(format!("{dir}/{}/file-{file}.txt", file % 10))
}

fn fill(source: &Path, dir: &str) -> Result<()> {
    for n in 0..10 {
        fs::create_dir_all(source.join(format!("{dir}/{n}")))?;
    }
    for file in 0..FILES {
        fs::write(path(source, dir, file), [file as u8; 4096])?;
    }
    Ok(())
}

fn run(bench: &Bench, name: &str, dir: &str) -> Result<Vec<Row>> {
    let turns = bench.size(20, 1) as usize;
    let prepare = |source: &Path| fill(source, dir);
    let setup = MountSetup { medium: Medium::Tmpfs, descriptors: None, prepare: &prepare };
    let cases = [
        ("look-up", Unit::Seconds),
        ("stat", Unit::Seconds),
        ("open", Unit::Seconds),
        ("read", Unit::Seconds),
    ];
    let peers = [Peer::NATIVE, Peer::SHUNT, Peer::SHUNT_POLICY];
    interleave(bench, name, &cases, &peers, 7, setup, &mut |mount, round| {
        let each = |turns: usize, work: &dyn Fn(&Path) -> Result<()>| {
            mount.time(|root| {
                for turn in 0..turns * FILES {
                    if turn % 1024 == 0 {
                        crate::job::check()?;
                    }
                    work(&path(root, dir, turn % FILES))?;
                }
                Ok(())
            })
        };
        let stat = |path: &Path| fs::metadata(path).map(drop).context("stat");
        let mut outcomes = Vec::new();
        // Only the first round looks up names that the kernel has not cached.
        let first = each(1, &stat);
        if round == 0 {
            outcomes.push(("look-up", first));
        }
        outcomes.push(("stat", each(turns, &stat)));
        outcomes.push(("open", each(turns, &|path| File::open(path).map(drop).context("open"))));
        outcomes.push((
            "read",
            each(turns, &|path| {
                let mut buffer = [0; 4096];
                let length = File::open(path)?.read(&mut buffer)?;
                anyhow::ensure!(length == buffer.len(), "short read of {length} bytes");
                Ok(())
            }),
        ));
        Ok(outcomes)
    })
}
