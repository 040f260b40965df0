//! The processes that sent requests between two readings.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use serde::Serialize;

use super::processes::Processes;
use crate::process;
use crate::report::Stat;
use crate::report::counters::Caller;
use crate::text::printable;

/// A process that sent requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ProcessView {
    /// Its id; none for all processes together that exited before their names were read. 0: the kernel itself, or a process outside of
    /// the PID namespace of the mount. If that is not the viewer's, it is the id of a thread there.
    pub pid: Option<u32>,
    /// Its name, if it is known.
    pub command: Option<String>,
    /// The user of its last request.
    pub uid: u32,
    /// Its threads that sent requests.
    pub threads: u64,
    /// Requests per second.
    pub requests_per_s: f64,
    /// Requests since it was first seen; see [`Caller::requests`].
    pub requests: u64,
}

impl ProcessView {
    /// The name, or what is known instead.
    pub fn name(&self) -> Cow<'_, str> {
        match (&self.command, self.pid) {
            (Some(command), _) => printable(command),
            (None, Some(0)) => Cow::Borrowed("(kernel)"),
            (None, Some(_)) => Cow::Borrowed("?"),
            (None, None) => Cow::Borrowed("(exited)"),
        }
    }
}

/// Returns the processes that sent requests in the `seconds` between two reports of a daemon, the busiest first.
pub fn processes(now: &Stat, before: &Stat, seconds: f64, processes: &mut Processes) -> Vec<ProcessView> {
    let earlier: HashMap<u32, &Caller> = before.callers.iter().map(|caller| (caller.tid, caller)).collect();
    let here = now.pid_namespace.is_some() && now.pid_namespace == process::pid_namespace();
    let mut found: BTreeMap<Option<u32>, ProcessView> = BTreeMap::new();
    for caller in &now.callers {
        let requests = recent(caller, earlier.get(&caller.tid).copied(), seconds);
        if requests == 0 {
            continue;
        }
        let process = match here {
            true => processes.find(caller.tid, Duration::from_secs(caller.idle_s)),
            false => None,
        };
        let pid = match &process {
            Some(process) => Some(process.pid),
            None => Some(caller.tid).filter(|tid| *tid == 0 || !here),
        };
        let view = found.entry(pid).or_default();
        view.pid = pid;
        view.command = view.command.take().or(process.map(|process| process.command));
        view.uid = caller.uid;
        view.threads += 1;
        view.requests_per_s += requests as f64 / seconds;
        view.requests += caller.requests;
    }
    let mut found: Vec<_> = found.into_values().collect();
    found.sort_by(|one, other| other.requests_per_s.total_cmp(&one.requests_per_s));
    found
}

/// The requests of a caller since the earlier report.
fn recent(now: &Caller, before: Option<&Caller>, seconds: f64) -> u64 {
    match before {
        Some(before) if before.requests <= now.requests && before.since_s <= now.since_s => {
            now.requests - before.requests
        }
        // It was first seen since then. Times are whole seconds.
        _ if (now.since_s as f64) <= seconds + 1.0 => now.requests,
        // The earlier report had no room for it.
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(tid: u32, requests: u64, since_s: u64) -> Caller {
        Caller { tid, uid: 7, requests, since_s, idle_s: 0 }
    }

    fn stat(callers: Vec<Caller>) -> Stat {
        Stat { callers, pid_namespace: process::pid_namespace(), ..Stat::default() }
    }

    #[test]
    fn threads_are_summed_by_process() {
        let own = std::process::id();
        let thread = std::thread::spawn(|| rustix::thread::gettid().as_raw_nonzero().get() as u32);
        let _ = thread.join();
        let tid = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        // Another process had the id of this one before, and the first requests.
        let before = stat(vec![caller(own, 10, 1 << 40), caller(0, 5, 100)]);
        let mut now = vec![caller(own, 30, (1 << 40) + 2), caller(0, 9, 102)];
        // In a test the main thread waits, and another one runs this.
        if tid != own {
            now.push(caller(tid, 8, 0));
        }
        let found = processes(&stat(now), &before, 2.0, &mut Processes::default());
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].pid, found[0].uid, found[1].pid), (Some(own), 7, Some(0)));
        assert_eq!(found[1].requests_per_s, 2.0);
        assert_eq!(found[0].requests_per_s, if tid == own { 10.0 } else { 14.0 });
        assert!(found[0].command.is_some() && found[1].command.is_none());
    }

    #[test]
    fn ids_of_other_namespaces_are_not_looked_up() {
        let other = Stat { pid_namespace: Some(1), ..stat(vec![caller(std::process::id(), 1, 0)]) };
        let found = processes(&other, &Stat::default(), 1.0, &mut Processes::default());
        assert_eq!((found[0].pid, &found[0].command), (Some(std::process::id()), &None));
    }

    #[test]
    fn processes_that_exited_are_one() {
        // Larger than any id of the kernel.
        let now = stat(vec![caller(1 << 30, 3, 0), caller((1 << 30) + 1, 4, 0)]);
        let found = processes(&now, &Stat::default(), 1.0, &mut Processes::default());
        assert_eq!((found.len(), found[0].pid, found[0].threads, found[0].requests), (1, None, 2, 7));
        assert_eq!(found[0].name(), "(exited)");
    }

    #[test]
    fn a_caller_without_an_earlier_count() {
        assert_eq!(recent(&caller(1, 50, 2), None, 1.0), 50);
        assert_eq!(recent(&caller(1, 50, 9), None, 1.0), 0);
        // Counting started again.
        assert_eq!(recent(&caller(1, 3, 0), Some(&caller(1, 90, 100)), 1.0), 3);
        assert_eq!(recent(&caller(1, 95, 101), Some(&caller(1, 90, 100)), 1.0), 5);
    }
}
