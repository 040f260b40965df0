//! Requests that reach the daemon, from a thread of this process.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Looks up names that do not exist, each one new, writes, and fails to remove a directory that is not empty; ended on drop.
pub struct Load {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Load {
    pub fn on(mnt: &Path) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, mnt) = (stop.clone(), mnt.to_owned());
        fs::create_dir_all(mnt.join("parent/child")).unwrap();
        let thread = std::thread::spawn(move || {
            let mut number = 0;
            while !stopped.load(Ordering::Relaxed) {
                let _ = fs::metadata(mnt.join(format!("none{number}")));
                if number % 50 == 0 {
                    assert!(fs::remove_dir(mnt.join("parent")).is_err());
                    let _ = fs::write(mnt.join("load"), vec![7; 8192]);
                }
                number += 1;
                std::thread::sleep(Duration::from_micros(200));
            }
        });
        Load { stop, thread: Some(thread) }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
