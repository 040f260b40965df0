//! `shunt mirror --extension`, started as a user starts it.

use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Waits until `what` returns true. The timeout is long: an emulated machine on a busy host, with a debug kernel, is slow.
pub fn eventually(what: impl FnMut() -> bool) -> bool {
    within(Duration::from_secs(180), what)
}

pub fn within(time: Duration, mut what: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + time;
    while !what() {
        if Instant::now() > end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}

/// A source and its mirror, both removed when this value is dropped.
pub struct TestMirror {
    directory: PathBuf,
    daemon: Child,
}

impl TestMirror {
    /// Starts a mirror; `below` is on the lower file system. The log goes to a file.
    pub fn new(below: &str, arguments: &[&str]) -> Self {
        let directory = tempfile::tempdir_in(below).unwrap().keep();
        for name in ["source", "mount"] {
            fs::create_dir(directory.join(name)).unwrap();
        }
        Self::start(directory, &["mirror"], arguments)
    }

    /// Starts `shunt ext4 --extension` with an image of 64 MiB.
    pub fn ext4(arguments: &[&str]) -> Self {
        let directory = tempfile::tempdir_in("/scratch").unwrap().keep();
        fs::create_dir(directory.join("mount")).unwrap();
        let image = directory.join("source");
        fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
        assert!(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&image).status().unwrap().success());
        Self::start(directory, &["ext4"], arguments)
    }

    /// Starts `shunt volume mount --extension`: a replica of the volume in `store`, as `node`. The source is its cache.
    pub fn volume(store: &Path, node: &str, arguments: &[&str]) -> Self {
        let directory = tempfile::tempdir_in("/scratch").unwrap().keep();
        for name in ["source", "mount"] {
            fs::create_dir(directory.join(name)).unwrap();
        }
        let meta = format!("sqlite:{}", store.display());
        let cache = directory.join("source");
        let words = ["volume", "mount", "--meta", &meta, "--node", node, "--cache", cache.to_str().unwrap()];
        Self::start(directory, &words, &[arguments, &["test"]].concat())
    }

    /// Runs `shunt` with `words`, `arguments`, the source unless it is a volume, and the mount point.
    fn start(directory: PathBuf, words: &[&str], arguments: &[&str]) -> Self {
        let log = fs::File::create(directory.join("log")).unwrap();
        let source = (words[0] != "volume").then(|| directory.join("source"));
        let daemon = Command::new("shunt")
            .args(words)
            .args(arguments)
            .args(source)
            .arg(directory.join("mount"))
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let mirrored = Self { directory, daemon };
        let device = |name: &str| fs::metadata(mirrored.directory.join(name)).unwrap().dev();
        let ready = || device("mount") != device("source") && mirrored.log().contains(" shows ");
        assert!(eventually(ready), "{}", mirrored.log());
        mirrored
    }

    pub fn source(&self, name: &str) -> PathBuf {
        self.directory.join("source").join(name)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.join("mount").join(name)
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.directory.join("log")).unwrap()
    }

    pub fn stat(&self) -> Value {
        self.try_stat().expect("the daemon answers")
    }

    /// Returns the statistics; `None` while no daemon serves.
    pub fn try_stat(&self) -> Option<Value> {
        let out = Command::new("shunt").args(["stat", "--json"]).arg(self.path("")).output().unwrap();
        serde_json::from_slice(&out.stdout).ok()
    }

    /// Returns the number of requests that reached the daemon, and that the kernel answered, of some operations during `work`.
    pub fn counts(&self, operations: &[&str], work: impl FnOnce()) -> (u64, u64) {
        let count = || {
            let stat = self.stat();
            let asked = |name: &&str| stat["requests"][*name]["count"].as_u64().unwrap_or(0);
            let answered = |name: &&str| stat["extension"]["counts"][*name]["answered"].as_u64().unwrap_or(0);
            (operations.iter().map(asked).sum::<u64>(), operations.iter().map(answered).sum::<u64>())
        };
        let before = count();
        work();
        let after = count();
        (after.0 - before.0, after.1 - before.1)
    }
}

impl Drop for TestMirror {
    fn drop(&mut self) {
        Command::new("umount").arg("-l").arg(self.directory.join("mount")).status().ok();
        self.daemon.wait().ok();
        fs::remove_dir_all(&self.directory).ok();
    }
}

/// Sets an extended attribute.
pub fn set(path: &Path, name: &str, value: &str) {
    rustix::fs::setxattr(path, name, value.as_bytes(), rustix::fs::XattrFlags::empty()).unwrap();
}

/// Returns the names of extended attributes.
pub fn listxattr(path: &Path) -> Vec<String> {
    let path = CString::new(path.as_os_str().as_bytes()).unwrap();
    let mut list = vec![0u8; 1024];
    // SAFETY: the path ends in a NUL, and `list` has that room.
    let length = unsafe { libc::listxattr(path.as_ptr(), list.as_mut_ptr().cast(), list.len()) };
    let length = usize::try_from(length).expect("a list");
    let names = list[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty());
    names.map(|name| String::from_utf8(name.to_vec()).unwrap()).collect()
}

/// Runs `work` on a thread of another user.
pub fn as_user(uid: u32, work: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            // SAFETY: numbers only; the call itself, not the library's, changes this thread alone.
            assert_eq!(unsafe { libc::syscall(libc::SYS_setresuid, uid, uid, uid) }, 0);
            work();
        });
        worker.join().unwrap();
    });
}
