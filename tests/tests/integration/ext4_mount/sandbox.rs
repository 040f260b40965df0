//! The sandbox of the serving daemon.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use shunt_test_support::cmd::within;
use shunt_test_support::{needs_mount, needs_tools, requirement, rings, run, sh};
use shunt_tests::{Image, Plan, binary, mounts, unprivileged};

/// EACCES by landlock; EPERM by seccomp, or for a landlocked process that unmounts.
const REFUSED: &str = "probe: open 13 write 13 list 13 execve 1 connect 1 umount 1 ring 1 self 0";

/// Once it serves, the daemon has given up most privileges that an exploit in a crafted image could use; it still ends cleanly.
#[test]
fn the_daemon_is_locked_in() {
    needs_mount!();
    requirement!(rustix::process::geteuid().is_root(), "needs root");
    let image = Image::make(&[], 16).unwrap();
    let mount = image.by_shunt(&[]);
    let pid = mount.pid();
    let locked = || {
        let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
        threads.map(|thread| fs::read_to_string(thread.path().join("status")).unwrap_or_default()).all(
            |status| {
                let nobody =
                    |line: &str| line.strip_prefix("Uid:\t").is_some_and(|ids| !ids.starts_with("0\t"));
                status.lines().any(nobody)
                    && ["CapEff:\t0000000000000000", "CapPrm:\t0000000000000000", "Groups:\t \n"]
                        .iter()
                        .all(|line| status.contains(line))
                    && status.contains("Seccomp:\t2")
                    && status.contains("NoNewPrivs:\t1")
            },
        )
    };
    // Shortly after it reported that it serves.
    assert!(within(Duration::from_secs(5), locked));
    fs::write(mount.at().join("file"), b"written").unwrap();
    mounts::signal(pid, Signal::TERM);
    let gone = || mounts::count(mount.at()) == 0 && !mounts::alive(pid);
    assert!(within(Duration::from_secs(10), gone));
    drop(mount);
    image.check();
    assert_eq!(run(binary::command(&["ext4", "cat"]).arg(image.path()).arg("/file")).ok(), "written");
}

/// Starts a daemon in the foreground. Returns the process and its probe output: how many of its threads are sandboxed, and the
/// operations that succeed on an existing thread and on a new one.
fn tries(command: &mut Command) -> (Child, Vec<String>) {
    let mut daemon = command.stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(daemon.stdout.take().unwrap()).lines();
    let tried = lines.map_while(Result::ok).filter(|line| line.starts_with("probe")).take(4).collect();
    (daemon, tried)
}

fn assert_refused(tried: &[String]) {
    let [threads, there, new, descriptors] = tried else { panic!("{tried:?}") };
    let counts: Vec<u32> = threads.split(' ').filter_map(|word| word.parse().ok()).collect();
    // Few threads, because the image is opened afterwards, and its threads start then.
    assert!(counts[0] >= counts[1] && counts[1] <= 4, "{threads}");
    assert_eq!([there, new], [REFUSED; 2]);
    let descriptors = descriptors.strip_prefix("probe: descriptors ").unwrap();
    descriptors.split(' ').for_each(assert_known);
}

/// Asserts that a descriptor has a known kind. Each remaining descriptor is a possible way out of the sandbox, so a new kind
/// needs review.
fn assert_known(descriptor: &str) {
    let known = match descriptor.split_once(':') {
        // The connection to the guardian, whose permitted requests were fixed before; signals; the control socket.
        Some(("socket", how)) => ["connected", "listening"].contains(&how),
        // /dev/fuse, /dev/null, /dev/cpu_dma_latency.
        Some(("device", number)) => {
            let misc = fs::read_to_string("/proc/misc").unwrap();
            let latency = misc.lines().find_map(|line| line.trim().strip_suffix(" cpu_dma_latency"));
            ["10:229", "1:3"].contains(&number)
                || latency.is_some_and(|minor| number == format!("10:{}", minor.trim()))
        }
        // Only the image and its lock, and the directory of the control socket.
        Some(("file" | "directory", _)) => true,
        Some(_) => false,
        // The pipe to the process outside; rings and counters; the disk itself.
        None => ["pipe", "anonymous", "disk"].contains(&descriptor),
    };
    assert!(known, "what is descriptor {descriptor}?");
}

fn ends(mut daemon: Child) -> bool {
    let pid = daemon.id();
    mounts::signal(pid, Signal::TERM);
    let ended = within(Duration::from_secs(10), || daemon.try_wait().unwrap().is_some());
    // The guardian removes what the daemon leaves.
    daemon.kill().unwrap();
    daemon.wait().unwrap().success() && ended
}

/// Files, programs, sockets, rings and mounts are inaccessible.
#[test]
fn sandboxed_daemon_reaches_no_other_file() {
    sandboxed_reader_reaches_no_file("dev");
}

/// With io_uring as transport no other ring can be created. The existing ones serve any number of callers.
#[test]
fn sandboxed_daemon_reaches_no_other_file_over_rings() {
    let _kept = rings::keep();
    requirement!(fs::read_to_string(rings::SWITCH).is_ok_and(|switch| switch.trim() == "Y"), "needs rings");
    sandboxed_reader_reaches_no_file("uring");
}

fn sandboxed_reader_reaches_no_file(transport: &str) {
    needs_mount!();
    requirement!(rustix::process::geteuid().is_root(), "needs root");
    let image = Image::make(&[], 16).unwrap();
    let at = image.aside().join("ours");
    fs::create_dir(&at).unwrap();
    let mut command = binary::command(&["ext4", "--transport", transport, "--sandbox-probe"]);
    let (daemon, tried) = tries(command.arg(image.path()).arg(&at));
    fs::write(at.join("file"), b"written").unwrap();
    let threads = || fs::read_dir(format!("/proc/{}/task", daemon.id())).unwrap().count();
    let before = threads();
    // Each waits for the disk: more at once than there were threads for.
    std::thread::scope(|scope| {
        for n in 0..24 {
            let name = at.join(n.to_string());
            scope.spawn(move || {
                for _ in 0..20 {
                    let mut file = File::create(&name).unwrap();
                    file.write_all(&[n; 5000]).and_then(|()| file.sync_all()).unwrap();
                }
            });
        }
    });
    println!("{transport}: {before} threads before, {} after", threads());
    assert!(ends(daemon));
    assert_refused(&tried);
    assert_eq!(mounts::count(&at), 0);
    image.check();
    assert_eq!(run(binary::command(&["ext4", "cat"]).arg(image.path()).arg("/file")).ok(), "written");
}

/// Also for a user who may not mount: the process outside runs fusermount3.
#[test]
fn users_are_locked_in_as_well() {
    needs_mount!();
    requirement!(rustix::process::geteuid().is_root(), "needs root");
    needs_tools!("fusermount3");
    let Some(s) = Plan::tmpfs().unmounted().set_or_skip() else { return };
    let image = super::image_for_users(&s);
    unprivileged::perform(&s, |shunt| {
        let mut command = shunt(&["ext4", "--transport", "dev", "--sandbox-probe"]);
        let (daemon, tried) = tries(command.arg(&image).arg(s.mnt()));
        assert!(ends(daemon));
        assert_refused(&tried);
        assert_eq!(mounts::count(s.mnt()), 0);
    });
}

/// With any number of threads and any transport all of them are sandboxed, and the data for `shunt list` and `shunt stat` comes
/// from inside.
#[test]
fn all_ways_of_serving_are_locked_in() {
    needs_mount!();
    requirement!(rustix::process::geteuid().is_root(), "needs root");
    let image = Image::make(&[], 32).unwrap();
    for (transport, threads) in [("dev", "1"), ("dev", "4"), ("uring", "2")] {
        let mount = image.by_shunt(&["--transport", transport, "--threads", threads]);
        sh(
            mount.at(),
            "i=0; while [ $i -lt 50 ]; do mkdir d$i; echo $i > d$i/f; i=$((i + 1)); done; rm -r d*",
        )
        .ok();
        let status = |pid: u32| {
            let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
            let read = |path| fs::read_to_string(path).unwrap_or_default();
            threads.map(|thread| read(thread.path().join("status"))).collect::<Vec<_>>()
        };
        let pid = mount.pid();
        let locked = || status(pid).iter().all(|status| status.contains("Seccomp:\t2"));
        assert!(within(Duration::from_secs(5), locked), "{transport}, {threads} threads");
        let list = run(&mut binary::command(&["list", "--json"])).ok();
        let list: serde_json::Value = serde_json::from_str(&list).unwrap();
        let at = mount.at().to_str().unwrap();
        let ours = list.as_array().unwrap().iter().find(|one| one["mountpoint"] == at).unwrap();
        assert_eq!((&ours["kind"], &ours["pid"]), (&"ext4".into(), &pid.into()));
        assert_eq!(ours["source"], image.path().to_str().unwrap());
        let output = run(binary::command(&["stat", "--json"]).arg(mount.at())).ok();
        let output: serde_json::Value = serde_json::from_str(&output).unwrap();
        assert!(output["requests"]["mkdir"]["count"].as_u64() >= Some(50), "{output}");
        mount.umount().ok();
        drop(mount);
        image.check();
    }
}

/// Returns the lines that the `status` of a sandboxed process should have and this one lacks.
fn not_given_up(pid: u32, wanted: &[&str]) -> Vec<String> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    wanted.iter().filter(|line| !status.contains(**line)).map(|line| (*line).to_owned()).collect()
}

/// Commands that only read an image have access to the image and standard output alone, before they read its first byte.
#[test]
fn commands_without_a_mount_are_locked_in() {
    requirement!(rustix::process::geteuid().is_root(), "needs root");
    let content = tempfile::tempdir().unwrap();
    fs::write(content.path().join("large"), vec![7; 16 << 20]).unwrap();
    fs::create_dir(content.path().join("many")).unwrap();
    for n in 0..2000 {
        fs::write(content.path().join(format!("many/{n}")), [1; 5000]).unwrap();
    }
    let image = Image::make(&["-N", "4000", "-d", content.path().to_str().unwrap()], 64).unwrap();
    let common = ["Seccomp:\t2", "NoNewPrivs:\t1"];
    // It blocks until its output is read.
    let mut cat = binary::command(&["ext4", "cat"]);
    let mut cat = cat.arg(image.path()).arg("/large").stdout(Stdio::piped()).spawn().unwrap();
    let wanted = [&common[..], &["CapEff:\t0000000000000000", "Groups:\t \n"]].concat();
    let locked = within(Duration::from_secs(10), || not_given_up(cat.id(), &wanted).is_empty());
    assert!(locked, "{:?}", not_given_up(cat.id(), &wanted));
    let mut read = Vec::new();
    std::io::Read::read_to_end(&mut cat.stdout.take().unwrap(), &mut read).unwrap();
    assert!(cat.wait().unwrap().success() && read == vec![7; 16 << 20]);
    // It has much to write.
    let target = tempfile::tempdir().unwrap();
    let mut extract = binary::command(&["ext4", "extract"]);
    let extract = extract.arg(image.path()).arg("/many").arg(target.path().join("made"));
    let mut extract = extract.stderr(Stdio::null()).spawn().unwrap();
    let mut locked = false;
    while extract.try_wait().unwrap().is_none() {
        locked |= not_given_up(extract.id(), &common).is_empty();
    }
    assert!(extract.wait().unwrap().success() && locked);
    assert_eq!(fs::read_dir(target.path().join("made")).unwrap().count(), 2000);
    for (words, expected) in [(&["info"][..], "large_file"), (&["ls"], "many")] {
        let path = (words[0] != "info").then_some("/");
        let printed = run(binary::command(&[&["ext4"], words].concat()).arg(image.path()).args(path)).ok();
        assert!(printed.contains(expected), "{printed}");
    }
}
