//! What is done before somebody asks for it: files made, contents brought.

use std::fs::File;
use std::ops::Range;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::*;
use crate::id::{ObjectId, OwnerId};
use crate::object::{Content, Kind};

/// What happens at all happens by then.
const PATIENCE: Duration = Duration::from_secs(30);

fn open(path: &Path) -> Replica {
    Replica::open(path, Options::new("v", "here".parse().unwrap())).unwrap()
}

fn new(kind: Kind) -> New<'static> {
    New { kind, mode: 0o644, owner: OwnerId(7), group: OwnerId(8), target: b"" }
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

/// Files that were made ahead are nobody's: they go with the process, and after a crash.
#[test]
fn files_made_ahead_go() {
    let dir = tempfile::tempdir().unwrap();
    let (at, after) = (dir.path().join("replica"), dir.path().join("crashed"));
    let replica = open(&at);
    let mut nums = Vec::new();
    let begun = Instant::now();
    // Until some of them were taken, and some are left.
    while nums.len() < 100 || files(&at) <= nums.len() {
        assert!(begun.elapsed() < PATIENCE, "no file is made ahead");
        let name = format!("{}", nums.len());
        nums.push(replica.make(ROOT, name.as_bytes(), new(Kind::Regular)).unwrap().num);
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
        replica.close(num, false, opened.session);
    }
}

/// Writes all that is wanted and tells of half of it; the rest takes until somebody has read that.
struct Slow {
    read: parking_lot::Mutex<Receiver<()>>,
    fetched: Sender<(Range<u64>, bool)>,
}

impl Fetcher for Slow {
    fn fetch(
        &self,
        _: ObjectId,
        _: &Content,
        range: Range<u64>,
        into: &File,
        came: Came<'_>,
    ) -> Result<Range<u64>, Errno> {
        let bytes = vec![7; (range.end - range.start) as usize];
        std::os::unix::fs::FileExt::write_all_at(into, &bytes, range.start).unwrap();
        came(range.start..range.start + (range.end - range.start) / 2);
        let in_time = range.start == 0 || self.read.lock().recv_timeout(PATIENCE).is_ok();
        self.fetched.send((range.clone(), in_time)).unwrap();
        Ok(range)
    }
}

#[test]
fn a_reader_has_its_bytes_while_the_rest_comes() {
    const MIB: u64 = 1 << 20;
    let dir = tempfile::tempdir().unwrap();
    let replica = open(dir.path());
    let num = replica.make(ROOT, b"a", new(Kind::Regular)).unwrap().num;
    let node = replica.get(num).unwrap();
    let mut stored = replica.apply(|applying| applying.local(&node)).unwrap();
    stored.object.content = Content { size: 6 * MIB, digest: [1; 32], ..Content::empty() };
    stored.made = Seq(1);
    replica.apply(|applying| applying.set_object(node.id, Some(&stored), LocalObject::Agreed)).unwrap();
    let (read, told) = channel();
    let (fetched, seen) = channel();
    replica.set_fetcher(Some(Arc::new(Slow { read: parking_lot::Mutex::new(told), fetched })));
    let opened = replica.open_file(num, false, false).unwrap();
    let check = |range: Range<u64>| {
        replica.want(num, range.clone()).unwrap();
        let mut bytes = vec![0; (range.end - range.start) as usize];
        std::os::unix::fs::FileExt::read_exact_at(&*opened.file, &mut bytes, range.start).unwrap();
        assert!(bytes.iter().all(|byte| *byte == 7));
    };
    // The first read says nothing of the next.
    check(0..MIB);
    assert_eq!(seen.recv_timeout(PATIENCE).unwrap(), (0..MIB, true));
    // The second follows it: all the rest comes, and it is not waited for.
    check(MIB..2 * MIB);
    read.send(()).unwrap();
    assert_eq!(seen.recv_timeout(PATIENCE).unwrap(), (MIB..6 * MIB, true));
    check(5 * MIB..6 * MIB);
    replica.close(num, false, opened.session);
}
