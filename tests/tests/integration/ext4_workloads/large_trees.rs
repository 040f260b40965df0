//! Trees of many files.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::{DirEntryExt as _, MetadataExt as _};
use std::path::Path;
use std::time::Instant;

use shunt_test_support::{needs_mount, requirement};
use shunt_tests::Image;

fn name(n: usize) -> String {
    format!("a name that is not too short {n}")
}

/// Returns the number of names in a directory, and a hash of names, inodes and sizes that does not depend on their order.
fn sum(dir: &Path) -> (usize, u64) {
    use std::hash::{Hash as _, Hasher as _};
    let mut all = (0, 0_u64);
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let seen = entry.metadata().unwrap();
        assert_eq!(seen.ino(), entry.ino(), "{entry:?}");
        let mut hasher = std::hash::DefaultHasher::new();
        (entry.file_name(), entry.ino(), seen.size(), seen.mode(), seen.mtime(), seen.mtime_nsec())
            .hash(&mut hasher);
        let below = if seen.is_dir() { sum(&entry.path()) } else { (0, 0) };
        all = (all.0 + 1 + below.0, all.1.wrapping_add(hasher.finish()).wrapping_add(below.1.rotate_left(7)));
    }
    all
}

/// Fifty thousand names in one directory, created by one implementation and removed by the other, and the other way round.
fn fifty_thousand(mkfs: &[&str], made_by_kernel: bool) {
    const NAMES: usize = 50_000;
    needs_mount!();
    requirement!(rustix::process::geteuid().is_root(), "needs root");
    let image = Image::make(&[mkfs, &["-N", "60000"]].concat(), 256).unwrap();
    let mount = |by_kernel: bool| match by_kernel {
        true => image.by_kernel("rw").unwrap(),
        false => image.by_shunt(&[]),
    };
    let first = mount(made_by_kernel);
    let many = first.at().join("many");
    fs::create_dir(&many).unwrap();
    for n in 0..NAMES {
        let mut file = File::create_new(many.join(name(n))).unwrap();
        if n % 50 == 0 {
            write!(file, "{n}").unwrap();
        }
    }
    drop(first);
    image.check();
    let seen = sum(mount(made_by_kernel).at());
    assert_eq!(seen.0, NAMES + 2, "lost+found is there, too");
    let second = mount(!made_by_kernel);
    let many = second.at().join("many");
    assert!(sum(second.at()) == seen);
    for n in (0..NAMES).step_by(50) {
        assert_eq!(fs::read_to_string(many.join(name(n))).unwrap(), n.to_string());
    }
    for n in 0..NAMES {
        match n % 5 {
            0 => fs::rename(many.join(name(n)), many.join(format!("moved {n}"))).unwrap(),
            _ => fs::remove_file(many.join(name(n))).unwrap(),
        }
    }
    drop(second);
    image.check();
    let again = mount(made_by_kernel);
    let many = again.at().join("many");
    assert_eq!(fs::read_dir(&many).unwrap().count(), NAMES / 5);
    fs::remove_dir_all(&many).unwrap();
    drop(again);
    image.check();
}

#[test]
fn fifty_thousand_made_through_the_mount() {
    fifty_thousand(&["-b", "4096"], false);
}

#[test]
fn fifty_thousand_made_by_the_kernel() {
    fifty_thousand(&["-b", "1024", "-O", "orphan_file"], true);
}

/// Returns the peak memory of a process in KiB.
fn peak(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok()).expect("VmHWM")
}

/// Two million files in a tree: bounded memory, and the kernel finds the same. `SHUNT_SOAK_FILES` sets the number.
#[test]
#[ignore = "long: make soak"]
fn two_million_over_a_tree() {
    const PER_DIRECTORY: usize = 500;
    needs_mount!();
    let wanted = std::env::var("SHUNT_SOAK_FILES").ok().and_then(|files| files.parse().ok());
    let files: usize = wanted.unwrap_or(2_000_000);
    let directories = files / PER_DIRECTORY;
    let inodes = (files + 2 * directories + 10_000).to_string();
    let image = Image::make(&["-b", "4096", "-N", &inodes], 8192).unwrap();
    let start = Instant::now();
    let report = |what: &str| println!("{what}: {:.0} s", start.elapsed().as_secs_f64());
    let mount = image.by_shunt(&[]);
    let (pid, at) = (mount.pid(), mount.at());
    let dir = |n: usize| at.join(format!("{}/{}", n % 40, n));
    std::thread::scope(|scope| {
        for half in 0..2 {
            scope.spawn(move || {
                for d in (half..directories).step_by(2) {
                    fs::create_dir_all(dir(d)).unwrap();
                    for n in 0..PER_DIRECTORY {
                        let mut file = File::create_new(dir(d).join(name(n))).unwrap();
                        if n % 10 == 0 {
                            file.write_all(&vec![n as u8; n * 7]).unwrap();
                        }
                    }
                }
            });
        }
    });
    report("made");
    let here = sum(at);
    report("looked at");
    assert!(here.0 >= directories * PER_DIRECTORY + directories);
    let made = peak(pid);
    println!("the daemon had {} MiB at most", made >> 10);
    drop(mount);
    report("unmounted");
    assert!(made <= 128 << 10, "{made} KiB");
    image.check_for(1200);
    report("e2fsck");
    let kernel = image.by_kernel("ro").unwrap();
    assert!(sum(kernel.at()) == here, "the kernel sees other files");
    report("looked at by the kernel");
    drop(kernel);
    let mount = image.by_shunt(&[]);
    let pid = mount.pid();
    assert!(sum(mount.at()) == here);
    report("looked at cold");
    for n in 0..20 {
        fs::remove_dir_all(mount.at().join(n.to_string())).unwrap();
    }
    report("removed half");
    assert!(peak(pid) <= 128 << 10, "{} KiB", peak(pid));
    println!("the daemon had {} MiB at most", peak(pid) >> 10);
    drop(mount);
    image.check_for(1200);
    report("e2fsck");
}
