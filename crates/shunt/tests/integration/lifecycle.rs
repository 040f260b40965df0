//! Lifecycle of a mount through the command line: mount, list, stat, unmount, and signals.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};

use crate::common::*;

#[test]
fn mounted_listed_measured_unmounted() {
    let Some(fixture) = Fixture::new() else { return };
    let line = fixture.mirror(&["--cache", "exclusive", "--transport", "dev"]);
    let (source, mountpoint) = (fixture.source(), fixture.mountpoint());
    let start =
        format!("shunt: {} shows {} (transport dev, passthrough ", mountpoint.display(), source.display());
    assert!(line.starts_with(&start), "{line}");
    assert!(line.ends_with(", cache exclusive)\n"), "{line}");

    let listed = fixture.listed().expect("it is listed");
    let mut keys: Vec<_> = listed.as_object().unwrap().keys().map(String::as_str).collect();
    keys.sort_unstable();
    assert_eq!(keys, ["kind", "mountpoint", "passthrough", "pid", "source", "transport", "transport_reason"]);
    assert_eq!(listed["source"], source.to_str().unwrap());
    assert_eq!((&listed["kind"], &listed["transport"]), (&"mirror".into(), &"dev".into()));
    assert_eq!(listed["passthrough"], line.contains("passthrough on"));
    let pid = listed["pid"].as_u64().expect("a pid");
    assert!(fs::read_to_string(format!("/proc/{pid}/comm")).unwrap().starts_with("shunt"));

    assert_eq!(fs::read_to_string(mountpoint.join("hello")).unwrap(), "hello\n");
    assert!(fs::read(mountpoint.join("absent")).is_err());
    let stat = fixture.stat();
    let lookup = &stat["requests"]["lookup"];
    assert!(lookup["count"].as_u64() >= Some(2), "{stat}");
    assert!(lookup["p50_us"].as_f64() > Some(0.0) && lookup["p99_us"].as_f64() >= lookup["p50_us"].as_f64());
    assert!(stat["uptime_s"].as_f64() > Some(0.0));
    assert!(stat["memory"]["rss_bytes"].as_u64() > Some(0) && stat["memory"]["nodes"].as_u64() > Some(0));
    assert_eq!(stat["passthrough"]["enabled"], listed["passthrough"]);
    if listed["passthrough"] == true {
        assert!(stat["requests"].get("read").is_none(), "{stat}");
        assert!(stat["passthrough"]["opens"].as_u64() >= Some(1), "{stat}");
    }
    let page = succeeds(shunt([OsStr::new("stat"), mountpoint.as_os_str()]));
    assert!(page.contains("lookup"), "{page}");

    succeeds(fixture.umount(&[]));
    assert!(has_ended(pid), "umount returned before the daemon ended");
    assert!(!fixture.is_mounted() && fixture.listed().is_none());
    assert!(fails(fixture.umount(&[]), 3).contains("not a mount point"));
}

#[test]
fn a_busy_mount_stays_and_its_users_are_named() {
    let Some(fixture) = Fixture::new() else { return };
    fixture.mirror(&[]);
    let pid = fixture.listed().unwrap()["pid"].as_u64().unwrap();
    let mut user =
        std::process::Command::new("sleep").arg("60").current_dir(fixture.mountpoint()).spawn().unwrap();
    let line = fails(fixture.umount(&[]), 4);
    assert!(line.contains(&format!("sleep (pid {}: working directory)", user.id())), "{line}");
    assert!(line.contains("--lazy"), "{line}");

    succeeds(fixture.umount(&["--lazy"]));
    assert!(!fixture.is_mounted() && fixture.listed().is_none());
    assert!(!has_ended(pid), "its user is still served");
    user.kill().unwrap();
    user.wait().unwrap();
    wait_until("the daemon ends with its last user", || has_ended(pid));
}

#[test]
fn force_ends_even_a_busy_mount() {
    let Some(fixture) = Fixture::new() else { return };
    fixture.mirror(&[]);
    let pid = fixture.listed().unwrap()["pid"].as_u64().unwrap();
    let open = fs::File::open(fixture.mountpoint().join("hello")).unwrap();
    succeeds(fixture.umount(&["--force", "--timeout", "10"]));
    assert!(has_ended(pid) && !fixture.is_mounted());
    drop(open);
}

#[test]
fn the_foreground_says_one_line_and_heeds_sigterm() {
    let Some(fixture) = Fixture::new() else { return };
    let mut serving = command("shunt")
        .arg("mirror")
        .args([fixture.source(), fixture.mountpoint()])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(serving.stdout.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().contains(" shows "));
    kill_process(Pid::from_child(&serving), Signal::TERM).unwrap();
    assert!(serving.wait().unwrap().success());
    assert!(lines.next().is_none() && !fixture.is_mounted());
}

#[test]
fn sigterm_takes_a_busy_mount_away() {
    let Some(fixture) = Fixture::new() else { return };
    let log = fixture.path("log");
    fixture.mirror(&["--log-file", log.to_str().unwrap()]);
    let pid = fixture.listed().unwrap()["pid"].as_u64().unwrap();
    let open = fs::File::open(fixture.mountpoint().join("hello")).unwrap();
    kill_process(Pid::from_raw(pid as i32).unwrap(), Signal::TERM).unwrap();
    wait_until("the daemon ends", || has_ended(pid));
    assert!(!fixture.is_mounted());
    let log = fs::read_to_string(log).unwrap();
    assert!(log.contains("in use by") && log.contains("open file"), "{log}");
    drop(open);
}

#[test]
fn no_dead_mount_after_sigkill() {
    let Some(fixture) = Fixture::new() else { return };
    fixture.mirror(&["--takeover", "off"]);
    let pid = fixture.listed().unwrap()["pid"].as_u64().unwrap();
    kill_process(Pid::from_raw(pid as i32).unwrap(), Signal::KILL).unwrap();
    wait_until("the guardian takes the mount away", || !fixture.is_mounted());
    assert!(fixture.listed().is_none());
}

#[test]
fn mount_and_umount_call_us_by_other_names() {
    let Some(fixture) = Fixture::new() else { return };
    let mounted = command("/sbin/mount.shunt.mirror")
        .args([fixture.source(), fixture.mountpoint()])
        .args(["-s", "-o", "ro,noatime,cache=none,passthrough=off,nofail,x-systemd.automount"])
        .output()
        .unwrap();
    let line = succeeds(mounted);
    assert!(line.contains("passthrough off: by --passthrough off, cache none"), "{line}");
    assert_eq!(fixture.listed().unwrap()["passthrough"], false);
    let refused = fs::write(fixture.mountpoint().join("new"), "").unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::EROFS));
    succeeds(command("umount.fuse.shunt.mirror").arg(fixture.mountpoint()).output().unwrap());
    assert!(!fixture.is_mounted());

    let wrong = command("mount.shunt.mirror").args([fixture.path("absent"), fixture.mountpoint()]).output();
    assert!(fails(wrong.unwrap(), 32).contains("no such directory"));
}
