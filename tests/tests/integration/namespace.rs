//! Creation, rename and removal of all kinds of nodes.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, symlink};
use std::os::unix::net::{UnixListener, UnixStream};

use rustix::fs::{CWD, FileType, Mode, RenameFlags, mknodat, renameat_with};
use rustix::io::Errno;
use shunt_tests::Fixture;

shunt_tests::behaviours! { everywhere:
    create_read_write, open_flags, truncate_shrinks_and_grows, rename_replaces, rename_noreplace, rename_exchange,
    rename_whiteout, rename_directories, hard_links, symlinks, symlink_loops_and_dangling, fifos, sockets, device_nodes,
    unlink_and_rmdir, names_are_bytes, names_too_long, statfs_is_the_sources, dotdot_stays_inside,
}

fn create_read_write(s: &Fixture) {
    fs::write(s.path("f"), b"hello").unwrap();
    assert_eq!(fs::read(s.path("f")).unwrap(), b"hello");
    assert_eq!(fs::read(s.lower("f")).unwrap(), b"hello");
    let mut f = File::options().append(true).open(s.path("f")).unwrap();
    f.write_all(b" world").unwrap();
    assert_eq!(f.metadata().unwrap().len(), 11);
    drop(f);
    assert_eq!(fs::read(s.path("f")).unwrap(), b"hello world");
    let mut f = File::options().read(true).write(true).open(s.path("f")).unwrap();
    f.write_all(b"J").unwrap();
    let mut rest = String::new();
    f.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "ello world");
    assert_eq!(fs::metadata(s.path("f")).unwrap().len(), 11);
    assert_eq!(fs::read(s.lower("f")).unwrap(), b"Jello world");
}

fn open_flags(s: &Fixture) {
    assert_eq!(File::open(s.path("no")).unwrap_err().kind(), ErrorKind::NotFound);
    File::create_new(s.path("f")).unwrap().write_all(b"abc").unwrap();
    assert_eq!(File::create_new(s.path("f")).unwrap_err().kind(), ErrorKind::AlreadyExists);
    assert_eq!(fs::metadata(s.path("f")).unwrap().len(), 3);
    File::options().write(true).truncate(true).open(s.path("f")).unwrap();
    assert_eq!(fs::metadata(s.path("f")).unwrap().len(), 0);
    fs::create_dir(s.path("d")).unwrap();
    let e = File::options().write(true).open(s.path("d")).unwrap_err();
    assert_eq!(e.raw_os_error(), Some(libc::EISDIR));
    assert_eq!(File::open(s.path("f/x")).unwrap_err().raw_os_error(), Some(libc::ENOTDIR));
    // A write through a file opened for reading only: the kernel refuses it in every data mode.
    assert_eq!(File::open(s.path("f")).unwrap().write(b"x").unwrap_err().raw_os_error(), Some(libc::EBADF));
}

fn truncate_shrinks_and_grows(s: &Fixture) {
    fs::write(s.path("f"), b"0123456789").unwrap();
    let f = File::options().write(true).open(s.path("f")).unwrap();
    f.set_len(4).unwrap();
    assert_eq!(fs::read(s.path("f")).unwrap(), b"0123");
    f.set_len(8).unwrap();
    assert_eq!(fs::read(s.path("f")).unwrap(), b"0123\0\0\0\0");
    assert_eq!(fs::metadata(s.lower("f")).unwrap().len(), 8);
    // By name, too.
    truncate(s, "f", 2).unwrap();
    assert_eq!(fs::read(s.path("f")).unwrap(), b"01");
    assert_eq!(f.metadata().unwrap().len(), 2);
    fs::create_dir(s.path("d")).unwrap();
    assert_eq!(truncate(s, "d", 0).unwrap_err().raw_os_error(), Some(libc::EISDIR));
}

fn truncate(s: &Fixture, name: &str, len: i64) -> std::io::Result<()> {
    let path = std::ffi::CString::new(s.path(name).as_os_str().as_bytes()).unwrap();
    // SAFETY: the string is terminated by a zero byte and lives through the call.
    match unsafe { libc::truncate(path.as_ptr(), len) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

fn rename_replaces(s: &Fixture) {
    fs::write(s.path("a"), b"a").unwrap();
    fs::write(s.path("b"), b"b").unwrap();
    let ino = fs::metadata(s.path("a")).unwrap().ino();
    let old = File::open(s.path("b")).unwrap();
    fs::rename(s.path("a"), s.path("b")).unwrap();
    assert!(!s.path("a").exists());
    assert_eq!(fs::read(s.path("b")).unwrap(), b"a");
    assert_eq!(fs::metadata(s.path("b")).unwrap().ino(), ino, "a rename keeps the inode");
    assert_eq!(old.metadata().unwrap().nlink(), 0);
    // Two names of one file: nothing happens.
    fs::hard_link(s.path("b"), s.path("c")).unwrap();
    fs::rename(s.path("b"), s.path("c")).unwrap();
    assert!(s.path("b").exists() && s.path("c").exists());
    fs::create_dir(s.path("d")).unwrap();
    fs::rename(s.path("c"), s.path("d/c")).unwrap();
    assert_eq!(fs::read(s.lower("d/c")).unwrap(), b"a");
    assert_eq!(fs::rename(s.path("none"), s.path("x")).unwrap_err().kind(), ErrorKind::NotFound);
}

fn rename_noreplace(s: &Fixture) {
    fs::write(s.path("a"), b"a").unwrap();
    fs::write(s.path("b"), b"b").unwrap();
    let rename =
        |from: &str, to: &str| renameat_with(CWD, s.path(from), CWD, s.path(to), RenameFlags::NOREPLACE);
    assert_eq!(rename("a", "b"), Err(Errno::EXIST));
    assert_eq!(fs::read(s.path("b")).unwrap(), b"b");
    rename("a", "c").unwrap();
    assert!(!s.path("a").exists());
    assert_eq!(fs::read(s.lower("c")).unwrap(), b"a");
}

fn rename_exchange(s: &Fixture) {
    fs::write(s.path("file"), b"x").unwrap();
    fs::create_dir_all(s.path("dir/sub")).unwrap();
    let exchange = |a: &str, b: &str| renameat_with(CWD, s.path(a), CWD, s.path(b), RenameFlags::EXCHANGE);
    exchange("file", "dir").unwrap();
    assert!(s.path("file/sub").is_dir());
    assert_eq!(fs::read(s.path("dir")).unwrap(), b"x");
    assert!(s.lower("file/sub").is_dir());
    assert_eq!(exchange("file", "none"), Err(Errno::NOENT));
    let both = RenameFlags::EXCHANGE | RenameFlags::NOREPLACE;
    assert_eq!(renameat_with(CWD, s.path("file"), CWD, s.path("dir"), both), Err(Errno::INVAL));
}

fn rename_whiteout(s: &Fixture) {
    fs::write(s.path("a"), b"a").unwrap();
    renameat_with(CWD, s.path("a"), CWD, s.path("b"), RenameFlags::WHITEOUT).unwrap();
    let left = fs::symlink_metadata(s.path("a")).unwrap();
    assert!(left.file_type().is_char_device());
    assert_eq!(left.rdev(), 0);
    assert_eq!(fs::read(s.path("b")).unwrap(), b"a");
}

fn rename_directories(s: &Fixture) {
    fs::create_dir_all(s.path("a/b/c")).unwrap();
    fs::create_dir_all(s.path("full/x")).unwrap();
    fs::create_dir(s.path("empty")).unwrap();
    fs::write(s.path("f"), b"").unwrap();
    let code =
        |from: &str, to: &str| fs::rename(s.path(from), s.path(to)).map_err(|e| e.raw_os_error().unwrap());
    assert_eq!(code("a", "a/b/c/d"), Err(libc::EINVAL));
    assert!(matches!(code("a", "full"), Err(libc::ENOTEMPTY | libc::EEXIST)));
    assert_eq!(code("a", "f"), Err(libc::ENOTDIR));
    assert_eq!(code("f", "a"), Err(libc::EISDIR));
    code("a", "empty").unwrap();
    assert!(s.path("empty/b/c").is_dir());
    let links = |name: &str| fs::metadata(s.path(name)).unwrap().nlink();
    let before = links("full");
    code("empty", "full/moved").unwrap();
    assert_eq!(links("full"), before + 1, "a directory's `..` counts as a link of its parent");
    assert!(s.lower("full/moved/b/c").is_dir());
}

fn hard_links(s: &Fixture) {
    fs::write(s.path("a"), b"one").unwrap();
    fs::create_dir(s.path("d")).unwrap();
    fs::hard_link(s.path("a"), s.path("d/b")).unwrap();
    let (a, b) = (fs::metadata(s.path("a")).unwrap(), fs::metadata(s.path("d/b")).unwrap());
    assert_eq!((a.ino(), a.nlink()), (b.ino(), 2));
    fs::write(s.path("d/b"), b"two!").unwrap();
    assert_eq!(fs::read(s.path("a")).unwrap(), b"two!");
    assert_eq!(fs::metadata(s.path("a")).unwrap().len(), 4);
    fs::remove_file(s.path("a")).unwrap();
    assert_eq!(fs::metadata(s.path("d/b")).unwrap().nlink(), 1);
    assert_eq!(fs::hard_link(s.path("d"), s.path("e")).unwrap_err().raw_os_error(), Some(libc::EPERM));
    fs::write(s.path("c"), b"").unwrap();
    assert_eq!(fs::hard_link(s.path("c"), s.path("d/b")).unwrap_err().kind(), ErrorKind::AlreadyExists);
    // A link to the symbolic link itself, not to what it names.
    symlink("nowhere", s.path("sym")).unwrap();
    fs::hard_link(s.path("sym"), s.path("sym2")).unwrap();
    assert_eq!(fs::symlink_metadata(s.path("sym2")).unwrap().nlink(), 2);
}

fn symlinks(s: &Fixture) {
    fs::create_dir(s.path("d")).unwrap();
    fs::write(s.path("d/f"), b"x").unwrap();
    symlink("d/f", s.path("l")).unwrap();
    assert_eq!(fs::read(s.path("l")).unwrap(), b"x");
    assert_eq!(fs::read_link(s.path("l")).unwrap().as_os_str(), "d/f");
    assert_eq!(fs::symlink_metadata(s.path("l")).unwrap().len(), 3);
    symlink("d", s.path("ld")).unwrap();
    fs::write(s.path("ld/g"), b"y").unwrap();
    assert_eq!(fs::read(s.lower("d/g")).unwrap(), b"y");
    let long = "x/".repeat(2047);
    symlink(&long, s.path("long")).unwrap();
    assert_eq!(fs::read_link(s.path("long")).unwrap().as_os_str(), long.as_str());
    let bytes = OsString::from_vec(vec![0xff, 0x01, b'\n', 0x80]);
    symlink(&bytes, s.path("bytes")).unwrap();
    assert_eq!(fs::read_link(s.path("bytes")).unwrap().as_os_str(), bytes);
    fs::remove_file(s.path("l")).unwrap();
    assert!(s.path("d/f").exists());
    // An absolute target is resolved by the caller, outside, not by the server.
    symlink("/proc/self/comm", s.path("abs")).unwrap();
    assert_eq!(fs::read(s.path("abs")).unwrap(), fs::read("/proc/self/comm").unwrap());
}

fn symlink_loops_and_dangling(s: &Fixture) {
    symlink("b", s.path("a")).unwrap();
    symlink("a", s.path("b")).unwrap();
    assert_eq!(File::open(s.path("a")).unwrap_err().raw_os_error(), Some(libc::ELOOP));
    symlink("none", s.path("dangling")).unwrap();
    assert_eq!(File::open(s.path("dangling")).unwrap_err().kind(), ErrorKind::NotFound);
    fs::write(s.path("dangling"), b"made").unwrap();
    assert_eq!(fs::read(s.lower("none")).unwrap(), b"made");
}

fn fifos(s: &Fixture) {
    mknodat(CWD, s.path("p"), FileType::Fifo, Mode::from_raw_mode(0o640), 0).unwrap();
    let m = fs::metadata(s.path("p")).unwrap();
    assert!(m.file_type().is_fifo());
    assert_eq!(m.mode() & 0o777, 0o640);
    assert!(fs::metadata(s.lower("p")).unwrap().file_type().is_fifo());
    let text = std::thread::scope(|scope| {
        scope.spawn(|| fs::write(s.path("p"), b"through the pipe").unwrap());
        fs::read(s.path("p")).unwrap()
    });
    assert_eq!(text, b"through the pipe");
}

fn sockets(s: &Fixture) {
    let listener = UnixListener::bind(s.path("s")).unwrap();
    assert!(fs::metadata(s.path("s")).unwrap().file_type().is_socket());
    assert!(fs::metadata(s.lower("s")).unwrap().file_type().is_socket());
    let mut client = UnixStream::connect(s.path("s")).unwrap();
    let (mut served, _) = listener.accept().unwrap();
    client.write_all(b"ping").unwrap();
    let mut buffer = [0; 4];
    served.read_exact(&mut buffer).unwrap();
    assert_eq!(&buffer, b"ping");
    fs::remove_file(s.path("s")).unwrap();
    assert!(!s.lower("s").exists());
}

fn device_nodes(s: &Fixture) {
    let device = rustix::fs::makedev(259, 70_000);
    for (name, kind) in [("c", FileType::CharacterDevice), ("b", FileType::BlockDevice)] {
        mknodat(CWD, s.path(name), kind, Mode::from_raw_mode(0o600), device).unwrap();
        let (m, l) = (fs::metadata(s.path(name)).unwrap(), fs::metadata(s.lower(name)).unwrap());
        assert_eq!(m.rdev(), device, "{name}");
        assert_eq!(l.rdev(), device, "{name}, in the source");
        assert_eq!(m.mode(), l.mode());
    }
}

fn unlink_and_rmdir(s: &Fixture) {
    fs::create_dir_all(s.path("d/e")).unwrap();
    fs::write(s.path("f"), b"").unwrap();
    let code = |r: std::io::Result<()>| r.map_err(|e| e.raw_os_error().unwrap());
    assert_eq!(code(fs::remove_dir(s.path("d"))), Err(libc::ENOTEMPTY));
    assert_eq!(code(fs::remove_dir(s.path("f"))), Err(libc::ENOTDIR));
    assert_eq!(code(fs::remove_file(s.path("d"))), Err(libc::EISDIR));
    assert_eq!(code(fs::remove_file(s.path("none"))), Err(libc::ENOENT));
    fs::remove_dir(s.path("d/e")).unwrap();
    fs::remove_dir(s.path("d")).unwrap();
    fs::remove_file(s.path("f")).unwrap();
    assert_eq!(fs::read_dir(s.mnt()).unwrap().count(), 0);
    assert_eq!(fs::read_dir(s.src()).unwrap().count(), 0);
    fs::create_dir(s.path("d")).unwrap();
    assert!(s.lower("d").is_dir());
}

fn names_are_bytes(s: &Fixture) {
    // All 254 bytes that a name may hold, and one more to reach the longest name.
    let mut bytes: Vec<u8> = (1..=255).filter(|b| *b != b'/').collect();
    bytes.push(0xff);
    assert_eq!(bytes.len(), 255);
    let name = OsString::from_vec(bytes);
    fs::write(s.path(&name), b"x").unwrap();
    assert_eq!(fs::read(s.lower(&name)).unwrap(), b"x");
    let listed: Vec<_> = fs::read_dir(s.mnt()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(listed, std::slice::from_ref(&name));
    let other = OsString::from_vec(vec![0xfe; 255]);
    fs::rename(s.path(&name), s.path(&other)).unwrap();
    fs::create_dir(s.path(&name)).unwrap();
    fs::remove_dir(s.path(&name)).unwrap();
    fs::remove_file(s.path(&other)).unwrap();
}

fn names_too_long(s: &Fixture) {
    let long = "x".repeat(256);
    let e = libc::ENAMETOOLONG;
    assert_eq!(fs::write(s.path(&long), b"").unwrap_err().raw_os_error(), Some(e));
    assert_eq!(fs::create_dir(s.path(&long)).unwrap_err().raw_os_error(), Some(e));
    assert_eq!(fs::metadata(s.path(&long)).unwrap_err().raw_os_error(), Some(e));
    assert_eq!(symlink("x", s.path(&long)).unwrap_err().raw_os_error(), Some(e));
    fs::write(s.path("f"), b"").unwrap();
    assert_eq!(fs::rename(s.path("f"), s.path(&long)).unwrap_err().raw_os_error(), Some(e));
    assert_eq!(fs::hard_link(s.path("f"), s.path(&long)).unwrap_err().raw_os_error(), Some(e));
    assert_eq!(fs::metadata(s.path("d/".repeat(2100))).unwrap_err().raw_os_error(), Some(e));
    // Deeper than the maximum path length, one step at a time.
    let mut dir = rustix::fs::open(s.mnt(), rustix::fs::OFlags::DIRECTORY, Mode::empty()).unwrap();
    let name = "y".repeat(250);
    for _ in 0..20 {
        rustix::fs::mkdirat(&dir, name.as_str(), Mode::RWXU).unwrap();
        dir = rustix::fs::openat(&dir, name.as_str(), rustix::fs::OFlags::DIRECTORY, Mode::empty()).unwrap();
    }
    let file =
        rustix::fs::openat(&dir, "f", rustix::fs::OFlags::CREATE | rustix::fs::OFlags::RDWR, Mode::RWXU)
            .unwrap();
    rustix::io::write(&file, b"deep").unwrap();
    assert_eq!(rustix::fs::statat(&dir, "f", rustix::fs::AtFlags::empty()).unwrap().st_size, 4);
}

fn statfs_is_the_sources(s: &Fixture) {
    let (m, l) = (rustix::fs::statvfs(s.mnt()).unwrap(), rustix::fs::statvfs(s.src()).unwrap());
    assert_eq!(
        (m.f_blocks, m.f_bsize, m.f_files, m.f_namemax),
        (l.f_blocks, l.f_bsize, l.f_files, l.f_namemax)
    );
    assert!(m.f_bavail.abs_diff(l.f_bavail) * m.f_bsize < 1 << 30);
}

fn dotdot_stays_inside(s: &Fixture) {
    fs::create_dir(s.path("d")).unwrap();
    let ino = |p: std::path::PathBuf| fs::metadata(p).unwrap().ino();
    assert_eq!(ino(s.path("d/..")), ino(s.mnt().to_owned()));
    // `..` of the mount's root is the directory that holds the mount point, not the source's parent.
    assert_eq!(ino(s.path("..")), ino(s.mnt().parent().unwrap().to_owned()));
}
