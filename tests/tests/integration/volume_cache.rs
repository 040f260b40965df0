//! Cache sizes: pinned, fetched and evicted contents of a node.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;

use shunt_test_support::{needs_mount, run};
use shunt_tests::polling::soon;
use shunt_tests::volume::Mount;
use shunt_tests::{Volume, binary};

const SIZE: usize = 256 << 10;

fn content(n: u8) -> Vec<u8> {
    let mut bytes = vec![n; SIZE];
    blake(n, &mut bytes);
    bytes
}

/// Fills a file with bytes such that no two files share a chunk, and none is zero.
fn blake(n: u8, bytes: &mut [u8]) {
    let mut word = u64::from(n) + 1;
    for byte in bytes {
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        *byte = word as u8;
    }
}

fn fill(at: &Path, count: u8) {
    (0..count).for_each(|n| fs::write(at.join(n.to_string()), content(n)).unwrap());
}

/// Returns the allocated bytes below a directory.
fn on_disk(at: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(at) else { return 0 };
    entries
        .flatten()
        .filter_map(|entry| Some((entry.metadata().ok()?, entry.path())))
        .map(|(metadata, path)| if metadata.is_dir() { on_disk(&path) } else { metadata.blocks() * 512 })
        .sum()
}

#[test]
fn a_cache_with_a_limit_keeps_to_it() {
    needs_mount!();
    let volume = Volume::new();
    let ant = volume.mount_as("ant");
    fill(ant.at(), 16);
    soon(|| ant.status()["pending"] == 0);
    let bee = volume.mount_as_with("bee", &["--cache-size", "1M"]);
    soon(|| fs::read_dir(bee.at()).unwrap().count() == 16);
    let held = bee.at().join("0");
    let open = File::open(&held).unwrap();
    for round in 0..2 {
        for n in 0..16 {
            assert_eq!(fs::read(bee.at().join(n.to_string())).unwrap(), content(n), "{round}: {n}");
        }
    }
    let here = || bee.status()["cached_bytes"].as_u64().unwrap();
    soon(|| here() <= 1 << 20);
    let data = volume.aside().join("cache-bee/data");
    soon(|| on_disk(&data) <= 1 << 20);
    // The open file was not evicted, and is readable offline.
    run(binary::command(&["volume", "offline"]).arg(bee.at())).ok();
    let mut bytes = vec![0; SIZE];
    open.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(bytes, content(0));
    // Contents that are not pushed yet stay, also above the limit.
    (20..30).for_each(|n| fs::write(bee.at().join(n.to_string()), content(n)).unwrap());
    soon(|| bee.status()["unevictable_bytes"].as_u64().unwrap() > 1 << 20);
    assert!(bee.status()["unsent_bytes"].as_u64().unwrap() >= 10 * SIZE as u64);
    (20..30).for_each(|n| assert_eq!(fs::read(bee.at().join(n.to_string())).unwrap(), content(n)));
    run(binary::command(&["volume", "online"]).arg(bee.at())).ok();
    drop(open);
    soon(|| here() <= 1 << 20 && bee.status()["unevictable_bytes"] == 0);
    (20..30).for_each(|n| assert_eq!(fs::read(bee.at().join(n.to_string())).unwrap(), content(n)));
}

#[test]
fn pinned_file_is_downloaded_and_not_evicted() {
    needs_mount!();
    let volume = Volume::new();
    let ant = volume.mount_as("ant");
    fs::create_dir_all(ant.at().join("docs/deep")).unwrap();
    fill(&ant.at().join("docs/deep"), 4);
    fill(ant.at(), 4);
    soon(|| ant.status()["pending"] == 0);
    let bee = volume.mount_as_with("bee", &["--cache-mode", "on-demand"]);
    soon(|| fs::read_dir(bee.at().join("docs/deep")).is_ok_and(|names| names.count() == 4));
    let pin = |word: &str, path: &str| run(binary::command(&["volume", word]).arg(bee.at().join(path)));
    pin("pin", "docs").ok();
    soon(|| bee.status()["cached_bytes"].as_u64() == Some(4 * SIZE as u64));
    assert_eq!(bee.status()["pinned"], serde_json::json!(["docs"]));
    // Files created there later, and those that are moved there.
    fs::write(ant.at().join("docs/new"), content(9)).unwrap();
    fs::rename(ant.at().join("0"), ant.at().join("docs/moved")).unwrap();
    soon(|| bee.status()["pinned_bytes"].as_u64() == Some(6 * SIZE as u64));
    assert!(pin("unpin", "docs/new").fails().contains("a directory above it is pinned"));
    assert!(pin("pin", "nowhere").fails().contains("nowhere"));
    drop(bee);
    let bee = volume.mount_as_with("bee", &["--cache-mode", "on-demand"]);
    run(binary::command(&["volume", "offline"]).arg(bee.at())).ok();
    assert_eq!(fs::read(bee.at().join("docs/new")).unwrap(), content(9));
    assert_eq!(fs::read(bee.at().join("docs/moved")).unwrap(), content(0));
    run(binary::command(&["volume", "unpin"]).arg(bee.at().join("docs"))).ok();
    soon(|| bee.status()["cached_bytes"] == 0);
}

#[test]
fn all_or_nothing_is_kept_by_cache_mode() {
    needs_mount!();
    let volume = Volume::new();
    let ant = volume.mount_as("ant");
    fill(ant.at(), 8);
    soon(|| ant.status()["pending"] == 0);
    let all = volume.mount_as_with("all", &["--cache-mode", "full"]);
    let none = volume.mount_as_with("none", &["--cache-mode", "on-demand"]);
    soon(|| all.status()["cached_bytes"].as_u64() == Some(8 * SIZE as u64));
    soon(|| fs::read(none.at().join("3")).is_ok_and(|bytes| bytes == content(3)));
    soon(|| none.status()["cached_bytes"] == 0);
    for mount in [&all, &none] {
        run(binary::command(&["volume", "offline"]).arg(mount.at())).ok();
    }
    (0..8).for_each(|n| assert_eq!(fs::read(all.at().join(n.to_string())).unwrap(), content(n)));
    // Later files are downloaded by themselves, too.
    run(binary::command(&["volume", "online"]).arg(all.at())).ok();
    fs::write(ant.at().join("8"), content(8)).unwrap();
    soon(|| all.status()["cached_bytes"].as_u64() == Some(9 * SIZE as u64));
}

#[test]
fn offline_miss_is_reported() {
    needs_mount!();
    let volume = Volume::new();
    let ant = volume.mount_as("ant");
    fill(ant.at(), 2);
    soon(|| ant.status()["pending"] == 0);
    let bee = volume.mount_as("bee");
    soon(|| fs::read(bee.at().join("0")).is_ok_and(|bytes| bytes == content(0)));
    run(binary::command(&["volume", "offline"]).arg(bee.at())).ok();
    let asked = std::time::Instant::now();
    let error = fs::read(bee.at().join("1")).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::NETUNREACH.raw_os_error()));
    assert!(asked.elapsed() < shunt_test_support::pace::seconds(2));
    assert_eq!(bee.status()["offline_miss_paths"], serde_json::json!(["1"]));
    let status = bee.status();
    assert!(status["offline_misses"].as_u64().unwrap() > 0);
    assert_eq!((&status["unmet"], &status["role"]), (&status["offline_misses"], &status["cache_mode"]));
    let output = run(binary::command(&["volume", "status"]).arg(bee.at())).ok();
    assert!(output.contains("offline misses  ") && output.contains("(mode: cached)"), "{output}");
    run(binary::command(&["volume", "online"]).arg(bee.at())).ok();
    soon(|| fs::read(bee.at().join("1")).is_ok_and(|bytes| bytes == content(1)));
    assert_eq!(bee.status()["offline_miss_paths"], serde_json::json!([]));
}

#[test]
fn read_file_is_available_offline_in_newest_version() {
    needs_mount!();
    let volume = Volume::new();
    let (ant, bee) = (volume.mount_as("ant"), volume.mount_as("bee"));
    fill(ant.at(), 3);
    let (report, written) = (bee.at().join("0"), bee.at().join("written"));
    soon(|| fs::read(&report).is_ok_and(|bytes| bytes == content(0)));
    fs::write(&written, content(7)).unwrap();
    soon(|| fs::read(ant.at().join("written")).is_ok_and(|bytes| bytes == content(7)));
    let here = || bee.status()["cached_bytes"].as_u64().unwrap();
    soon(|| here() == 2 * SIZE as u64);
    let changed = [content(8), content(9)].concat();
    for name in ["0", "1", "written"] {
        fs::write(ant.at().join(name), &changed).unwrap();
    }
    soon(|| fs::metadata(bee.at().join("1")).is_ok_and(|meta| meta.len() == changed.len() as u64));
    soon(|| here() == 4 * SIZE as u64);
    run(binary::command(&["volume", "offline"]).arg(bee.at())).ok();
    for path in [report, written] {
        assert!(fs::read(&path).unwrap() == changed, "{}", path.display());
    }
    let error = fs::read(bee.at().join("1")).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::NETUNREACH.raw_os_error()));
}

#[test]
fn contents_are_encrypted_by_a_key_that_is_in_no_store() {
    needs_mount!();
    let volume = Volume::new();
    let key = volume.aside().join("key");
    let command = |words: &[&str]| {
        let mut command = binary::command(words);
        command
            .env("XDG_DATA_HOME", volume.aside())
            .env("HOME", volume.aside())
            .env_remove("XDG_CONFIG_HOME");
        command
    };
    run(command(&["volume", "create", "diary", "--encrypt", "--key-file"]).arg(&key)).ok();
    assert_eq!(fs::metadata(&key).unwrap().mode() & 0o777, 0o600);
    let at = volume.aside().join("mnt");
    let mount = |node: &str| {
        let mut command = command(&["volume", "mount", "--daemon", "--node", node, "diary"]);
        command.arg(&at).arg("--cache").arg(volume.aside().join(format!("of-{node}")));
        command
    };
    assert!(run(&mut mount("ant")).fails().contains("is encrypted: give its key with --key-file FILE"));
    let wrong = volume.aside().join("wrong");
    fs::write(&wrong, "0".repeat(64)).unwrap();
    assert!(
        run(mount("ant").arg("--key-file").arg(&wrong)).fails().contains("others can read it: chmod 600")
    );
    fs::set_permissions(&wrong, fs::metadata(&key).unwrap().permissions()).unwrap();
    assert!(run(mount("ant").arg("--key-file").arg(&wrong)).fails().contains("wrong key for volume"));
    fs::write(&wrong, "no key").unwrap();
    assert!(run(mount("ant").arg("--key-file").arg(&wrong)).fails().contains("not a volume key"));

    run(mount("ant").arg("--key-file").arg(&key)).ok();
    let mounted = Mount::of(&at);
    let text = "plain words ".repeat(10_000);
    fs::write(at.join("page"), &text).unwrap();
    soon(|| mounted.status()["pending"] == 0);
    drop(mounted);
    run(mount("bee").arg("--key-file").arg(&key)).ok();
    let mounted = Mount::of(&at);
    soon(|| fs::read_to_string(at.join("page")).is_ok_and(|read| read == text));
    drop(mounted);
    // The secret is in no store, and neither is the text.
    let secret = fs::read_to_string(&key).unwrap();
    let mut files = vec![volume.aside().join("shunt/volumes/diary")];
    while let Some(path) = files.pop() {
        if path.is_dir() {
            files.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            continue;
        }
        let bytes = fs::read(&path).unwrap();
        let holds = |what: &[u8]| bytes.windows(what.len()).any(|window| window == what);
        assert!(!holds(b"plain words") && !holds(secret.trim().as_bytes()), "{}", path.display());
    }
    run(command(&["volume", "check", "--read", "diary", "--key-file"]).arg(&key)).ok();
}
