//! `shunt metrics`, the exporter of all mounts.

use std::fs;
use std::io::Write as _;
use std::time::Duration;

use rustix::process::Signal;
use shunt_test_support::cmd::within;
use shunt_test_support::{needs_mount, run};
use shunt_tests::exporter::{Exporter, get};
use shunt_tests::fixture::{Plan, perform};
use shunt_tests::{binary, mounts};

#[test]
fn requests_bytes_and_passthrough_of_a_mirror_are_counted() {
    needs_mount!();
    perform(Plan::daemon().args(&["--passthrough", "off"]), |mirror| {
        let exporter = Exporter::start();
        let before = exporter.scrape();
        assert_eq!(before.of_mount("shunt_mount_up", mirror.mnt(), ""), Some(1.0));
        fs::write(mirror.path("file"), vec![7; 300_000]).unwrap();
        assert!(fs::metadata(mirror.path("none")).is_err());
        // The previous scrape is reused for a moment.
        std::thread::sleep(Duration::from_millis(250));
        let after = exporter.scrape();
        let of = |name: &str| after.of_mount(name, mirror.mnt(), "");
        assert_eq!(of("shunt_written_bytes_total"), Some(300_000.0));
        assert_eq!(of("shunt_passthrough_enabled"), Some(0.0));
        assert_eq!(of("shunt_passthrough_opens_total"), Some(0.0));
        assert!(of("shunt_daemon_cpu_seconds_total") > Some(0.0));
        assert!(of("shunt_daemon_resident_memory_bytes") > Some(1e6));
        assert!(of("shunt_daemon_start_time_seconds") > Some(1.6e9));
        assert!(of("shunt_opens_total") >= Some(1.0));
        let write = "operation=\"write\"";
        let count = after.of_mount("shunt_requests_total", mirror.mnt(), write).unwrap();
        assert!(count >= 1.0);
        assert_eq!(after.of_mount("shunt_request_errors_total", mirror.mnt(), write), Some(0.0));
        // The histogram: `le` comes first.
        let bucket = |le: &str| {
            let mount = mirror.mnt().display();
            let name = "shunt_request_duration_seconds_bucket";
            after.get(&format!("{name}{{le=\"{le}\",mount=\"{mount}\",{write}}}"))
        };
        assert_eq!(bucket("+Inf"), Some(count));
        assert!(bucket("17.179869184") <= Some(count));
        let sum = after.of_mount("shunt_request_duration_seconds_sum", mirror.mnt(), write);
        assert!(sum > Some(0.0) && sum < Some(60.0), "{sum:?}");
    });
}

#[test]
fn a_daemon_that_does_not_answer_is_down_and_delays_nobody() {
    needs_mount!();
    perform(Plan::daemon(), |mirror| {
        let exporter = Exporter::start();
        let pid = mirror.server().unwrap();
        mounts::stop(pid);
        let down = within(Duration::from_secs(20), || {
            exporter.scrape().of_mount("shunt_mount_up", mirror.mnt(), "") == Some(0.0)
        });
        mounts::signal(pid, Signal::CONT);
        assert!(down);
        let up = || exporter.scrape().of_mount("shunt_mount_up", mirror.mnt(), "") == Some(1.0);
        assert!(within(Duration::from_secs(20), up));
    });
}

#[test]
fn the_exporter_listens_once_and_ends_by_signal() {
    let exporter = Exporter::start();
    let again = run(&mut binary::command(&["metrics", "--listen", exporter.address()])).fails();
    assert!(again.contains("cannot listen on") && again.contains("choose another"), "{again}");
    assert_eq!(again.lines().count(), 1, "{again}");
    assert!(
        get(exporter.address(), "*/*").is_some_and(|text| text.contains("# TYPE shunt_exporter_info gauge"))
    );
    // A client that sends nothing more does not keep it.
    let mut silent = std::net::TcpStream::connect(exporter.address()).unwrap();
    silent.write_all(b"GET /metrics HTTP/1.1\r\n").unwrap();
    let pid = exporter.pid();
    mounts::signal(pid, Signal::TERM);
    assert!(within(Duration::from_secs(5), || get(exporter.address(), "*/*").is_none()));
}

#[test]
fn an_address_of_other_machines_is_warned_about() {
    let mut command = binary::command(&["metrics", "--listen", "0.0.0.0:0"]);
    let mut exporter = command
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .map(shunt_test_support::cmd::Ended)
        .unwrap();
    let out = exporter.0.stdout.take().unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut line).unwrap();
    mounts::signal(exporter.0.id(), Signal::TERM);
    let mut output = String::new();
    std::io::Read::read_to_string(&mut exporter.0.stderr.take().unwrap(), &mut output).unwrap();
    assert!(output.contains("readable by other machines"), "{output}");
}
