//! Volumes: provisioned in a directory, encrypted, with secrets.

use std::fs;

use shunt_test_support::needs_mount;
use shunt_tests::mounts;
use tonic::Code;

use super::{Node, retried};

const KEY: &str = "0b5c1f9f6d2e4a7788990a1b2c3d4e5f60718293a4b5c6d7e8f9011223344556";

#[test]
fn a_provisioned_volume_keeps_its_files() {
    needs_mount!();
    let mut node = Node::new();
    node.start();
    let parameters = [("kind", "volume"), ("cacheMode", "full")];
    let volume = node.create("pvc-1", &parameters, &[]).unwrap();
    assert_eq!(node.create("pvc-1", &parameters, &[]).unwrap(), volume);
    assert_eq!(node.create("pvc-1", &[("kind", "mirror")], &[]).unwrap_err().code(), Code::AlreadyExists);
    for text in ["one", "two"] {
        node.stage(&volume, &[]).unwrap();
        node.publish(&volume).unwrap();
        if text == "two" {
            assert_eq!(fs::read_to_string(node.target(&volume).join("file")).unwrap(), "one");
        }
        fs::write(node.target(&volume).join("file"), text).unwrap();
        assert_eq!(node.delete(&volume.volume_id).unwrap_err().code(), Code::FailedPrecondition);
        node.unpublish(&volume).unwrap();
        node.unstage(&volume).unwrap();
    }
    node.delete(&volume.volume_id).unwrap();
    node.delete(&volume.volume_id).unwrap();
    assert!(!node.path("base/pvc-1").exists());
}

/// Secrets are in no command line, no log, no record, and after the volume was unstaged in no file.
#[test]
fn secrets_stay_secret() {
    needs_mount!();
    let mut node = Node::new();
    node.start();
    let parameters = [("kind", "volume"), ("encrypt", "true")];
    assert_eq!(node.create("pvc-2", &parameters, &[]).unwrap_err().code(), Code::InvalidArgument);
    let secrets = [("key", KEY), ("AWS_SECRET_ACCESS_KEY", "hushhush")];
    let volume = node.create("pvc-2", &parameters, &secrets).unwrap();
    node.stage(&volume, &[]).expect_err("without its key");
    node.stage(&volume, &secrets).unwrap();
    node.publish(&volume).unwrap();
    fs::write(node.target(&volume).join("file"), "text").unwrap();
    let daemons = mounts::processes_naming(&node.staging(&volume));
    assert!(!daemons.is_empty());
    for pid in daemons {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap();
        assert!(!String::from_utf8_lossy(&line).contains("hush"));
        assert!(!String::from_utf8_lossy(&line).contains(KEY));
    }
    let holders = files_with(&node, &["hushhush", KEY]);
    assert!(
        holders.iter().all(|path| path.ends_with(".key") && path.contains("/state/keys/")),
        "{holders:?}"
    );
    assert_eq!(holders.len(), 1);
    // The daemon dies: the plugin needs the secrets again.
    node.kill_daemon(&volume);
    assert_eq!(node.publish(&volume).unwrap_err().code(), Code::FailedPrecondition);
    node.stage(&volume, &secrets).unwrap();
    node.publish(&volume).unwrap();
    assert_eq!(fs::read_to_string(node.target(&volume).join("file")).unwrap(), "text");
    node.unpublish(&volume).unwrap();
    node.unstage(&volume).unwrap();
    assert_eq!(files_with(&node, &["hushhush", KEY]), [""; 0]);
    retried(|| node.delete(&volume.volume_id)).unwrap();
}

/// Files of the node's directories that contain one of these texts.
fn files_with(node: &Node, needles: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    let mut todo = vec![node.path("state"), node.path("base"), node.path("plugin.log")];
    while let Some(path) = todo.pop() {
        if path.is_dir() {
            todo.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else if !path.starts_with(node.path("state/bin")) {
            let content = fs::read(&path).unwrap_or_default();
            let content = String::from_utf8_lossy(&content);
            if needles.iter().any(|needle| content.contains(needle)) {
                found.push(path.display().to_string());
            }
        }
    }
    found
}
