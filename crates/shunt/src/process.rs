//! Facts about this process from the kernel.

use std::fs;
use std::os::unix::fs::MetadataExt;

/// Resident bytes, 0 if unknown.
pub fn resident_bytes() -> u64 {
    let pages = fs::read_to_string("/proc/self/statm").ok();
    let pages = pages.and_then(|line| line.split(' ').nth(1)?.parse::<u64>().ok());
    pages.unwrap_or(0) * rustix::param::page_size() as u64
}

/// Open file descriptors, 0 if unknown.
pub fn descriptors() -> u64 {
    // The size of the directory since Linux 6.2. A process that changed its user id cannot list it.
    match fs::metadata("/proc/self/fd").map_or(0, |directory| directory.len()) {
        // One of them is the directory being listed.
        0 => fs::read_dir("/proc/self/fd").map_or(0, |entries| (entries.count() as u64).saturating_sub(1)),
        count => count,
    }
}

/// Processor time of all threads, in seconds.
pub fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// The inode number of the PID namespace, none if `/proc` does not tell.
pub fn pid_namespace() -> Option<u64> {
    fs::metadata("/proc/self/ns/pid").map(|namespace| namespace.ino()).ok()
}

#[cfg(test)]
mod tests {
    #[test]
    fn this_process_is_there() {
        assert!(super::resident_bytes() > 100_000);
        assert!(super::descriptors() >= 3);
        assert!(super::cpu_seconds() > 0.0);
        assert!(super::pid_namespace().is_some());
    }
}
