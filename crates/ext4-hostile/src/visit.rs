//! Reads all reachable objects, with bounds.

use std::collections::HashSet;

use shunt_ext4::{Filesystem, Inode, Kind, ROOT};

/// Limits: inodes, names per directory, and lookups.
const INODES: usize = 200;
const NAMES: usize = 1000;
const LOOKUPS: usize = 30;

/// A name found in a directory.
#[derive(Debug, Clone)]
pub struct Name {
    /// Directory that contains it.
    pub parent: u32,
    /// The name itself.
    pub name: Vec<u8>,
    /// Inode that it refers to.
    pub inode: u32,
}

/// Reads everything; returns the names in breadth-first order.
pub fn visit(fs: &Filesystem) -> Vec<Name> {
    let mut seen = HashSet::new();
    let mut found = Vec::new();
    let mut left = std::collections::VecDeque::from([ROOT]);
    while let Some(number) = left.pop_front() {
        if seen.len() == INODES || !seen.insert(number) {
            continue;
        }
        let Ok(inode) = fs.inode(number) else { continue };
        for name in fs.xattr_names(&inode).unwrap_or_default() {
            fs.xattr(&inode, &name).ok();
        }
        fs.xattr(&inode, b"user.none").ok();
        match inode.kind {
            Kind::Directory => {
                let names = names(fs, &inode);
                left.extend(names.iter().map(|name| name.inode));
                found.extend(names);
            }
            Kind::Symlink => drop(fs.read_link(&inode)),
            _ => read(fs, &inode),
        }
    }
    for group in 0..fs.geometry().groups.min(100) {
        fs.group(group).ok();
    }
    fs.usage().ok();
    fs.free();
    found
}

fn names(fs: &Filesystem, directory: &Inode) -> Vec<Name> {
    let mut names = Vec::new();
    let mut offset = 0;
    // Two listings: the second starts in the middle.
    for limit in [NAMES / 10, NAMES] {
        fs.list(directory, offset, |entry| {
            offset = entry.next;
            fs.follow(directory, &entry).ok();
            if !matches!(&entry.name[..], b"." | b"..") {
                names.push(Name { parent: directory.number, name: entry.name, inode: entry.inode });
            }
            names.len() < limit
        })
        .ok();
    }
    for name in names.iter().take(LOOKUPS) {
        fs.find(directory, &name.name).ok();
    }
    fs.find(directory, b"none").ok();
    names
}

fn read(fs: &Filesystem, inode: &Inode) {
    let mut buffer = vec![0; 32 << 10];
    for offset in [0, 40_000, inode.size.saturating_sub(5000), inode.size / 2] {
        fs.read(inode, offset, &mut buffer).ok();
        fs.next_data(inode, offset).ok();
        fs.next_hole(inode, offset).ok();
        fs.in_one_piece(inode, offset, 4096).ok();
    }
    let mut logical = 0;
    for _ in 0..50 {
        let Ok(run) = fs.map(inode, logical, u32::MAX) else { break };
        let Some(next) = logical.checked_add(run.length.max(1)) else { break };
        logical = next;
    }
    fs.map(inode, u32::MAX, u32::MAX).ok();
}
