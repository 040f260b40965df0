//! Fixture: a source, a mount point, and the command; checks that no mount and no process remains.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

/// Two directories, and a mount over the second that is taken away at the end.
pub struct Fixture {
    dir: tempfile::TempDir,
}

/// Why mounts cannot be tested here; none if they can.
fn obstacle() -> Option<&'static str> {
    if !rustix::process::geteuid().is_root() {
        return Some("not root");
    }
    std::fs::File::open("/dev/fuse").is_err().then_some("no /dev/fuse")
}

impl Fixture {
    /// None, said aloud, where mounts cannot be made. In CI that is a failure.
    pub fn new() -> Option<Self> {
        if let Some(why) = obstacle() {
            assert!(std::env::var_os("CI").is_none(), "mounts cannot be tested: {why}");
            eprintln!("skipped: {why}");
            return None;
        }
        let fixture = Fixture { dir: tempfile::tempdir().unwrap() };
        std::fs::create_dir(fixture.source()).unwrap();
        std::fs::create_dir(fixture.mountpoint()).unwrap();
        std::fs::write(fixture.source().join("hello"), "hello\n").unwrap();
        Some(fixture)
    }

    pub fn source(&self) -> PathBuf {
        self.dir.path().join("source")
    }

    pub fn mountpoint(&self) -> PathBuf {
        self.dir.path().join("mount")
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Mounts in the background and returns the line that it says.
    pub fn mirror(&self, options: &[&str]) -> String {
        let mut args = vec![OsStr::new("mirror"), OsStr::new("--daemon")];
        args.extend(options.iter().map(OsStr::new));
        let (source, mountpoint) = (self.source(), self.mountpoint());
        args.extend([source.as_os_str(), mountpoint.as_os_str()]);
        succeeds(shunt(args))
    }

    pub fn umount(&self, options: &[&str]) -> Output {
        let mountpoint = self.mountpoint();
        shunt(["umount"].iter().chain(options).map(OsStr::new).chain([mountpoint.as_os_str()]))
    }

    pub fn stat(&self) -> Value {
        let mountpoint = self.mountpoint();
        json(&succeeds(shunt([OsStr::new("stat"), OsStr::new("--json"), mountpoint.as_os_str()])))
    }

    /// The line of the list that is ours.
    pub fn listed(&self) -> Option<Value> {
        let list = json(&succeeds(shunt(["list", "--json"])));
        let mut entries = list.as_array().expect("an array").iter();
        entries.find(|entry| entry["mountpoint"] == self.mountpoint().to_str().unwrap()).cloned()
    }

    pub fn is_mounted(&self) -> bool {
        let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        table.contains(&format!(" {} ", self.mountpoint().display()))
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        while self.is_mounted() && self.umount(&["--force", "--timeout", "5"]).status.success() {}
    }
}

pub fn shunt<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Output {
    command("shunt").args(args).output().unwrap()
}

/// The command under another name, as mount(8) calls it.
pub fn command(name: &str) -> Command {
    use std::os::unix::process::CommandExt;
    let mut command = Command::new(env!("CARGO_BIN_EXE_shunt"));
    command.arg0(name).env_remove("RUST_LOG");
    command
}

pub fn succeeds(output: Output) -> String {
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {printed}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

/// The one line of a failure.
pub fn fails(output: Output, code: i32) -> String {
    let printed = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{printed}");
    assert_eq!(printed.lines().count(), 1, "one line: {printed}");
    let line = printed.trim_end().strip_prefix("shunt: ").expect("the name in front").to_owned();
    assert!(!line.contains("os error"), "{line}");
    line
}

pub fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// Waits, ten seconds at most.
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..1000 {
        if is_so() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("not within ten seconds: {what}");
}

/// Reports whether a process has ended; a zombie has.
pub fn has_ended(pid: u64) -> bool {
    let stat = std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat"));
    stat.map_or(true, |stat| {
        stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with(['Z', 'X']))
    })
}
