//! The sandbox of serving volume daemons and gateways.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use shunt_test_support::cmd::{Ended, within};
use shunt_test_support::{needs_mount, port};
use shunt_tests::volume::Volume;
use shunt_tests::{binary, mounts};

/// EACCES by landlock, EPERM by seccomp. Reading the machine's configuration and connecting are permitted; the probe finds no
/// listener.
const REFUSED: &str = "probe: open 0 write 13 list 0 execve 1 connect 111 umount 1 ring 1 self 0";

/// Starts a daemon in the foreground. Returns it with the probe results of existing and new threads.
fn tries(command: &mut Command) -> (Ended, Vec<String>) {
    let mut daemon = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(daemon.stdout.take().unwrap()).lines();
    let tried = lines.map_while(Result::ok).filter(|line| line.starts_with("probe")).take(4).collect();
    (Ended(daemon), tried)
}

#[track_caller]
fn assert_refused(tried: &[String]) {
    let [threads, there, new, _descriptors] = tried else { panic!("{tried:?}") };
    let counts: Vec<u32> = threads.split(' ').filter_map(|word| word.parse().ok()).collect();
    // Threads for which the root directory is inaccessible.
    assert!(counts[0] >= counts[1] && counts[1] > 1, "{threads}");
    assert_eq!([there, new], [REFUSED; 2]);
}

/// Asserts that the daemon has given up all of root's capabilities except these.
#[track_caller]
fn assert_rights(daemon: &Ended, expected: u64) {
    let status = fs::read_to_string(format!("/proc/{}/status", daemon.0.id())).unwrap();
    let rights = status.lines().find_map(|line| line.strip_prefix("CapEff:\t")).unwrap();
    let all = if rustix::process::geteuid().is_root() { expected } else { 0 };
    assert_eq!(u64::from_str_radix(rights, 16).unwrap(), all, "{rights}");
    assert!(status.contains("NoNewPrivs:\t1") && status.contains("Seccomp:\t2"), "{status}");
}

const OVERRIDE_AND_OWN: u64 = 1 << 1 | 1 << 2 | 1 << 3;
const ADMINISTER: u64 = 1 << 21;

fn ends(mut daemon: Ended) -> bool {
    mounts::signal(daemon.0.id(), Signal::TERM);
    within(Duration::from_secs(10), || daemon.0.try_wait().unwrap().is_some_and(|status| status.success()))
}

/// The volume works as before, and ends cleanly.
#[test]
fn a_daemon_has_no_programs_and_no_files_but_its_own() {
    needs_mount!();
    let volume = Volume::new();
    let at = volume.aside().join("mnt");
    let mut command = binary::command(&["volume", "mount", "--sandbox-probe", "--node", "here", "--cache"]);
    command.arg(volume.cache()).arg("test").arg(&at).env("XDG_DATA_HOME", volume.aside());
    let (daemon, tried) = tries(&mut command);
    assert_refused(&tried);
    assert_rights(&daemon, OVERRIDE_AND_OWN | ADMINISTER);
    fs::create_dir(at.join("one")).unwrap();
    fs::write(at.join("one/file"), vec![7; 3_000_000]).unwrap();
    fs::create_dir(at.join("two")).unwrap();
    fs::rename(at.join("one/file"), at.join("two/file")).unwrap();
    // The kernel opens backing files with the daemon's credentials.
    fs::copy("/bin/true", at.join("program")).unwrap();
    assert!(Command::new(at.join("program")).status().unwrap().success());
    let other = volume.mount_as("other");
    let there = other.at().join("two/file");
    assert!(within(Duration::from_secs(10), || fs::read(&there).is_ok_and(|read| read == vec![7; 3_000_000])));
    // The daemon's own entries in /proc stay accessible after their dentries were evicted. The first drop only clears their
    // referenced bits.
    let drops = shunt_test_support::memory::drop_at_will();
    (0..3).for_each(|_| drops.forget_names());
    let seen = other.stat();
    assert!(seen["memory"]["rss_bytes"].as_u64().is_some_and(|bytes| bytes > 0), "{seen}");
    assert!(ends(daemon));
    assert_eq!(mounts::count(&at), 0);
}

#[test]
fn a_gateway_has_no_programs_and_no_files_but_its_stores() {
    needs_mount!();
    let volume = Volume::new();
    let command = |words: &[&str], home: &Path| {
        let mut command = binary::command(&["volume"]);
        command.args(words).env("HOME", home).env_remove("XDG_CONFIG_HOME").env_remove("XDG_DATA_HOME");
        command
    };
    let address = format!("127.0.0.1:{}", port::reserve());
    let words = ["serve", "test", "--sandbox-probe", "--listen", &address, "--address", &address];
    let here = |words: &[&str]| {
        let mut command = command(words, volume.aside());
        command.env("XDG_DATA_HOME", volume.aside());
        command
    };
    let (gateway, tried) = tries(&mut here(&words));
    assert_refused(&tried);
    assert_rights(&gateway, OVERRIDE_AND_OWN);
    let token = shunt_test_support::run(&mut here(&["invite", "test"])).ok();
    let home = tempfile::tempdir().unwrap();
    shunt_test_support::run(&mut command(&["join", "--node", "away", token.trim()], home.path())).ok();
    let away = volume.mount_from("away", home.path());
    fs::write(away.at().join("file"), vec![9; 3_000_000]).unwrap();
    let here = volume.mount_as("near");
    let there = here.at().join("file");
    assert!(within(Duration::from_secs(10), || fs::read(&there).is_ok_and(|read| read == vec![9; 3_000_000])));
    drop((away, here));
    assert!(ends(gateway));
}
