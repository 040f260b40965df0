//! `mirror --virtiofs` from the host: the socket, the sandbox, and connecting and disconnecting guests. Guests are tested in `lab/virtiofs`.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Stdio};

use crate::common::*;

/// A daemon that waits for guests; ends with this, and so do those that took over from it.
struct Daemon {
    process: Child,
    socket: PathBuf,
    /// The lines of its output.
    lines: Vec<String>,
}

impl Daemon {
    fn start(fixture: &Fixture, options: &[&str], last: &str) -> Self {
        let mut command = command("shunt");
        command
            .args(["mirror", "--virtiofs"])
            .arg(fixture.path("socket"))
            .arg(fixture.source())
            .args(options);
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut lines = Vec::new();
        for line in BufReader::new(process.stdout.take().unwrap()).lines() {
            lines.push(line.unwrap());
            if lines[lines.len() - 1].contains(last) {
                break;
            }
        }
        assert!(lines.last().is_some_and(|line| line.contains(last)), "{lines:?}");
        Self { process, socket: fixture.path("socket"), lines }
    }

    /// The daemons that took over from this one, dead ones excepted.
    fn successors(&self) -> Vec<u64> {
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        let pids = processes.filter_map(|process| process.file_name().to_str()?.parse().ok());
        let serves = |pid: &u64| {
            let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let words: Vec<_> = words.split(|byte| *byte == 0).collect();
            words.contains(&&b"--successor"[..]) && words.contains(&self.socket.as_os_str().as_bytes())
        };
        pids.filter(serves).filter(|pid| !has_ended(*pid)).collect()
    }

    fn signal(&self) {
        let pid = rustix::process::Pid::from_child(&self.process);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if self.process.try_wait().is_ok_and(|status| status.is_none()) {
            // If it were killed, another one would take over.
            self.signal();
        }
        self.process.wait().ok();
        self.successors().into_iter().for_each(terminate);
    }
}

fn terminate(pid: u64) {
    let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).ok();
}

#[test]
fn it_is_locked_in_before_anybody_comes() {
    let Some(fixture) = Fixture::new() else { return };
    let daemon = Daemon::start(&fixture, &["--sandbox-probe"], "to a guest");
    let probes: Vec<_> = daemon.lines.iter().filter(|line| line.starts_with("probe: open")).collect();
    assert_eq!(probes.len(), 2, "two threads tried: {:?}", daemon.lines);
    for line in probes {
        assert_eq!(line, "probe: open 2 write 2 list 2 execve 1 connect 1 umount 1 ring 1 self 0");
    }
    let pid = daemon.process.id();
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    for line in ["NoNewPrivs:\t1", "Seccomp:\t2"] {
        assert!(status.contains(line), "{line} is not in {status}");
    }
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:\t")).unwrap();
    // Of SYS_ADMIN, SYS_CHROOT, SYS_PTRACE, NET_ADMIN, SYS_MODULE nothing is left.
    let gone = 1 << 21 | 1 << 18 | 1 << 19 | 1 << 12 | 1 << 16;
    assert_eq!(u64::from_str_radix(effective, 16).unwrap() & gone, 0, "{effective}");
    let mut seen: Vec<_> = std::fs::read_dir(format!("/proc/{pid}/root/"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    seen.sort();
    assert_eq!(seen, ["dev", "proc"]);
}

#[test]
fn broken_client_is_dropped_and_next_one_served() {
    let Some(fixture) = Fixture::new() else { return };
    let mut daemon = Daemon::start(&fixture, &[], "to a guest");
    let socket = fixture.path("socket");
    assert_eq!(std::fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o600);
    for round in 0..20_u8 {
        let mut stream = UnixStream::connect(&socket).unwrap();
        match round % 4 {
            0 => {}
            1 => stream.write_all(&[round; 5]).unwrap(),
            2 => stream.write_all(&[0xff; 4096]).unwrap_or_default(),
            // A message that announces more than there is.
            _ => stream.write_all(&[1, 0, 0, 0, 1, 0, 0, 0, 0xff, 0xff, 0, 0, 7]).unwrap(),
        }
    }
    assert!(daemon.process.try_wait().unwrap().is_none(), "it goes on");
    assert_ne!(features(&mut connect(&socket)) & 1 << 32, 0, "version 1 of virtio");
    daemon.signal();
    assert!(daemon.process.wait().unwrap().success());
}

fn connect(socket: &std::path::Path) -> UnixStream {
    let stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(std::time::Duration::from_secs(10))).unwrap();
    stream
}

/// Asks which features the device has.
fn features(stream: &mut UnixStream) -> u64 {
    stream.write_all(&[1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]).unwrap();
    let mut answer = [0; 20];
    stream.read_exact(&mut answer).unwrap();
    u64::from_le_bytes(answer[12..].try_into().unwrap())
}

#[test]
fn an_emulator_stays_connected_when_daemons_are_killed() {
    let Some(fixture) = Fixture::new() else { return };
    let mut daemon = Daemon::start(&fixture, &[], "to a guest");
    let mut stream = connect(&fixture.path("socket"));
    let offered = features(&mut stream);
    daemon.process.kill().unwrap();
    daemon.process.wait().unwrap();
    for _ in 0..3 {
        assert_eq!(features(&mut stream), offered);
        let successors = daemon.successors();
        assert_eq!(successors.len(), 1);
        let status = std::fs::read_to_string(format!("/proc/{}/status", successors[0])).unwrap();
        assert!(status.contains("Seccomp:\t2"), "it is sandboxed as well: {status}");
        let pid = rustix::process::Pid::from_raw(successors[0] as i32).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        wait_until("it ended", || has_ended(successors[0]));
    }
    // The fifth within ten seconds is the last one.
    assert_eq!(features(&mut stream), offered);
    daemon.successors().into_iter().for_each(|pid| {
        let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    });
    assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0, "the guardian gives up");
    wait_until("nobody listens", || UnixStream::connect(fixture.path("socket")).is_err());
    assert!(daemon.successors().is_empty());
}

#[test]
fn a_daemon_that_took_over_ends_on_a_signal() {
    let Some(fixture) = Fixture::new() else { return };
    let mut daemon = Daemon::start(&fixture, &[], "to a guest");
    daemon.process.kill().unwrap();
    daemon.process.wait().unwrap();
    let mut stream = connect(&fixture.path("socket"));
    features(&mut stream);
    let successors = daemon.successors();
    terminate(successors[0]);
    wait_until("it ended", || has_ended(successors[0]));
    assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0);
    wait_until("nobody listens", || UnixStream::connect(fixture.path("socket")).is_err());
    assert!(daemon.successors().is_empty());
}

#[test]
fn one_socket_one_daemon() {
    let Some(fixture) = Fixture::new() else { return };
    let (socket, source) = (fixture.path("socket"), fixture.source());
    let again = || command("shunt").args(["mirror", "--virtiofs"]).args([&socket, &source]).output().unwrap();
    let mut daemon = Daemon::start(&fixture, &["--takeover", "off"], "no takeover");
    assert!(fails(again(), 4).contains("another process listens"));
    daemon.process.kill().unwrap();
    daemon.process.wait().unwrap();
    assert!(socket.exists());
    drop(Daemon::start(&fixture, &["--daemon"], "to a guest"));
    // The one in the background has taken the place of the dead one's socket.
    assert!(fails(again(), 4).contains("another process listens"));
    let found = std::fs::read_dir("/proc").unwrap().flatten().find(|process| {
        std::fs::read(process.path().join("cmdline"))
            .is_ok_and(|line| String::from_utf8_lossy(&line).contains(socket.to_str().unwrap()))
    });
    let pid: i32 = found.expect("it runs").file_name().to_str().unwrap().parse().unwrap();
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(pid).unwrap(),
        rustix::process::Signal::TERM,
    )
    .unwrap();
    wait_until("it ended", || has_ended(pid as u64));
    std::fs::write(fixture.path("file"), "").unwrap();
    let onto_file = command("shunt")
        .args(["mirror", "--virtiofs"])
        .args([fixture.path("file"), source])
        .output()
        .unwrap();
    assert!(fails(onto_file, 1).contains("cannot create the socket"));
    assert!(fixture.path("file").exists());
}

#[test]
fn options_unsupported_with_virtiofs_are_refused() {
    let Some(fixture) = Fixture::new() else { return };
    for options in [
        &["--cache", "coherent"][..],
        &["--max-inodes", "5000"],
        &["--policy", "/none"],
        &["--extension", "builtin", "--cache", "exclusive"],
    ] {
        let mut command = command("shunt");
        command.args(["mirror", "--virtiofs"]).args([fixture.path("socket"), fixture.source()]).args(options);
        let line = fails(command.output().unwrap(), 2);
        assert!(line.contains(options[0]) && line.contains("--virtiofs"), "{line}");
    }
    let mut command = command("shunt");
    command
        .args(["mirror", "--tag", &"x".repeat(37), "--virtiofs"])
        .args([fixture.path("socket"), fixture.source()]);
    assert!(fails(command.output().unwrap(), 2).contains("36 bytes"));
    assert!(fails(shunt(["mirror", "/", "/mnt", "--tag", "x"]), 2).contains("--virtiofs"));
}
