//! `--metrics` of daemons, from within their sandboxes.

use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::FileExt as _;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use shunt_test_support::cmd::{Ended, within};
use shunt_test_support::{needs_mount, needs_tools, port, run};
use shunt_tests::exporter::Metrics;
use shunt_tests::fixture::{Plan, perform};
use shunt_tests::image::Image;
use shunt_tests::volume::Volume;
use shunt_tests::{binary, mounts};

fn address() -> String {
    format!("127.0.0.1:{}", port::reserve())
}

#[test]
fn commits_and_corruption_of_an_image_are_counted() {
    needs_mount!();
    needs_tools!("mkfs.ext4", "debugfs");
    let image = Image::make(&["-b", "4096"], 64).unwrap();
    let address = address();
    let args = ["--metrics", &address];
    {
        let mount = image.by_shunt(&args);
        let of = |name: &str| Metrics::of(&address).of_mount(name, mount.at(), "").unwrap();
        let before = of("shunt_ext4_commits_total");
        fs::create_dir(mount.at().join("directory")).unwrap();
        fs::write(mount.at().join("directory/file"), "content").unwrap();
        File::open(mount.at().join("directory/file")).unwrap().sync_all().unwrap();
        assert!(of("shunt_ext4_commits_total") > before);
        assert!(of("shunt_ext4_metadata_reads_total") > 0.0);
        assert_eq!((of("shunt_ext4_corruptions_total"), of("shunt_ext4_aborted")), (0.0, 0.0));
    }
    let blocks = run(Command::new("debugfs").args(["-R", "blocks /directory"]).arg(image.path())).ok();
    let block: u64 = blocks.trim().parse().expect("one block");
    File::options()
        .write(true)
        .open(image.path())
        .unwrap()
        .write_all_at(&[0xa5; 4096], block * 4096)
        .unwrap();
    let mount = image.by_shunt(&["--metrics", &address, "-o", "errors=remount-ro"]);
    let listed =
        fs::read_dir(mount.at().join("directory")).map(|entries| entries.filter_map(Result::ok).count());
    let of = |name: &str| Metrics::of(&address).of_mount(name, mount.at(), "").unwrap();
    assert!(of("shunt_ext4_corruptions_total") > 0.0, "{listed:?}");
    assert_eq!(of("shunt_ext4_aborted"), 1.0);
}

#[test]
fn conflicts_peers_cache_and_evictions_of_a_volume_are_counted() {
    needs_mount!();
    let volume = Volume::new();
    let address = address();
    let one = volume.mount_as("one");
    fs::write(one.at().join("large"), vec![1; 3 << 20]).unwrap();
    fs::write(one.at().join("both"), "start").unwrap();
    let two = volume.mount_as_with("two", &["--metrics", &address, "--cache-mode", "on-demand"]);
    let of = |name: &str| Metrics::of(&address).of_mount(name, two.at(), "").unwrap_or(-1.0);
    let soon = |name: &str, holds: &dyn Fn(f64) -> bool| {
        assert!(within(Duration::from_secs(30), || holds(of(name))), "{name} {}", of(name));
    };
    soon("shunt_volume_received_changes_total", &|count| count >= 2.0);
    soon("shunt_volume_peers", &|count| count == 1.0);
    assert_eq!(Metrics::of(&address).of_mount("shunt_volume_state", two.at(), "state=\"online\""), Some(1.0));
    assert!(within(Duration::from_secs(20), || fs::read(two.at().join("large"))
        .is_ok_and(|read| read.len() == 3 << 20)));
    assert!(of("shunt_volume_cache_misses_total") >= 1.0);
    assert!(of("shunt_volume_fetched_bytes_total") >= f64::from(3 << 20));
    // Closed files are evicted in this mode.
    soon("shunt_volume_evicted_files_total", &|count| count >= 1.0);
    soon("shunt_volume_evicted_bytes_total", &|count| count >= f64::from(3 << 20));
    assert!(of("shunt_volume_usage_bytes") >= f64::from(3 << 20));
    run(binary::command(&["volume", "offline"]).arg(two.at())).ok();
    assert_eq!(
        Metrics::of(&address).of_mount("shunt_volume_state", two.at(), "state=\"offline\""),
        Some(1.0)
    );
    fs::write(two.at().join("both"), "two").unwrap();
    fs::write(one.at().join("both"), "one").unwrap();
    assert!(fs::read(two.at().join("large")).is_err());
    assert!(of("shunt_volume_offline_misses_total") >= 1.0 && of("shunt_volume_pending_changes") >= 1.0);
    // The node that finds the store changed has the conflict.
    assert!(within(Duration::from_secs(30), || one.status()["pending"] == 0));
    run(binary::command(&["volume", "online"]).arg(two.at())).ok();
    soon("shunt_volume_conflicts", &|count| count == 1.0);
}

#[test]
fn the_next_daemon_exports_at_the_same_address() {
    needs_mount!();
    let address = address();
    perform(Plan::daemon().args(&["--transport", "dev", "--metrics", &address]), |mirror| {
        assert_eq!(Metrics::of(&address).of_mount("shunt_takeovers_total", mirror.mnt(), ""), Some(0.0));
        let first = mirror.server().unwrap();
        mounts::signal(first, Signal::KILL);
        let over = || {
            let metrics = Metrics::try_of(&address);
            metrics.is_some_and(|all| all.of_mount("shunt_takeovers_total", mirror.mnt(), "") == Some(1.0))
        };
        assert!(within(Duration::from_secs(20), over));
        assert!(Metrics::of(&address).of_mount("shunt_takeover_pause_seconds", mirror.mnt(), "") > Some(0.0));
    });
}

#[test]
fn an_address_in_use_fails_before_the_mount() {
    needs_mount!();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let volume = Volume::new();
    let output = run(&mut volume.mount_command(&["--metrics", &address])).fails();
    assert!(output.contains(&format!("cannot listen on {address} for metrics")), "{output}");
    assert_eq!(mounts::count(&volume.aside().join("mnt")), 0);
}

#[test]
fn a_gateway_counts_requests_and_bytes() {
    needs_mount!();
    let volume = Volume::new();
    let (at, metrics) = (address(), address());
    let home = tempfile::tempdir().unwrap();
    let command = |words: &[&str], of: &std::path::Path| {
        let mut command = binary::command(&["volume"]);
        command.args(words).env("HOME", of).env_remove("XDG_CONFIG_HOME").env_remove("XDG_DATA_HOME");
        command
    };
    let here = |words: &[&str]| {
        let mut command = command(words, volume.aside());
        command.env("XDG_DATA_HOME", volume.aside());
        command
    };
    let words = ["serve", "test", "--listen", &at, "--address", &at, "--metrics", &metrics];
    let gateway = Ended(here(&words).stdout(std::process::Stdio::null()).spawn().unwrap());
    assert!(within(Duration::from_secs(20), || Metrics::try_of(&metrics).is_some()));
    let token = run(&mut here(&["invite", "test"])).ok();
    run(&mut command(&["join", "--node", "away", token.trim()], home.path())).ok();
    let away = volume.mount_from("away", home.path());
    // Content that compression does not make smaller.
    let mut content = vec![0; 300_000];
    File::open("/dev/urandom").unwrap().read_exact(&mut content).unwrap();
    fs::write(away.at().join("file"), content).unwrap();
    let of = |name: &str, others: &str| {
        Metrics::of(&metrics).get(&format!("{name}{{volume=\"test\"{others}}}")).unwrap_or_default()
    };
    assert!(within(Duration::from_secs(20), || of("shunt_gateway_received_bytes_total", "") >= 300_000.0));
    assert!(within(Duration::from_secs(20), || of("shunt_gateway_requests_total", ",operation=\"commit\"")
        >= 1.0));
    assert!(of("shunt_gateway_connections", "") >= 1.0 && of("shunt_gateway_cpu_seconds_total", "") > 0.0);
    drop((away, gateway));
}
