//! Runs a workload with the engine on a recording device, and reads the state after a power failure.

use std::collections::BTreeMap;
use std::sync::Arc;

use shunt_ext4::device::{Event, Recorder};
use shunt_ext4::{
    Error, Fallocate, Filesystem, Inode, Kind, MemoryDevice, Move, NewInode, NewInodeKind, ROOT, RenameMode,
    SetMode,
};

use super::image::FILLER;
use super::model::{Found, FsState, Node, TARGET, pattern};
use super::ops::Op;

/// A completed workload: `states[n]` is the tree after `n` operations. Operation `n` is between the marks `2n` and `2n + 1`.
pub struct Run {
    pub events: Vec<Event>,
    pub ops: Vec<Op>,
    pub states: Vec<FsState>,
}

impl Run {
    /// Reports whether all previous changes must be durable from a mark on.
    pub fn makes_last(&self, mark: u64) -> bool {
        mark % 2 == 1 && self.ops[(mark / 2) as usize] == Op::Sync
    }

    /// Returns the states that are valid after a power failure following this number of events.
    pub fn states_at(&self, after: usize) -> &[FsState] {
        let (mut first, mut last) = (0, 0);
        for event in &self.events[..after] {
            let Event::Mark(mark) = event else { continue };
            let op = (mark / 2) as usize;
            match mark % 2 {
                0 => last = op + 1,
                _ if self.ops[op] == Op::Sync => first = op + 1,
                _ => {}
            }
        }
        &self.states[first..=last]
    }
}

/// Runs a workload, skipping impossible operations, and closes the file system.
pub fn run(base: &[u8], ops: &[Op]) -> Run {
    let device = Arc::new(Recorder::new(MemoryDevice::new(base.to_vec())));
    let fs = Filesystem::open_writable(device.clone()).unwrap();
    fs.discard_freed(true);
    let mut run = Run { events: Vec::new(), ops: Vec::new(), states: vec![FsState::new()] };
    for (number, &op) in ops.iter().chain(&[Op::Sync]).enumerate() {
        let mut state = run.states.last().expect("there is an initial state").clone();
        let place = run.ops.len() as u64;
        if state.apply(op, number).is_none() {
            assert!(apply(&fs, op, number).is_err(), "{op:?} of {ops:?} succeeded instead of failing");
            continue;
        }
        device.mark(2 * place);
        apply(&fs, op, number).unwrap_or_else(|error| panic!("{op:?} of {ops:?}: {error}"));
        device.mark(2 * place + 1);
        run.ops.push(op);
        run.states.push(state);
    }
    let last = run.states.len() - 1;
    super::model::is_one_of(&look(&fs).unwrap(), &run.states[last..])
        .unwrap_or_else(|why| panic!("without a crash, after {ops:?}: {why}"));
    fs.close().unwrap();
    run.events = device.events();
    run
}

/// Performs operation number `number`.
pub fn apply(fs: &Filesystem, op: Op, number: usize) -> Result<(), Error> {
    let new = NewInode { permissions: 0o755, ..NewInode::default() };
    let node = |path: &str| fs.walk(path.as_bytes()).map(|inode| inode.number);
    fn split(path: &str) -> (&str, &str) {
        path.rsplit_once('/').unwrap_or(("", path))
    }
    let parent = |path: &'static str| {
        let (directory, name) = split(path);
        Ok::<_, Error>((node(directory)?, name.as_bytes()))
    };
    let make = |path, what| {
        let (directory, name) = parent(path)?;
        fs.create(directory, name, what, &new).map(drop)
    };
    let reap = |inode: Inode| match inode.links {
        0 => fs.evict_inode(inode.number),
        _ => Ok(()),
    };
    match op {
        Op::Sync => fs.sync(),
        Op::Create(path) => make(path, NewInodeKind::Regular),
        Op::Mkdir(path) => make(path, NewInodeKind::Directory),
        Op::Symlink(path) => make(path, NewInodeKind::Symlink(TARGET)),
        Op::Write(path, offset, length) => {
            let data: Vec<u8> = (offset..offset + length).map(|at| pattern(number, at)).collect();
            let written = fs.write(node(path)?, offset as u64, &data)?;
            assert_eq!(written, length);
            Ok(())
        }
        Op::Append(path, length) => {
            let size = fs.walk(path.as_bytes())?.size as usize;
            apply(fs, Op::Write(path, size, length), number)
        }
        Op::Truncate(path, size) => fs.truncate(node(path)?, size as u64),
        Op::Punch(path, offset, length) => {
            let inode = fs.walk(path.as_bytes())?;
            if inode.kind == Kind::Regular && inode.size < offset as u64 {
                return Err(Error::Invalid);
            }
            fs.fallocate(inode.number, Fallocate::Punch, offset as u64, length as u64)
        }
        Op::Reserve(path, length) => {
            let inode = fs.walk(path.as_bytes())?;
            match fs.fallocate(inode.number, Fallocate::KeepSize, inode.size, length as u64) {
                // Block maps have no unwritten blocks; these would be invisible anyway.
                Err(Error::Unsupported(_)) => Ok(()),
                result => result,
            }
        }
        Op::Xattr(path, length) => {
            let inode = fs.walk(path.as_bytes())?;
            if inode.kind != Kind::Regular {
                return Err(Error::Invalid);
            }
            let value: Vec<u8> = (0..length).map(|at| pattern(number, at * 512)).collect();
            fs.set_xattr(inode.number, b"user.x", &value, SetMode::Either).map(drop)
        }
        Op::Link(from, to) => {
            let inode = node(from)?;
            let (directory, name) = parent(to)?;
            fs.link(inode, directory, name).map(drop)
        }
        Op::Unlink(path) => {
            let (directory, name) = parent(path)?;
            reap(fs.unlink(directory, name)?)
        }
        Op::Abandon(path) => {
            let (directory, name) = parent(path)?;
            fs.unlink(directory, name).map(drop)
        }
        Op::Rmdir(path) => {
            let (directory, name) = parent(path)?;
            reap(fs.remove_directory(directory, name)?)
        }
        Op::Rename(from, to) | Op::Exchange(from, to) => {
            let mode = match op {
                Op::Exchange(..) => RenameMode::Exchange,
                _ => RenameMode::Replace,
            };
            match fs.rename(parent(from)?, parent(to)?, &Move { mode, whiteout: None })? {
                Some(replaced) => reap(replaced),
                None => Ok(()),
            }
        }
    }
}

/// Reads the whole tree with the engine.
pub fn look(fs: &Filesystem) -> Result<Found, Error> {
    let mut found = Found { nodes: BTreeMap::new(), links: BTreeMap::new() };
    let mut left = vec![(0, fs.inode(ROOT)?)];
    while let Some((at, inode)) = left.pop() {
        let node = match inode.kind {
            Kind::Directory => {
                let mut entries = BTreeMap::new();
                let mut children = Vec::new();
                fs.list(&inode, 0, |entry| {
                    children.push(entry);
                    true
                })?;
                let ours =
                    |name: &[u8]| !matches!(name, b"." | b".." | b"lost+found") && name != FILLER.as_bytes();
                children.retain(|entry| ours(&entry.name));
                for entry in children {
                    let child = fs.follow(&inode, &entry)?;
                    entries.insert(String::from_utf8(entry.name).unwrap(), child.number as usize);
                    left.push((child.number as usize, child));
                }
                Node::Directory(entries)
            }
            Kind::Symlink => Node::Symlink(fs.read_link(&inode)?),
            _ => {
                let mut content = vec![0; inode.size as usize];
                fs.read(&inode, 0, &mut content)?;
                Node::File { content, xattr: fs.xattr(&inode, b"user.x")? }
            }
        };
        found.links.insert(at, inode.links as usize);
        found.nodes.insert(at, node);
    }
    Ok(found)
}
