//! Tests that kill a server and check that the guardian does its work, and only that.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::*;
use crate::mount::tests::{TestMountDir, answer_init, can_mount, my_role, role};
use crate::mount::{MountMethod, MountOptions, MountPoint, prepare};

const GUARDIAN: &str = concat!(module_path!(), "::play_the_guardian");
const SERVER: &str = concat!(module_path!(), "::play_the_server");

/// The guardian and the server of these tests are this test program, started again.
#[test]
fn play_the_guardian() {
    if my_role().is_some() {
        let _ = main();
    }
}

#[test]
fn play_the_server() {
    let Some(role_name) = my_role() else { return };
    let path = PathBuf::from(std::env::var_os("SHUNT_TEST_PLACE").unwrap());
    // A descriptor that every child inherits, as in a careless program.
    let careless = rustix::io::dup(std::io::stderr()).unwrap();
    rustix::io::fcntl_setfd(&careless, rustix::io::FdFlags::empty()).unwrap();

    let guardian = Guardian::spawn(role(GUARDIAN, "guardian")).unwrap();
    let method = if role_name.contains("pending") { MountMethod::Classic } else { MountMethod::Fsopen };
    let detached = prepare(&MountOptions::new().method(method)).unwrap();
    let watch = guardian.watch(&detached, &path).unwrap();
    let print = |what: &str| {
        println!("\n{what} {}", guardian.pid().unwrap());
        std::io::stdout().flush().unwrap();
        std::thread::sleep(Duration::from_secs(60));
    };
    if role_name.starts_with("before") {
        return print("ready");
    }
    let mounted = detached.attach(&path).unwrap();
    answer_init(&mounted.device);
    match role_name.as_str() {
        "pending" => {}
        "released" => guardian.release(watch).unwrap(),
        _ => guardian.confirm(watch, &mounted.mount).unwrap(),
    }
    if role_name.starts_with("hostile") {
        ask_for_a_program(&guardian, &path, role_name.contains("sealed"));
    }
    if role_name == "notifying" {
        let device = mounted.device.try_clone().unwrap();
        std::thread::Builder::new()
            .name(exit_watch::NOTIFIER.into())
            .spawn(move || drop_a_name(device))
            .unwrap();
    }
    if role_name == "asking" {
        std::thread::spawn(move || run_on_own_mount(|| std::fs::read_dir(path).map(drop)));
        take_a_request(&mounted.device);
    }
    print("ready");
}

/// Sends the messages of a server that was compromised by a malicious image: a guardian that starts successors would run `touch`.
fn ask_for_a_program(guardian: &Guardian, mount: &Path, sealed: bool) {
    if sealed {
        guardian.seal().unwrap();
    }
    let touched = touched(mount).into_os_string();
    let restart = Message::Restart { crashes: 5, arguments: vec!["touch".into(), touched] };
    let program = std::fs::File::open("/usr/bin/touch").unwrap();
    guardian.send(&restart).unwrap();
    guardian.send(&Message::Arm).unwrap();
    guardian
        .send_with(
            &Message::Store(Key { class: fd_store::DescriptorClass::State, id: 0 }),
            Some(program.as_fd()),
        )
        .unwrap();
    guardian.upgrade(program.as_fd()).unwrap();
    // It does not remove other mounts either.
    let other = MountPoint::top(Path::new("/proc")).unwrap();
    if sealed {
        let path = other.path().to_owned();
        guardian.send(&Message::Mounted { token: 77, mark: other.mark(), path }).unwrap();
    }
}

/// The file that `touch` would make.
fn touched(mount: &Path) -> PathBuf {
    mount.with_extension("touched")
}

/// Invalidates a name of the root directory once a process makes a request there, which gets no reply.
fn drop_a_name(device: OwnedFd) {
    take_a_request(&device);
    let notice = shunt_fuse_abi::build::notify::inval_entry(1, b"name", Default::default());
    std::fs::File::from(device).write_all(&notice.to_vec()).unwrap();
}

/// Reads one request, and leaves it without a reply.
fn take_a_request(device: &OwnedFd) {
    rustix::io::read(device, &mut vec![0; 1 << 20]).unwrap();
}

struct Server {
    child: Child,
    guardian: u32,
}

impl Server {
    fn start(name: &str, mount_dir: &TestMountDir) -> Self {
        let mut command = role(SERVER, name);
        command.env("SHUNT_TEST_PLACE", mount_dir.path()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let guardian = lines
            .find_map(|line| line.unwrap().strip_prefix("ready ").map(|pid| pid.parse().unwrap()))
            .expect("the server reports readiness");
        Server { child, guardian }
    }

    /// Sends SIGKILL, and waits for the guardian, one second at most.
    fn kill(self) {
        self.kill_within(Duration::from_secs(1));
    }

    fn kill_within(mut self, limit: Duration) {
        self.child.kill().unwrap();
        let start = Instant::now();
        self.child.wait().unwrap();
        while alive(self.guardian) {
            assert!(
                start.elapsed() < shunt_test_support::pace::limit(limit),
                "the guardian exceeds the time limit"
            );
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reports whether a process runs; a zombie, which only the machine's init can reap, does not.
fn alive(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(") ").next().unwrap_or_default().starts_with('Z'))
}

#[test]
fn a_killed_server_leaves_no_mount() {
    if my_role().is_some() || !can_mount() {
        return;
    }
    for name in ["confirmed", "pending"] {
        let mount_dir = TestMountDir::new();
        let server = Server::start(name, &mount_dir);
        assert!(mount_dir.line().is_some());
        server.kill();
        assert!(mount_dir.line().is_none(), "{name}");
        assert!(std::fs::read_dir(mount_dir.path()).is_ok());
    }
}

#[test]
fn a_guardian_starts_nothing_that_it_was_not_started_for() {
    if !can_mount() {
        return;
    }
    for name in ["hostile", "hostile, sealed"] {
        let mount_dir = TestMountDir::new();
        Server::start(name, &mount_dir).kill();
        assert!(mount_dir.line().is_none(), "{name}: the mount remains");
        assert!(!touched(&mount_dir.path()).exists(), "{name}: the guardian started a program");
        assert!(Path::new("/proc/self").exists(), "{name}: the guardian unmounted a mount of another server");
    }
}

/// Checks the guardian's record, for any order of messages.
#[test]
fn the_first_packet_settles_what_a_guardian_does() {
    let mark = MountPoint::top(Path::new("/proc")).unwrap().mark();
    let mounted = |token| Message::Mounted { token, mark, path: "/proc".into() };
    let restart = || Message::Restart { crashes: 5, arguments: vec!["server".into()] };
    let continues = |messages: Vec<Message>| {
        let mut state = state::GuardianState::default();
        let mut messages = messages.into_iter();
        assert!(state.apply_first(messages.next()));
        messages.for_each(|message| state.apply(Some(message), None));
        (state.to_be_continued().is_some(), state.mounts.len())
    };
    assert_eq!(continues(vec![restart(), mounted(1), Message::Arm]), (true, 1));
    assert_eq!(continues(vec![restart(), mounted(1)]), (false, 1), "restarts are not armed");
    assert_eq!(continues(vec![Message::UnmountOnly, mounted(1), restart(), Message::Arm]), (false, 1));
    assert_eq!(continues(vec![Message::UnmountOnly, mounted(1), Message::Seal, mounted(2)]), (false, 1));
    let mut sealed = state::GuardianState::default();
    assert!(sealed.apply_first(Some(restart())));
    let stored = |class| Message::Store(Key { class, id: 7 });
    let own = stored(fd_store::DescriptorClass::FileSystem);
    for message in [
        mounted(1),
        Message::Seal,
        Message::Arm,
        Message::Upgrade,
        stored(fd_store::DescriptorClass::State),
        own,
    ] {
        let descriptor = std::fs::File::open("/dev/null").unwrap();
        sealed.apply(Some(message), Some(descriptor.into()));
    }
    assert!(
        sealed.to_be_continued().is_some() && sealed.upgrade.is_none(),
        "a program chosen after the seal"
    );
    let kept: Vec<_> = sealed.descriptors.keys().map(|key| key.class).collect();
    assert_eq!(kept, [fd_store::DescriptorClass::FileSystem], "descriptors stored after the seal");
    assert!(!state::GuardianState::default().apply_first(Some(Message::Serving)));
    assert!(!state::GuardianState::default().apply_first(None));
}

#[test]
fn waiting_caller_gets_an_error_when_the_server_is_killed() {
    if !can_mount() {
        return;
    }
    let mount_dir = TestMountDir::new();
    let server = Server::start("confirmed", &mount_dir);
    let mount = MountPoint::find(&mount_dir.path()).unwrap();
    let path = mount_dir.path();
    let user = std::thread::spawn(move || std::fs::read_dir(path).map(drop).unwrap_err().raw_os_error());
    while mount.waiting().unwrap() == 0 {
        std::thread::yield_now();
    }
    server.kill();
    assert!(matches!(user.join().unwrap(), Some(libc::ECONNABORTED | libc::ENOTCONN)));
}

/// Kills a server that cannot exit, and returns whether the guardian noticed.
fn is_noticed(server: &mut Server, mount: &MountPoint, mount_dir: &TestMountDir) -> bool {
    server.child.kill().unwrap();
    let start = Instant::now();
    let limit = shunt_test_support::pace::limit(Duration::from_secs(5));
    while alive(server.guardian) && start.elapsed() < limit {
        std::thread::sleep(Duration::from_millis(2));
    }
    let was_noticed = mount_dir.line().is_none();
    if !was_noticed {
        // Without this the processes would hang forever.
        mount.abort().unwrap();
    }
    was_noticed
}

/// One of the server's threads waits in the kernel for the directory's lock, held by a process that waits for the server's reply.
#[test]
fn a_server_that_cannot_end_is_noticed() {
    if !can_mount() {
        return;
    }
    let mount_dir = TestMountDir::new();
    let mut server = Server::start("notifying", &mount_dir);
    let mount = MountPoint::find(&mount_dir.path()).unwrap();
    let path = mount_dir.path();
    let user = std::thread::spawn(move || std::fs::create_dir(path.join("name")).unwrap_err().raw_os_error());
    let tasks = PathBuf::from(format!("/proc/{}/task", server.child.id()));
    let is_stuck = |task: std::fs::DirEntry| {
        std::fs::read_to_string(task.path().join("stat")).is_ok_and(|stat| stat.contains(") D "))
    };
    while !std::fs::read_dir(&tasks).unwrap().any(|task| is_stuck(task.unwrap())) {
        std::thread::yield_now();
    }
    let was_noticed = is_noticed(&mut server, &mount, &mount_dir);
    assert!(matches!(user.join().unwrap(), Some(libc::ECONNABORTED | libc::ENOTCONN)));
    assert!(was_noticed);
}

#[test]
fn a_server_that_waits_for_itself_is_noticed() {
    if !can_mount() {
        return;
    }
    let mount_dir = TestMountDir::new();
    let mut server = Server::start("asking", &mount_dir);
    let mount = MountPoint::find(&mount_dir.path()).unwrap();
    assert!(is_noticed(&mut server, &mount, &mount_dir));
}

#[test]
fn a_released_mount_is_left_alone() {
    if !can_mount() {
        return;
    }
    let mount_dir = TestMountDir::new();
    Server::start("released", &mount_dir).kill();
    assert!(mount_dir.line().is_some(), "the guardian leaves a released mount alone");
}

#[test]
fn a_server_killed_before_it_mounts_leaves_others_alone() {
    if !can_mount() {
        return;
    }
    for name in ["before", "before, pending"] {
        let mount_dir = TestMountDir::new();
        let server = Server::start(name, &mount_dir);
        let other = crate::mount::mount(&mount_dir.path(), &MountOptions::new()).unwrap();
        // The guardian probes whether the other mount is dead, and this one does not even reply.
        server.kill_within(Duration::from_secs(4));
        assert!(other.mount.is_mounted());
    }
}

#[test]
fn the_guardian_is_hard_to_end_and_holds_nothing() {
    if !can_mount() {
        return;
    }
    let mount_dir = TestMountDir::new();
    let server = Server::start("confirmed", &mount_dir);
    let proc = PathBuf::from(format!("/proc/{}", server.guardian));
    for signal in ["INT", "TERM", "HUP"] {
        let sent = Command::new("kill").args(["-s", signal, &server.guardian.to_string()]).status().unwrap();
        assert!(sent.success());
    }
    let mut fds: Vec<_> =
        std::fs::read_dir(proc.join("fd")).unwrap().map(|e| e.unwrap().file_name()).collect();
    fds.sort();
    assert_eq!(fds, ["0", "1", "2"]);
    assert_eq!(std::fs::read_link(proc.join("cwd")).unwrap(), Path::new("/"));
    server.kill();
    assert!(mount_dir.line().is_none());
}

#[test]
fn a_dropped_guardian_cleans_up_at_once() {
    if !can_mount() {
        return;
    }
    let mount_dir = TestMountDir::new();
    let guardian = Guardian::spawn(role(GUARDIAN, "guardian")).unwrap();
    let detached = prepare(&MountOptions::new()).unwrap();
    let watch = guardian.watch(&detached, &mount_dir.path()).unwrap();
    let mounted = detached.attach(&mount_dir.path()).unwrap();
    guardian.confirm(watch, &mounted.mount).unwrap();
    drop(guardian);
    assert!(!mounted.mount.is_mounted());
}

#[test]
fn a_program_that_is_no_guardian_is_noticed() {
    let error = Guardian::spawn(Command::new("true")).unwrap_err();
    assert!(matches!(error, GuardianError::NotReady));
    assert!(matches!(Guardian::spawn(Command::new("/no/such/program")), Err(GuardianError::Start(_))));
}
