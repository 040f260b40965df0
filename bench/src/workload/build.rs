//! A kernel build: a realistic workload on a file system.

use std::ffi::OsStr;
use std::path::Path;

use anyhow::Result;

use super::Workload;
use crate::context::{Bench, Medium};
use crate::interleave::interleave;
use crate::model::{Row, Unit};
use crate::peer::Peer;
use crate::peer_mount::MountSetup;
use crate::{job, kernel_source};

pub const WORKLOAD: Workload =
    Workload { name: "build", about: "kernel tinyconfig build with two jobs; tmpfs", run };

fn run(bench: &Bench) -> Result<Vec<Row>> {
    let archive = kernel_source::whole(bench)?;
    // The source is unpacked once per peer; each round builds in a directory of its own beside it.
    let unpack = |source: &Path| {
        job::shell(source, "mkdir src; tar -xf \"$1\" -C src --strip-components=1", &[archive.as_os_str()])?;
        Ok(())
    };
    let setup = MountSetup { medium: Medium::Tmpfs, descriptors: None, prepare: &unpack };
    let target = OsStr::new(bench.size("all", "prepare"));
    let cases = [("tinyconfig-j2", Unit::Seconds)];
    let mut rows = interleave(bench, WORKLOAD.name, &cases, &Peer::TREES, 3, setup, &mut |mount, _| {
        job::shell(&mount.root, "mkdir out; make -s -C src O=../out tinyconfig", &[])?;
        let sample = mount.time(|root| {
            job::shell(root, "make -s -C src O=../out -j2 \"$1\"", &[target])?;
            Ok(())
        })?;
        job::shell(&mount.root, "rm -rf out", &[])?;
        Ok(vec![("tinyconfig-j2", Ok(sample))])
    })?;
    rows[0].at_most("shunt", 1.15, "native");
    rows[0].at_most("shunt-uring", 1.10, "native");
    // Without passthrough the kernel sends no OPEN.
    rows[0].at_most("shunt-nopt", 1.15, "native");
    Ok(rows)
}
