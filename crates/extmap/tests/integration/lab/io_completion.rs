//! I/O completion allocates nothing, since reclaim may be waiting for it. Needs a kernel with failure injection for
//! allocations, as that of `--debug`.

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::Command;

use super::aligned::Aligned;
use super::disk::{BLOCK, Disk, extent, module_is_here};

const FAILURES: &str = "/sys/kernel/debug/failslab";

/// More failures than any run has.
const MAX_FAILURES: usize = 1000;

fn set(name: &str, value: &str) {
    fs::write(Path::new(FAILURES).join(name), value).unwrap_or_else(|error| panic!("{name}: {error}"));
}

/// Returns the address range of a function of the module, from the kernel's symbols.
fn function(name: &str) -> (u64, u64) {
    let names = fs::read_to_string("/proc/kallsyms").unwrap();
    let of_module = names.lines().filter_map(|line| line.strip_suffix("\t[shunt_extmap]"));
    let mut code: Vec<(u64, &str)> = of_module
        .filter_map(|line| {
            let mut words = line.split(' ');
            let (at, kind, name) = (words.next()?, words.next()?, words.next()?);
            kind.eq_ignore_ascii_case("t").then(|| (u64::from_str_radix(at, 16).unwrap(), name))
        })
        .collect();
    code.sort_unstable();
    let begin = code.iter().find(|(_, found)| *found == name).unwrap_or_else(|| panic!("no {name}")).0;
    let end = code.iter().map(|(at, _)| *at).find(|at| *at > begin).unwrap_or(begin + 4096);
    (begin, end)
}

/// Makes each allocation under a function of the module fail while `work` runs. Returns the number of failures.
fn failed_within(name: &str, work: impl FnOnce()) -> usize {
    let (begin, end) = function(name);
    set("require-start", &format!("{begin:#x}"));
    set("require-end", &format!("{end:#x}"));
    set("times", &MAX_FAILURES.to_string());
    set("probability", "100");
    work();
    set("probability", "0");
    let left: usize = fs::read_to_string(Path::new(FAILURES).join("times")).unwrap().trim().parse().unwrap();
    MAX_FAILURES - left
}

/// Writes with direct I/O, from an aligned buffer.
fn write_direct(file: &File, blocks: u64, at: u64) {
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(file));
    let direct = File::options().write(true).custom_flags(libc::O_DIRECT).open(path).unwrap();
    let length = (blocks * BLOCK) as usize;
    direct.write_all_at(&Aligned::new(length, 7), at * BLOCK).unwrap();
}

#[test]
fn io_completion_does_not_allocate() {
    if !module_is_here() {
        return;
    }
    let _ = Command::new("/bin/mount").args(["-t", "debugfs", "debugfs", "/sys/kernel/debug"]).output();
    if !Path::new(FAILURES).exists() {
        eprintln!("skipped: this kernel has no fault injection for allocations");
        return;
    }
    for (name, value) in [("ignore-gfp-wait", "N"), ("verbose", "2"), ("interval", "1"), ("space", "0")] {
        set(name, value);
    }
    set("stacktrace-depth", "32");
    let disk = Disk::writable(1024);
    let connection = disk.connect();
    // A function that does allocate, to verify that failures are counted.
    let refused = || {
        let mapped = connection.writable_file(0).unwrap();
        assert!(mapped.push(&[extent(0, 0, 8, false)]).is_err());
    };
    assert!(failed_within("extmap_file_push", refused) > 0);
    for (n, name) in (0..).zip(["write_ended", "extmap_enter_written", "direct_ended", "extmap_map_written"])
    {
        let mapped = connection.writable_file(128 * BLOCK).unwrap();
        // In many extents, so that the completion of each write spans many of them.
        let pieces: Vec<_> =
            (0..64).map(|piece| extent(piece * 2, n * 128 + (63 - piece) * 2, 2, false)).collect();
        mapped.push(&pieces).unwrap();
        let file = File::from(mapped.as_fd().try_clone_to_owned().unwrap());
        let failed = failed_within(name, || {
            file.write_all_at(&[5; 60 * BLOCK as usize], 0).unwrap();
            file.write_all_at(&[6; 100], 62 * BLOCK + 17).unwrap();
            write_direct(&file, 50, 64);
            let settled = mapped.settle().unwrap();
            let written: u64 = settled.ranges.iter().map(|range| range.end - range.start).sum();
            assert_eq!(written / BLOCK, 60 + 1 + 50, "the module reports all completed writes");
        });
        assert_eq!(failed, 0, "{name} must not allocate memory");
    }
}
