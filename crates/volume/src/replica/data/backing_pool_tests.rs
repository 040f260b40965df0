//! Tests of the pool of backing files.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::id::OwnerId;
use crate::object::Kind;
use crate::replica::*;

/// Upper bound for background work to happen.
const TEST_TIMEOUT: Duration = Duration::from_secs(30);

fn open(path: &Path) -> Replica {
    Replica::open(path, Options::new("v", "here".parse().unwrap())).unwrap()
}

fn new(kind: Kind) -> NewObject<'static> {
    NewObject { kind, mode: 0o644, owner: OwnerId(7), group: OwnerId(8), target: b"" }
}

fn files(at: &Path) -> usize {
    let groups = std::fs::read_dir(at.join("data")).unwrap();
    groups.map(|group| std::fs::read_dir(group.unwrap().path()).unwrap().count()).sum()
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for one in std::fs::read_dir(from).unwrap() {
        let one = one.unwrap();
        match one.file_type().unwrap().is_dir() {
            true => copy(&one.path(), &to.join(one.file_name())),
            false => drop(std::fs::copy(one.path(), to.join(one.file_name())).unwrap()),
        }
    }
}

/// Pooled files belong to no object: they are removed at shutdown, and after a crash.
#[test]
fn files_made_ahead_go() {
    let dir = tempfile::tempdir().unwrap();
    let (at, after) = (dir.path().join("replica"), dir.path().join("crashed"));
    let replica = open(&at);
    let mut nums = Vec::new();
    let begun = Instant::now();
    // Until some pooled files were taken, and some are left.
    while nums.len() < 100 || files(&at) <= nums.len() {
        assert!(begun.elapsed() < TEST_TIMEOUT, "no file is created in advance");
        let name = format!("{}", nums.len());
        nums.push(replica.make(ROOT, name.as_bytes(), new(Kind::Regular)).unwrap().ino);
    }
    nums.sort_unstable();
    nums.dedup();
    replica.sync().unwrap();
    copy(&at, &after);
    for (at, replica) in [(&at, Some(replica)), (&after, None)] {
        drop(replica);
        if at == &after {
            drop(open(at));
        }
        assert_eq!(files(at), nums.len(), "{}", at.display());
    }
    let replica = open(&after);
    for num in nums {
        let opened = replica.open_file(num, false, false).unwrap();
        assert_eq!(opened.file.metadata().unwrap().len(), 0);
        replica.release_open(num, false, opened.session);
    }
}
