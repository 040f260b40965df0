//! Mounts of images with corrupted bytes: every request completes, with a result or an error, and the daemon stays alive.

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::process::Command;

use shunt_test_support::{needs_mount, requirement, run_for};
use shunt_tests::{Image, Rng};

/// Walks, reads and queries everything, with bounded depth: a corrupt tree can contain itself.
const WALK: &str = r#"
find . -maxdepth 8 -ls >/dev/null 2>&1
find . -maxdepth 4 -type f -size -9000k -exec head -c 100000 {} + >/dev/null 2>&1
getfattr -d -m - -R . >/dev/null 2>&1
lsattr -R . >/dev/null 2>&1
for n in 1 2 3 4 5; do mkdir new$n; echo x > new$n/file; cp new$n/file "directory $n/"; done >/dev/null 2>&1
rm -rf "directory 1" new1 >/dev/null 2>&1; mv "directory 2" new2 >/dev/null 2>&1
stat -f . >/dev/null 2>&1
true
"#;

fn survives(mkfs: &[&str], seed: u64) {
    needs_mount!();
    requirement!(rustix::process::geteuid().is_root(), "needs root");
    let tree = tempfile::tempdir().unwrap();
    for n in 0..150_usize {
        let dir = tree.path().join(format!("directory {}", n % 5));
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join(format!("a name that is not too short {n}")), vec![n as u8; n * 50]).unwrap();
    }
    std::os::unix::fs::symlink("x".repeat(200), tree.path().join("long")).unwrap();
    let from = tree.path().to_str().unwrap();
    let mkfs = [mkfs, &["-b", "1024", "-N", "512", "-d", from]].concat();
    let image = match Image::make(&mkfs, 4) {
        Ok(image) => image,
        Err(why) => return shunt_test_support::skip::skip(&why),
    };
    run_for(60, Command::new("e2fsck").args(["-fyD"]).arg(image.path()));
    let original = fs::read(image.path()).unwrap();
    let used: Vec<usize> = (2048..original.len()).filter(|&at| original[at] != 0).collect();
    let mut rng = Rng::new(seed);
    let mut mounted = 0;
    for round in 0..12 {
        let file = fs::File::options().write(true).open(image.path()).unwrap();
        file.write_all_at(&original, 0).unwrap();
        for _ in 0..1 + rng.below(30) {
            let at = used[rng.below(used.len())] as u64;
            file.write_all_at(&[rng.below(256) as u8], at).unwrap();
        }
        // Read-only and writable mounts.
        let options: &[&str] = if round % 2 == 0 { &["--read-only"] } else { &[] };
        let started = run_for(20, &mut image.mount_command(options));
        if !started.success() {
            assert_eq!(started.fails().lines().count(), 1);
            continue;
        }
        let mount = image.by_shunt_already();
        let pid = mount.pid();
        let walked = run_for(60, Command::new("sh").args(["-c", WALK]).current_dir(mount.at()));
        assert!(walked.success(), "round {round} of {seed}: {walked:?}");
        assert_eq!(mount.pid(), pid, "the daemon lives");
        mounted += 1;
    }
    assert!(mounted > 3, "{mounted} of 12 could be mounted");
}

#[test]
fn extents() {
    survives(&["-O", "^metadata_csum,^uninit_bg"], 1);
}

#[test]
fn block_maps() {
    survives(&["-t", "ext3"], 2);
}

#[test]
fn inline() {
    survives(&["-O", "^metadata_csum,^uninit_bg,inline_data", "-I", "256"], 3);
}

/// A directory that contains its own parent and the root: listed, but not followed.
#[test]
fn directory_loops() {
    needs_mount!();
    let Ok(image) = Image::make(&["-O", "^metadata_csum"], 8) else {
        return shunt_test_support::skip::skip("no mkfs.ext4");
    };
    let commands = image.aside().join("commands");
    fs::write(&commands, "mkdir a\nmkdir a/b\nlink <2> a/b/root\nlink a a/b/up\nlink a twice\n").unwrap();
    run_for(20, Command::new("debugfs").args(["-w", "-f"]).arg(&commands).arg(image.path())).ok();
    let mount = image.by_shunt(&[]);
    let error = |path: &str| fs::metadata(mount.at().join(path)).err().and_then(|error| error.raw_os_error());
    const EUCLEAN: i32 = 117;
    const ELOOP: i32 = 40;
    assert_eq!(error("a/b/root"), Some(EUCLEAN));
    assert_eq!(error("a/b/up"), Some(ELOOP));
    let walked = run_for(20, Command::new("find").arg(mount.at()));
    assert!(walked.status.is_some() && walked.out.lines().count() < 20, "{walked:?}");
    assert_eq!(error("a/b"), None);
}
