//! The alert rules and the dashboard name metrics that exist.

use std::collections::BTreeSet;
use std::fs;

use shunt_tests::binary;

/// The metrics in the book, which a unit test compares with the code.
pub fn documented() -> BTreeSet<String> {
    let page = fs::read_to_string(binary::root().join("docs/src/guide/monitoring.md")).unwrap();
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `shunt_"));
    rows.map(|row| format!("shunt_{}", row.split('`').next().unwrap())).collect()
}

/// The expressions of the dashboard.
pub fn dashboard() -> Vec<String> {
    let text = fs::read_to_string(binary::root().join("contrib/grafana/shunt.json")).unwrap();
    let dashboard: serde_json::Value = serde_json::from_str(&text).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().cloned().unwrap_or_default());
    let expressions = targets.map(|target| target["expr"].clone());
    let others =
        dashboard["annotations"]["list"].as_array().unwrap().iter().map(|entry| entry["expr"].clone());
    expressions.chain(others).map(|expression| expression.as_str().unwrap().to_owned()).collect()
}

/// The metrics that a text names; of histograms without `_bucket`.
pub fn named(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let names = words.filter(|word| word.starts_with("shunt_"));
    names.map(|name| name.strip_suffix("_bucket").unwrap_or(name).to_owned()).collect()
}

#[test]
fn rules_and_dashboard_name_documented_metrics() {
    let documented = documented();
    assert!(documented.len() > 60, "{documented:?}");
    let rules = fs::read_to_string(binary::root().join("contrib/prometheus/shunt-alerts.yml")).unwrap();
    let variables = fs::read_to_string(binary::root().join("contrib/grafana/shunt.json")).unwrap();
    let used = named(&[rules, dashboard().join(" "), variables].join(" "));
    let unknown: Vec<_> = used.difference(&documented).collect();
    assert!(used.len() > 40 && unknown.is_empty(), "{unknown:?}");
}
