//! `chattr +i` and `chattr +a` forbid the same operations as on the kernel's own ext4.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _, chown};
use std::path::Path;

use rustix::fs::{
    CWD, FallocateFlags, IFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, XattrFlags, copy_file_range,
    fallocate, futimens, ioctl_getflags, ioctl_setflags, removexattr, setxattr, utimensat,
};
use shunt_test_support::{needs_mount, requirement, skip};
use shunt_tests::Image;
use shunt_tests::image::Mount;

type Operation = (&'static str, fn(&Objects<'_>) -> io::Result<()>);

/// A file and a directory that get a flag, and descriptors opened before.
struct Objects<'a> {
    at: &'a Path,
    open: File,
    appending: File,
}

impl Objects<'_> {
    fn times(&self, name: &str, atime: i64, mtime: i64) -> io::Result<()> {
        let time = |wanted: i64| match wanted {
            -1 => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
            -2 => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
            at => Timespec { tv_sec: at, tv_nsec: 0 },
        };
        let times = Timestamps { last_access: time(atime), last_modification: time(mtime) };
        Ok(utimensat(CWD, self.at.join(name), &times, rustix::fs::AtFlags::empty())?)
    }
}

const NOW: i64 = -1;
const OMIT: i64 = -2;

fn operations() -> Vec<Operation> {
    const KEEP: FallocateFlags = FallocateFlags::KEEP_SIZE;
    vec![
        ("chmod", |o| fs::set_permissions(o.at.join("file"), Permissions::from_mode(0o640))),
        ("chmod of the directory", |o| fs::set_permissions(o.at.join("dir"), Permissions::from_mode(0o750))),
        ("chown", |o| chown(o.at.join("file"), Some(7), Some(7))),
        ("chown to nobody new", |o| chown(o.at.join("file"), None, None)),
        ("touch", |o| o.times("file", NOW, NOW)),
        ("touch the directory", |o| o.times("dir", NOW, NOW)),
        ("times", |o| o.times("file", 1_000_000, 1_000_000)),
        ("times of the directory", |o| o.times("dir", 1_000_000, 1_000_000)),
        ("atime", |o| o.times("file", 1_000_000, OMIT)),
        ("mtime", |o| o.times("file", OMIT, 1_000_000)),
        ("atime to now", |o| o.times("file", NOW, OMIT)),
        ("mtime to now", |o| o.times("file", OMIT, NOW)),
        ("atime to now, mtime", |o| o.times("file", NOW, 1_000_000)),
        ("times by descriptor", |o| {
            let time = Timespec { tv_sec: 5, tv_nsec: 0 };
            Ok(futimens(&o.open, &Timestamps { last_access: time, last_modification: time })?)
        }),
        ("mtime by descriptor", |o| {
            let omit = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
            let time = Timespec { tv_sec: 5, tv_nsec: 0 };
            Ok(futimens(&o.open, &Timestamps { last_access: omit, last_modification: time })?)
        }),
        ("truncate", |o| {
            let name = std::ffi::CString::new(o.at.join("file").to_str().unwrap()).unwrap();
            // SAFETY: the string is terminated by a zero byte and lives through the call.
            match unsafe { libc::truncate(name.as_ptr(), 100) } {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            }
        }),
        ("ftruncate", |o| o.open.set_len(200)),
        ("open to write", |o| File::options().write(true).open(o.at.join("file")).map(drop)),
        ("open to append", |o| File::options().append(true).open(o.at.join("file")).map(drop)),
        ("open to truncate", |o| {
            File::options().write(true).truncate(true).open(o.at.join("file")).map(drop)
        }),
        ("open to read", |o| File::open(o.at.join("file")).map(drop)),
        ("rename", |o| fs::rename(o.at.join("file"), o.at.join("moved"))),
        ("rename onto", |o| fs::rename(o.at.join("other"), o.at.join("file"))),
        ("rename the directory", |o| fs::rename(o.at.join("dir"), o.at.join("moved"))),
        ("rename into", |o| fs::rename(o.at.join("other"), o.at.join("dir/new"))),
        ("rename out of", |o| fs::rename(o.at.join("dir/inside"), o.at.join("out"))),
        ("link", |o| fs::hard_link(o.at.join("file"), o.at.join("link"))),
        ("link into", |o| fs::hard_link(o.at.join("other"), o.at.join("dir/link"))),
        ("unlink", |o| fs::remove_file(o.at.join("file"))),
        ("unlink within", |o| fs::remove_file(o.at.join("dir/inside"))),
        ("rmdir", |o| fs::remove_dir(o.at.join("empty"))),
        ("create within", |o| File::create_new(o.at.join("dir/made")).map(drop)),
        ("mkdir within", |o| fs::create_dir(o.at.join("dir/made"))),
        ("symlink within", |o| std::os::unix::fs::symlink("x", o.at.join("dir/made"))),
        ("write within", |o| fs::write(o.at.join("dir/inside"), b"new")),
        ("set an attribute", |o| Ok(setxattr(o.at.join("file"), "user.new", b"value", XattrFlags::empty())?)),
        ("set a trusted attribute", |o| {
            Ok(setxattr(o.at.join("file"), "trusted.new", b"value", XattrFlags::empty())?)
        }),
        ("remove an attribute", |o| Ok(removexattr(o.at.join("file"), "user.old")?)),
        ("fallocate", |o| Ok(fallocate(&o.open, FallocateFlags::empty(), 0, 100_000)?)),
        ("fallocate behind the end", |o| Ok(fallocate(&o.open, KEEP, 0, 200_000)?)),
        ("punch", |o| Ok(fallocate(&o.open, FallocateFlags::PUNCH_HOLE | KEEP, 0, 4096)?)),
        ("zero", |o| Ok(fallocate(&o.open, FallocateFlags::ZERO_RANGE, 0, 4096)?)),
        ("copy_file_range", |o| {
            let from = File::open(o.at.join("other"))?;
            copy_file_range(from, Some(&mut 0), &o.open, Some(&mut 0), 10)?;
            Ok(())
        }),
        ("write", |o| o.open.write_all_at(b"over", 0)),
        ("write twice", |o| o.open.write_all_at(b"over", 0).and(o.open.write_all_at(b"over", 4))),
        ("append", |o| io::Write::write_all(&mut &o.appending, b"more")),
        ("fsync", |o| o.open.sync_all()),
    ]
}

/// Returns the result of each operation on objects with a flag, and for those that succeed the state afterwards.
fn table(mount: &Mount, flag: IFlags) -> Vec<String> {
    let mut rows = Vec::new();
    for (n, (name, operation)) in operations().into_iter().enumerate() {
        let at = mount.at().join(format!("{:x} {n}", flag.bits()));
        fs::create_dir(&at).unwrap();
        for dir in ["dir", "empty"] {
            fs::create_dir(at.join(dir)).unwrap();
        }
        for file in ["file", "other", "dir/inside"] {
            fs::write(at.join(file), vec![b'x'; 20_000]).unwrap();
        }
        setxattr(at.join("file"), "user.old", b"value", XattrFlags::empty()).unwrap();
        let open = File::options().read(true).write(true).open(at.join("file")).unwrap();
        let appending = File::options().append(true).open(at.join("file")).unwrap();
        // Dirty when the flag is set.
        open.write_all_at(b"early", 8192).unwrap();
        let objects = Objects { at: &at, open, appending };
        let set = |on: bool| {
            for name in ["file", "dir", "empty", "moved"] {
                let Ok(object) = File::open(at.join(name)) else { continue };
                let mut flags = ioctl_getflags(&object).unwrap();
                flags.set(flag, on);
                ioctl_setflags(&object, flags).unwrap();
            }
        };
        set(true);
        let done = operation(&objects).map_err(|error| rustix::io::Errno::from_io_error(&error).unwrap());
        set(false);
        drop(objects);
        let content = fs::read(at.join("file")).unwrap_or_default();
        let early = content.get(8192..8197) == Some(b"early");
        let head = content.get(..4).map(<[u8]>::to_vec).unwrap_or_default();
        rows.push(format!("{name}: {done:?}, {} bytes, {head:?}, early {early}", content.len()));
    }
    rows
}

#[test]
fn flags_forbid_what_the_kernel_forbids() {
    needs_mount!();
    requirement!(rustix::process::geteuid().is_root(), "needs root");
    let (ours, theirs) = (Image::make(&[], 64).unwrap(), Image::make(&[], 64).unwrap());
    let kernel = match theirs.by_kernel("rw") {
        Ok(kernel) => kernel,
        Err(why) => return skip::kernel_cannot(&why),
    };
    let mount = ours.by_shunt(&[]);
    let mut differ = Vec::new();
    for flag in [IFlags::IMMUTABLE, IFlags::APPEND] {
        let (found, expected) = (table(&mount, flag), table(&kernel, flag));
        let wrong = expected.iter().zip(&found).filter(|(expected, found)| expected != found);
        differ.extend(wrong.map(|(expected, found)| format!("{flag:?}: kernel {expected}; ours {found}")));
    }
    assert!(differ.is_empty(), "{differ:#?}");
    drop(mount);
    ours.check();
}
