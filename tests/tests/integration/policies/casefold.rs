//! Policies on case-insensitive sources, where a name has several spellings.

use std::fs;

use rustix::io::Errno;
use shunt_test_support::{User, needs_mount, run};
use shunt_tests::binary::command;
use shunt_tests::casefold_fs::{CasefoldMount, KEY};
use shunt_tests::fixture::Plan;

use super::GUEST;

#[test]
fn no_spelling_leads_past_the_rules() {
    needs_mount!();
    let rules = format!(
        "[[rule]]\npath = \"/out/secret/**\"\nuid = {GUEST}\naction = \"hide\"\n\
         [[rule]]\npath = \"/private/secret/**\"\nuid = {GUEST}\naction = \"hide\"\n"
    );
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("policy.toml");
    fs::write(&file, rules).unwrap();
    let plan = Plan::tmpfs().args(&["--policy", file.to_str().unwrap()]).unmounted();
    let Some(mut s) = plan.set_or_skip() else { return };
    ["out", "private", "free"].iter().for_each(|dir| fs::create_dir(s.lower(dir)).unwrap());
    let mounts = ["out", "free"].map(|dir| CasefoldMount::at(&s.lower(dir)));
    s.mount();
    let read = |dir: &str, name: &str| {
        let path = s.path(dir).join(name).join("key");
        User::new(GUEST).run(|| fs::read(path))
    };
    for name in ["secret", "Secret", "SECRET", "\u{17f}ecret", "absent"] {
        let lower = fs::read(s.lower("out").join(name).join("key"));
        assert_eq!(lower.is_ok(), name != "absent", "the source finds {name}");
        let error = read("out", name).expect_err(name);
        assert_eq!(Errno::from_io_error(&error), Some(Errno::ACCESS), "{name}");
    }
    assert_eq!(read("free", "Secret").unwrap(), KEY);
    // Elsewhere the rules decide as usual.
    fs::create_dir(s.lower("private/secret")).unwrap();
    fs::write(s.lower("private/secret/key"), KEY).unwrap();
    let error = read("private", "secret").unwrap_err();
    assert_eq!(Errno::from_io_error(&error), Some(Errno::NOENT));
    s.umount().ok();
    drop(mounts);
}

#[test]
fn no_mount_with_rules_begins_at_such_a_directory() {
    needs_mount!();
    let place = tempfile::tempdir().unwrap();
    let [file, source, mnt] = ["policy.toml", "source", "mnt"].map(|name| place.path().join(name));
    fs::create_dir(&source).unwrap();
    fs::create_dir(&mnt).unwrap();
    fs::write(&file, "[[rule]]\npath = \"/secret/**\"\naction = \"hide\"\n").unwrap();
    let _folding = CasefoldMount::at(&source);
    let args =
        ["mirror", "--policy"].into_iter().chain([&file, &source, &mnt].map(|path| path.to_str().unwrap()));
    let output = run(&mut command(&args.collect::<Vec<_>>())).fails();
    assert!(output.contains("several spellings"), "{output}");
}
