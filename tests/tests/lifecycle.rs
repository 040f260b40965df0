//! Coming up, going away, and being killed.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::FileExt as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use shunt_tests::cmd::within;
use shunt_tests::{
    Peer, Plan, Stage, User, binary, mounts, needs_mount, requirement, run, run_for, sh, stage,
};

const SOON: Duration = Duration::from_secs(2);

fn unmounted() -> Option<Stage> {
    match Plan::tmpfs().unmounted().set() {
        Ok(stage) => Some(stage),
        Err(reason) => {
            shunt_tests::skip::skip(&reason);
            None
        }
    }
}

/// The signal ends the daemon and takes the mount away, whatever was going on.
fn ended_by(signal: Signal) {
    needs_mount!();
    stage::perform(Plan::tmpfs(), |s| {
        fs::write(s.path("f"), b"kept").unwrap();
        assert!(mounts::signal(s.pid(), signal));
        assert!(s.gone(SOON), "mounts {}, daemon alive {}", mounts::count(s.mnt()), mounts::alive(s.pid()));
        let left = || mounts::processes_naming(s.mnt());
        assert!(within(SOON, || left().is_empty()), "processes left: {:?}", left());
        assert_eq!(fs::read_dir(s.mnt()).unwrap().count(), 0, "the mount point is a plain directory again");
        assert_eq!(fs::read(s.lower("f")).unwrap(), b"kept");
        assert!(s.entry().is_none(), "still in `shunt list`");
    });
}

#[test]
fn sigterm() {
    ended_by(Signal::TERM);
}

#[test]
fn sigint() {
    ended_by(Signal::INT);
}

#[test]
fn sigkill() {
    ended_by(Signal::KILL);
}

/// Files are open, a process works in it, and one waits for an answer: SIGKILL still leaves nothing, and nobody hangs.
#[test]
fn sigkill_while_in_use() {
    needs_mount!();
    stage::perform(Plan::daemon(), |s| {
        fs::write(s.path("f"), vec![1; 1 << 20]).unwrap();
        let open = File::open(s.path("f")).unwrap();
        let path = s.path("f");
        let mut reader = Peer::start(|link| {
            let f = File::options().read(true).write(true).open(&path).unwrap();
            let mut block = vec![0; 65536];
            link.say(1);
            for n in 0.. {
                if f.read_at(&mut block, n % 16 * 65536).is_err() || f.write_at(&block, 0).is_err() {
                    return;
                }
            }
        });
        reader.link().hear().expect("reading");
        std::thread::sleep(Duration::from_millis(50));
        assert!(mounts::signal(s.pid(), Signal::KILL));
        assert!(s.gone(SOON), "mounts {}", mounts::count(s.mnt()));
        reader.done_within(Duration::from_secs(5));
        let e = open.read_at(&mut [0; 10], 1 << 19).err().and_then(|e| e.raw_os_error());
        assert!(matches!(e, None | Some(libc::ENOTCONN | libc::ECONNABORTED | libc::EIO)), "{e:?}");
        fs::write(s.path("not-in-the-mirror"), b"").unwrap();
        assert!(!s.lower("not-in-the-mirror").exists());
        fs::remove_file(s.path("not-in-the-mirror")).unwrap();
    });
}

#[test]
fn sigterm_while_in_use() {
    needs_mount!();
    stage::perform(Plan::tmpfs(), |s| {
        let open = File::create(s.path("f")).unwrap();
        assert!(mounts::signal(s.pid(), Signal::TERM));
        assert!(within(SOON, || mounts::count(s.mnt()) == 0));
        drop(open);
        assert!(s.gone(SOON), "the daemon outlives its last user");
    });
}

#[test]
fn umount_waits_for_the_daemon() {
    needs_mount!();
    stage::perform(Plan::tmpfs(), |s| {
        fs::write(s.path("f"), vec![1; 8 << 20]).unwrap();
        s.umount().ok();
        assert!(!mounts::alive(s.pid()), "shunt umount came back before the daemon was done");
        assert_eq!(mounts::count(s.mnt()), 0);
    });
}

#[test]
fn plain_umount_ends_the_daemon() {
    needs_mount!();
    stage::perform(Plan::tmpfs(), |s| {
        run(Command::new("umount").arg(s.mnt())).ok();
        assert!(s.gone(SOON));
    });
}

#[test]
fn a_busy_mount_stays() {
    needs_mount!();
    stage::perform(Plan::tmpfs(), |s| {
        let mut open = File::create(s.path("f")).unwrap();
        let ran = s.umount();
        assert_eq!(ran.status.and_then(|st| st.code()), Some(4), "{ran:#?}");
        one_line(&ran.err, "busy");
        open.write_all(b"still served").unwrap();
        assert_eq!(fs::read(s.path("f")).unwrap(), b"still served");
        drop(open);
        assert!(within(SOON, || s.umount().success()));
        assert!(s.gone(SOON));
    });
}

#[test]
fn a_lazy_umount_serves_to_the_end() {
    needs_mount!();
    stage::perform(Plan::daemon(), |s| {
        let mut open = File::create(s.path("f")).unwrap();
        run_for(10, binary::command(&["umount", "--lazy", "--timeout", "0"]).arg(s.mnt()));
        assert_eq!(mounts::count(s.mnt()), 0);
        open.write_all(b"late").unwrap();
        open.sync_all().unwrap();
        assert!(mounts::alive(s.pid()));
        drop(open);
        assert!(s.gone(SOON));
        assert_eq!(fs::read(s.lower("f")).unwrap(), b"late");
    });
}

/// What was covered by the mount is the source itself.
#[test]
fn mounted_over_its_own_source() {
    needs_mount!();
    let Some(s) = unmounted() else { return };
    fs::create_dir(s.lower("d")).unwrap();
    fs::write(s.lower("d/f"), b"x").unwrap();
    run(binary::command(&["mirror", "--daemon"]).arg(s.src()).arg(s.src())).ok();
    assert_eq!(mounts::count(s.src()), 1);
    let seen = std::panic::catch_unwind(|| {
        assert_eq!(fs::read(s.lower("d/f")).unwrap(), b"x");
        fs::write(s.lower("d/new"), b"through the mirror").unwrap();
        fs::rename(s.lower("d"), s.lower("e")).unwrap();
        assert_eq!(fs::read(s.lower("e/new")).unwrap(), b"through the mirror");
        assert_eq!(run(Command::new("find").arg(s.src())).ok().lines().count(), 4);
        assert!(rustix::fs::statvfs(s.src()).is_ok());
    });
    let ran = run_for(20, binary::command(&["umount"]).arg(s.src()));
    mounts::detach(s.src());
    assert!(seen.is_ok() && ran.success(), "{ran:#?}");
    assert_eq!(fs::read(s.lower("e/new")).unwrap(), b"through the mirror");
}

/// The mirror contains its own mount point: looking into it must not hang.
#[test]
fn mountpoint_inside_of_the_source() {
    needs_mount!();
    let Some(s) = unmounted() else { return };
    let inside = s.lower("inside");
    fs::create_dir(&inside).unwrap();
    fs::write(s.lower("f"), b"x").unwrap();
    let ran = run_for(20, binary::command(&["mirror", "--daemon"]).arg(s.src()).arg(&inside));
    if !ran.success() {
        // Refusing is honest, too.
        one_line(&ran.err, "");
        return;
    }
    let found = run_for(20, Command::new("find").arg(&inside).args(["-xdev", "-printf", "%p %s\n"]));
    let umount = run_for(20, binary::command(&["umount"]).arg(&inside));
    mounts::detach(&inside);
    let found = found.ok();
    assert!(found.contains("inside/f 1") && found.contains("inside/inside"), "{found}");
    umount.ok();
}

#[test]
fn two_mirrors_of_one_source() {
    needs_mount!();
    stage::perform(Plan::tmpfs().args(&["--cache", "none"]), |s| {
        let other = s.aside().join("other");
        fs::create_dir(&other).unwrap();
        run(binary::command(&["mirror", "--daemon", "--cache", "none"]).arg(s.src()).arg(&other)).ok();
        let seen = std::panic::catch_unwind(|| {
            fs::write(s.path("f"), b"x").unwrap();
            assert_eq!(fs::read(other.join("f")).unwrap(), b"x");
            fs::remove_file(other.join("f")).unwrap();
            assert!(!s.path("f").exists());
        });
        let ran = run(binary::command(&["umount"]).arg(&other));
        mounts::detach(&other);
        assert!(seen.is_ok() && ran.success(), "{ran:#?}");
    });
}

/// A mirror of a mirror, as containers do.
#[test]
fn a_mirror_of_a_mirror() {
    needs_mount!();
    stage::perform(Plan::tmpfs(), |s| {
        let other = s.aside().join("other");
        fs::create_dir(&other).unwrap();
        run(binary::command(&["mirror", "--daemon"]).arg(s.mnt()).arg(&other)).ok();
        let seen = std::panic::catch_unwind(|| {
            fs::write(other.join("f"), b"twice removed").unwrap();
            assert_eq!(fs::read(s.lower("f")).unwrap(), b"twice removed");
            assert_eq!(fs::read(other.join("f")).unwrap(), b"twice removed");
        });
        let ran = run(binary::command(&["umount"]).arg(&other));
        mounts::detach(&other);
        assert!(seen.is_ok() && ran.success(), "{ran:#?}");
    });
}

#[track_caller]
fn one_line(err: &str, word: &str) {
    assert_eq!(err.trim_end().lines().count(), 1, "one line, please: {err:?}");
    assert!(err.to_lowercase().contains(word), "no word of {word:?} in {err:?}");
    assert!(!err.contains("panicked") && !err.contains("RUST_BACKTRACE"), "{err:?}");
}

#[test]
fn bad_input_gives_one_clear_line() {
    needs_mount!();
    let Some(s) = unmounted() else { return };
    let file = s.aside().join("file");
    fs::write(&file, b"").unwrap();
    let (none, src) = (s.aside().join("none"), s.src());
    let mirror = |a: &std::path::Path, b: &std::path::Path, more: &[&str]| {
        run_for(20, binary::command(&["mirror", "--daemon"]).arg(a).arg(b).args(more)).fails()
    };
    one_line(&mirror(&none, s.mnt(), &[]), "none");
    one_line(&mirror(&file, s.mnt(), &[]), "file");
    one_line(&mirror(src, &none, &[]), "none");
    one_line(&mirror(src, &file, &[]), "director");
    let option = mirror(src, s.mnt(), &["-o", "nonsense-option"]);
    assert!(option.contains("nonsense-option"), "{option}");
    let umount = run(binary::command(&["umount"]).arg(s.mnt())).fails();
    one_line(&umount, "not");
    let stat = run(binary::command(&["stat", "--json"]).arg(s.mnt())).fails();
    one_line(&stat, "not");
    for bad in
        [["--cache", "sometimes"], ["--uid-map", "a:b"], ["--max-inodes", "-1"], ["--passthrough", "maybe"]]
    {
        assert!(mirror(src, s.mnt(), &bad).contains(bad[1]), "{bad:?}");
    }
    assert_eq!(mounts::count(s.mnt()), 0);
    assert!(within(SOON, || mounts::processes_naming(s.mnt()).is_empty()));
}

/// A user without privilege mounts by way of fusermount3, or hears why not.
#[test]
fn unprivileged_mounts() {
    needs_mount!();
    let Some(s) = unmounted() else { return };
    requirement!(shunt_tests::skip::have(&["fusermount3"]), "no fusermount3");
    requirement!(
        User::new(1001).run(|| File::options().read(true).write(true).open("/dev/fuse").is_ok()),
        "/dev/fuse is closed to users"
    );
    for dir in [s.src(), s.mnt()] {
        std::os::unix::fs::chown(dir, Some(1001), Some(1001)).unwrap();
    }
    let command = || {
        let mut c = binary::command(&["mirror", "--daemon"]);
        c.arg(s.src()).arg(s.mnt()).env("XDG_RUNTIME_DIR", s.aside());
        c
    };
    let ran = User::new(1001).run(|| run_for(20, &mut command()));
    if !ran.success() {
        one_line(&ran.err, "");
        assert_eq!(mounts::count(s.mnt()), 0);
        return;
    }
    let used = User::new(1001).run(|| {
        fs::write(s.path("f"), b"mine")?;
        fs::read(s.lower("f"))
    });
    let ran = User::new(1001).run(|| run_for(20, binary::command(&["umount"]).arg(s.mnt())));
    mounts::detach(s.mnt());
    assert_eq!(used.unwrap(), b"mine");
    ran.ok();
}

#[test]
fn foreground_says_what_it_serves() {
    needs_mount!();
    let Some(s) = unmounted() else { return };
    let mut command = binary::command(&["mirror"]);
    command.arg(s.src()).arg(s.mnt()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let came = within(Duration::from_secs(10), || mounts::count(s.mnt()) == 1);
    std::thread::sleep(Duration::from_millis(300));
    let served = came && fs::read_dir(s.mnt()).is_ok();
    mounts::signal(child.id(), Signal::INT);
    let ended = within(Duration::from_secs(5), || child.try_wait().unwrap().is_some());
    if !ended {
        let _ = child.kill();
        mounts::detach(s.mnt());
    }
    let status = child.wait().unwrap();
    let (mut out, mut err) = (String::new(), String::new());
    child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
    child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
    let said = format!("{out}{err}");
    assert!(served && ended && status.success(), "served {served}, ended {ended}, {status}: {said}");
    let line = said.lines().next().unwrap_or_default();
    assert!(line.contains(s.mnt().to_str().unwrap()) && line.contains("passthrough"), "{said}");
    assert_eq!(mounts::count(s.mnt()), 0);
}

#[test]
fn list_and_stat_are_contracts() {
    needs_mount!();
    stage::perform(Plan::tmpfs(), |s| {
        fs::write(s.path("f"), b"x").unwrap();
        let entry = s.entry().unwrap();
        assert_eq!(entry["mountpoint"].as_str(), s.mnt().to_str());
        assert_eq!(entry["source"].as_str(), s.src().to_str());
        assert_eq!(entry["kind"], "mirror");
        assert_eq!(entry["pid"].as_u64(), Some(u64::from(s.pid())));
        assert!(mounts::alive(s.pid()));
        for key in ["transport", "passthrough"] {
            assert!(!entry[key].is_null(), "no {key} in {entry}");
        }
        let comm = fs::read_to_string(format!("/proc/{}/comm", s.pid())).unwrap();
        assert!(comm.starts_with("shunt"), "the pid is of {comm}");
        for (name, what) in s.stat()["requests"].as_object().expect("requests") {
            for key in ["count", "p50_us", "p99_us"] {
                assert!(what[key].is_number(), "{name} has no {key}: {what}");
            }
            assert!(what["p50_us"].as_f64() <= what["p99_us"].as_f64(), "{name}: {what}");
        }
        assert!(s.requests("lookup") > 0 && s.requests("create") > 0, "{}", s.stat());
        for plain in [run(&mut binary::command(&["list"])), run(binary::command(&["stat"]).arg(s.mnt()))] {
            assert!(!plain.ok().is_empty());
        }
        // Asking must not count as using: no request of its own reaches the mount.
        let before = s.stat()["requests"].clone();
        let after = s.stat()["requests"].clone();
        let count = |v: &serde_json::Value| {
            v["getattr"]["count"].as_u64().unwrap_or(0) + v["lookup"]["count"].as_u64().unwrap_or(0)
        };
        assert_eq!(count(&before), count(&after));
    });
}

/// `mount -t shunt.mirror`, as fstab does it.
#[test]
fn the_mount_helper() {
    needs_mount!();
    let Some(s) = unmounted() else { return };
    let helper = std::path::Path::new("/sbin/mount.shunt.mirror");
    let ours = !helper.exists();
    if ours {
        let target = fs::canonicalize(binary::shunt()).or_else(|_| fs::canonicalize("/bin/shunt")).unwrap();
        std::os::unix::fs::symlink(target, helper).unwrap();
    }
    let (src, mnt) = (s.src().display(), s.mnt().display());
    let mounted = sh(s.aside(), &format!("mount -t shunt.mirror {src} {mnt} -o ro,cache=exclusive"));
    let seen = mounts::count(s.mnt());
    let read_only = fs::write(s.path("f"), b"").map_err(|e| e.raw_os_error());
    let options = run(Command::new("grep").arg(s.mnt()).arg("/proc/self/mountinfo")).out;
    let away = sh(s.aside(), &format!("umount {mnt}"));
    let gone = within(SOON, || mounts::count(s.mnt()) == 0 && mounts::processes_naming(s.mnt()).is_empty());
    mounts::detach(s.mnt());
    // mount(8) passes options of its own; `nofail` and the x- ones are for others to read.
    let odd = sh(
        s.aside(),
        &format!("mount -t shunt.mirror {src} {mnt} -o rw,nofail,x-systemd.automount,noatime,nodev"),
    );
    let odd_away = sh(s.aside(), &format!("umount {mnt}"));
    mounts::detach(s.mnt());
    if ours {
        fs::remove_file(helper).unwrap();
    }
    mounted.ok();
    away.ok();
    assert_eq!(seen, 1);
    assert_eq!(read_only, Err(Some(libc::EROFS)));
    assert!(options.contains(" ro,"), "{options}");
    assert!(gone);
    odd.ok();
    odd_away.ok();
}

/// Coming and going leaves nothing: no process, no file, no socket, no mount.
#[test]
fn two_hundred_mounts() {
    needs_mount!();
    let Ok(mut s) = Plan::tmpfs().patience(120).unmounted().set() else { return };
    fs::write(s.lower("f"), b"x").unwrap();
    let mine = mounts::open_files(std::process::id());
    let sockets = || fs::read_dir("/run/shunt").map_or(0, Iterator::count);
    let (sockets_before, start) = (sockets(), Instant::now());
    for round in 0..200 {
        run_for(20, &mut s.mount_command()).ok();
        assert_eq!(fs::read(s.path("f")).unwrap_or_default(), b"x", "round {round}");
        let umounted = within(Duration::from_secs(3), || s.umount().success());
        assert!(umounted && mounts::count(s.mnt()) == 0, "round {round}");
    }
    assert!(
        within(SOON, || mounts::processes_naming(s.mnt()).is_empty()),
        "{:?}",
        mounts::processes_naming(s.mnt())
    );
    assert!(mounts::open_files(std::process::id()) <= mine + 8);
    assert!(sockets() <= sockets_before + 4, "{} then {} in /run/shunt", sockets_before, sockets());
    assert!(start.elapsed() < Duration::from_secs(100), "{:?}", start.elapsed());
    s.mount();
}

/// The caller that waits for a FIFO, a lock or a slow answer is killed at once: the daemon hears of it.
#[test]
fn waiting_readers_can_be_killed() {
    needs_mount!();
    stage::perform(Plan::tmpfs(), |s| {
        let mode = rustix::fs::Mode::RWXU;
        rustix::fs::mknodat(rustix::fs::CWD, s.path("p"), rustix::fs::FileType::Fifo, mode, 0).unwrap();
        let path = s.path("p");
        let mut peer = Peer::start(|link| {
            link.say(1);
            drop(File::open(&path));
        });
        peer.link().hear().expect("started");
        std::thread::sleep(Duration::from_millis(100));
        assert!(peer.kill());
        // A stopped daemon answers nobody; its caller can be killed none the less.
        assert!(mounts::signal(s.pid(), Signal::STOP));
        let mut peer = Peer::start(|link| {
            link.say(1);
            drop(fs::metadata(path.with_file_name("never seen")));
        });
        peer.link().hear().expect("started");
        std::thread::sleep(Duration::from_millis(100));
        let killed = peer.kill();
        mounts::signal(s.pid(), Signal::CONT);
        // Until the daemon has read the request the kernel takes it back; afterwards only an answer frees the caller.
        assert!(killed, "a process that waits for a stopped daemon cannot be killed");
        assert!(s.path("p").exists());
    });
}
