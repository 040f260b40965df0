//! What was: the log of a mounted volume.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use shunt_tests::cmd::within;
use shunt_tests::{Volume, binary, needs_mount, run};

const MOST: Duration = Duration::from_secs(30);

#[track_caller]
fn soon(what: impl Fn() -> bool) {
    assert!(within(MOST, what), "it does not come");
}

fn log(words: &[&str], at: &Path) -> Vec<(String, String, String)> {
    let said = run(binary::command(&["volume", "log", "--json"]).args(words).arg(at)).ok();
    let all: Vec<serde_json::Value> = serde_json::from_str(&said).unwrap();
    let commits = all.iter().flat_map(|commit| {
        let node = commit["node"].as_str().unwrap();
        assert!(commit["seq"].is_u64() && commit["at"].as_str().unwrap().ends_with('Z'), "{commit}");
        commit["changes"].as_array().unwrap().iter().map(move |change| {
            let word = |key: &str| change[key].as_str().unwrap_or_default().to_owned();
            (format!("{node} {}", word("what")), word("path"), word("detail"))
        })
    });
    commits.collect()
}

#[test]
fn the_log_says_who_did_what_to_which_path() {
    needs_mount!();
    let volume = Volume::new();
    let (ant, bee) = (volume.mount_as("ant"), volume.mount_as("bee"));
    let at = ant.at();
    let settled = || soon(|| ant.status()["pending"] == 0);
    fs::create_dir(at.join("old")).unwrap();
    // Empty, since one that is made and written may come to one commit or to two.
    fs::File::create(at.join("old/file")).unwrap();
    settled();
    fs::write(at.join("old/file"), "twelve bytes").unwrap();
    settled();
    fs::set_permissions(at.join("old/file"), Permissions::from_mode(0o600)).unwrap();
    settled();
    fs::rename(at.join("old"), at.join("new")).unwrap();
    settled();
    soon(|| bee.at().join("new/file").exists());
    let said: Vec<_> = [
        ("ant moved", "new", "from old"),
        ("ant mode", "old/file", "0600"),
        ("ant wrote", "old/file", "12 bytes"),
        ("ant made", "old/file", "file"),
        ("ant made", "old", "directory"),
    ]
    .into_iter()
    .map(|(what, path, detail)| (what.to_owned(), path.to_owned(), detail.to_owned()))
    .collect();
    assert_eq!(log(&[], at), said);
    assert_eq!(log(&["-n", "3"], bee.at()), said[..3]);
    assert_eq!(log(&["-n", "1"], &at.join("new")), said[..1]);
    assert_eq!(log(&[], &at.join("old/file")), said[1..4]);
    let shown = run(binary::command(&["volume", "log"]).arg(at)).ok();
    assert!(shown.lines().next().is_some_and(|line| line.contains("moved    new  (from old)")), "{shown}");
    let said = run(binary::command(&["volume", "log"]).arg(volume.aside())).fails();
    assert!(said.contains("is not in a mounted volume"), "{said}");
}
