//! Tests on real mounts of rings that are refused after INIT announced them.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::PreparedRings;
use crate::api::{Attributes, Expiry, FileType};
use crate::id::{FileHandle, NodeId};
use crate::mount::tests::{TestMountDir, can_mount, skip};
use crate::mount::{self, MountOptions, Unmount};
use crate::negotiate::{Config, Profile, RingBuffers, Transport};
use crate::session::{FileSystem, Request};
use crate::session::{Session, TransportInUse};
use crate::transport::device::Device;

/// Longer than any reply takes.
const REPLY_TIMEOUT: Duration = Duration::from_secs(20);

struct Empty;

impl FileSystem for Empty {
    async fn getattr(
        &self,
        _: &Request<'_>,
        node: NodeId,
        _: Option<FileHandle>,
    ) -> Result<(Attributes, Expiry), crate::Errno> {
        let mode = FileType::Directory.mode() | 0o755;
        Ok((Attributes { ino: node.0, mode, nlink: 2, ..Attributes::default() }, Expiry::NEVER_CACHED))
    }
}

/// Mounts with rings that `spoil` has modified, and looks at the root. Returns the transport in use.
fn served_after(spoil: impl FnOnce(&mut PreparedRings)) -> Option<TransportInUse> {
    let _kept = shunt_test_support::rings::keep();
    let switch = std::fs::read_to_string(shunt_test_support::rings::SWITCH);
    if !can_mount() || !switch.is_ok_and(|switch| switch.trim() == "Y") {
        skip("FUSE over io_uring is missing or disabled");
        return None;
    }
    let mount_dir = TestMountDir::new();
    let detached = mount::prepare(&MountOptions::new().fsname("shunt-test")).unwrap();
    let device = detached
        .device()
        .expect("the device is prepared before the mount is attached")
        .try_clone_to_owned()
        .unwrap();
    let config = Config::new(Profile::Passthrough).transport(Transport::Uring);
    let mut session = Session::negotiate(Empty, config, Device::new(device).unwrap()).unwrap();
    spoil(session.agreed.rings.as_mut().expect("rings are prepared"));
    let handle = session.handle();
    let serving = thread::spawn(move || session.run());
    let mounted = detached.attach(&mount_dir.path()).unwrap();
    let (report, seen) = mpsc::channel();
    let path = mount_dir.path();
    let looking = thread::spawn(move || report.send(std::fs::metadata(path).is_ok()).ok());
    let answered = seen.recv_timeout(REPLY_TIMEOUT);
    if answered.is_err() {
        mounted.mount.abort().unwrap();
    }
    looking.join().unwrap();
    mounted.mount.unmount(Unmount::Lazy).unwrap();
    drop(mounted.device);
    serving.join().unwrap().unwrap();
    assert_eq!(answered, Ok(true), "the mount responds");
    Some(handle.transport())
}

#[track_caller]
fn assert_fell_back(in_use: &TransportInUse) {
    assert_eq!(in_use.transport, Transport::Dev);
    let reason = in_use.reason.as_deref().unwrap_or_default();
    assert!(reason.starts_with("the kernel refused a ring: "), "{reason}");
}

#[test]
fn without_a_fault_requests_come_over_rings() {
    let Some(in_use) = served_after(|_| ()) else { return };
    assert_eq!((in_use.transport, in_use.reason), (Transport::Uring, None));
}

#[test]
fn a_refused_register_falls_back_to_the_device() {
    // The kernel requires entries with buffers of their own to be as large as INIT announced.
    let spoil = |prepared: &mut PreparedRings| {
        prepared.sizes.max_write = 4096;
        prepared.buffers = RingBuffers::PerEntry;
    };
    let Some(in_use) = served_after(spoil) else { return };
    assert_fell_back(&in_use);
}

#[test]
fn a_ring_that_cannot_be_used_falls_back_to_the_device() {
    // The first queue is already registered. A ring that belongs to another thread cannot be started again.
    let Some(in_use) = served_after(|prepared| prepared.rings.last().unwrap().start().unwrap()) else {
        return;
    };
    assert_fell_back(&in_use);
}
