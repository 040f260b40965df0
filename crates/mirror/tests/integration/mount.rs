//! Behaviour that needs a real mount. Requires root and `/dev/fuse`; in CI (`CI=true`) their absence is a failure.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use shunt_fuse::mount::{MountOptions, Unmount};
use shunt_mirror::{CacheMode, Mirror, MirrorOptions, PassthroughMode};
use tempfile::TempDir;

struct Mounted {
    mounted: Option<shunt_fuse::Mounted>,
    mirror: Arc<Mirror>,
    dir: TempDir,
}

impl Mounted {
    fn new(change: impl FnOnce(&mut MirrorOptions)) -> Option<Self> {
        let possible = rustix::process::geteuid().is_root() && Path::new("/dev/fuse").exists();
        if !possible {
            assert!(std::env::var_os("CI").is_none(), "needs root and /dev/fuse");
            eprintln!("skipped: needs root and /dev/fuse");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
        for name in ["source", "mount"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        let mut options =
            MirrorOptions { cache: CacheMode::Exclusive, ..MirrorOptions::new(dir.path().join("source")) };
        change(&mut options);
        let mirror = Arc::new(Mirror::open(options).unwrap());
        let config = mirror.config();
        let options =
            MountOptions::new().allow_other(true).default_permissions(true).nosuid(false).nodev(false);
        let mounted =
            shunt_fuse::mount::<Mirror>(mirror.clone(), config, &dir.path().join("mount"), &options).unwrap();
        Some(Self { mounted: Some(mounted), mirror, dir })
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join("mount").join(name)
    }

    fn below(&self, name: &str) -> PathBuf {
        self.dir.path().join("source").join(name)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Some(mounted) = self.mounted.take() {
            mounted.unmount(Unmount::Lazy).map_err(|failed| failed.1).unwrap().unwrap();
        }
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

/// Appends to a file as an unprivileged user.
fn append_as_user(path: &Path) {
    let mut command = Command::new("sh");
    command.arg("-c").arg("echo x >> \"$0\"").arg(path).uid(12345).gid(12345);
    assert!(command.status().unwrap().success());
}

#[test]
fn a_write_of_a_user_clears_setuid_by_every_path() {
    for passthrough in [PassthroughMode::Auto, PassthroughMode::Off] {
        for cache in [CacheMode::Exclusive, CacheMode::Timeout(Duration::from_secs(3600)), CacheMode::None] {
            let change =
                |options: &mut MirrorOptions| (options.passthrough, options.cache) = (passthrough, cache);
            let Some(mount) = Mounted::new(change) else { return };
            let path = mount.at("f");
            fs::write(&path, "").unwrap();
            fs::set_permissions(&path, PermissionsExt::from_mode(0o6777)).unwrap();
            assert_eq!(mode(&path), 0o6777);
            append_as_user(&path);
            assert_eq!((mode(&path), mode(&mount.below("f"))), (0o777, 0o777), "{passthrough:?} {cache:?}");
        }
    }
}

#[test]
fn a_program_is_not_run_with_a_setuid_bit_that_is_gone() {
    let Some(mount) = Mounted::new(|_| {}) else { return };
    // `id` as a setuid-root program.
    let path = mount.at("id");
    fs::copy("/usr/bin/id", &path).unwrap();
    fs::set_permissions(&path, PermissionsExt::from_mode(0o4777)).unwrap();
    let effective = || {
        let output = Command::new(&path).arg("-u").uid(12345).gid(12345).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    assert_eq!(effective(), "0");
    append_as_user(&path);
    // There is no stat in between: the kernel must not use the mode that it cached.
    assert_eq!(effective(), "12345");
}

#[test]
fn the_number_of_inodes_is_kept_in_bounds() {
    let limit = 2000;
    let Some(mount) = Mounted::new(|options| options.max_inodes = Some(limit)) else { return };
    for dir in 0..50 {
        let dir = mount.below(&format!("d{dir}"));
        fs::create_dir(&dir).unwrap();
        for file in 0..200 {
            fs::write(dir.join(format!("f{file}")), "").unwrap();
        }
    }
    if mount.mounted.as_ref().unwrap().handle().negotiated().minor < 45 {
        eprintln!("skipped: this kernel cannot be asked to forget inodes (needs Linux 6.18)");
        return;
    }
    let find = Command::new("find").arg(mount.at("")).args(["-printf", "%s %i\n"]).output().unwrap();
    assert_eq!(find.stdout.iter().filter(|&&byte| byte == b'\n').count(), 50 * 201 + 1);
    // Replies to the last prune notifications may be in flight.
    let started = Instant::now();
    while mount.mirror.memory().nodes > limit * 3 / 2 && started.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(20));
    }
    let memory = mount.mirror.memory();
    println!("{memory:?}");
    assert!(memory.nodes <= limit * 3 / 2, "{memory:?}");
}

#[test]
fn a_name_made_behind_our_back_is_opened_with_the_callers_rights() {
    let Some(mount) = Mounted::new(|_| {}) else { return };
    fs::set_permissions(mount.at(""), PermissionsExt::from_mode(0o777)).unwrap();
    // The kernel caches a negative entry for the name.
    assert!(!mount.at("f").exists());
    fs::write(mount.below("f"), "secret").unwrap();
    fs::set_permissions(mount.below("f"), PermissionsExt::from_mode(0o600)).unwrap();
    let mut command = Command::new("sh");
    command.arg("-c").arg("exec 3<>\"$0\" && cat <&3").arg(mount.at("f")).uid(12345).gid(12345);
    let output = command.output().unwrap();
    assert!(!output.status.success() && output.stdout.is_empty(), "{output:?}");
    // A caller with the permission succeeds.
    let mut file = fs::OpenOptions::new().create(true).append(true).open(mount.at("f")).unwrap();
    file.write_all(b"!").unwrap();
    assert_eq!(fs::read(mount.at("f")).unwrap(), b"secret!");
}

#[test]
fn a_directory_mounted_over_itself_is_served() {
    let Some(mount) = Mounted::new(|_| {}) else { return };
    fs::write(mount.below("f"), "x").unwrap();
    let source = mount.dir.path().join("source");
    let mirror = Mirror::open(MirrorOptions::new(&source)).unwrap();
    let config = mirror.config();
    let over = shunt_fuse::mount(mirror, config, &source, &MountOptions::new()).unwrap();
    assert_eq!(fs::read(source.join("f")).unwrap(), b"x");
    fs::write(source.join("g"), "y").unwrap();
    over.unmount(Unmount::Lazy).map_err(|failed| failed.1).unwrap().unwrap();
    assert_eq!(fs::read(source.join("g")).unwrap(), b"y");
    assert_eq!(fs::read(mount.at("g")).unwrap(), b"y");
}
