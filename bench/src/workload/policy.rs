//! A mirror with twenty rules beside one with none: what no rule speaks of costs what it costs without them.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;

use anyhow::{Context, Result};

use super::Workload;
use crate::bench::{Bench, Ground};
use crate::interleave::interleave;
use crate::model::{Row, Unit};
use crate::peer::Peer;
use crate::stage::Setting;

pub const WORKLOAD: Workload = Workload {
    name: "policy",
    about: "stat, open and read of 1000 known files, with and without 20 rules",
    run,
};

const FILES: usize = 1000;

fn path(root: &Path, file: usize) -> std::path::PathBuf {
    root.join(format!("work/{}/file-{file}.txt", file % 10))
}

fn prepare(source: &Path) -> Result<()> {
    for dir in 0..10 {
        fs::create_dir_all(source.join(format!("work/{dir}")))?;
    }
    for file in 0..FILES {
        fs::write(path(source, file), [file as u8; 4096])?;
    }
    Ok(())
}

fn run(bench: &Bench) -> Result<Vec<Row>> {
    let turns = bench.size(20, 1) as usize;
    let setting = Setting { ground: Ground::Tmpfs, descriptors: None, prepare: &prepare };
    let cases = [
        ("look-up", Unit::Seconds),
        ("stat", Unit::Seconds),
        ("open", Unit::Seconds),
        ("read", Unit::Seconds),
    ];
    let peers = [Peer::NATIVE, Peer::SHUNT, Peer::SHUNT_POLICY];
    let mut rows = interleave(bench, WORKLOAD.name, &cases, &peers, 7, setting, &mut |stage, round| {
        let each = |turns: usize, work: &dyn Fn(&Path) -> Result<()>| {
            stage.time(|root| {
                for turn in 0..turns * FILES {
                    if turn % 1024 == 0 {
                        crate::job::check()?;
                    }
                    work(&path(root, turn % FILES))?;
                }
                Ok(())
            })
        };
        let stat = |path: &Path| fs::metadata(path).map(drop).context("stat");
        let mut outcomes = Vec::new();
        // Only the first round meets names that the kernel does not know.
        let first = each(1, &stat);
        if round == 0 {
            outcomes.push(("look-up", first));
        }
        outcomes.push(("stat", each(turns, &stat)));
        outcomes.push(("open", each(turns, &|path| File::open(path).map(drop).context("open"))));
        outcomes.push((
            "read",
            each(turns, &|path| {
                let mut room = [0; 4096];
                let length = File::open(path)?.read(&mut room)?;
                anyhow::ensure!(length == room.len(), "{length} bytes");
                Ok(())
            }),
        ));
        Ok(outcomes)
    })?;
    for row in rows.iter_mut().filter(|row| row.case != "look-up") {
        row.at_most("shunt-policy", 1.10, "shunt");
    }
    Ok(rows)
}
