//! csi-sanity, the tests of the Kubernetes project for CSI plugins.

use std::fs;
use std::process::Command;

use shunt_test_support::tools::tool;
use shunt_test_support::{needs_mount, run_for, skip};
use shunt_tests::mounts;

use super::Node;

#[test]
fn csi_sanity_with_mirrors() {
    needs_mount!();
    passes("kind: mirror\ncache: exclusive\n");
}

#[test]
fn csi_sanity_with_volumes() {
    needs_mount!();
    passes("kind: volume\n");
}

fn passes(parameters: &str) {
    let Some(sanity) = tool("csi-sanity") else { return skip::skip("no csi-sanity: run tests/setup") };
    let mut node = Node::new();
    node.start();
    let file = node.path("parameters.yaml");
    fs::write(&file, parameters).unwrap();
    let mut sanity = Command::new(sanity);
    sanity.arg("--csi.endpoint").arg(node.socket()).arg("--csi.testvolumeparameters").arg(&file);
    sanity.arg("--csi.mountdir").arg(node.path("pods/mount")).arg("--csi.stagingdir");
    sanity.arg(node.path("pods/staging")).arg("--ginkgo.no-color");
    let output = run_for(100, &mut sanity).ok();
    let summary = output.lines().find(|line| line.starts_with("Ran ")).unwrap_or_default();
    let ran: u32 = summary.split(' ').nth(1).and_then(|number| number.parse().ok()).unwrap_or(0);
    println!("csi-sanity: {summary}");
    assert!(ran >= 40, "few tests ran: {output}");
    assert_eq!(mounts::count(&node.path("pods/staging")), 0);
    // Everything it created is deleted.
    let left: Vec<_> =
        fs::read_dir(node.path("base")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, [".shunt-csi"]);
    node.signal(rustix::process::Signal::TERM);
}
