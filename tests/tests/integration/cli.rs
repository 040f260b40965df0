//! The command line: its output, its guarantees to other programs, and its errors.

use std::fs;
use std::io::Read as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use shunt_test_support::cmd::{one_line, within};
use shunt_test_support::{needs_mount, needs_tools, patiently, requirement, run, run_for, sh};
use shunt_tests::{Plan, binary, fixture, mounts, unprivileged};

const SOON: Duration = Duration::from_secs(2);

#[test]
fn bad_input_gives_one_clear_line() {
    needs_mount!();
    let Some(s) = Plan::tmpfs().unmounted().set_or_skip() else { return };
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

/// An unprivileged user mounts through fusermount3.
#[test]
fn unprivileged_mounts() {
    needs_mount!();
    needs_tools!("fusermount3");
    let Some(s) = Plan::tmpfs().unmounted().set_or_skip() else { return };
    unprivileged::perform(&s, |shunt| {
        run_for(20, shunt(&["mirror", "--daemon"]).arg(s.src()).arg(s.mnt())).ok();
        assert_eq!(mounts::count(s.mnt()), 1);
        fs::write(s.path("f"), b"mine").unwrap();
        assert_eq!(fs::read(s.lower("f")).unwrap(), b"mine");
        let list = run(&mut shunt(&["list", "--json"])).ok();
        assert!(list.contains(s.mnt().to_str().unwrap()), "{list}");
        // Nobody else has access, not even root, and `--allow-other` fails with one clear line.
        patiently(|| run_for(20, shunt(&["umount"]).arg(s.mnt()))).ok();
        assert_eq!(mounts::count(s.mnt()), 0);
        let allow = run_for(20, shunt(&["mirror", "--daemon", "--allow-other"]).arg(s.src()).arg(s.mnt()));
        if allow.success() {
            patiently(|| run_for(20, shunt(&["umount"]).arg(s.mnt()))).ok();
        } else {
            one_line(&allow.err, "allow");
        }
    });
}

/// As in a rootless container: only one user is mapped, and `setgroups(2)` is denied.
#[test]
fn mounts_in_a_user_namespace_of_one_user() {
    const WORK: &str = r#"
        "$@" "$SRC" "$MNT" >&2
        echo new >"$MNT/new"; mkdir "$MNT/dir"; mv "$MNT/new" "$MNT/dir"; chmod 2600 "$MNT/dir/new"
        ln -s new "$MNT/dir/link"; mkfifo "$MNT/dir/pipe"; touch -d 2001-01-01 "$MNT/dir/new"
        stat -c %u:%g:%a "$MNT/dir/new"; cat "$MNT/dir/link"
        "$1" umount "$MNT"
    "#;
    needs_mount!();
    needs_tools!("unshare");
    let Some(s) = Plan::tmpfs().unmounted().set_or_skip() else { return };
    unprivileged::perform(&s, |shunt| {
        let probe = run(std::process::Command::new("unshare").args(["-Urm", "true"]));
        requirement!(probe.success(), "no user namespaces: {}", probe.err);
        for args in [&["--cache", "none"][..], &["--passthrough", "off"]] {
            let inner = shunt(&["mirror", "--daemon"]);
            let mut command = shunt(&[]);
            let environment = std::mem::replace(&mut command, std::process::Command::new("unshare"));
            for (key, value) in environment.get_envs() {
                value.map(|value| command.env(key, value));
            }
            command.args(["-Urm", "sh", "-euc", WORK, "sh"]).arg(inner.get_program());
            command.args(inner.get_args()).args(args).env("SRC", s.src()).env("MNT", s.mnt());
            let done = run_for(30, &mut command).ok();
            assert_eq!(done, "0:0:2600\nnew\n");
            assert_eq!(fs::read(s.lower("dir/new")).unwrap(), b"new\n");
            fs::remove_dir_all(s.lower("dir")).unwrap();
        }
    });
}

#[test]
fn foreground_says_what_it_serves() {
    needs_mount!();
    let Some(s) = Plan::tmpfs().unmounted().set_or_skip() else { return };
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
    let printed = format!("{out}{err}");
    assert!(served && ended && status.success(), "served {served}, ended {ended}, {status}: {printed}");
    let line = printed.lines().next().unwrap_or_default();
    assert!(line.contains(s.mnt().to_str().unwrap()) && line.contains("passthrough"), "{printed}");
    assert_eq!(mounts::count(s.mnt()), 0);
}

#[test]
fn list_and_stat_are_contracts() {
    needs_mount!();
    fixture::perform(Plan::tmpfs(), |s| {
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
        // A status query must not count as use: it sends no request to the mount.
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
    let Some(s) = Plan::tmpfs().unmounted().set_or_skip() else { return };
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
    let shown = || run(Command::new("grep").arg(s.mnt()).arg("/proc/self/mountinfo")).out;
    let options = shown();
    let away = sh(s.aside(), &format!("umount {mnt}"));
    let gone = within(SOON, || mounts::count(s.mnt()) == 0 && mounts::processes_naming(s.mnt()).is_empty());
    mounts::detach(s.mnt());
    // mount(8) passes its own options; `nofail` and the x- ones are for other programs.
    let odd = sh(
        s.aside(),
        &format!("mount -t shunt.mirror {src} {mnt} -o rw,nofail,x-systemd.automount,noatime,allow_suid"),
    );
    let odd_options = shown();
    let odd_away = sh(s.aside(), &format!("umount {mnt}"));
    mounts::detach(s.mnt());
    if ours {
        fs::remove_file(helper).unwrap();
    }
    mounted.ok();
    away.ok();
    assert_eq!(seen, 1);
    assert_eq!(read_only, Err(Some(libc::EROFS)));
    // The files may have been created by a user who must not gain root here.
    assert!(options.contains(" ro,nosuid,nodev"), "{options}");
    assert!(odd_options.contains(" rw,nodev,noatime "), "{odd_options}");
    assert!(gone);
    odd.ok();
    odd_away.ok();
}

/// Resource limits of the shell that starts a daemon do not apply to users of the mount. A limit that cannot be raised causes
/// an error, and no death by a signal.
#[test]
fn limits_of_who_starts_a_daemon_are_not_its_own() {
    needs_mount!();
    needs_tools!("prlimit");
    let Some(s) = Plan::tmpfs().unmounted().set_or_skip() else { return };
    let image = shunt_tests::Image::make(&[], 32).unwrap();
    let (shunt, mnt) = (binary::shunt().display().to_string(), s.mnt().display().to_string());
    let mirror = format!("{shunt} mirror --daemon --passthrough off {} {mnt}", s.src().display());
    let ext4 = format!("{shunt} ext4 --daemon {} {mnt}", image.path().display());
    for (command, limits) in [(mirror, &["65536:", "65536:65536"][..]), (ext4, &["65536:"])] {
        for limit in limits {
            // Signal dispositions of a careless parent.
            let line = format!("trap '' CHLD HUP; umask 777; prlimit --fsize={limit} {command}");
            sh(s.aside(), &line).ok();
            let stat = run(binary::command(&["stat", "--json"]).arg(s.mnt())).ok();
            let stat: serde_json::Value = serde_json::from_str(&stat).unwrap();
            let pid = stat["pid"].as_u64().unwrap() as u32;
            let written = fs::write(s.path("large"), vec![3; 1 << 20]).and_then(|()| {
                fs::File::open(s.path("large"))?.sync_all()?;
                fs::read(s.path("large"))
            });
            match written {
                Ok(read) => assert!(read == vec![3; 1 << 20], "{command}"),
                Err(error) => {
                    // Raising a hard limit requires privilege.
                    assert!(limit.ends_with("65536"), "{command}: {error}");
                    assert!(matches!(error.raw_os_error(), Some(libc::EFBIG | libc::EIO)), "{error}");
                }
            }
            assert!(mounts::alive(pid), "{command} under a limit of {limit} is gone");
            patiently(|| run(binary::command(&["umount"]).arg(s.mnt()))).ok();
            assert!(within(SOON, || !mounts::alive(pid)));
        }
    }
}
