//! Tests of the reference file system with the mock kernel, which validates every reply.

use proptest::prelude::*;
use shunt_fuse::{Config, Errno, Profile};
use shunt_fuse_abi::{EntryOut, Operation};
use shunt_fuse_mock::memfs::MemFs;
use shunt_fuse_mock::{OpenFile, Served};

fn serve() -> Served<MemFs> {
    Served::new(MemFs::new(), Config::new(Profile::Passthrough))
}

/// Forgets all inodes, and waits until the file system has counted that.
fn settle(kernel: Served<MemFs>) {
    kernel.forget_all();
    kernel.getattr(1).unwrap();
    let patience = std::time::Instant::now();
    while kernel.fs().ledger().lookups > 0 && patience.elapsed().as_secs() < 10 {
        std::thread::yield_now();
    }
    let fs = kernel.finish();
    let ledger = fs.ledger();
    assert_eq!((ledger.lookups, ledger.handles), (0, 0), "{ledger:?}");
    assert_eq!((ledger.excess_forgets, ledger.excess_releases), (0, 0), "{ledger:?}");
}

#[test]
fn files_and_directories() {
    let kernel = serve();
    let dir = kernel.mkdir(1, "dir", 0o777).unwrap();
    assert_eq!(dir.attr.mode, 0o040_755);
    let made = kernel.create(dir.nodeid, "file", 0o666).unwrap();
    assert_eq!(kernel.write(&made.file, 3, b"abc").unwrap(), 3);
    assert_eq!(kernel.read(&made.file, 0, 100).unwrap(), b"\0\0\0abc");
    assert_eq!(kernel.create(dir.nodeid, "file", 0o666), Err(Errno::EXIST));
    kernel.truncate(made.entry.nodeid, 4).unwrap();
    assert_eq!(kernel.read(&made.file, 2, 100).unwrap(), b"\0a");
    kernel.flush(&made.file).unwrap();
    kernel.fsync(&made.file).unwrap();
    kernel.release(made.file).unwrap();
    assert_eq!(kernel.rmdir(1, "dir"), Err(Errno::NOTEMPTY));
    assert_eq!(kernel.unlink(1, "dir"), Err(Errno::ISDIR));
    kernel.symlink(1, "link", "dir/file").unwrap();
    let link = kernel.lookup(1, "link").unwrap();
    assert_eq!(kernel.readlink(link.nodeid).unwrap(), b"dir/file");
    kernel.link(made.entry.nodeid, 1, "second").unwrap();
    assert_eq!(kernel.getattr(made.entry.nodeid).unwrap().nlink, 2);
    kernel.rename(1, "second", dir.nodeid, "file", 0).unwrap();
    kernel.rename(dir.nodeid, "file", 1, "link", 2).unwrap();
    assert_eq!(kernel.lookup(1, "link").unwrap().nodeid, made.entry.nodeid);
    assert_eq!(kernel.rename(1, "dir", dir.nodeid, "loop", 0), Err(Errno::INVAL));
    assert_eq!(kernel.lookup(1, [b'x'; 256]), Err(Errno::NAMETOOLONG));
    settle(kernel);
}

#[test]
fn an_unlinked_file_lives_while_it_is_open_and_known() {
    let kernel = serve();
    let made = kernel.create(1, "file", 0o600).unwrap();
    kernel.write(&made.file, 0, b"still here").unwrap();
    kernel.unlink(1, "file").unwrap();
    assert_eq!(kernel.lookup(1, "file"), Err(Errno::NOENT));
    assert_eq!(kernel.read(&made.file, 0, 5).unwrap(), b"still");
    assert_eq!(kernel.getattr(made.entry.nodeid).unwrap().nlink, 0);
    kernel.release(made.file).unwrap();
    assert_eq!(kernel.fs().ledger().nodes, 2);
    let orphan = kernel.tmpfile(1, 0o600).unwrap();
    kernel.link(orphan.entry.nodeid, 1, "named").unwrap();
    kernel.release(orphan.file).unwrap();
    settle(kernel);
}

#[test]
fn long_listings_come_in_pieces_both_ways() {
    let kernel = serve();
    for i in 0..500 {
        kernel.mknod(1, format!("file-{i:04}"), 0o100_644, 0).unwrap();
    }
    let names: Vec<_> = kernel.readdir(1).unwrap().into_iter().map(|line| line.name).collect();
    assert_eq!(names.len(), 502);
    kernel.forget_all();
    let lines = kernel.readdirplus(1).unwrap();
    assert_eq!(lines.iter().map(|line| line.name.clone()).collect::<Vec<_>>(), names);
    assert_eq!(kernel.nodes(|nodes| nodes.len()), 500);
    assert!(lines.iter().skip(2).all(|line| line.entry.unwrap().nodeid == line.ino));
    settle(kernel);
}

#[test]
fn extended_attributes() {
    let kernel = serve();
    assert_eq!(kernel.getxattr(1, "user.a", 10), Err(Errno::NODATA));
    kernel.setxattr(1, "user.a", b"value", 1).unwrap();
    assert_eq!(kernel.setxattr(1, "user.a", b"value", 1), Err(Errno::EXIST));
    assert_eq!(kernel.setxattr(1, "user.b", b"", 2), Err(Errno::NODATA));
    kernel.setxattr(1, "user.b", b"", 0).unwrap();
    assert_eq!(kernel.getxattr(1, "user.a", 0).unwrap()[..4], 5_u32.to_ne_bytes());
    assert_eq!(kernel.getxattr(1, "user.a", 4), Err(Errno::RANGE));
    assert_eq!(kernel.listxattr(1, 100).unwrap(), b"user.a\0user.b\0");
    kernel.removexattr(1, "user.a").unwrap();
    assert_eq!(kernel.removexattr(1, "user.a"), Err(Errno::NODATA));
    settle(kernel);
}

/// One step of a random walk; the numbers select among existing objects.
#[derive(Debug, Clone)]
enum Step {
    Make(u8, u8, u8),
    Remove(u8, u8),
    Rename(u8, u8, u8, u8, u8),
    Link(u8, u8, u8),
    Lookup(u8, u8),
    List(u8, bool),
    Open(u8),
    Write(u8, u16, u8),
    Read(u8, u16, u16),
    Close(u8),
    Forget(u8),
}

fn step() -> impl Strategy<Value = Step> {
    let b = any::<u8>;
    prop_oneof![
        (b(), b(), b()).prop_map(|(a, c, d)| Step::Make(a, c, d)),
        (b(), b()).prop_map(|(a, c)| Step::Remove(a, c)),
        (b(), b(), b(), b(), b()).prop_map(|(a, c, d, e, f)| Step::Rename(a, c, d, e, f)),
        (b(), b(), b()).prop_map(|(a, c, d)| Step::Link(a, c, d)),
        (b(), b()).prop_map(|(a, c)| Step::Lookup(a, c)),
        (b(), any::<bool>()).prop_map(|(a, c)| Step::List(a, c)),
        b().prop_map(Step::Open),
        (b(), any::<u16>(), b()).prop_map(|(a, c, d)| Step::Write(a, c, d)),
        (b(), any::<u16>(), any::<u16>()).prop_map(|(a, c, d)| Step::Read(a, c, d)),
        b().prop_map(Step::Close),
        b().prop_map(Step::Forget),
    ]
}

/// The nodes that the kernel knows, and the open files.
struct Walk {
    known: Vec<u64>,
    open: Vec<OpenFile>,
}

impl Walk {
    fn node(&self, choice: u8) -> u64 {
        self.known[usize::from(choice) % self.known.len()]
    }

    fn learn(&mut self, entry: Result<EntryOut, Errno>) {
        if let Ok(entry) = entry
            && !self.known.contains(&entry.nodeid)
        {
            self.known.push(entry.nodeid);
        }
    }

    fn step(&mut self, kernel: &Served<MemFs>, step: &Step) {
        let name = |choice: u8| [b'a' + choice % 6];
        match *step {
            Step::Make(parent, at, kind) => {
                let parent = self.node(parent);
                let made = match kind % 4 {
                    0 => kernel.mkdir(parent, name(at), 0o755),
                    1 => kernel.mknod(parent, name(at), 0o010_644, 0),
                    2 => kernel.symlink(parent, name(at), "x"),
                    _ => kernel.create(parent, name(at), 0o644).map(|made| {
                        self.open.push(made.file);
                        made.entry
                    }),
                };
                self.learn(made);
            }
            Step::Remove(parent, at) => {
                let parent = self.node(parent);
                if kernel.unlink(parent, name(at)) == Err(Errno::ISDIR) {
                    kernel.rmdir(parent, name(at)).ok();
                }
            }
            Step::Rename(from, at, to, new, flags) => {
                let flags = u32::from(flags % 3);
                kernel.rename(self.node(from), name(at), self.node(to), name(new), flags).ok();
            }
            Step::Link(node, parent, at) => {
                let linked = kernel.link(self.node(node), self.node(parent), name(at));
                self.learn(linked);
            }
            Step::Lookup(parent, at) => {
                let found = kernel.lookup(self.node(parent), name(at));
                self.learn(found);
            }
            Step::List(node, plus) => {
                let listed =
                    if plus { kernel.readdirplus(self.node(node)) } else { kernel.readdir(self.node(node)) };
                for line in listed.into_iter().flatten().filter(|line| !line.name.starts_with(b".")) {
                    line.entry.into_iter().for_each(|entry| self.learn(Ok(entry)));
                }
            }
            Step::Open(node) => self.open.extend(kernel.open(self.node(node), 0)),
            Step::Write(file, offset, byte) => {
                if let Some(file) = self.open.get(usize::from(file)) {
                    kernel.write(file, offset.into(), &[byte; 7]).unwrap();
                }
            }
            Step::Read(file, offset, size) => {
                if let Some(file) = self.open.get(usize::from(file)) {
                    kernel.read(file, offset.into(), size.into()).unwrap();
                }
            }
            Step::Close(file) => {
                if usize::from(file) < self.open.len() {
                    kernel.release(self.open.swap_remove(file.into())).unwrap();
                }
            }
            Step::Forget(node) => {
                let node = self.node(node);
                // The kernel keeps open inodes, directories with known children, and the root.
                if node != 1 && self.open.iter().all(|file| file.node != node) {
                    self.known.retain(|&known| known != node);
                    kernel.forget(node);
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_node_is_introduced_and_forgotten_once(steps in prop::collection::vec(step(), 1..120)) {
        let kernel = serve();
        let mut walk = Walk { known: vec![1], open: Vec::new() };
        for step in &steps {
            walk.step(&kernel, step);
        }
        for file in walk.open {
            kernel.release(file).unwrap();
        }
        kernel.call(1, &Operation::Statfs).unwrap();
        settle(kernel);
    }
}
