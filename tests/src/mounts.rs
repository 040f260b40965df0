//! The mount table and the process table, as the kernel shows them.

use std::path::Path;

/// Counts the mounts on exactly this path. Reads only the mount table, because a dead mount must not block the check.
pub fn count(path: &Path) -> usize {
    let table = std::fs::read_to_string("/proc/self/mountinfo").expect("mountinfo");
    // The table has spaces as octal numbers.
    let mount_path = path.to_str().expect("test paths are text").replace(' ', "\\040");
    table.lines().filter(|line| line.split(' ').nth(4) == Some(mount_path.as_str())).count()
}

/// Reports whether the process exists and is not a zombie.
pub fn alive(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .ok()
        .and_then(|s| s.rsplit(')').next().and_then(|rest| rest.trim().chars().next()))
        .is_some_and(|state| state != 'Z' && state != 'X')
}

/// Returns the processes whose command line contains this path: a daemon and its helpers.
pub fn processes_naming(path: &Path) -> Vec<u32> {
    let mount_path = path.to_str().expect("test paths are text").as_bytes();
    let me = std::process::id();
    let Ok(proc) = std::fs::read_dir("/proc") else { return Vec::new() };
    proc.filter_map(|e| e.ok()?.file_name().to_str()?.parse().ok())
        .filter(|pid| *pid != me && alive(*pid))
        .filter(|pid| {
            std::fs::read(format!("/proc/{pid}/cmdline"))
                .is_ok_and(|line| line.windows(mount_path.len()).any(|part| part == mount_path))
        })
        .collect()
}

/// Returns the daemon that serves a mount now, be it the first or a successor; `None` between two. `command` is its command, such as
/// `mirror`.
pub fn daemon(path: &Path, command: &str) -> Option<u32> {
    processes_naming(path).into_iter().find(|pid| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|&byte| byte == 0).nth(1) == Some(command.as_bytes())
    })
}

/// Counts the open files of a process.
pub fn open_files(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count)
}

/// Returns the processor time of a process, in seconds.
///
/// # Panics
/// There is no such process.
pub fn cpu_seconds(pid: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("the process exists");
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let ticks: f64 = fields.skip(11).take(2).filter_map(|field| field.parse::<f64>().ok()).sum();
    ticks / rustix::param::clock_ticks_per_second() as f64
}

/// Detaches all mounts on a path, including dead ones.
pub fn detach(path: &Path) {
    for _ in 0..8 {
        if rustix::mount::unmount(path, rustix::mount::UnmountFlags::DETACH).is_err() {
            return;
        }
    }
}

/// Sends a signal to a process. Returns whether the process existed.
pub fn signal(pid: u32, signal: rustix::process::Signal) -> bool {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    pid.is_some_and(|pid| rustix::process::kill_process(pid, signal).is_ok())
}

/// Kills a daemon, after the guardian that would start a successor.
pub fn end(pid: u32) {
    let guardian = |pid: &u32| {
        std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.starts_with("shunt-guard"))
    };
    let of_daemon = |guard: &u32| parent(*guard) == Some(pid);
    let processes = std::fs::read_dir("/proc").into_iter().flatten();
    let pids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let children: Vec<u32> = pids.filter(guardian).filter(of_daemon).collect();
    for guardian in children.into_iter().chain(parent(pid).filter(guardian)) {
        signal(guardian, rustix::process::Signal::KILL);
    }
    signal(pid, rustix::process::Signal::KILL);
}

/// Returns the parent of a process.
pub fn parent(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(')').next()?.split_whitespace().nth(1)?.parse().ok()
}

/// Stops a process, and waits until each of its threads has stopped: a thread that has not seen the signal yet may still take a
/// pending request.
///
/// # Panics
/// If that takes longer than ten seconds.
pub fn stop(pid: u32) {
    assert!(signal(pid, rustix::process::Signal::STOP), "{pid} cannot be stopped");
    let stopped = |task: std::io::Result<std::fs::DirEntry>| {
        let stat = task.and_then(|task| std::fs::read_to_string(task.path().join("stat")));
        stat.is_ok_and(|stat| stat.rsplit(')').next().is_some_and(|rest| rest.starts_with(" T")))
    };
    let all = || std::fs::read_dir(format!("/proc/{pid}/task")).is_ok_and(|mut tasks| tasks.all(stopped));
    let end = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while !all() {
        assert!(std::time::Instant::now() < end, "the threads of {pid} do not stop");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}
