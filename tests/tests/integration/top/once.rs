//! `shunt top --once`, as text and JSON.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;
use shunt_test_support::cmd::within;
use shunt_test_support::{needs_mount, needs_tools, run};
use shunt_tests::fixture::{Plan, perform};
use shunt_tests::image::Image;
use shunt_tests::volume::Volume;
use shunt_tests::{binary, mounts};

use super::load::Load;

/// The report of one mount.
#[track_caller]
fn of(mnt: &Path, args: &[&str]) -> Value {
    let filter = mnt.to_str().unwrap();
    let mut command = binary::command(&["top", "--once", "--json", "--interval", "0.5", "--filter", filter]);
    let text = run(command.args(args)).ok();
    let mut view: Value = serde_json::from_str(&text).unwrap();
    let interval = view["interval_s"].as_f64().unwrap();
    assert!((0.4..20.0).contains(&interval), "{interval}");
    let mounts = view["mounts"].as_array_mut().unwrap();
    assert_eq!(mounts.len(), 1, "{text}");
    mounts.remove(0)
}

/// The caller that is this process.
fn own(mount: &Value) -> Option<&Value> {
    mount["callers"].as_array()?.iter().find(|caller| caller["pid"] == std::process::id())
}

fn command() -> String {
    fs::read_to_string("/proc/self/comm").unwrap().trim_end().to_owned()
}

#[test]
fn rates_latencies_and_callers_of_a_mirror() {
    needs_mount!();
    perform(Plan::daemon(), |mirror| {
        let _load = Load::on(mirror.mnt());
        let mount = of(mirror.mnt(), &[]);
        assert_eq!((&mount["state"], &mount["kind"]), (&"up".into(), &"mirror".into()));
        assert_eq!(mount["daemon"]["pid"], mirror.server().unwrap());
        let number = |value: &Value| value.as_f64().unwrap_or(-1.0);
        let rates = &mount["rates"];
        let lookups = &mount["operations"]["lookup"];
        assert!(number(&rates["operations_per_s"]) > 50.0, "{mount}");
        assert!(number(&lookups["per_s"]) > 50.0 && number(&lookups["errors_per_s"]) == 0.0, "{mount}");
        assert!(number(&mount["operations"]["rmdir"]["errors_per_s"]) > 0.0, "{mount}");
        assert!(
            number(&rates["errors_per_s"]) > 0.0 && number(&rates["written_bytes_per_s"]) > 0.0,
            "{mount}"
        );
        assert_eq!(mount["passthrough"]["share"], 0.0);
        let latency = &mount["latency"];
        assert!(number(&latency["p50_us"]) > 0.0 && number(&latency["p99_us"]) >= number(&latency["p50_us"]));
        let caller = own(&mount).unwrap_or_else(|| panic!("{mount}"));
        assert_eq!((&caller["command"], &caller["uid"]), (&command().into(), &0.into()));
        assert!(number(&caller["requests_per_s"]) > 50.0, "{caller}");
        let text =
            run(&mut binary::command(&["top", "--once", "-i", "0.3", "-f", mirror.mnt().to_str().unwrap()]));
        let text = text.ok();
        assert!(
            text.starts_with("MOUNT ") && text.contains(&format!("{} {}", std::process::id(), command())),
            "{text}"
        );
    });
}

#[test]
fn passed_through_opens_of_another_program() {
    needs_mount!();
    perform(Plan::tmpfs(), |mirror| {
        fs::write(mirror.lower("file"), "content").unwrap();
        let script = format!("while :; do read -r line < {}; done", mirror.path("file").display());
        let reader =
            Command::new("sh").args(["-c", &script]).spawn().map(shunt_test_support::cmd::Ended).unwrap();
        let pid = reader.0.id();
        let seen = within(Duration::from_secs(20), || {
            let mount = of(mirror.mnt(), &[]);
            let callers = mount["callers"].as_array().unwrap();
            callers.iter().any(|caller| caller["pid"] == pid && caller["command"] == "sh")
                && mount["passthrough"]["share"].as_f64().is_some_and(|share| share > 0.5)
        });
        assert!(seen, "{}", of(mirror.mnt(), &[]));
    });
}

#[test]
fn sandboxed_daemons_report_callers() {
    needs_mount!();
    needs_tools!("mkfs.ext4");
    let image = Image::make(&["-b", "4096"], 64).unwrap();
    {
        let mount = image.by_shunt(&[]);
        let _load = Load::on(mount.at());
        let view = of(mount.at(), &[]);
        assert_eq!(own(&view).unwrap_or_else(|| panic!("{view}"))["command"], command(), "{view}");
        assert_eq!(view["ext4"]["writable"], true);
        assert!(view["volume"].is_null());
    }
    let volume = Volume::new();
    let mount = volume.mount_as("one");
    let _load = Load::on(mount.at());
    let view = of(mount.at(), &[]);
    assert_eq!(own(&view).unwrap_or_else(|| panic!("{view}"))["command"], command(), "{view}");
    assert_eq!(view["volume"]["state"], "online");
}

#[test]
fn a_daemon_that_hangs_is_silent_and_one_that_died_is_gone() {
    needs_mount!();
    perform(Plan::daemon().args(&["--takeover", "off"]), |mirror| {
        let pid = mirror.server().unwrap();
        mounts::stop(pid);
        let begun = Instant::now();
        let mount = of(mirror.mnt(), &[]);
        mounts::signal(pid, Signal::CONT);
        assert!(begun.elapsed() < Duration::from_secs(20));
        assert_eq!(mount["state"], "silent");
        assert!(mount["reason"].as_str().unwrap().contains(&pid.to_string()), "{mount}");
        assert!(mount.get("rates").is_none());
    });
}

#[test]
fn wrong_options_are_refused() {
    let refused = |args: &[&str]| run(binary::command(&["top"]).args(args)).fails();
    assert!(refused(&["--interval", "0.1"]).contains("not from 0.2 to 3600 seconds"));
    assert!(refused(&["--json"]).contains("--once"));
    assert!(refused(&["--sort", "name"]).contains("passthrough"));
    // Standard output is a file here.
    assert!(refused(&[]).contains("not a terminal; use `shunt top --once`"));
}
