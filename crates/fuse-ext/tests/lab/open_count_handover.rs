//! Tests that detach a program while files are open that it opened, and attach another one: the open counts are handed over
//! exactly.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;

use shunt_fuse::mount::{MountOptions, Unmount};
use shunt_fuse::{Expiry, Mounted, Transport, mount};
use shunt_fuse_ext::{AccessTimes, Extended, Extension, builtin};
use shunt_mirror::{CacheMode, Mirror, MirrorOptions};

use super::common::{enable_rings, module_is_here};
use super::mirror_cli::eventually;

struct Served {
    fs: Arc<Extended<Mirror>>,
    mounted: Option<Mounted>,
    directory: PathBuf,
}

impl Served {
    fn new() -> Self {
        Self::over(Transport::Dev)
    }

    fn over(transport: Transport) -> Self {
        let directory = tempfile::tempdir_in("/scratch").unwrap().keep();
        let [source, target] = ["source", "mount"].map(|name| directory.join(name));
        fs::create_dir(&source).unwrap();
        fs::create_dir(&target).unwrap();
        let mirror = Mirror::open(MirrorOptions {
            cache: CacheMode::Exclusive,
            passes_rereads: true,
            ..MirrorOptions::new(source)
        })
        .unwrap();
        let config = mirror.config().transport(transport);
        let program = builtin::PROGRAM.unwrap().to_vec();
        let extension = Extension {
            program: Ok(program),
            xattrs: true,
            opens: true,
            access_times: AccessTimes::Loosely,
            lasting: Expiry::FOREVER,
            no_kernel_cache: false,
        };
        let fs = Arc::new(Extended::new(mirror, extension));
        let options = MountOptions::new().default_permissions(true);
        let mounted = mount::<Extended<Mirror>>(fs.clone(), config, &target, &options).unwrap();
        Self { fs, mounted: Some(mounted), directory }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join("mount").join(name)
    }

    fn attach(&self) {
        self.fs.attach(self.mounted.as_ref().unwrap().handle());
    }

    /// Opens a file by the program; the daemon has opened it before.
    fn open(&self) -> File {
        drop(File::open(self.path("file")).unwrap());
        File::open(self.path("file")).unwrap()
    }

    /// Reports whether the backing file is released after its name was removed, which must happen only once it is closed.
    fn backing_file_is_released(&self) -> bool {
        fs::remove_file(self.path("file")).ok();
        eventually(|| {
            // Drops unused inodes and dentries.
            fs::write("/proc/sys/vm/drop_caches", "2").unwrap();
            self.fs.known_files() == 0
        })
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.mounted.take().map(|mounted| mounted.unmount(Unmount::Lazy));
        fs::remove_dir_all(&self.directory).ok();
    }
}

fn is_read(mut file: &File) -> bool {
    let mut text = [0; 4];
    file.read_exact(&mut text).is_ok() && &text == b"text"
}

#[test]
fn an_open_may_outlive_its_program() {
    if !module_is_here() {
        return;
    }
    // The file is closed while no program is attached; under the next one; under the one that opened it.
    for (when, detaches, attaches) in [("none", true, false), ("next", true, true), ("own", false, false)] {
        let served = Served::new();
        fs::write(served.path("file"), "text").unwrap();
        let file = served.open();
        assert_eq!(served.fs.known_files(), 1, "{when}");
        if detaches {
            served.fs.detach();
        }
        if attaches {
            served.attach();
        }
        // Another open of the file must have the same backing file, or the kernel refuses it.
        let other = File::options().read(true).write(true).open(served.path("file")).unwrap();
        assert!(is_read(&other) && is_read(&file), "{when}");
        drop(other);
        fs::remove_file(served.path("file")).unwrap();
        assert_eq!(served.fs.known_files(), 1, "{when}: released while it is open");
        drop(file);
        assert!(served.backing_file_is_released(), "{when}");
    }
}

#[test]
fn counts_meet_zero_after_many_programs() {
    if !module_is_here() {
        return;
    }
    let served = Served::new();
    fs::write(served.path("file"), "text").unwrap();
    let mut files = Vec::new();
    for round in 0..super::common::rounds(4) {
        files.push(served.open());
        if round % 3 == 2 {
            files.remove(0);
        }
        served.fs.detach();
        if round % 2 == 0 {
            files.truncate(files.len() - 1);
        }
        served.attach();
    }
    files.iter().for_each(|file| assert!(is_read(file)));
    drop(files);
    assert!(served.backing_file_is_released());
}

/// Returns the number of opens that the program of this mount answered.
fn opens_answered(served: &Served) -> u64 {
    let minor = rustix::fs::minor(fs::metadata(served.path("")).unwrap().dev());
    let connection = format!("connection {minor} ");
    let text = fs::read_to_string("/sys/kernel/debug/shunt_fuse_ext").unwrap();
    let counts = text.lines().skip_while(|line| !line.starts_with(&connection)).skip(1);
    let mut counts = counts.take_while(|line| line.starts_with("op "));
    let open = counts.find_map(|line| line.strip_prefix("op 14 answered "));
    open.map_or(0, |counts| counts.split(' ').next().unwrap().parse().unwrap())
}

/// Over io_uring, releases reach the daemon although the program has counted the opens: the kernel queues them past the program.
#[test]
fn releases_over_rings_are_counted() {
    if !module_is_here() || enable_rings().is_none() {
        return;
    }
    let served = Served::over(Transport::Uring);
    fs::write(served.path("file"), "text").unwrap();
    // Until the rings are ready, the daemon answers.
    assert!(eventually(|| {
        drop(served.open());
        opens_answered(&served) > 0
    }));
    let before = opens_answered(&served);
    let files: Vec<File> = (0..10).map(|_| served.open()).collect();
    assert_eq!(opens_answered(&served) - before, 20);
    files.iter().for_each(|file| assert!(is_read(file)));
    fs::remove_file(served.path("file")).unwrap();
    assert_eq!(served.fs.known_files(), 1, "released while it is open");
    drop(files);
    assert!(served.backing_file_is_released());
}
