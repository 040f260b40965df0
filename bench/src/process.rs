//! Facts about a process and about the machine, from `/proc`.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// Resident memory of a process, in bytes.
///
/// # Errors
/// When the process is gone.
pub fn resident(pid: u32) -> Result<u64> {
    memory(pid, "VmRSS:")
}

/// Peak resident memory of a process so far, in bytes.
///
/// # Errors
/// When the process is gone.
pub fn peak(pid: u32) -> Result<u64> {
    memory(pid, "VmHWM:")
}

fn memory(pid: u32, field: &str) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(field))
        .context("the process status lacks the field")?;
    let kib: u64 =
        line.split_whitespace().next().context("the field of the process status is empty")?.parse()?;
    Ok(kib * 1024)
}

/// Open descriptors of a process.
///
/// # Errors
/// When the process is gone.
pub fn descriptors(pid: u32) -> Result<usize> {
    Ok(fs::read_dir(format!("/proc/{pid}/fd"))?.count())
}

/// How many processes run the program at `program`.
pub fn running(program: &Path) -> usize {
    let Ok(processes) = fs::read_dir("/proc") else { return 0 };
    let Ok(program) = program.canonicalize() else { return 0 };
    processes
        .flatten()
        .filter(|process| fs::read_link(process.path().join("exe")).is_ok_and(|exe| exe == program))
        .count()
}

/// Inodes that the kernel's FUSE client caches now, over all mounts.
pub fn fuse_inodes() -> Option<u64> {
    let slabs = fs::read_to_string("/proc/slabinfo").ok()?;
    let line = slabs.lines().find_map(|line| line.strip_prefix("fuse_inode "))?;
    line.split_whitespace().next()?.parse().ok()
}

/// The processor's name and the number of cores.
pub fn processor() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!("{}, {cores} cores", model.map_or("unknown processor", |(_, name)| name.trim()))
}

/// The release of the running kernel.
pub fn kernel() -> String {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    release.trim().to_owned()
}

/// Drops the page cache, dentries and inodes of the whole machine.
///
/// # Errors
/// Without root.
pub fn drop_caches() -> Result<()> {
    rustix::fs::sync();
    fs::write("/proc/sys/vm/drop_caches", "3").context("drop caches")
}
