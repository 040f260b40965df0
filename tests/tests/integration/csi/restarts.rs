//! The end of the plugin is not noticed by pods.

use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use shunt_test_support::cmd::within;
use shunt_test_support::needs_mount;
use shunt_test_support::pace;
use shunt_tests::mounts;

use super::{Node, retried};

const RESTARTS: u32 = 50;

/// The process of a pod: it writes, reads, renames, lists and removes files until it is stopped, and panics at the first error. Returns the
/// longest time of a round.
fn work(at: &Path, stop: &AtomicBool, rounds: &AtomicU64) -> Duration {
    let mut kept =
        OpenOptions::new().create_new(true).read(true).append(true).open(at.join("kept")).expect("create");
    let mut longest = Duration::ZERO;
    while !stop.load(Ordering::Relaxed) {
        let begin = Instant::now();
        let number = rounds.fetch_add(1, Ordering::Relaxed);
        let (one, two) = (at.join(format!("one-{number}")), at.join(format!("two-{number}")));
        let text = format!("round {number}\n").repeat(100);
        let mut file = File::create_new(&one).expect("create");
        file.write_all(text.as_bytes()).expect("write");
        file.sync_all().expect("fsync");
        fs::rename(&one, &two).expect("rename");
        assert_eq!(fs::read_to_string(&two).expect("read"), text);
        fs::metadata(&one).expect_err("renamed");
        kept.write_all(b"x").expect("append to an open file");
        assert_eq!(kept.metadata().expect("fstat").len(), number + 1);
        assert!(fs::read_dir(at).expect("readdir").count() >= 2);
        fs::remove_file(&two).expect("unlink");
        longest = longest.max(begin.elapsed());
    }
    let mut all = String::new();
    kept.seek(SeekFrom::Start(0)).expect("seek");
    kept.read_to_string(&mut all).expect("read an open file");
    assert_eq!(all, "x".repeat(usize::try_from(rounds.load(Ordering::Relaxed)).unwrap()));
    longest
}

/// 50 ends of the plugin, by SIGTERM, by SIGKILL, and by the end of its container, while a pod works. After each, the next plugin is asked
/// for what a kubelet asks after it was started again.
#[test]
fn fifty_restarts_of_the_plugin_break_no_pod() {
    needs_mount!();
    let mut node = Node::new();
    node.start();
    let (busy, other) = (node.create("busy", &[], &[]).unwrap(), node.mirror("other"));
    node.stage(&busy, &[]).unwrap();
    node.publish(&busy).unwrap();
    let daemon = node.stat(&busy)["pid"].clone();
    let (stop, rounds) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let pod = {
        let (at, stop, rounds) = (node.target(&busy), Arc::clone(&stop), Arc::clone(&rounds));
        thread::spawn(move || work(&at, &stop, &rounds))
    };
    let begin = Instant::now();
    for restart in 0..RESTARTS {
        // In the middle of the pod's work.
        let before = rounds.load(Ordering::Relaxed);
        within(pace::seconds(10), || pod.is_finished() || rounds.load(Ordering::Relaxed) > before);
        assert!(!pod.is_finished(), "the pod saw an error after {restart} restarts");
        match restart % 3 {
            0 => node.signal(Signal::KILL),
            1 => node.signal(Signal::TERM),
            _ => node.end_container(),
        }
        node.start();
        retried(|| node.stage(&busy, &[])).unwrap();
        retried(|| node.publish(&busy)).unwrap();
        let stats = retried(|| node.stats(&busy)).unwrap();
        assert!(
            stats.volume_condition.is_some_and(|condition| !condition.abnormal) && !stats.usage.is_empty()
        );
        // The plugin does its work after every tenth restart, too.
        if restart % 10 == 0 {
            retried(|| node.stage(&other, &[])).unwrap();
            retried(|| node.publish(&other)).unwrap();
            fs::write(node.target(&other).join("file"), "text").unwrap();
            retried(|| node.unpublish(&other)).unwrap();
            retried(|| node.unstage(&other)).unwrap();
        }
    }
    let took = begin.elapsed();
    stop.store(true, Ordering::Relaxed);
    let longest = pod.join().expect("the pod saw an error");
    println!(
        "{RESTARTS} restarts in {took:.1?}: {} rounds of the pod, the longest took {longest:.1?}",
        rounds.load(Ordering::Relaxed)
    );
    assert_eq!(node.stat(&busy)["pid"], daemon, "the daemon was replaced");
    assert_eq!(node.stat(&busy)["takeovers"], 0);
    assert_eq!(mounts::count(&node.staging(&busy)), 1);
    assert_eq!(mounts::count(&node.target(&busy)), 1);
    retried(|| node.unpublish(&busy)).unwrap();
    retried(|| node.unstage(&busy)).unwrap();
    retried(|| node.delete(&busy.volume_id)).unwrap();
}

/// A plugin with another binary hands the mounts over when it starts. Open files stay open.
#[test]
fn an_upgrade_of_the_plugin_upgrades_mounts() {
    needs_mount!();
    let mut node = Node::new();
    node.start();
    let volume = node.mirror("kept");
    node.stage(&volume, &[]).unwrap();
    node.publish(&volume).unwrap();
    let mut open = File::create(node.target(&volume).join("open")).unwrap();
    open.write_all(b"one ").unwrap();
    let before = node.stat(&volume);
    node.end_container();
    // Bytes behind the sections of a binary are not loaded.
    let newer = node.path("newer");
    shunt_test_support::copy_program(&node.program, &newer);
    OpenOptions::new().append(true).open(&newer).unwrap().write_all(b"newer").unwrap();
    node.program = newer;
    node.start();
    let upgraded = within(pace::seconds(30), || node.stat(&volume)["takeovers"] == 1);
    let after = node.stat(&volume);
    assert!(upgraded, "{after}: {}", node.log());
    assert_ne!(after["pid"], before["pid"]);
    open.write_all(b"two").unwrap();
    drop(open);
    assert_eq!(fs::read_to_string(node.target(&volume).join("open")).unwrap(), "one two");
    // The guardian still runs the former copy.
    assert_eq!(fs::read_dir(node.path("state/bin")).unwrap().count(), 2);
    retried(|| node.unpublish(&volume)).unwrap();
    retried(|| node.unstage(&volume)).unwrap();
    node.signal(Signal::TERM);
    node.start();
    assert_eq!(fs::read_dir(node.path("state/bin")).unwrap().count(), 1);
}

/// The container of the plugin ends while it mounts. The next plugin makes one mount, or finds it.
#[test]
fn a_plugin_that_ends_while_it_mounts_mounts_once() {
    needs_mount!();
    let mut node = Node::new();
    for delay_ms in [0, 5, 15, 30, 60, 120] {
        node.start();
        let volume = node.mirror(&format!("v{delay_ms}"));
        thread::scope(|scope| {
            let (node, volume) = (&node, &volume);
            let staged = scope.spawn(move || {
                let socket = node.socket();
                let request = shunt_csi::proto::NodeStageVolumeRequest {
                    volume_id: volume.volume_id.clone(),
                    staging_target_path: super::text(&node.staging(volume)),
                    volume_capability: Some(super::capability(shunt_csi::proto::Mode::SingleNodeWriter)),
                    volume_context: volume.volume_context.clone(),
                    ..Default::default()
                };
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(async {
                    let channel = shunt_csi::client::connect(&socket).await.ok()?;
                    shunt_csi::client::NodeClient::new(channel).node_stage_volume(request).await.ok()
                })
            });
            thread::sleep(Duration::from_millis(delay_ms));
            let plugin = node.plugin.as_ref().unwrap().id();
            match &node.cgroups {
                Some(cgroups) => fs::write(cgroups.plugin().join("cgroup.kill"), "1").unwrap(),
                None => drop(mounts::signal(plugin, Signal::KILL)),
            }
            let _ = staged.join();
        });
        node.plugin.take().unwrap().wait().unwrap();
        node.start();
        retried(|| node.stage(&volume, &[])).unwrap();
        assert_eq!(mounts::count(&node.staging(&volume)), 1, "after {delay_ms} ms: {}", node.log());
        retried(|| node.publish(&volume)).unwrap();
        fs::write(node.target(&volume).join("file"), "text").unwrap();
        retried(|| node.unpublish(&volume)).unwrap();
        retried(|| node.unstage(&volume)).unwrap();
        node.signal(Signal::TERM);
    }
}
