//! A report of `shunt doctor --json`, and its schema.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::Value;
use shunt_test_support::run_for;
use shunt_tests::{binary, mount_namespace};

/// The report, and the exit code.
pub struct Report {
    pub json: Value,
    pub code: i32,
}

impl Report {
    /// Runs `shunt doctor --json`.
    pub fn new() -> Self {
        Self::of(&mut binary::command(&["doctor", "--json"]))
    }

    /// Runs a command that prints a report.
    pub fn of(command: &mut Command) -> Self {
        let ran = run_for(60, command);
        let code = ran.status.and_then(|status| status.code());
        let json = serde_json::from_str(&ran.out).unwrap_or_else(|error| panic!("{error}: {ran:?}"));
        let report = Report { json, code: code.expect("an exit code") };
        report.check();
        report
    }

    fn findings(&self) -> &Vec<Value> {
        self.json["findings"].as_array().expect("an array")
    }

    /// Returns the finding of a check whose message contains `text`.
    pub fn find(&self, check: &str, text: &str) -> Option<&Value> {
        let matches = |finding: &&Value| {
            finding["check"] == check && finding["message"].as_str().is_some_and(|m| m.contains(text))
        };
        self.findings().iter().find(matches)
    }

    /// Asserts that there is such a finding of a level, and returns its remedy.
    #[track_caller]
    pub fn has(&self, check: &str, level: &str, text: &str) -> &str {
        let finding = self.find(check, text).unwrap_or_else(|| panic!("no {check} {text}: {:#}", self.json));
        assert_eq!(finding["level"], level, "{finding:#}");
        finding["fix"].as_str().unwrap_or_default()
    }

    /// Asserts the documented schema.
    #[track_caller]
    fn check(&self) {
        let count = |level: &str| self.findings().iter().filter(|finding| finding["level"] == level).count();
        assert_eq!(self.json["version"], env!("CARGO_PKG_VERSION"));
        assert_eq!(self.json["errors"], count("error"));
        assert_eq!(self.json["warnings"], count("warning"));
        assert_eq!(self.code, i32::from(count("error") > 0), "{:#}", self.json);
        for finding in self.findings() {
            let keys: Vec<_> = finding.as_object().unwrap().keys().map(String::as_str).collect();
            let sorted: BTreeSet<_> = keys.into_iter().collect();
            let wanted = ["check", "effect", "fix", "level", "message", "products"];
            assert_eq!(sorted, BTreeSet::from(wanted), "{finding:#}");
            let level = finding["level"].as_str().unwrap();
            assert!(["ok", "note", "warning", "error"].contains(&level), "{finding:#}");
            let (group, name) = finding["check"].as_str().unwrap().split_once('.').unwrap();
            let groups = ["kernel", "privileges", "limits", "modules", "mounts", "environment"];
            assert!(groups.contains(&group) && !name.is_empty(), "{finding:#}");
            assert!(!finding["message"].as_str().unwrap().contains('\n'), "{finding:#}");
            let products = finding["products"].as_array().unwrap();
            assert_eq!(products.is_empty(), level == "ok", "{finding:#}");
            assert_eq!(finding["effect"].is_null(), level == "ok", "{finding:#}");
            assert!(products.iter().all(|p| ["mirror", "ext4", "volume"].contains(&p.as_str().unwrap())));
            let is_fault = ["warning", "error"].contains(&level);
            assert!(!is_fault || finding["fix"].is_string(), "a fault without a remedy: {finding:#}");
        }
    }
}

#[test]
fn a_machine_without_faults_has_no_errors() {
    mount_namespace::alone("", || {
        let report = Report::new();
        assert_eq!((report.code, &report.json["errors"]), (0, &0.into()), "{:#}", report.json);
        report.has("mounts.sockets", "ok", "no dead mounts and no stale sockets");
        let page = run_for(60, &mut binary::command(&["doctor"])).ok();
        assert!(page.starts_with("kernel\n  ok       Linux ") && page.contains("\n0 errors, "), "{page}");
        let quiet = run_for(60, &mut binary::command(&["doctor", "--quiet"])).ok();
        assert!(!quiet.contains("  ok ") && !quiet.contains("  note "), "{quiet}");
    });
}

#[test]
fn a_full_output_is_a_failure() {
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let status = binary::command(&["doctor"]).stdout(full).stderr(std::process::Stdio::null()).status();
    assert_eq!(status.unwrap().code(), Some(1));
}
