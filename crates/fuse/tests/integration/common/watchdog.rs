//! A watchdog that turns a hang into a failure: it aborts the connection, which ends every wait in the kernel for its server.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use shunt_fuse::mount::{MountPoint, Unmount};
use shunt_test_support::pace;

/// After an abort every call returns at once; a test that still runs after this time hangs elsewhere.
const GRACE: Duration = Duration::from_secs(20);

#[derive(Default)]
struct WatchdogState {
    done: bool,
    bitten: bool,
    points: Vec<MountPoint>,
}

#[derive(Clone, Default)]
pub struct Watchdog(Arc<(Mutex<WatchdogState>, Condvar)>);

impl Watchdog {
    pub fn start(timeout: Duration) -> Self {
        let dog = Self::default();
        let watching = dog.clone();
        let test = std::thread::current().name().unwrap_or("?").to_owned();
        std::thread::spawn(move || watching.watch(timeout, &test));
        dog
    }

    /// Adds another mount to abort at the timeout.
    pub fn guard(&self, point: &MountPoint) {
        self.0.0.lock().points.push(point.clone());
    }

    /// Stops the watchdog. Returns whether it had timed out.
    pub fn end(&self) -> bool {
        let mut state = self.0.0.lock();
        state.done = true;
        self.0.1.notify_all();
        state.bitten
    }

    fn watch(&self, timeout: Duration, test: &str) {
        let (state, changed) = &*self.0;
        let mut state = state.lock();
        let start = Instant::now();
        while start.elapsed() < pace::limit(timeout) {
            if !changed.wait_while_for(&mut state, |state| !state.done, timeout).timed_out() {
                return;
            }
        }
        state.bitten = true;
        eprintln!("TIMEOUT {test}: aborting its connections\n{}", stacks());
        for point in &state.points {
            point.abort().ok();
        }
        if changed.wait_while_for(&mut state, |state| !state.done, pace::limit(GRACE)).timed_out() {
            eprintln!("HANG {test}: still running after the abort");
            for point in &state.points {
                point.unmount(Unmount::Lazy).ok();
            }
            std::process::exit(101);
        }
    }
}

/// Returns the kernel stack of each thread of this process, as far as root may read it.
fn stacks() -> String {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let stack = |task: std::path::PathBuf| {
        let read = |name| std::fs::read_to_string(task.join(name)).unwrap_or_default();
        format!("-- {}{}", read("comm"), read("stack"))
    };
    tasks.map(|task| stack(task.path())).collect()
}
