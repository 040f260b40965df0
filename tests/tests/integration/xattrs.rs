//! Extended attributes and access control lists.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::path::Path;

use rustix::fs::{
    XattrFlags, getxattr, getxattr_query, lgetxattr, listxattr, listxattr_query, lremovexattr, lsetxattr,
    removexattr, setxattr,
};
use rustix::io::Errno;
use shunt_test_support::{User, needs_tools, sh};
use shunt_tests::Fixture;

shunt_tests::behaviours! { everywhere:
    user_attributes, create_and_replace, sizes_and_listing, trusted_is_roots, attributes_need_the_right_mode,
    security_capability, acl_set_and_get, acl_is_obeyed, acl_is_inherited, acl_follows_chmod, acl_refuses_strangers,
}

fn get(path: &Path, name: &str) -> Result<Vec<u8>, Errno> {
    let mut value = vec![0; 65536];
    let len = getxattr(path, name, &mut value)?;
    value.truncate(len);
    Ok(value)
}

/// `cap_net_raw+ep`, in revision 2 of the attribute.
const NET_RAW: &[u8] = &[1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

fn names(path: &Path) -> Vec<String> {
    let mut list = vec![0; 65536];
    let len = listxattr(path, &mut list).unwrap();
    let mut names: Vec<_> = list[..len]
        .split(|b| *b == 0)
        .filter(|n| !n.is_empty())
        .map(|n| String::from_utf8_lossy(n).into())
        .collect();
    names.sort();
    names
}

fn user_attributes(s: &Fixture) {
    let path = s.path("f");
    fs::write(&path, b"").unwrap();
    setxattr(&path, "user.one", b"1", XattrFlags::empty()).unwrap();
    setxattr(&path, "user.empty", b"", XattrFlags::empty()).unwrap();
    setxattr(&path, "user.bytes", b"\0\xff\n", XattrFlags::empty()).unwrap();
    assert_eq!(get(&path, "user.one").unwrap(), b"1");
    assert_eq!(get(&path, "user.empty").unwrap(), b"");
    assert_eq!(get(&s.lower("f"), "user.bytes").unwrap(), b"\0\xff\n");
    assert_eq!(names(&path), ["user.bytes", "user.empty", "user.one"]);
    removexattr(&path, "user.one").unwrap();
    assert_eq!(get(&path, "user.one"), Err(Errno::NODATA));
    assert_eq!(removexattr(&path, "user.one"), Err(Errno::NODATA));
    assert_eq!(names(&s.lower("f")), ["user.bytes", "user.empty"]);
    fs::create_dir(s.path("d")).unwrap();
    setxattr(s.path("d"), "user.dir", b"d", XattrFlags::empty()).unwrap();
    assert_eq!(get(&s.lower("d"), "user.dir").unwrap(), b"d");
    // Through an open file without a name.
    let f = fs::File::open(&path).unwrap();
    fs::remove_file(&path).unwrap();
    rustix::fs::fsetxattr(&f, "user.late", b"yes", XattrFlags::empty()).unwrap();
    let mut value = [0; 8];
    assert_eq!(rustix::fs::fgetxattr(&f, "user.late", &mut value).unwrap(), 3);
}

fn create_and_replace(s: &Fixture) {
    let path = s.path("f");
    fs::write(&path, b"").unwrap();
    assert_eq!(setxattr(&path, "user.a", b"1", XattrFlags::REPLACE), Err(Errno::NODATA));
    setxattr(&path, "user.a", b"1", XattrFlags::CREATE).unwrap();
    assert_eq!(setxattr(&path, "user.a", b"2", XattrFlags::CREATE), Err(Errno::EXIST));
    setxattr(&path, "user.a", b"3", XattrFlags::REPLACE).unwrap();
    assert_eq!(get(&path, "user.a").unwrap(), b"3");
}

fn sizes_and_listing(s: &Fixture) {
    let path = s.path("f");
    fs::write(&path, b"").unwrap();
    let value = vec![b'v'; 2000];
    setxattr(&path, "user.big", &value, XattrFlags::empty()).unwrap();
    assert_eq!(get(&path, "user.big").unwrap(), value);
    assert_eq!(getxattr_query(&path, "user.big"), Ok(2000));
    assert_eq!(listxattr_query(&path), Ok("user.big".len() + 1));
    assert_eq!(getxattr(&path, "user.big", &mut [0u8; 10]).unwrap_err(), Errno::RANGE);
    assert_eq!(listxattr(&path, &mut [0u8; 3]).unwrap_err(), Errno::RANGE);
    assert_eq!(get(&path, "nonsense.x"), Err(Errno::OPNOTSUPP));
    let long = format!("user.{}", "n".repeat(300));
    assert_eq!(setxattr(&path, long.as_str(), b"", XattrFlags::empty()), Err(Errno::RANGE));
    // On a symlink: no user attributes, and the target is not affected.
    symlink("f", s.path("l")).unwrap();
    assert_eq!(lsetxattr(s.path("l"), "user.x", b"", XattrFlags::empty()), Err(Errno::PERM));
    lsetxattr(s.path("l"), "trusted.x", b"link", XattrFlags::empty()).unwrap();
    assert_eq!(lgetxattr(s.lower("l"), "trusted.x", &mut [0u8; 10]).unwrap(), 4);
    assert_eq!(get(&path, "trusted.x"), Err(Errno::NODATA));
    lremovexattr(s.path("l"), "trusted.x").unwrap();
}

fn trusted_is_roots(s: &Fixture) {
    let path = s.path("f");
    fs::write(&path, b"").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    chown(&path, Some(1001), Some(1001)).unwrap();
    setxattr(&path, "trusted.a", b"secret", XattrFlags::empty()).unwrap();
    assert_eq!(get(&path, "trusted.a").unwrap(), b"secret");
    assert_eq!(get(&s.lower("f"), "trusted.a").unwrap(), b"secret");
    assert_eq!(names(&path), ["trusted.a"]);
    User::new(1001).run(|| {
        assert_eq!(get(&path, "trusted.a"), Err(Errno::NODATA));
        assert_eq!(setxattr(&path, "trusted.b", b"", XattrFlags::empty()), Err(Errno::PERM));
        assert_eq!(removexattr(&path, "trusted.a"), Err(Errno::PERM));
        assert_eq!(names(&path), Vec::<String>::new(), "a list must not name what its reader may not know");
        let capability = setxattr(&path, "security.capability", NET_RAW, XattrFlags::empty());
        assert_eq!(capability, Err(Errno::PERM));
    });
}

fn attributes_need_the_right_mode(s: &Fixture) {
    let path = s.path("f");
    fs::write(&path, b"").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    chown(&path, Some(1001), Some(1001)).unwrap();
    setxattr(&path, "user.a", b"1", XattrFlags::empty()).unwrap();
    User::new(1001).run(|| setxattr(&path, "user.b", b"2", XattrFlags::empty()).unwrap());
    User::new(1002).run(|| {
        assert_eq!(get(&path, "user.a"), Err(Errno::ACCESS));
        assert_eq!(setxattr(&path, "user.c", b"", XattrFlags::empty()), Err(Errno::ACCESS));
    });
    User::new(1002).groups(&[1001]).run(|| {
        assert_eq!(get(&path, "user.a").unwrap(), b"1");
        assert_eq!(setxattr(&path, "user.c", b"", XattrFlags::empty()), Err(Errno::ACCESS));
    });
}

fn security_capability(s: &Fixture) {
    needs_tools!("setcap", "getcap");
    fs::copy("/bin/true", s.path("prog")).unwrap();
    sh(s.mnt(), "setcap cap_net_raw+ep prog").ok();
    assert!(sh(s.mnt(), "getcap prog").ok().contains("cap_net_raw=ep"));
    assert_eq!(get(&s.path("prog"), "security.capability"), get(&s.lower("prog"), "security.capability"));
    assert!(sh(s.mnt(), "setcap -r prog && getcap prog").ok().is_empty());
}

fn acl_set_and_get(s: &Fixture) {
    needs_tools!("setfacl", "getfacl");
    fs::write(s.path("f"), b"").unwrap();
    fs::set_permissions(s.path("f"), fs::Permissions::from_mode(0o640)).unwrap();
    sh(s.mnt(), "setfacl -m u:1001:rw,g:1002:r f").ok();
    let want = "user::rw-\nuser:1001:rw-\ngroup::r--\ngroup:1002:r--\nmask::rw-\nother::---\n\n";
    assert_eq!(sh(s.mnt(), "getfacl -cn f").ok(), want);
    assert_eq!(sh(s.src(), "getfacl -cn f").ok(), want);
    assert_eq!(
        fs::metadata(s.path("f")).unwrap().mode() & 0o777,
        0o660,
        "the mask shows as the group's mode"
    );
    sh(s.mnt(), "setfacl -b f").ok();
    assert_eq!(sh(s.mnt(), "getfacl -cn f").ok(), "user::rw-\ngroup::r--\nother::---\n\n");
    assert_eq!(fs::metadata(s.path("f")).unwrap().mode() & 0o777, 0o640);
}

fn acl_is_obeyed(s: &Fixture) {
    needs_tools!("setfacl");
    fs::write(s.path("f"), b"x").unwrap();
    fs::set_permissions(s.path("f"), fs::Permissions::from_mode(0o600)).unwrap();
    let path = s.path("f");
    let reads = |u: &User| u.run(|| fs::read(&path).is_ok());
    let writes = |u: &User| u.run(|| fs::write(&path, b"y").is_ok());
    let (one, two) = (User::new(1001), User::new(1002));
    assert!(!reads(&one) && !reads(&two));
    sh(s.mnt(), "setfacl -m u:1001:r f").ok();
    assert!(reads(&one) && !writes(&one) && !reads(&two));
    sh(s.mnt(), "setfacl -m u:1001:-,g:1002:rw f").ok();
    assert!(!reads(&one) && reads(&two) && writes(&two));
    assert!(reads(&User::new(1003).groups(&[5, 1002])));
    sh(s.mnt(), "setfacl -m m::r f").ok();
    assert!(reads(&two) && !writes(&two), "the mask limits");
}

fn acl_is_inherited(s: &Fixture) {
    needs_tools!("setfacl", "getfacl");
    fs::create_dir(s.path("d")).unwrap();
    fs::set_permissions(s.path("d"), fs::Permissions::from_mode(0o777)).unwrap();
    sh(s.mnt(), "setfacl -d -m u::rwx,u:1001:rwx,g::rx,o::- d").ok();
    let dir = s.path("d");
    User::new(1002).umask(0o077).run(|| {
        use std::os::unix::fs::OpenOptionsExt as _;
        fs::File::options().write(true).create_new(true).mode(0o664).open(dir.join("f")).unwrap();
        fs::create_dir(dir.join("sub")).unwrap();
        let mode = rustix::fs::Mode::from_raw_mode(0o660);
        rustix::fs::mknodat(rustix::fs::CWD, dir.join("p"), rustix::fs::FileType::Fifo, mode, 0).unwrap();
    });
    // The default ACL replaces the umask: only the requested mode limits the permissions.
    let mode = |n: &str| fs::metadata(s.path(n)).unwrap().mode() & 0o777;
    assert_eq!((mode("d/f"), mode("d/sub"), mode("d/p")), (0o660, 0o770, 0o660));
    let f = sh(s.mnt(), "getfacl -cn d/f").ok();
    assert!(f.contains("user:1001:rwx") && f.contains("mask::rw-"), "{f}");
    assert_eq!(sh(s.src(), "getfacl -cn d/f").ok(), f);
    let sub = sh(s.mnt(), "getfacl -cn d/sub").ok();
    assert!(sub.contains("default:user:1001:rwx") && sub.contains("user:1001:rwx"), "{sub}");
    User::new(1001).run(|| fs::write(dir.join("f"), b"by the other").unwrap());
}

fn acl_follows_chmod(s: &Fixture) {
    needs_tools!("setfacl", "getfacl");
    fs::write(s.path("f"), b"").unwrap();
    sh(s.mnt(), "setfacl -m u:1001:rw f").ok();
    fs::set_permissions(s.path("f"), fs::Permissions::from_mode(0o604)).unwrap();
    let acl = sh(s.mnt(), "getfacl -cn f").ok();
    assert!(acl.contains("mask::---") && acl.contains("other::r--"), "{acl}");
    let path = s.path("f");
    assert!(User::new(1001).run(|| fs::File::options().write(true).open(&path).is_err()));
    fs::set_permissions(s.path("f"), fs::Permissions::from_mode(0o664)).unwrap();
    assert!(User::new(1001).run(|| fs::File::options().write(true).open(&path).is_ok()));
}

fn acl_refuses_strangers(s: &Fixture) {
    needs_tools!("setfacl");
    fs::write(s.path("f"), b"").unwrap();
    chown(s.path("f"), Some(1001), Some(1001)).unwrap();
    let dir = s.mnt().to_owned();
    assert!(!User::new(1002).run(|| sh(&dir, "setfacl -m u:1002:rw f")).success());
    assert!(User::new(1001).run(|| sh(&dir, "setfacl -m u:1002:rw f")).success());
    // Setting an ACL as a user outside the file's group clears the setgid bit, as chmod does.
    fs::set_permissions(s.path("f"), fs::Permissions::from_mode(0o2770)).unwrap();
    chown(s.path("f"), Some(1001), Some(1005)).unwrap();
    fs::set_permissions(s.path("f"), fs::Permissions::from_mode(0o2770)).unwrap();
    assert!(User::new(1001).run(|| sh(&dir, "setfacl -m g::rx f")).success());
    assert_eq!(fs::metadata(s.path("f")).unwrap().mode() & 0o2000, 0);
    assert_eq!(fs::metadata(s.lower("f")).unwrap().mode() & 0o2000, 0);
}
