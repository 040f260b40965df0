//! `shunt bench`: its figures are plausible, and it leaves nothing behind.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use shunt_test_support::cmd::{one_line, within};
use shunt_test_support::{needs_mount, needs_tools, run_for, sh};
use shunt_tests::fixture::{Fixture, Plan, perform};
use shunt_tests::{binary, mounts};

/// A benchmark of a few seconds.
const SMALL: [&str; 8] = ["--size", "256K", "--files", "20", "--rounds", "6", "--time", "2"];

fn bench(dir: &Path, args: &[&str]) -> Command {
    let mut command = binary::command(&["bench"]);
    command.args(SMALL).args(args).arg(dir);
    command
}

/// Data and metadata through the daemon.
fn plan() -> Plan {
    Plan::daemon().args(&["--cache", "none"])
}

fn is_empty(dir: &Path) -> bool {
    fs::read_dir(dir).unwrap().next().is_none()
}

/// Asserts that a result is complete, and that its figures fit together.
fn check(case: &Value) {
    let number = |value: &Value| value.as_f64().unwrap_or_else(|| panic!("{case:#}"));
    let estimate = |value: &Value| {
        let [low, median, high] = ["low", "median", "high"].map(|name| number(&value[name]));
        assert!(low > 0.0 && low <= median && median <= high && high.is_finite(), "{case:#}");
        assert!((0.0..=1.0).contains(&number(&value["confidence"])), "{case:#}");
    };
    for side in ["mount", "against"] {
        estimate(&case[side]["rate"]);
        let [p50, p90, p99] = ["p50", "p90", "p99"].map(|name| number(&case[side]["latency_us"][name]));
        assert!(p50 > 0.0 && p50 <= p90 && p90 <= p99, "{case:#}");
        assert!(case[side]["rounds"].as_array().unwrap().len() >= 3, "{case:#}");
    }
    estimate(&case["ratio"]);
    assert!(["faster", "same", "slower", "unclear"].contains(&case["verdict"].as_str().unwrap()), "{case:#}");
    assert!(case["noisy"].is_boolean() && case["skipped"].is_null(), "{case:#}");
}

/// Asserts that a page is well-formed and refers to nothing.
fn check_page(page: &str) {
    let mut open = Vec::new();
    let body = page.strip_prefix("<!DOCTYPE html>").expect("a page");
    for tag in body.split('<').skip(1) {
        let (tag, text) = tag.split_once('>').expect("a complete tag");
        assert!(!text.contains('>') || open.last() == Some(&"style"), "{text}");
        let name = tag.split([' ', '/']).find(|word| !word.is_empty()).unwrap();
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "{tag}");
        } else if !tag.ends_with('/') {
            open.push(name);
        }
        assert!(tag.matches('"').count() % 2 == 0, "{tag}");
    }
    assert!(open.is_empty(), "{open:?}");
    for reference in
        ["http:", "https:", "//", "src=", "href=", "<script", "<link", "<iframe", "url(", "@import"]
    {
        assert!(!page.contains(reference), "{reference}");
    }
    assert!(page.contains("default-src 'none'") && page.matches("<svg ").count() > 2);
}

#[test]
fn a_mirror_is_compared_with_its_source() {
    needs_mount!();
    perform(plan(), |mirror| {
        fs::create_dir(mirror.path("sub <1>")).unwrap();
        let html = mirror.aside().join("bench.html");
        let dir = mirror.path("sub <1>");
        let mut command = bench(&dir, &["--json", "--html", html.to_str().unwrap()]);
        let ran = run_for(60, &mut command);
        let results: Value =
            serde_json::from_str(&ran.out).unwrap_or_else(|error| panic!("{error}: {ran:?}"));
        assert_eq!(results["mount"]["path"].as_str(), dir.to_str());
        assert_eq!(results["mount"]["fstype"], "fuse.shunt.mirror");
        assert_eq!(results["against"]["path"].as_str(), mirror.lower("sub <1>").to_str());
        assert_eq!(results["against"]["fstype"], "tmpfs");
        let cases = results["cases"].as_array().unwrap();
        let names: BTreeSet<_> = cases.iter().map(|case| case["name"].as_str().unwrap()).collect();
        for name in [
            "create",
            "stat warm",
            "open",
            "readdir warm",
            "rename",
            "unlink",
            "read sequential 4K cold",
            "read random 4K warm",
            "write random 4K buffered",
        ] {
            assert!(names.contains(name), "{names:?}");
        }
        cases.iter().filter(|case| case["skipped"].is_null()).for_each(check);
        // Two ways through the daemon and back are not for nothing. On a busy machine the rounds may differ too much for a verdict.
        let create = cases.iter().find(|case| case["name"] == "create").unwrap();
        assert!(
            create["ratio"]["median"].as_f64() < Some(1.0) && create["verdict"] != "faster",
            "{create:#}"
        );
        check_page(&fs::read_to_string(&html).unwrap());
        assert!(is_empty(&dir));
        fs::remove_dir(&dir).unwrap();
    });
}

/// The daemon is stopped for 40 ms at a time.
#[test]
fn an_injected_delay_is_measured() {
    needs_mount!();
    perform(plan(), |mirror| {
        let end = AtomicBool::new(false);
        let ran = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !end.load(Ordering::Relaxed) {
                    mounts::signal(mirror.pid(), Signal::STOP);
                    std::thread::sleep(Duration::from_millis(40));
                    mounts::signal(mirror.pid(), Signal::CONT);
                    std::thread::sleep(Duration::from_millis(10));
                }
            });
            let only = ["--only", "stat warm", "--only", "read random 4K direct", "--json", "--time", "4"];
            let ran = run_for(60, &mut bench(mirror.mnt(), &only));
            end.store(true, Ordering::Relaxed);
            ran
        });
        let results: Value = serde_json::from_str(&ran.ok()).unwrap();
        let stat =
            results["cases"].as_array().unwrap().iter().find(|case| case["name"] == "stat warm").unwrap();
        check(stat);
        assert_eq!(stat["verdict"], "slower", "{stat:#}");
        assert!(stat["ratio"]["high"].as_f64() < Some(0.5), "{stat:#}");
        let rounds = stat["mount"]["rounds"].as_array().unwrap();
        let rates: Vec<f64> = rounds.iter().map(|rate| rate.as_f64().unwrap()).collect();
        assert!(rates.iter().all(|rate| *rate < 50_000.0), "{rates:?}");
        assert!(is_empty(mirror.src()));
    });
}

#[test]
fn a_table_has_a_line_per_case() {
    needs_mount!();
    perform(plan(), |mirror| {
        let ran = run_for(60, &mut bench(mirror.mnt(), &["--only", "create", "--only", "unlink"]));
        let table = ran.ok();
        assert!(table.contains("CASE") && table.contains("confidence interval"), "{table}");
        for name in ["\ncreate ", "\nunlink "] {
            assert!(table.contains(name) && table.contains(" /s") || table.contains(" k/s"), "{table}");
        }
        assert!(!table.contains("read "), "{table}");
        assert!(is_empty(mirror.src()));
    });
}

#[test]
fn plain_directories_are_compared_and_cold_names_need_root() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = (dir.path().join("one"), dir.path().join("two"));
    fs::create_dir(&one).and_then(|()| fs::create_dir(&two)).unwrap();
    let output = run_for(20, &mut bench(&one, &[])).fails();
    one_line(&output, "name one to compare with by --against dir");
    let same = run_for(20, bench(&one, &["--against"]).arg(&one).arg(&one)).fails();
    assert!(!same.is_empty());
    let against = two.to_str().unwrap();
    let only = ["--against", against, "--json", "--only", "open", "--only", "read sequential 4K warm"];
    let results: Value = serde_json::from_str(&run_for(60, &mut bench(&one, &only)).ok()).unwrap();
    assert_eq!(results["cases"].as_array().unwrap().len(), 2);
    results["cases"].as_array().unwrap().iter().for_each(check);
    let drop = ["--against", against, "--drop-caches", "--json", "--only", "cold", "--block-size", "64K"];
    let user = shunt_test_support::User::new(65534);
    let refused = user.run(|| run_for(20, &mut bench(&one, &drop)));
    assert_eq!(refused.status.and_then(|status| status.code()), Some(5), "{refused:?}");
    let read_only = user.run(|| run_for(20, &mut bench(Path::new("/tmp"), &["--against", "/etc"])));
    one_line(&read_only.fails(), "cannot create a directory in /etc: permission denied");
    assert!(is_empty(&one) && is_empty(&two));
}

#[test]
fn wrong_limits_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let root = ["--against", "/"];
    for (args, word) in [
        (["--size", "1K"], "between 64k and 1t"),
        (["--block-size", "1000"], "multiple of 4k"),
        (["--block-size", "512K"], "not be larger than --size"),
        (["--only", "nonsense"], "no case"),
    ] {
        let ran = run_for(20, bench(dir.path(), &args).args(root));
        assert_eq!(ran.status.and_then(|status| status.code()), Some(2), "{ran:?}");
        one_line(&ran.err, word);
    }
    let html =
        run_for(20, &mut bench(dir.path(), &["--html", "/nonexistent/x", "--against", "/tmp"])).fails();
    one_line(&html, "cannot write /nonexistent/x");
    assert!(is_empty(dir.path()));
}

/// A mirror of a tmpfs with a limit, at `small` and `mnt` in a directory.
fn on_small_disk(options: &str, work: impl FnOnce(&Path, &Path)) {
    let dir = tempfile::tempdir().unwrap();
    let (small, mnt) = (dir.path().join("small"), dir.path().join("mnt"));
    fs::create_dir(&small).and_then(|()| fs::create_dir(&mnt)).unwrap();
    sh(dir.path(), &format!("mount -t tmpfs -o {options} none small")).ok();
    run_for(20, binary::command(&["mirror", "--daemon", "--cache", "none"]).arg(&small).arg(&mnt)).ok();
    let mount = shunt_tests::volume::Mount::of(&mnt);
    work(&small, &mnt);
    drop(mount);
    sh(dir.path(), "umount small").ok();
}

#[test]
fn a_disk_without_room_is_refused_before_anything_is_written() {
    needs_mount!();
    needs_tools!("mount");
    on_small_disk("size=400k", |small, mnt| {
        let output = run_for(20, &mut bench(mnt, &[])).fails();
        one_line(&output, "are free; give a smaller --size");
        assert!(is_empty(small));
    });
    on_small_disk("size=4m,nr_inodes=30", |small, mnt| {
        let output = run_for(20, &mut bench(mnt, &[])).fails();
        one_line(&output, "are free; give a smaller --files");
        assert!(is_empty(small));
    });
}

/// Starts a long benchmark, and returns when it has created its files.
fn start(dir: &Path, lower: &Path, stderr: &Path) -> Child {
    let mut command = bench(dir, &["--time", "300", "--files", "200"]);
    let stderr = File::create(stderr).unwrap();
    let child = command.stdout(Stdio::null()).stderr(stderr).spawn().unwrap();
    let begun = || {
        let dirs: Vec<_> = fs::read_dir(lower).unwrap().flatten().collect();
        dirs.len() == 2 && dirs.iter().all(|dir| dir.path().join("files").exists())
    };
    assert!(within(Duration::from_secs(20), begun), "it does not begin");
    child
}

#[test]
fn a_disk_that_fills_up_is_one_line_and_leaves_nothing() {
    needs_mount!();
    needs_tools!("mount");
    on_small_disk("size=8m,nr_inodes=1000", |small, mnt| {
        let aside = tempfile::tempdir().unwrap();
        let stderr = aside.path().join("stderr");
        let mut child = start(mnt, small, &stderr);
        fs::create_dir(small.join("fill")).unwrap();
        let fill = || (0..2000).any(|n| File::create(small.join("fill").join(n.to_string())).is_err());
        let status = loop {
            fill();
            match child.try_wait().unwrap() {
                Some(status) => break status,
                None => std::thread::sleep(Duration::from_millis(20)),
            }
        };
        assert_eq!(status.code(), Some(1));
        one_line(&fs::read_to_string(&stderr).unwrap(), "no space left on device; free space");
        fs::remove_dir_all(small.join("fill")).unwrap();
        assert!(is_empty(small));
    });
}

fn interrupted(mirror: &Fixture, end: impl FnOnce(&Child)) -> String {
    let stderr = mirror.aside().join("stderr");
    let mut child = start(mirror.mnt(), mirror.src(), &stderr);
    end(&child);
    let mut status = None;
    let ended = within(Duration::from_secs(20), || {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    if !ended {
        child.kill().unwrap();
    }
    assert_eq!(status.and_then(|status| status.code()), Some(1));
    assert!(is_empty(mirror.src()), "{:?}", fs::read_dir(mirror.src()).unwrap().collect::<Vec<_>>());
    fs::read_to_string(&stderr).unwrap()
}

#[test]
fn signals_leave_nothing() {
    needs_mount!();
    perform(plan(), |mirror| {
        for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
            let output = interrupted(mirror, |child| _ = mounts::signal(child.id(), signal));
            one_line(&output, "interrupted by a signal");
        }
    });
}

#[test]
fn a_mount_that_dies_leaves_nothing() {
    needs_mount!();
    perform(plan(), |mirror| {
        let output = interrupted(mirror, |_| mounts::end(mirror.pid()));
        one_line(&output, "see the log of the mount");
        mounts::detach(mirror.mnt());
    });
}

#[test]
fn a_full_output_leaves_nothing() {
    needs_mount!();
    perform(plan(), |mirror| {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let mut command = bench(mirror.mnt(), &["--only", "open", "--time", "1"]);
        assert_eq!(command.stdout(full).stderr(Stdio::null()).status().unwrap().code(), Some(1));
        assert!(is_empty(mirror.src()));
    });
}
