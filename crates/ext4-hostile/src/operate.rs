//! File system operations selected by an input.

use shunt_ext4::layout::InodeFlags;
use shunt_ext4::{
    Attributes, Error, Fallocate, Filesystem, Inode, Move, NewInode, NewInodeKind, ROOT, RenameMode, Result,
    SetMode, Time,
};

use crate::input::Input;
use crate::visit::Name;

/// Maximum number of operations per input.
const MAX_OPERATIONS: usize = 40;

/// Sizes and offsets at boundaries.
const EDGES: [u64; 16] = [
    0,
    1,
    700,
    1024,
    4096,
    5000,
    12 << 10,
    (12 << 10) + 100,
    60_000,
    (268 << 10) - 3,
    1 << 20,
    70 << 20,
    (1 << 31) - 1,
    1 << 32,
    (1 << 42) - 5,
    u64::MAX - 3,
];

/// Operations for an empty input: each one once.
const EVERYTHING: [u8; 120] = everything();

const fn everything() -> [u8; 120] {
    let mut bytes = [0; 120];
    let mut n = 0;
    while n < 24 {
        bytes[n * 5] = n as u8;
        bytes[n * 5 + 1] = (n * 7) as u8;
        bytes[n * 5 + 3] = (n * 5 + 3) as u8;
        bytes[n * 5 + 4] = (n * 3) as u8;
        n += 1;
    }
    bytes
}

/// The file system under test, and the names that operations choose from.
struct Ground<'a> {
    fs: &'a Filesystem,
    names: Vec<Name>,
    made: u32,
}

/// Performs the operations of an input on a file system with these names; returns the number of successful ones.
pub fn operate(fs: &Filesystem, names: Vec<Name>, mut input: Input<'_>) -> usize {
    if input.is_empty() {
        input = Input(&EVERYTHING);
    }
    let mut ground = Ground { fs, names, made: 0 };
    let mut worked = 0;
    for _ in 0..MAX_OPERATIONS {
        if input.is_empty() {
            break;
        }
        match ground.operate(&mut input) {
            Ok(()) => worked += 1,
            // Errors are expected; formatting them must not panic.
            Err(error) => drop(error.to_string()),
        }
    }
    worked
}

impl Ground<'_> {
    fn name(&self, input: &mut Input<'_>) -> Name {
        let root = || Name { parent: ROOT, name: b"none".into(), inode: ROOT };
        input.pick(&self.names).cloned().unwrap_or_else(root)
    }

    /// Returns a directory, most of the time.
    fn directory(&self, input: &mut Input<'_>) -> u32 {
        let name = self.name(input);
        if input.byte().is_multiple_of(8) { name.inode } else { name.parent }
    }

    fn fresh(&mut self, input: &mut Input<'_>) -> Vec<u8> {
        self.made += 1;
        let length = match input.byte() {
            long @ 200.. => usize::from(long),
            short => usize::from(short % 40),
        };
        format!("{:0length$}", self.made).into_bytes()
    }

    fn make(&mut self, input: &mut Input<'_>, what: NewInodeKind<'_>) -> Result<()> {
        let (parent, name) = (self.directory(input), self.fresh(input));
        let new = NewInode { permissions: 0o755, ..NewInode::default() };
        let inode = self.fs.create(parent, &name, what, &new)?.number;
        self.names.insert(0, Name { parent, name, inode });
        Ok(())
    }

    fn reap(&self, inode: Option<Inode>) -> Result<()> {
        match inode {
            Some(inode) if inode.links == 0 => self.fs.evict_inode(inode.number),
            _ => Ok(()),
        }
    }

    fn edge(input: &mut Input<'_>) -> u64 {
        EDGES[usize::from(input.byte()) % EDGES.len()]
    }

    fn fallocate(&self, input: &mut Input<'_>, what: Fallocate) -> Result<()> {
        let (inode, offset, length) = (self.name(input).inode, Self::edge(input), Self::edge(input));
        self.fs.fallocate(inode, what, offset, length)
    }

    fn rename(&mut self, input: &mut Input<'_>, mode: RenameMode) -> Result<()> {
        let (from, mut to) = (self.name(input), self.name(input));
        let way = input.byte();
        if mode != RenameMode::Exchange && way.is_multiple_of(2) {
            to = Name { parent: self.directory(input), name: self.fresh(input), inode: from.inode };
        }
        let how = Move { mode, whiteout: (way % 16 == 2).then_some((0, 0)) };
        let left = self.fs.rename((from.parent, &from.name), (to.parent, &to.name), &how)?;
        self.names.insert(0, Name { inode: from.inode, ..to });
        self.reap(left)
    }

    fn operate(&mut self, input: &mut Input<'_>) -> Result<()> {
        let fs = self.fs;
        match input.byte() % 24 {
            0 => self.make(input, NewInodeKind::Regular),
            1 | 2 => {
                let (inode, offset) = (self.name(input).inode, Self::edge(input));
                let length = Self::edge(input).min(64 << 10) as usize;
                fs.write(inode, offset, &vec![input.byte(); length]).map(drop)
            }
            3 => self.make(input, NewInodeKind::Directory),
            4 => self.make(input, NewInodeKind::Symlink(b"short")),
            5 => self.make(input, NewInodeKind::Symlink(&[b'x'; 300])),
            6 => self.make(input, NewInodeKind::CharDevice(1, 3)),
            7 => {
                let (inode, parent, name) =
                    (self.name(input).inode, self.directory(input), self.fresh(input));
                fs.link(inode, parent, &name).map(drop)
            }
            8 => fs.truncate(self.name(input).inode, Self::edge(input)),
            9 => {
                let (inode, mode) = (self.name(input).inode, input.byte());
                let length = Self::edge(input).min(70_000) as usize;
                let name = format!("user.{}", mode / 4 % 8);
                let mode = [SetMode::Either, SetMode::Create, SetMode::Replace][usize::from(mode % 3)];
                fs.set_xattr(inode, name.as_bytes(), &vec![7; length], mode).map(drop)
            }
            10 => {
                let inode = fs.inode(self.name(input).inode)?;
                let names = fs.xattr_names(&inode)?;
                let Some(name) = input.pick(&names) else { return Err(Error::NoAttribute) };
                fs.remove_xattr(inode.number, name).map(drop)
            }
            11 => self.fallocate(input, Fallocate::Allocate),
            12 => self.fallocate(input, Fallocate::KeepSize),
            13 => self.fallocate(input, Fallocate::Punch),
            14 => self.fallocate(input, Fallocate::Zero { keep_size: input.0.len().is_multiple_of(2) }),
            15 => self.fallocate(input, Fallocate::Collapse),
            16 => self.fallocate(input, Fallocate::Insert),
            17 => self.rename(input, RenameMode::Replace),
            18 => self.rename(input, RenameMode::Exchange),
            19 => {
                let name = self.name(input);
                self.reap(Some(fs.unlink(name.parent, &name.name)?))
            }
            20 => {
                let name = self.name(input);
                self.reap(Some(fs.remove_directory(name.parent, &name.name)?))
            }
            21 => {
                let (inode, value) = (self.name(input).inode, input.word());
                let time = Time { seconds: i64::from(value) - (1 << 31), nanoseconds: value % 1_000_000_000 };
                let flags = InodeFlags::NODUMP.bits() * u32::from(input.byte() % 2);
                let before = fs.inode(inode)?.flags - InodeFlags::NODUMP;
                let change = Attributes {
                    permissions: Some(value as u16),
                    uid: Some(value),
                    mtime: Some(time),
                    flags: Some(before | InodeFlags::from_bits_retain(flags)),
                    ..Attributes::default()
                };
                fs.set_attributes(inode, &change).map(drop)
            }
            22 => {
                let parent = self.directory(input);
                let inode = fs.create_tmpfile(parent, &NewInode::default())?;
                let named = fs.write(inode.number, 0, &[9; 3000]).and_then(|_| match input.byte() % 2 {
                    0 => fs.link(inode.number, parent, &self.fresh(input)).map(drop),
                    _ => Err(Error::NotFound),
                });
                // A file without a name is freed when it is closed.
                if named.is_err() { fs.evict_inode(inode.number) } else { Ok(()) }
            }
            _ => fs.sync(),
        }
    }
}
