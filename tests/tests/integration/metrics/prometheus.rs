//! A real Prometheus scrapes, evaluates the alert rules and the dashboard, and `promtool` finds nothing to criticise.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use shunt_test_support::cmd::{Ended, within};
use shunt_test_support::tools::tool;
use shunt_test_support::{needs_mount, port, requirement, run};
use shunt_tests::exporter::{Exporter, fetch, get};
use shunt_tests::fixture::{Fixture, Plan};
use shunt_tests::image::Image;
use shunt_tests::volume::Volume;
use shunt_tests::{binary, mounts};

use super::contrib::{dashboard, documented};

/// Metrics that these mounts do not have: of gateways, of the extension, of takeovers, and limits that are not set.
const ABSENT: [&str; 6] = [
    "shunt_extension_hits_total",
    "shunt_extension_misses_total",
    "shunt_takeover_pause_seconds",
    "shunt_volume_cache_limit_bytes",
    "shunt_volume_quota_bytes",
    "shunt_volume_quota_objects",
];
/// Metrics that exist once they are measured.
const MEASURED: [&str; 2] =
    ["shunt_volume_store_latency_seconds", "shunt_volume_download_rate_bytes_per_second"];

struct Prometheus {
    _process: Ended,
    _dir: tempfile::TempDir,
    address: String,
}

impl Prometheus {
    fn start(program: &Path, target: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let rules = contrib("shunt-alerts.yml");
        let config = format!(
            "global: {{ scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s }}\nrule_files: [ {} ]\n\
             scrape_configs: [ {{ job_name: shunt, static_configs: [ {{ targets: [ \"{target}\" ] }} ] }} ]\n",
            rules.display()
        );
        fs::write(dir.path().join("prometheus.yml"), config).unwrap();
        let address = format!("127.0.0.1:{}", port::reserve());
        let process = Command::new(program)
            .arg(format!("--config.file={}", dir.path().join("prometheus.yml").display()))
            .arg(format!("--storage.tsdb.path={}", dir.path().join("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self { _process: Ended(process), _dir: dir, address }
    }

    fn api(&self, path: &str) -> Option<Value> {
        let reply: Value = serde_json::from_str(&fetch(&self.address, path, "*/*")?).ok()?;
        (reply["status"] == "success").then(|| reply["data"].clone())
    }

    /// The values of an expression; `None` if Prometheus refuses it.
    fn query(&self, expression: &str) -> Option<Vec<Value>> {
        let encoded: String = expression.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let data = self.api(&format!("/api/v1/query?query={encoded}"))?;
        Some(data["result"].as_array()?.clone())
    }

    fn names(&self) -> BTreeSet<String> {
        let data = self.api("/api/v1/label/__name__/values").unwrap_or_default();
        let names = data.as_array().into_iter().flatten().filter_map(Value::as_str);
        names.map(|name| name.strip_suffix("_bucket").unwrap_or(name).to_owned()).collect()
    }
}

fn contrib(name: &str) -> PathBuf {
    binary::root().join("contrib/prometheus").join(name)
}

#[test]
#[ignore = "needs Prometheus: make test-metrics"]
fn prometheus_scrapes_and_evaluates_the_rules() {
    needs_mount!();
    let programs = tool("prometheus").zip(tool("promtool"));
    requirement!(programs.is_some(), "not installed: prometheus (run tests/setup --prometheus)");
    let (program, promtool) = programs.unwrap();
    for arguments in [
        ["check", "rules", "shunt-alerts.yml"],
        ["test", "rules", "shunt-alerts.test.yml"],
        ["check", "config", "prometheus.yml"],
    ] {
        run(Command::new(&promtool).args(&arguments[..2]).arg(contrib(arguments[2]))).ok();
    }

    let mirror = Plan::daemon().set().unwrap();
    let image = Image::make(&["-b", "4096"], 64).unwrap();
    let disk = image.by_shunt(&[]);
    let volume = Volume::new();
    let node = volume.mount_as("one");
    for at in [mirror.mnt(), disk.at(), node.at()] {
        fs::write(at.join("file"), vec![1; 100_000]).unwrap();
        assert!(fs::metadata(at.join("none")).is_err());
    }
    let exporter = Exporter::start();
    checked_by(&promtool, &get(exporter.address(), "*/*").unwrap());
    let prometheus = Prometheus::start(&program, exporter.address());
    let up = || prometheus.query("count(shunt_mount_up == 1)").is_some_and(|result| !result.is_empty());
    assert!(within(Duration::from_secs(60), up), "Prometheus does not scrape");
    let is_up = prometheus.query("up{job=\"shunt\"}").unwrap();
    assert_eq!(is_up[0]["value"][1], "1");

    let healthy = || {
        let groups = prometheus.api("/api/v1/rules")?["groups"].as_array()?.clone();
        let rules: Vec<Value> =
            groups.iter().flat_map(|group| group["rules"].as_array().cloned().unwrap_or_default()).collect();
        Some(rules.len() >= 15 && rules.iter().all(|rule| rule["health"] == "ok"))
    };
    assert!(
        within(Duration::from_secs(60), || healthy() == Some(true)),
        "{:?}",
        prometheus.api("/api/v1/rules")
    );
    every_metric_exists(&prometheus);
    for expression in dashboard() {
        let mut asked = expression.replace("$__rate_interval", "1m").replace("$__range", "1h");
        for variable in ["$instance", "$mount", "$gateway"] {
            asked = asked.replace(variable, ".*");
        }
        assert!(prometheus.query(&asked).is_some(), "Prometheus refuses {expression}");
    }
    a_stopped_daemon_is_an_alert(&prometheus, &mirror);
}

/// Has the linter of Prometheus check names, types and help texts.
fn checked_by(promtool: &Path, text: &str) {
    let mut check = Command::new(promtool);
    check.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut check = check.spawn().unwrap();
    check.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let done = check.wait_with_output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

/// Each documented metric exists, unless these mounts do not have it.
fn every_metric_exists(prometheus: &Prometheus) {
    let scraped = prometheus.names();
    let documented = documented();
    let is_excused = |name: &&String| {
        name.starts_with("shunt_gateway_")
            || ABSENT.contains(&name.as_str())
            || MEASURED.contains(&name.as_str())
    };
    let missing: Vec<_> = documented.difference(&scraped).filter(|name| !is_excused(name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
    let histogram = |name: &&String| name.ends_with("_sum") || name.ends_with("_count");
    let ours = scraped.iter().filter(|name| name.starts_with("shunt_") && !histogram(name));
    let unknown: Vec<_> = ours.filter(|name| !documented.contains(*name)).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}

fn a_stopped_daemon_is_an_alert(prometheus: &Prometheus, mirror: &Fixture) {
    let pid = mirror.server().unwrap();
    mounts::stop(pid);
    let alert = format!("ALERTS{{alertname=\"ShuntMountDown\",mount=\"{}\"}}", mirror.mnt().display());
    let pending =
        within(Duration::from_secs(60), || prometheus.query(&alert).is_some_and(|found| !found.is_empty()));
    mounts::signal(pid, Signal::CONT);
    assert!(pending);
    let over = || prometheus.query(&alert).is_some_and(|found| found.is_empty());
    assert!(within(Duration::from_secs(60), over));
}
