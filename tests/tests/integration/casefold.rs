//! Case-insensitive directories (`chattr +F`) with caches that keep names forever.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use shunt_test_support::{loops, memory, needs_mount, run, skip};
use shunt_tests::{Fixture, Plan, mounts};

/// A file system below the source with case-folding support, unmounted after the mirror.
struct CasefoldDisk(PathBuf);

impl Drop for CasefoldDisk {
    fn drop(&mut self) {
        mounts::detach(&self.0);
    }
}

/// Mounts ext4 on a loop device, or tmpfs.
fn fold(s: &Fixture) -> Option<CasefoldDisk> {
    let (at, image) = (s.lower("sub"), s.aside().join("image"));
    fs::create_dir(&at).unwrap();
    fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
    let made = run(Command::new("mkfs.ext4").args(["-qF", "-O", "casefold"]).arg(&image)).success()
        && loops::set_up(Command::new("mount").arg("-oloop").args([&image, &at])).success();
    if made
        || run(Command::new("mount").args(["-t", "tmpfs", "-o", "casefold", "shunt-test-fold"]).arg(&at))
            .success()
    {
        return Some(CasefoldDisk(at));
    }
    skip::kernel_cannot(
        "neither ext4 nor tmpfs can ignore case here (CONFIG_UNICODE, mkfs.ext4 -O casefold)",
    );
    None
}

/// Runs a body on a fixture with the case-insensitive `sub/d` and the case-sensitive, empty `sub/e`.
fn with_folding(cache: &str, body: impl FnOnce(&Fixture)) {
    let Some(mut s) = Plan::tmpfs().args(&["--cache", cache]).unmounted().set_or_skip() else { return };
    let Some(_sub) = fold(&s) else { return };
    ["sub/d", "sub/e"].iter().for_each(|dir| fs::create_dir(s.lower(dir)).unwrap());
    run(Command::new("chattr").arg("+F").arg(s.lower("sub/d"))).ok();
    s.mount();
    body(&s);
    s.umount().ok();
}

fn is_there(s: &Fixture, name: &str) -> bool {
    fs::symlink_metadata(s.path(name)).is_ok()
}

#[test]
fn a_name_made_in_other_letters_is_found() {
    needs_mount!();
    with_folding("exclusive", |s| {
        assert!(!is_there(s, "sub/d/name"));
        fs::write(s.path("sub/d/NAME"), "1").unwrap();
        assert!(is_there(s, "sub/d/name"));
        assert_eq!(fs::read_to_string(s.path("sub/d/Name")).unwrap(), "1");
        fs::rename(s.path("sub/d/NAME"), s.path("sub/d/other")).unwrap();
        assert!(!is_there(s, "sub/d/name") && !is_there(s, "sub/d/Name"));
        assert!(is_there(s, "sub/d/OTHER") && is_there(s, "sub/d/Other"));
        fs::remove_file(s.path("sub/d/oTHER")).unwrap();
        assert!(!is_there(s, "sub/d/OTHER") && !is_there(s, "sub/d/other"));
        // Listed names are cached no longer than looked-up ones.
        fs::write(s.path("sub/d/LISTED"), "1").unwrap();
        assert_eq!(fs::read_dir(s.path("sub/d")).unwrap().count(), 1);
        fs::remove_file(s.path("sub/d/listed")).unwrap();
        assert!(!is_there(s, "sub/d/LISTED"));
    });
}

/// Other directories of the same file system are cached as usual.
#[test]
fn other_directories_are_kept() {
    needs_mount!();
    memory::keeping(|| {
        with_folding("exclusive", |s| {
            fs::write(s.lower("sub/e/f"), "1").unwrap();
            let look = || assert!(is_there(s, "sub/e/f") && !is_there(s, "sub/e/F"));
            look();
            let before = s.requests("lookup");
            (0..20).for_each(|_| look());
            assert_eq!(s.requests("lookup"), before);
        });
    });
}

#[test]
fn a_directory_that_turns_is_noticed() {
    needs_mount!();
    with_folding("exclusive", |s| {
        assert!(!is_there(s, "sub/e/before"));
        run(Command::new("chattr").arg("+F").arg(s.path("sub/e"))).ok();
        assert!(!is_there(s, "sub/e/name"));
        fs::write(s.path("sub/e/NAME"), "1").unwrap();
        assert!(is_there(s, "sub/e/name"));
        // Kernels before 7.44 cannot expire all names.
        let stat = s.stat();
        if stat["negotiated"]["protocol"].as_str().expect("a version") >= "7.44" {
            fs::write(s.path("sub/e/BEFORE"), "1").unwrap();
            assert!(is_there(s, "sub/e/before"));
        }
    });
}

#[test]
fn changes_in_other_case_are_seen() {
    needs_mount!();
    with_folding("coherent", |s| {
        assert!(!is_there(s, "sub/d/name"));
        fs::write(s.lower("sub/d/NAME"), "1").unwrap();
        assert!(is_there(s, "sub/d/name"));
        fs::remove_file(s.lower("sub/d/Name")).unwrap();
        assert!(!is_there(s, "sub/d/name") && !is_there(s, "sub/d/NAME"));
        // Changed in the source, while an absent name is cached.
        assert!(!is_there(s, "sub/e/name"));
        run(Command::new("chattr").arg("+F").arg(s.lower("sub/e"))).ok();
        fs::write(s.lower("sub/e/NAME"), "1").unwrap();
        // One second, if the kernel cannot expire all names at once.
        assert!(shunt_test_support::cmd::within(Duration::from_millis(1300), || is_there(s, "sub/e/name")));
    });
}
