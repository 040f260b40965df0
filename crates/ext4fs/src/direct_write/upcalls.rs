//! Upcalls of the kernel module: block allocation and sync during writes. One thread receives all requests and allocates
//! blocks, retrying ENOSPC after the reaper has caught up; it passes syncs on to a second thread, so that a slow sync delays no
//! writer.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::io::Errno;
use shunt_extmap::{Request, Upcall};

use super::Files;

/// Maximum time until the threads see the end of the mount.
const RETRY_TIMEOUT: Duration = Duration::from_millis(100);

/// Starts two threads: one allocates blocks, one syncs. A sync may take long and wait for writers that wait for blocks.
pub(super) fn start(files: &Arc<Files>) -> std::io::Result<Vec<JoinHandle<()>>> {
    let (sender, receiver) = channel();
    let spawn =
        |name: &str, run: Box<dyn FnOnce() + Send>| thread::Builder::new().name(name.into()).spawn(run);
    let (receiving, syncing) = (files.clone(), files.clone());
    Ok(vec![
        spawn("blocks", Box::new(move || receive(&receiving, &sender)))?,
        spawn("sync", Box::new(move || sync(&syncing, &receiver)))?,
    ])
}

fn receive(files: &Files, syncs: &Sender<Request>) {
    while !files.ended.load(Ordering::Acquire) {
        let request = match files.connection.next_request(RETRY_TIMEOUT) {
            Ok(Some(request)) => request,
            Ok(None) => continue,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => {
                tracing::error!("cannot receive upcalls of the module shunt_extmap: {error}; retrying");
                thread::sleep(RETRY_TIMEOUT);
                continue;
            }
        };
        match request.upcall {
            Upcall::Allocate { offset, length } => {
                let done = allocate(files, request.file, offset, length);
                answer(files, request, done);
            }
            Upcall::Sync => {
                if syncs.send(request).is_err() {
                    answer(files, request, Err(Errno::IO));
                }
            }
        }
    }
}

fn allocate(files: &Files, cookie: u64, offset: u64, length: u64) -> Result<(), Errno> {
    let file = files.by_cookie(cookie).ok_or(Errno::STALE)?;
    let end = offset.checked_add(length).ok_or(Errno::FBIG)?;
    let done = match file.allocate(&files.filesystem, offset..end) {
        Err(shunt_ext4::Error::NoSpace) => {
            files.reaper.catch_up();
            file.allocate(&files.filesystem, offset..end)
        }
        done => done,
    };
    match done.map_err(|error| error.errno()) {
        // The range was truncated in between. The kernel repeats the request if it still needs the blocks.
        Err(Errno::AGAIN) => Ok(()),
        done => done,
    }
}

fn sync(files: &Files, requests: &Receiver<Request>) {
    for request in requests {
        let done = files.by_cookie(request.file).ok_or(Errno::STALE).and_then(|file| {
            let settled = files.settle(file.number, true).and_then(|()| files.filesystem.sync());
            settled.map_err(|error| error.errno())
        });
        answer(files, request, done);
    }
}

fn answer(files: &Files, request: Request, done: Result<(), Errno>) {
    // The requester may have been killed.
    let _ = files.connection.reply(request.id, done);
}
