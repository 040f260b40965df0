//! Permissions of each caller, as if it worked on the source directly.

use std::fs::{self, File, Permissions};
use std::io::Write as _;
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, chown, symlink,
};
use std::path::Path;

use rustix::fs::{Access, AtFlags, CWD, Mode, accessat};
use shunt_test_support::{User, needs_mount, needs_tools, requirement, run, sh};
use shunt_tests::{Fixture, Lower, Plan, fixture};

shunt_tests::behaviours! { everywhere:
    modes_decide, directories_need_search, owner_of_new_files, umask_applies, setgid_directories, sticky_directories,
    supplementary_groups, chown_rules, chmod_rules, access_asks_for_the_real_user, root_overrides,
    permission_changes_bind_at_once, an_open_file_keeps_its_rights, protected_parent_hides_nothing_it_should_show,
    immutable_and_append_only,
}

fn make(s: &Fixture, name: &str, owner: u32, mode: u32) -> std::path::PathBuf {
    let path = s.path(name);
    fs::write(&path, b"data").unwrap();
    chown(&path, Some(owner), Some(owner)).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
    path
}

fn open_dir(s: &Fixture, name: &str, owner: u32, mode: u32) -> std::path::PathBuf {
    let path = s.path(name);
    fs::create_dir(&path).unwrap();
    chown(&path, Some(owner), Some(owner)).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
    path
}

fn code<T>(r: std::io::Result<T>) -> Result<(), i32> {
    r.map(drop).map_err(|e| e.raw_os_error().unwrap())
}

fn modes_decide(s: &Fixture) {
    let path = make(s, "f", 1001, 0o640);
    let (owner, other) = (User::new(1001), User::new(1002));
    let write = |p: &Path| code(File::options().write(true).open(p));
    owner.run(|| {
        assert_eq!(fs::read(&path).unwrap(), b"data");
        write(&path).unwrap();
    });
    other.run(|| {
        assert_eq!(code(File::open(&path)), Err(libc::EACCES));
        assert_eq!(write(&path), Err(libc::EACCES));
        fs::metadata(&path).unwrap();
    });
    User::new(1002).gid(1001).run(|| {
        assert_eq!(fs::read(&path).unwrap(), b"data");
        assert_eq!(write(&path), Err(libc::EACCES));
    });
    // The owner is checked against the owner's bits alone, even if others have more permissions.
    let path = make(s, "g", 1001, 0o066);
    assert_eq!(owner.run(|| code(File::open(&path))), Err(libc::EACCES));
    assert_eq!(other.run(|| code(File::open(&path))), Ok(()));
    // Data in the page cache that one caller may read is not readable for another.
    let path = make(s, "h", 1001, 0o600);
    owner.run(|| fs::read(&path).map(drop)).unwrap();
    assert_eq!(other.run(|| code(File::open(&path))), Err(libc::EACCES));
}

fn directories_need_search(s: &Fixture) {
    let dir = open_dir(s, "d", 1001, 0o711);
    fs::write(dir.join("f"), b"x").unwrap();
    let other = User::new(1002);
    other.run(|| {
        assert!(fs::read(dir.join("f")).is_ok(), "search is enough for a known name");
        assert_eq!(code(fs::read_dir(&dir)), Err(libc::EACCES));
        assert_eq!(code(fs::write(dir.join("new"), b"")), Err(libc::EACCES));
        assert_eq!(code(fs::remove_file(dir.join("f"))), Err(libc::EACCES));
    });
    fs::set_permissions(&dir, Permissions::from_mode(0o744)).unwrap();
    other.run(|| {
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 1);
        assert_eq!(code(fs::metadata(dir.join("f"))), Err(libc::EACCES));
        assert_eq!(code(fs::metadata(dir.join("none"))), Err(libc::EACCES), "not even that a name is free");
    });
}

fn owner_of_new_files(s: &Fixture) {
    let dir = open_dir(s, "d", 0, 0o777);
    User::new(1001).gid(1005).umask(0).run(|| {
        fs::write(dir.join("f"), b"").unwrap();
        fs::create_dir(dir.join("d")).unwrap();
        symlink("x", dir.join("l")).unwrap();
        rustix::fs::mknodat(CWD, dir.join("p"), rustix::fs::FileType::Fifo, Mode::from_raw_mode(0o644), 0)
            .unwrap();
        std::os::unix::net::UnixListener::bind(dir.join("s")).unwrap();
        rustix::fs::open(&dir, rustix::fs::OFlags::TMPFILE | rustix::fs::OFlags::RDWR, Mode::RWXU)
            .map(|f| {
                let m = rustix::fs::fstat(&f).unwrap();
                assert_eq!((m.st_uid, m.st_gid), (1001, 1005));
            })
            .unwrap();
        let device =
            rustix::fs::mknodat(CWD, dir.join("c"), rustix::fs::FileType::CharacterDevice, Mode::RWXU, 0x103);
        assert_eq!(device, Err(rustix::io::Errno::PERM));
    });
    for name in ["f", "d", "l", "p", "s"] {
        let m = fs::symlink_metadata(dir.join(name)).unwrap();
        assert_eq!((m.uid(), m.gid()), (1001, 1005), "{name}");
        let l = fs::symlink_metadata(s.lower("d").join(name)).unwrap();
        assert_eq!((l.uid(), l.gid()), (1001, 1005), "{name}, in the source");
    }
}

fn umask_applies(s: &Fixture) {
    let dir = open_dir(s, "d", 1001, 0o755);
    let mode = |name: &str| fs::metadata(dir.join(name)).unwrap().mode() & 0o7777;
    for (umask, file, directory) in
        [(0o022, 0o644, 0o755), (0o077, 0o600, 0o700), (0, 0o666, 0o777), (0o137, 0o640, 0o640)]
    {
        User::new(1001).umask(umask).run(|| {
            fs::write(dir.join(format!("f{umask:o}")), b"").unwrap();
            fs::DirBuilder::new().mode(0o777).create(dir.join(format!("d{umask:o}"))).unwrap();
        });
        assert_eq!(
            (mode(&format!("f{umask:o}")), mode(&format!("d{umask:o}"))),
            (file, directory),
            "umask {umask:o}"
        );
    }
    // A file can be created with a mode that its creator could not open.
    User::new(1001).run(|| {
        let mut f =
            File::options().write(true).create_new(true).mode(0o000).open(dir.join("closed")).unwrap();
        f.write_all(b"x").unwrap();
    });
    assert_eq!(mode("closed"), 0);
}

fn setgid_directories(s: &Fixture) {
    let dir = open_dir(s, "d", 0, 0o777);
    chown(&dir, None, Some(1005)).unwrap();
    fs::set_permissions(&dir, Permissions::from_mode(0o2777)).unwrap();
    let group = |name: &str| fs::metadata(dir.join(name)).unwrap().gid();
    let mode = |name: &str| fs::metadata(dir.join(name)).unwrap().mode() & 0o7777;
    let create = |name: &str| {
        File::options().write(true).create_new(true).mode(0o2775).open(dir.join(name)).unwrap();
    };
    User::new(1001).umask(0).run(|| {
        create("out");
        fs::create_dir(dir.join("sub")).unwrap();
    });
    assert_eq!((group("out"), group("sub")), (1005, 1005));
    assert_eq!(mode("sub") & 0o2000, 0o2000, "a subdirectory takes the bit over");
    assert_eq!(mode("out") & 0o2000, 0, "somebody outside of the group makes no setgid file for it");
    // Membership through a supplementary group suffices.
    User::new(1001).groups(&[7, 1005]).umask(0).run(|| create("in"));
    assert_eq!((group("in"), mode("in")), (1005, 0o2775));
}

fn sticky_directories(s: &Fixture) {
    let dir = open_dir(s, "d", 0, 0o1777);
    let (one, two) = (User::new(1001), User::new(1002));
    one.run(|| {
        fs::write(dir.join("f"), b"").unwrap();
        fs::create_dir(dir.join("sub")).unwrap();
    });
    two.run(|| {
        assert_eq!(code(fs::remove_file(dir.join("f"))), Err(libc::EPERM));
        assert_eq!(code(fs::remove_dir(dir.join("sub"))), Err(libc::EPERM));
        assert_eq!(code(fs::rename(dir.join("f"), dir.join("g"))), Err(libc::EPERM));
        fs::write(dir.join("mine"), b"").unwrap();
        assert_eq!(code(fs::rename(dir.join("mine"), dir.join("f"))), Err(libc::EPERM));
    });
    one.run(|| {
        fs::rename(dir.join("f"), dir.join("g")).unwrap();
        fs::remove_file(dir.join("g")).unwrap();
    });
}

fn supplementary_groups(s: &Fixture) {
    let path = s.path("f");
    fs::write(&path, b"x").unwrap();
    chown(&path, Some(0), Some(1007)).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o660)).unwrap();
    assert!(User::new(1001).run(|| File::open(&path).is_err()));
    // More groups than fit into small buffers, with the relevant one last.
    let many: Vec<u32> = (2000..2100).chain([1007]).collect();
    User::new(1001).groups(&many).run(|| {
        assert!(fs::write(&path, b"y").is_ok());
    });
    let dir = s.path("d");
    fs::create_dir(&dir).unwrap();
    chown(&dir, Some(0), Some(1007)).unwrap();
    fs::set_permissions(&dir, Permissions::from_mode(0o770)).unwrap();
    User::new(1001).groups(&many).run(|| {
        fs::write(dir.join("new"), b"").unwrap();
        fs::rename(dir.join("new"), dir.join("newer")).unwrap();
        fs::hard_link(dir.join("newer"), dir.join("second")).unwrap();
        symlink("newer", dir.join("sym")).unwrap();
        fs::create_dir(dir.join("sub")).unwrap();
        fs::remove_dir(dir.join("sub")).unwrap();
        fs::remove_file(dir.join("second")).unwrap();
    });
}

fn chown_rules(s: &Fixture) {
    let path = make(s, "f", 1001, 0o644);
    User::new(1001).groups(&[1005]).run(|| {
        assert_eq!(code(chown(&path, Some(1002), None)), Err(libc::EPERM), "nobody gives files away");
        assert_eq!(code(chown(&path, None, Some(1006))), Err(libc::EPERM), "nor into a group he is not in");
        chown(&path, None, Some(1005)).unwrap();
        chown(&path, Some(1001), Some(1001)).unwrap();
    });
    User::new(1002).run(|| assert_eq!(code(chown(&path, None, Some(1002))), Err(libc::EPERM)));
    chown(&path, Some(1003), Some(1004)).unwrap();
    let m = fs::metadata(s.lower("f")).unwrap();
    assert_eq!((m.uid(), m.gid()), (1003, 1004));
    symlink("f", s.path("l")).unwrap();
    std::os::unix::fs::lchown(s.path("l"), Some(1009), Some(1010)).unwrap();
    let l = fs::symlink_metadata(s.path("l")).unwrap();
    assert_eq!((l.uid(), l.gid(), fs::metadata(&path).unwrap().uid()), (1009, 1010, 1003));
}

fn chmod_rules(s: &Fixture) {
    let path = make(s, "f", 1001, 0o644);
    let set = |mode| code(fs::set_permissions(&path, Permissions::from_mode(mode)));
    let mode = || fs::metadata(&path).unwrap().mode() & 0o7777;
    assert_eq!(User::new(1002).run(|| set(0o777)), Err(libc::EPERM));
    User::new(1001).run(|| set(0o6751).unwrap());
    assert_eq!(mode(), 0o6751);
    assert_eq!(fs::metadata(s.lower("f")).unwrap().mode() & 0o7777, 0o6751);
    // The caller is not in the file's group: chmod cannot set setgid.
    chown(&path, None, Some(1005)).unwrap();
    User::new(1001).run(|| set(0o2755).unwrap());
    assert_eq!(mode(), 0o755);
    User::new(1001).groups(&[1005]).run(|| set(0o2755).unwrap());
    assert_eq!(mode(), 0o2755);
    for all in [0o7777, 0] {
        set(all).unwrap();
        assert_eq!(mode(), all);
    }
}

fn access_asks_for_the_real_user(s: &Fixture) {
    let path = make(s, "f", 1001, 0o640);
    let may = |access| accessat(CWD, &path, access, AtFlags::empty()).is_ok();
    User::new(1001).run(|| assert!(may(Access::READ_OK | Access::WRITE_OK) && !may(Access::EXEC_OK)));
    User::new(1002).run(|| assert!(may(Access::EXISTS) && !may(Access::READ_OK) && !may(Access::WRITE_OK)));
    assert!(may(Access::READ_OK | Access::WRITE_OK) && !may(Access::EXEC_OK));
}

fn root_overrides(s: &Fixture) {
    let dir = open_dir(s, "d", 1001, 0o000);
    fs::write(dir.join("f"), b"x").unwrap();
    fs::set_permissions(dir.join("f"), Permissions::from_mode(0o000)).unwrap();
    assert_eq!(fs::read(dir.join("f")).unwrap(), b"x");
    fs::write(dir.join("f"), b"y").unwrap();
    fs::remove_file(dir.join("f")).unwrap();
}

fn permission_changes_bind_at_once(s: &Fixture) {
    let dir = open_dir(s, "d", 0, 0o755);
    fs::write(dir.join("f"), b"x").unwrap();
    let reader = User::new(1001);
    for _ in 0..20 {
        reader.run(|| fs::read(dir.join("f")).map(drop)).unwrap();
        fs::set_permissions(&dir, Permissions::from_mode(0o700)).unwrap();
        assert!(reader.run(|| fs::read(dir.join("f")).is_err()), "a cached name let somebody in");
        fs::set_permissions(&dir, Permissions::from_mode(0o755)).unwrap();
    }
}

fn an_open_file_keeps_its_rights(s: &Fixture) {
    use std::os::unix::fs::FileExt as _;
    let path = make(s, "f", 1001, 0o600);
    User::new(1001).run(|| {
        let f = File::options().read(true).write(true).open(&path).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o000)).unwrap();
        f.write_all_at(b"still", 0).unwrap();
        let mut seen = [0; 5];
        f.read_exact_at(&mut seen, 0).unwrap();
        assert_eq!(&seen, b"still");
        f.set_len(2).unwrap();
        assert_eq!(code(File::open(&path)), Err(libc::EACCES));
    });
}

fn protected_parent_hides_nothing_it_should_show(s: &Fixture) {
    let outer = open_dir(s, "outer", 0, 0o711);
    fs::create_dir(outer.join("inner")).unwrap();
    fs::set_permissions(outer.join("inner"), Permissions::from_mode(0o777)).unwrap();
    User::new(1001).run(|| {
        fs::write(outer.join("inner/f"), b"x").unwrap();
        fs::rename(outer.join("inner/f"), outer.join("inner/g")).unwrap();
        assert_eq!(fs::read_dir(outer.join("inner")).unwrap().count(), 1);
        assert_eq!(code(fs::rename(outer.join("inner"), outer.join("moved"))), Err(libc::EACCES));
    });
}

/// The lower file system's flags are effective through the mirror, also for root.
fn immutable_and_append_only(s: &Fixture) {
    if s.on() != Lower::Ext4 {
        return;
    }
    needs_tools!("chattr");
    fs::write(s.path("f"), b"x").unwrap();
    requirement!(sh(s.src(), "chattr +i f").success(), "chattr +i does not work on this file system");
    let e = Err(libc::EPERM);
    assert_eq!(code(File::options().write(true).open(s.path("f"))), e);
    assert_eq!(code(fs::remove_file(s.path("f"))), e);
    assert_eq!(code(fs::rename(s.path("f"), s.path("g"))), e);
    assert_eq!(code(fs::set_permissions(s.path("f"), Permissions::from_mode(0o777))), e);
    assert_eq!(code(fs::hard_link(s.path("f"), s.path("g"))), e);
    sh(s.src(), "chattr -i f && chattr +a f").ok();
    assert_eq!(code(File::options().write(true).open(s.path("f"))), e);
    File::options().append(true).open(s.path("f")).unwrap().write_all(b"y").unwrap();
    assert_eq!(code(fs::remove_file(s.path("f"))), e);
    sh(s.src(), "chattr -a f").ok();
    assert_eq!(fs::read(s.path("f")).unwrap(), b"xy");
    fs::create_dir(s.path("d")).unwrap();
    sh(s.src(), "chattr +i d").ok();
    assert_eq!(code(fs::write(s.path("d/f"), b"")), e);
    sh(s.src(), "chattr -i d").ok();
    // Queried and set through the mirror.
    let through = sh(s.mnt(), "chattr +i f && lsattr f");
    if through.success() {
        assert!(through.out.contains('i'), "{through:?}");
        assert_eq!(code(fs::remove_file(s.path("f"))), e);
        sh(s.mnt(), "chattr -i f").ok();
    }
}

#[test]
fn read_only_mounts() {
    needs_mount!();
    let Some(mut s) = Plan::tmpfs().args(&["--read-only"]).unmounted().set_or_skip() else { return };
    fs::write(s.lower("f"), b"x").unwrap();
    s.mount();
    assert_eq!(fs::read(s.path("f")).unwrap(), b"x");
    let e = Err(libc::EROFS);
    assert_eq!(code(fs::write(s.path("f"), b"y")), e);
    assert_eq!(code(fs::write(s.path("g"), b"y")), e);
    assert_eq!(code(fs::remove_file(s.path("f"))), e);
    assert_eq!(code(fs::create_dir(s.path("d"))), e);
    assert_eq!(code(fs::set_permissions(s.path("f"), Permissions::from_mode(0o777))), e);
}

#[test]
fn ids_are_mapped() {
    needs_mount!();
    let plan = Plan::tmpfs().args(&["--uid-map", "1001:2001", "--gid-map", "1001:2001:10"]);
    fixture::perform(plan, |s| {
        fs::set_permissions(s.src(), Permissions::from_mode(0o777)).unwrap();
        fs::write(s.lower("f"), b"x").unwrap();
        chown(s.lower("f"), Some(1001), Some(1003)).unwrap();
        fs::set_permissions(s.lower("f"), Permissions::from_mode(0o600)).unwrap();
        let m = fs::metadata(s.path("f")).unwrap();
        assert_eq!((m.uid(), m.gid()), (2001, 2003));
        User::new(2001).run(|| fs::read(s.path("f")).map(drop)).unwrap();
        assert!(User::new(1001).run(|| fs::read(s.path("f")).is_err()));
        User::new(2001).run(|| fs::write(s.path("new"), b"").unwrap());
        let l = fs::metadata(s.lower("new")).unwrap();
        assert_eq!(
            (l.uid(), l.gid()),
            (1001, 1001),
            "what the mapped user makes belongs to the real one below"
        );
        chown(s.path("f"), None, Some(2005)).unwrap();
        assert_eq!(fs::metadata(s.lower("f")).unwrap().gid(), 1005);
    });
}

/// A mount by root serves all users by default.
#[test]
fn root_mounts_are_for_all() {
    needs_mount!();
    fixture::perform(Plan::tmpfs(), |s| {
        fs::write(s.path("f"), b"x").unwrap();
        User::new(1001).run(|| fs::read(s.path("f")).map(drop)).unwrap();
        let line = run(std::process::Command::new("grep").arg(s.mnt()).arg("/proc/self/mountinfo")).ok();
        assert!(line.contains("default_permissions") && line.contains("allow_other"), "{line}");
        assert!(line.contains("fuse.shunt"), "a type of its own in the mount table: {line}");
    });
}
