//! The descriptor store of systemd: `FDSTORE=1` and `FDSTOREREMOVE=1` of sd_notify(3), and the descriptors that sd_listen_fds(3)
//! returns to the next process.

use std::io;
use std::os::fd::{BorrowedFd, FromRawFd as _, OwnedFd};

use sd_notify::NotifyState;
use shunt_fuse::guardian::DescriptorStore;

/// The store of this service.
#[derive(Debug)]
pub struct ServiceManagerStore;

impl DescriptorStore for ServiceManagerStore {
    fn store(&self, name: &str, descriptor: BorrowedFd<'_>) -> io::Result<()> {
        // Memory files and directories cannot be polled, and systemd refuses an O_PATH descriptor that it is to poll.
        let states = [NotifyState::FdStore, NotifyState::FdName(name), NotifyState::Custom("FDPOLL=0")];
        sd_notify::notify_with_fds(&states, &[descriptor])
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        sd_notify::notify(&[NotifyState::FdStoreRemove, NotifyState::FdName(name)])
    }
}

/// The descriptors that the service manager passed, with their names. Call it once, before the process opens files.
pub fn passed() -> Vec<(String, OwnedFd)> {
    let passed = match sd_notify::listen_fds_with_names() {
        Ok(passed) => passed,
        Err(error) => {
            tracing::warn!("cannot use the descriptors of the service manager: {error}");
            return Vec::new();
        }
    };
    // SAFETY: the service manager passed these descriptors to this process, and nothing else in it uses them.
    passed.map(|(number, name)| (name, unsafe { OwnedFd::from_raw_fd(number) })).collect()
}
