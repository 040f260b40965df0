//! Asynchronous direct writes concurrent with buffered readers: once a write is complete, every reader sees it.

use std::fs::{self, File};
use std::io;
use std::ops::DerefMut as _;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use shunt_test_support::{needs_mount, requirement};
use shunt_tests::sys::{Aligned, open_direct};
use shunt_tests::{Image, Plan, Volume, fixture};

const LENGTH: usize = 64 << 10;
const ROUNDS: u32 = 2000;

/// `struct iocb` of `io_submit(2)`.
#[repr(C)]
#[derive(Default)]
struct Control {
    data: u64,
    key: u32,
    rw_flags: i32,
    opcode: u16,
    priority: i16,
    fd: u32,
    buffer: u64,
    length: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    result_fd: u32,
}

/// `struct io_event`.
#[repr(C)]
#[derive(Default)]
struct Event {
    data: u64,
    object: u64,
    result: i64,
    result2: i64,
}

const PWRITE: u16 = 1;

/// Asynchronous requests, one at a time.
struct AioContext(libc::c_ulong);

impl AioContext {
    fn new() -> io::Result<Self> {
        let mut context: libc::c_ulong = 0;
        // SAFETY: the call writes one word, which exists.
        match unsafe { libc::syscall(libc::SYS_io_setup, 1, &raw mut context) } {
            0 => Ok(Self(context)),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn write(&self, file: &File, bytes: &mut [u8]) -> i64 {
        let mut control = Control {
            opcode: PWRITE,
            fd: file.as_raw_fd().cast_unsigned(),
            buffer: bytes.as_mut_ptr() as u64,
            length: bytes.len() as u64,
            ..Control::default()
        };
        let mut list = [&raw mut control];
        let mut event = Event::default();
        // SAFETY: the buffer, the control block and the event live until the request is complete, which this waits for.
        unsafe {
            assert_eq!(libc::syscall(libc::SYS_io_submit, self.0, 1, list.as_mut_ptr()), 1);
            let none = std::ptr::null_mut::<libc::timespec>();
            assert_eq!(libc::syscall(libc::SYS_io_getevents, self.0, 1, 1, &raw mut event, none), 1);
        }
        event.result
    }
}

impl Drop for AioContext {
    fn drop(&mut self) {
        // SAFETY: no request is pending.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.0) };
    }
}

/// Writes a file repeatedly while others read it.
fn nobody_reads_older_data(path: &Path) {
    fs::write(path, vec![1; LENGTH]).unwrap();
    let writer = open_direct(path).unwrap();
    writer.sync_all().unwrap();
    let background = AioContext::new().unwrap();
    let (mut bytes, over) = (Aligned::new(LENGTH), AtomicBool::new(false));
    let stale = thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let reader = File::open(path).unwrap();
                let mut read = vec![0; LENGTH];
                while !over.load(Ordering::Relaxed) {
                    reader.read_exact_at(&mut read, 0).unwrap();
                }
            });
        }
        let reader = File::open(path).unwrap();
        let mut read = vec![0; LENGTH];
        let stale = (0..ROUNDS)
            .filter(|round| {
                bytes.deref_mut().fill(*round as u8);
                assert_eq!(background.write(&writer, &mut bytes), LENGTH as i64);
                reader.read_exact_at(&mut read, 0).unwrap();
                read.iter().any(|byte| *byte != *round as u8)
            })
            .count();
        over.store(true, Ordering::Relaxed);
        stale
    });
    assert_eq!(stale, 0, "of {ROUNDS} writes");
}

#[test]
fn through_a_mirror() {
    for options in [&["--cache", "exclusive", "--passthrough", "off"][..], &["--passthrough", "off"], &[]] {
        fixture::perform(Plan::ext4().args(options), |s| nobody_reads_older_data(&s.path("file")));
    }
}

#[test]
fn on_an_image() {
    needs_mount!();
    let image = Image::make(&[], 32).unwrap();
    let mount = image.by_shunt(&[]);
    nobody_reads_older_data(&mount.at().join("file"));
    drop(mount);
    image.check();
}

#[test]
fn on_a_volume() {
    needs_mount!();
    requirement!(rustix::process::geteuid().is_root(), "needs root");
    let volume = Volume::new();
    for options in [&["--passthrough", "off"][..], &[]] {
        let mount = volume.mount_as_with(if options.is_empty() { "ant" } else { "bee" }, options);
        nobody_reads_older_data(&mount.at().join("file"));
    }
}
