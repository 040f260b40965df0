//! The processes that threads belong to. The viewer reads them from `/proc`, because the sandboxes of daemons hide it from them.

use std::collections::HashMap;
use std::fs;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Error of the comparison of the start of a thread with its last request, which is known in whole seconds.
const START_TOLERANCE: Duration = Duration::from_secs(2);

/// A process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its id.
    pub pid: u32,
    /// The name of its main thread: up to 15 bytes of the name of its program.
    pub command: String,
}

/// Finds processes, and remembers those of the last reading, so that they still have names for a moment after they exited.
#[derive(Debug, Default)]
pub struct Processes {
    last: HashMap<u32, Process>,
    current: HashMap<u32, Process>,
}

impl Processes {
    /// Begins a reading: forgets the processes that the last one did not find.
    pub fn begin(&mut self) {
        self.last = std::mem::take(&mut self.current);
    }

    /// Finds the process of a thread that sent its last request so long ago. None if it exited before it was looked up, or its id belongs
    /// to a younger process now.
    pub fn find(&mut self, tid: u32, idle: Duration) -> Option<Process> {
        if let Some(process) = self.current.get(&tid) {
            return Some(process.clone());
        }
        let found = look_up(tid, idle).or_else(|| self.last.get(&tid).cloned())?;
        self.current.insert(tid, found.clone());
        Some(found)
    }
}

fn look_up(tid: u32, idle: Duration) -> Option<Process> {
    if tid == 0 {
        return None;
    }
    let age = age(&fs::read_to_string(format!("/proc/{tid}/stat")).ok()?)?;
    // It started after the request: the kernel reused the id.
    if age + START_TOLERANCE < idle {
        return None;
    }
    let status = fs::read_to_string(format!("/proc/{tid}/status")).ok()?;
    let pid = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim().parse().ok()?;
    let command = fs::read(format!("/proc/{pid}/comm")).ok()?;
    Some(Process { pid, command: String::from_utf8_lossy(&command).trim_end_matches('\n').to_owned() })
}

/// The time since a thread started, from its line in `/proc/TID/stat`: field 22, in clock ticks since boot.
fn age(stat: &str) -> Option<Duration> {
    // The name, in parentheses, may have any characters.
    let ticks: u64 = stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()?;
    let started = Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64);
    let now = clock_gettime(ClockId::Boottime);
    Some(Duration::new(now.tv_sec as u64, now.tv_nsec as u32).saturating_sub(started))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_has_the_name_of_its_process() {
        let mut processes = Processes::default();
        let (pid, tid) = (std::process::id(), rustix::thread::gettid().as_raw_nonzero().get() as u32);
        let found = processes.find(tid, Duration::ZERO).unwrap();
        assert_eq!(found.pid, pid);
        let comm = fs::read_to_string("/proc/self/comm").unwrap();
        assert_eq!(found.command, comm.trim_end());
        assert_eq!(processes.find(0, Duration::ZERO), None);
    }

    #[test]
    fn an_id_that_was_given_to_a_younger_process_is_not_confused() {
        let mut processes = Processes::default();
        assert_eq!(processes.find(std::process::id(), Duration::from_secs(1 << 40)), None);
    }

    #[test]
    fn a_process_that_exited_has_its_name_for_a_reading_more() {
        let mut processes = Processes::default();
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        // Until it executes the program it has the name of this one.
        let named = || fs::read_to_string(format!("/proc/{}/comm", child.id())).unwrap() == "sleep\n";
        while !named() {
            std::thread::yield_now();
        }
        processes.begin();
        assert_eq!(processes.find(child.id(), Duration::ZERO).unwrap().command, "sleep");
        let pid = child.id();
        child.kill().unwrap();
        child.wait().unwrap();
        processes.begin();
        assert_eq!(processes.find(pid, Duration::ZERO).unwrap().command, "sleep");
        processes.begin();
        processes.begin();
        assert_eq!(processes.find(pid, Duration::ZERO), None);
    }
}
