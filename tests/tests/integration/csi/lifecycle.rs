//! Staging and publishing: repeated calls, read-only, dead daemons, and mounts of the host.

use std::fs;
use std::io::ErrorKind;
use std::process::Command;

use shunt_csi::proto::Volume;
use shunt_test_support::cmd::within;
use shunt_test_support::pace;
use shunt_test_support::{needs_mount, requirement};
use shunt_tests::mounts;
use tonic::Code;

use super::{Node, map, retried, text};

fn code<T: std::fmt::Debug>(result: Result<T, tonic::Status>) -> Code {
    result.unwrap_err().code()
}

#[test]
fn a_volume_is_shown_to_pods_until_it_is_unstaged() {
    needs_mount!();
    let mut node = Node::new();
    node.start();
    let volume = node.mirror("data");
    assert_eq!(code(node.publish(&volume)), Code::FailedPrecondition);
    for _ in 0..2 {
        node.stage(&volume, &[]).unwrap();
        node.publish(&volume).unwrap();
    }
    assert_eq!((mounts::count(&node.staging(&volume)), mounts::count(&node.target(&volume))), (1, 1));
    fs::write(node.target(&volume).join("file"), "text").unwrap();
    assert_eq!(fs::read_to_string(node.path("source-data/file")).unwrap(), "text");

    let second = node.path("pods/second");
    node.publish_at(&volume, &second, true).unwrap();
    node.publish_at(&volume, &second, true).unwrap();
    assert_eq!(fs::write(second.join("file"), "other").unwrap_err().kind(), ErrorKind::ReadOnlyFilesystem);
    assert_eq!(fs::read_to_string(second.join("file")).unwrap(), "text");
    fs::write(node.target(&volume).join("file"), "text").unwrap();
    assert_eq!(code(node.publish_at(&volume, &second, false)), Code::AlreadyExists);
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let line = table.lines().find(|line| line.contains(&format!(" {} ", second.display()))).unwrap();
    let options: Vec<&str> = line.split(' ').nth(5).unwrap().split(',').collect();
    assert!(["ro", "nosuid", "nodev"].iter().all(|option| options.contains(option)), "{line}");

    assert_eq!(code(node.unstage(&volume)), Code::FailedPrecondition);
    for _ in 0..2 {
        node.unpublish_at(&volume, &second).unwrap();
        node.unpublish(&volume).unwrap();
    }
    assert!(!second.exists() && !node.target(&volume).exists());
    let processes = node.processes(&volume);
    assert!(!processes.is_empty());
    node.unstage(&volume).unwrap();
    node.unstage(&volume).unwrap();
    assert!(within(pace::seconds(10), || !processes.iter().any(|pid| mounts::alive(*pid))));
    assert_eq!(fs::read_dir(node.path("state/staged")).unwrap().count(), 0);
    assert_eq!(fs::read_dir(node.path("state/logs")).unwrap().count(), 0);
}

#[test]
fn other_attributes_and_other_mounts_are_refused() {
    needs_mount!();
    let mut node = Node::new();
    node.start();
    let volume = node.mirror("data");
    node.stage(&volume, &[]).unwrap();
    let mut changed = volume.clone();
    changed.volume_context.insert("cache".to_owned(), "none".to_owned());
    assert_eq!(code(node.stage(&changed, &[])), Code::AlreadyExists);
    node.unstage(&volume).unwrap();

    for (wrong, expected) in [
        (map(&[("kind", "mirror"), ("source", "/nowhere/at/all")]), Code::NotFound),
        (
            map(&[("kind", "mirror"), ("source", &text(&node.path("base"))), ("cache", "often")]),
            Code::InvalidArgument,
        ),
        (
            map(&[("kind", "mirror"), ("source", &text(&node.path("base"))), ("policy", "/nowhere")]),
            Code::Internal,
        ),
        (map(&[("kind", "volume"), ("volume", "nothing"), ("meta", "sqlite:/nowhere")]), Code::Internal),
    ] {
        let volume = Volume { volume_id: "wrong".to_owned(), volume_context: wrong, ..Volume::default() };
        let failure = node.stage(&volume, &[]).unwrap_err();
        assert_eq!(failure.code(), expected, "{failure}");
        assert!(!failure.message().contains('\n') && failure.message().len() > 10, "{failure}");
        assert_eq!(mounts::count(&node.staging(&volume)), 0);
        node.unstage(&volume).unwrap();
    }
}

#[test]
fn a_dead_mount_is_reported_and_repaired() {
    needs_mount!();
    let mut node = Node::new();
    node.start();
    let volume = node.mirror("data");
    for by_stage in [true, false] {
        node.stage(&volume, &[]).unwrap();
        node.publish(&volume).unwrap();
        fs::write(node.target(&volume).join("file"), "text").unwrap();
        assert!(!node.stats(&volume).unwrap().volume_condition.unwrap().abnormal);
        node.kill_daemon(&volume);
        let failure = fs::metadata(node.target(&volume).join("file")).unwrap_err().kind();
        // The latter where the call was under way when the guardian aborted the connection.
        assert!(matches!(failure, ErrorKind::NotConnected | ErrorKind::ConnectionAborted), "{failure:?}");
        let condition = node.stats(&volume).unwrap().volume_condition.unwrap();
        assert!(condition.abnormal && condition.message.contains("no daemon"), "{condition:?}");
        if by_stage {
            node.stage(&volume, &[]).unwrap();
            // The pod still has the dead file system.
            assert!(node.stats(&volume).unwrap().volume_condition.unwrap().abnormal);
        }
        node.publish(&volume).unwrap();
        assert_eq!(fs::read_to_string(node.target(&volume).join("file")).unwrap(), "text");
        assert!(!node.stats(&volume).unwrap().volume_condition.unwrap().abnormal);
        assert_eq!((mounts::count(&node.staging(&volume)), mounts::count(&node.target(&volume))), (1, 1));
        node.unpublish(&volume).unwrap();
        node.unstage(&volume).unwrap();
    }
}

/// The plugin in a mount namespace of its own, as in a container, makes mounts that the host has.
#[test]
fn mounts_are_made_in_the_namespaces_of_the_host() {
    needs_mount!();
    let mut node = Node::new();
    let inner = node.command();
    let mut command = Command::new("unshare");
    command.args(["--mount", "--uts", "--ipc", "--propagation", "private"]).arg(inner.get_program());
    command
        .args(inner.get_args())
        .arg("--host-namespaces")
        .arg("--host-pid")
        .arg(std::process::id().to_string());
    node.start_as(command);
    let plugin = node.plugin.as_ref().unwrap().id();
    let namespace = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/mnt")).unwrap();
    assert_eq!(namespace(&plugin.to_string()), namespace("self"));
    let volume = node.mirror("data");
    node.stage(&volume, &[]).unwrap();
    node.publish(&volume).unwrap();
    fs::write(node.target(&volume).join("file"), "text").unwrap();
    assert_eq!(fs::read_to_string(node.path("source-data/file")).unwrap(), "text");
    node.end_container();
    fs::write(node.target(&volume).join("file"), "more").unwrap();
    node.start();
    retried(|| node.unpublish(&volume)).unwrap();
    retried(|| node.unstage(&volume)).unwrap();
}

#[test]
fn daemons_are_in_cgroups_of_their_own() {
    needs_mount!();
    let mut node = Node::new();
    requirement!(node.cgroups.is_some(), "no cgroups of version 2 with cgroup.kill");
    node.start();
    let volume = node.mirror("data");
    node.stage(&volume, &[]).unwrap();
    let cgroups = node.cgroups.as_ref().unwrap();
    let own: Vec<_> =
        fs::read_dir(cgroups.mounts()).unwrap().flatten().filter(|entry| entry.path().is_dir()).collect();
    let [own] = own.as_slice() else { panic!("{own:?}") };
    let members = fs::read_to_string(own.path().join("cgroup.procs")).unwrap();
    let members: Vec<u32> = members.lines().map(|pid| pid.parse().unwrap()).collect();
    let daemon = u32::try_from(node.stat(&volume)["pid"].as_u64().unwrap()).unwrap();
    assert!(members.contains(&daemon) && members.len() >= 2, "{members:?}");
    assert!(node.processes(&volume).iter().all(|pid| members.contains(pid)));
    let own = own.path();
    node.unstage(&volume).unwrap();
    assert!(
        within(pace::seconds(5), || !own.exists())
            || fs::read_to_string(own.join("cgroup.procs")).unwrap().is_empty()
    );
}
