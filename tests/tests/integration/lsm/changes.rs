//! Changes that rules refuse in the kernel: they fail as where the daemon checks them, and make no request.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{
    CWD, FileType, Mode, RenameFlags, XattrFlags, mknodat, removexattr, renameat_with, setxattr,
};
use rustix::io::Errno;
use shunt_test_support::User;
use shunt_tests::Fixture;
use shunt_tests::fixture::Plan;
use tempfile::TempDir;

use super::{ONE, OTHER, asked, errno};

/// User 2001 is refused, all others are not.
const RULES: &str = r#"
[[rule]]
path = "/shared/secret*"
uid = 2001
action = "hide"

[[rule]]
path = "/locked/**"
uid = "2001-2005"
action = "read-only"

[[rule]]
path = "/undeletable/*"
op = "delete"
uid = 2001
action = "deny"
error = "EPERM"

[[rule]]
path = "/full/**"
op = "create"
uid = 2001
action = "deny"

[[rule]]
path = "/fixed/*"
op = "attributes"
uid = 2001
action = "deny"

[[rule]]
path = "/mixed/*.log"
op = "create"
uid = 2001
action = "deny"
"#;

const DIRS: [&str; 7] = ["free", "shared", "locked", "undeletable", "full", "fixed", "mixed"];

/// An ACL that gives user 5 read access.
const ACL: [u8; 44] = [
    2, 0, 0, 0, // version
    1, 0, 6, 0, 255, 255, 255, 255, // owner: rw
    2, 0, 4, 0, 5, 0, 0, 0, // user 5: r
    4, 0, 4, 0, 255, 255, 255, 255, // group: r
    16, 0, 4, 0, 255, 255, 255, 255, // mask: r
    32, 0, 4, 0, 255, 255, 255, 255, // others: r
];

/// The paths that an operation works on.
struct Paths {
    /// A file and an empty directory of the caller, below the rules.
    file: PathBuf,
    dir: PathBuf,
    /// A name below the rules that does not exist.
    new: PathBuf,
    /// A file of the caller, and a name that does not exist, without rules.
    free: PathBuf,
    free_new: PathBuf,
}

type Operation = (&'static str, fn(&Paths) -> io::Result<()>);

fn rename(from: &Path, to: &Path, flags: RenameFlags) -> io::Result<()> {
    Ok(renameat_with(CWD, from, CWD, to, flags)?)
}

fn truncate(path: &Path) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: a terminated string.
    match unsafe { libc::truncate(path.as_ptr(), 1) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn touch(path: &Path) -> io::Result<()> {
    let time = rustix::fs::Timespec { tv_sec: 5, tv_nsec: 0 };
    let times = rustix::fs::Timestamps { last_access: time, last_modification: time };
    Ok(rustix::fs::utimensat(CWD, path, &times, rustix::fs::AtFlags::empty())?)
}

/// Reports the caller as owner of its own file.
fn chown_to_self(path: &Path) -> io::Result<()> {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    chown(path, Some(uid), Some(gid))
}

/// Operations that need no lookup of another name.
const CHANGES: [Operation; 17] = [
    ("unlink", |at| fs::remove_file(&at.file)),
    ("rmdir", |at| fs::remove_dir(&at.dir)),
    ("exchange", |at| rename(&at.file, &at.free, RenameFlags::EXCHANGE)),
    ("exchange back", |at| rename(&at.free, &at.file, RenameFlags::EXCHANGE)),
    ("chmod", |at| fs::set_permissions(&at.file, fs::Permissions::from_mode(0o640))),
    ("chmod a directory", |at| fs::set_permissions(&at.dir, fs::Permissions::from_mode(0o750))),
    ("chown", |at| chown_to_self(&at.file)),
    ("chown to another", |at| chown(&at.file, Some(7), None)),
    ("truncate", |at| truncate(&at.file)),
    ("open and truncate", |at| File::options().write(true).truncate(true).open(&at.file).map(drop)),
    ("write", |at| File::options().write(true).open(&at.file).map(drop)),
    ("utimes", |at| touch(&at.file)),
    ("setxattr", |at| Ok(setxattr(&at.file, "user.new", b"x", XattrFlags::empty())?)),
    ("removexattr", |at| Ok(removexattr(&at.file, "user.old")?)),
    ("set an ACL", |at| Ok(setxattr(&at.file, "system.posix_acl_access", &ACL, XattrFlags::empty())?)),
    ("set the default ACL", |at| {
        Ok(setxattr(&at.dir, "system.posix_acl_default", &ACL, XattrFlags::empty())?)
    }),
    ("remove an ACL", |at| Ok(removexattr(&at.file, "system.posix_acl_access")?)),
];

/// Operations with a new name, which the kernel looks up first.
const CREATIONS: [Operation; 12] = [
    ("create", |at| File::options().write(true).create(true).truncate(true).open(&at.new).map(drop)),
    ("create exclusively", |at| File::create_new(&at.new).map(drop)),
    ("mkdir", |at| fs::create_dir(&at.new)),
    ("mknod", |at| Ok(mknodat(CWD, &at.new, FileType::Fifo, Mode::from_raw_mode(0o600), 0)?)),
    ("symlink", |at| symlink("target", &at.new)),
    ("link", |at| fs::hard_link(&at.file, &at.new)),
    ("link from outside", |at| fs::hard_link(&at.free, &at.new)),
    ("rename", |at| fs::rename(&at.file, &at.new)),
    ("rename a directory", |at| fs::rename(&at.dir, &at.new)),
    ("rename out", |at| fs::rename(&at.file, &at.free_new)),
    ("rename in", |at| fs::rename(&at.free, &at.new)),
    ("replace", |at| fs::rename(&at.free, &at.file)),
];

/// A mount, and the directory of its policy file.
struct Mounted {
    _rules: TempDir,
    fixture: Fixture,
    in_kernel: bool,
}

fn mounted(args: &[&str], in_kernel: bool) -> Option<Mounted> {
    let rules = tempfile::tempdir().unwrap();
    let file = rules.path().join("policy.toml");
    fs::write(&file, RULES).unwrap();
    let lsm: &[&str] = if in_kernel { &[] } else { &["--lsm", "off"] };
    let plan = Plan::tmpfs().args(&["--cache", "exclusive", "--policy", file.to_str().unwrap()]);
    let mut fixture = plan.args(args).args(lsm).unmounted().set_or_skip()?;
    if !fixture.mounted() {
        return None;
    }
    for dir in DIRS {
        fs::create_dir(fixture.lower(dir)).unwrap();
        fs::set_permissions(fixture.lower(dir), fs::Permissions::from_mode(0o777)).unwrap();
    }
    fs::set_permissions(fixture.src(), fs::Permissions::from_mode(0o705)).unwrap();
    fixture.mount();
    let checks = fixture.stat()["rules"].as_str().unwrap().to_owned();
    if checks.starts_with("enforced in the kernel") != in_kernel {
        assert!(std::env::var_os("SHUNT_LSM").is_none(), "{checks}");
        shunt_test_support::skip::kernel_cannot(&checks);
        return None;
    }
    Some(Mounted { _rules: rules, fixture, in_kernel })
}

impl Mounted {
    /// Creates the files for one operation, as root through the mount, and has the kernel cache them.
    fn paths(&self, dir: &str, prefix: &str, owner: u32, id: usize) -> Paths {
        let at = |dir: &str, name: &str| self.fixture.path(format!("{dir}/{prefix}{id}-{owner}-{name}"));
        let free = |name: &str| self.fixture.path(format!("free/{dir}-{prefix}{id}-{owner}-{name}"));
        let paths = Paths {
            file: at(dir, "file"),
            dir: at(dir, "dir"),
            new: at(dir, "new"),
            free: free("file"),
            free_new: free("new"),
        };
        for file in [&paths.file, &paths.free] {
            fs::write(file, b"content").unwrap();
            setxattr(file, "user.old", b"x", XattrFlags::empty()).unwrap();
        }
        fs::create_dir(&paths.dir).unwrap();
        for path in [&paths.file, &paths.dir, &paths.free] {
            chown(path, Some(owner), Some(owner)).unwrap();
            fs::symlink_metadata(path).unwrap();
        }
        paths
    }

    /// Runs every operation as both users in every directory, and returns the results.
    fn results(&self) -> BTreeMap<String, Option<Errno>> {
        let mut results = BTreeMap::new();
        let mut refusals = Vec::new();
        let dirs = DIRS.into_iter().filter(|dir| *dir != "shared").map(|dir| (dir, ""));
        for (dir, prefix) in dirs.chain([("shared", "secret")]) {
            for (id, (name, operation)) in CHANGES.into_iter().chain(CREATIONS).enumerate() {
                for user in [ONE, OTHER] {
                    let paths = self.paths(dir, prefix, user, id);
                    // The use by another user caches what is hidden from this one.
                    User::new(ONE).run(|| fs::symlink_metadata(&paths.file).unwrap());
                    let result = User::new(user).run(|| errno(operation(&paths)));
                    let case = format!("{dir}/{prefix} {name} by {user}");
                    if let (Some(refused), true) = (result, user == OTHER) {
                        let allowed = allowed_requests(&case, refused, id >= CHANGES.len());
                        refusals.push(Refusal { case: case.clone(), paths, operation, refused, allowed });
                    }
                    results.insert(case, result);
                }
            }
        }
        if self.in_kernel {
            refusals.sort_by_key(|refusal| refusal.allowed);
            refusals.chunk_by(|a, b| a.allowed == b.allowed).for_each(|alike| self.check_requests(alike));
        }
        results
    }

    /// Fails if refusals make other requests than those allowed.
    fn check_requests(&self, refusals: &[Refusal]) {
        let Some(allowed) = refusals[0].allowed else { return };
        let mut before = asked(&self.fixture);
        // Files that were closed before are released at any time.
        for round in 0.. {
            User::new(OTHER).run(|| {
                for refusal in refusals {
                    assert_eq!(
                        errno((refusal.operation)(&refusal.paths)),
                        Some(refusal.refused),
                        "{}",
                        refusal.case
                    );
                }
            });
            let after = asked(&self.fixture);
            let more = after.iter().filter(|(name, count)| before.get(*name) != Some(count));
            let requests: Vec<&String> = more.map(|(name, _)| name).collect();
            eprintln!("{} refusals: requests {requests:?}", refusals.len());
            if requests.iter().all(|name| allowed == name.as_str()) {
                return;
            }
            assert!(
                round < 3,
                "{requests:?} by {:#?}",
                refusals.iter().map(|refusal| &refusal.case).collect::<Vec<_>>()
            );
            before = after;
        }
    }
}

/// An operation that user 2001 is refused.
struct Refusal {
    case: String,
    paths: Paths,
    operation: fn(&Paths) -> io::Result<()>,
    refused: Errno,
    /// The request that it may make, or an empty string; `None` if the daemon decides.
    allowed: Option<&'static str>,
}

/// Returns the request that the kernel makes for a refused operation.
fn allowed_requests(case: &str, refused: Errno, creates: bool) -> Option<&'static str> {
    // The daemon alone compares the rules of two places, and knows those of one new name among others.
    if refused == Errno::XDEV || (case.starts_with("shared/secret") && refused == Errno::ACCESS) {
        return None;
    }
    Some(match creates {
        // The kernel looks up a new name before the hook,
        true => "lookup",
        // and reads the capabilities of a file whose owner changes.
        false if case.contains(" chown") => "getxattr",
        false => "",
    })
}

/// Returns the error that the rules give user 2001.
fn expected(dir: &str, name: &str) -> Option<Errno> {
    let by_attributes = matches!(
        name,
        "chmod"
            | "chmod a directory"
            | "chown"
            | "utimes"
            | "setxattr"
            | "removexattr"
            | "set an ACL"
            | "set the default ACL"
            | "remove an ACL"
    );
    let creates = matches!(name, "create" | "create exclusively" | "mkdir" | "mknod" | "symlink" | "link");
    match (dir, name) {
        ("locked/", "chown to another") => Some(Errno::PERM),
        ("locked/", _) => Some(Errno::ROFS),
        ("undeletable/", "unlink" | "rmdir" | "exchange" | "exchange back" | "replace") => Some(Errno::PERM),
        ("undeletable/", "rename" | "rename a directory" | "rename out") => Some(Errno::PERM),
        ("full/", "rename" | "rename a directory" | "rename in") => Some(Errno::ACCESS),
        ("full/", _) if creates => Some(Errno::ACCESS),
        ("fixed/", _) if by_attributes => Some(Errno::ACCESS),
        ("shared/secret", "rename in" | "replace" | "link from outside") => Some(Errno::ACCESS),
        ("shared/secret", _) if creates && name != "link" => Some(Errno::ACCESS),
        ("shared/secret", _) => Some(Errno::NOENT),
        _ => None,
    }
}

fn refused_as_by_the_daemon(args: &[&str]) {
    let Some(in_kernel) = mounted(args, true) else { return };
    let results = in_kernel.results();
    drop(in_kernel);
    let Some(by_daemon) = mounted(args, false) else { return };
    let expected_results = by_daemon.results();
    let differing: Vec<_> = results
        .iter()
        .filter(|(case, result)| expected_results.get(*case) != Some(*result))
        .map(|(case, result)| (case, result, expected_results.get(case)))
        .collect();
    assert!(differing.is_empty(), "in the kernel, and by the daemon: {differing:#?}");
    for (case, result) in &results {
        let Some((place, name)) = case.strip_suffix(" by 2001").and_then(|case| case.split_once(' ')) else {
            continue;
        };
        let expected = expected(place, name);
        assert!(expected.is_none() || expected == *result, "{case}: {result:?}");
    }
}

#[test]
fn fail_as_where_the_daemon_checks() {
    refused_as_by_the_daemon(&[]);
}

#[test]
fn fail_as_where_the_daemon_checks_without_opens() {
    refused_as_by_the_daemon(&["--passthrough", "off"]);
}

#[test]
fn names_with_different_rules_are_decided_by_the_daemon() {
    let Some(s) = mounted(&["--passthrough", "off"], true) else { return };
    User::new(OTHER).run(|| {
        assert_eq!(errno(fs::write(s.fixture.path("mixed/a.log"), b"x")), Some(Errno::ACCESS));
        fs::write(s.fixture.path("mixed/a.txt"), b"x").unwrap();
        assert_eq!(errno(fs::write(s.fixture.path("shared/secret"), b"x")), Some(Errno::ACCESS));
        fs::write(s.fixture.path("shared/public"), b"x").unwrap();
    });
    // A subdirectory has the rules of its own path.
    fs::create_dir(s.fixture.path("full/below")).unwrap();
    fs::create_dir(s.fixture.path("undeletable/below")).unwrap();
    for dir in ["full/below", "undeletable/below"] {
        fs::set_permissions(s.fixture.path(dir), fs::Permissions::from_mode(0o777)).unwrap();
    }
    User::new(OTHER).run(|| {
        assert_eq!(errno(fs::create_dir(s.fixture.path("full/below/new"))), Some(Errno::ACCESS));
        fs::create_dir(s.fixture.path("undeletable/below/new")).unwrap();
        fs::remove_dir(s.fixture.path("undeletable/below/new")).unwrap();
    });
}

/// The kernel clears the set-user-ID bit for a writer who may not change attributes.
#[test]
fn a_write_clears_set_user_id() {
    for args in [&[][..], &["--passthrough", "off"]] {
        let outcome = |in_kernel| {
            let s = mounted(args, in_kernel)?;
            let file = s.fixture.path("fixed/program");
            fs::write(&file, b"old").unwrap();
            chown(&file, Some(ONE), Some(ONE)).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o6777)).unwrap();
            let written = User::new(OTHER).run(|| {
                errno(File::options().write(true).open(&file).and_then(|mut file| {
                    io::Write::write_all(&mut file, b"new")?;
                    file.set_len(2)
                }))
            });
            let mode = fs::metadata(&file).unwrap().permissions().mode() & 0o7777;
            Some((written, mode, fs::read(&file).unwrap()))
        };
        let Some(in_kernel) = outcome(true) else { return };
        eprintln!("{in_kernel:?}");
        assert_eq!(Some(in_kernel), outcome(false));
    }
}
