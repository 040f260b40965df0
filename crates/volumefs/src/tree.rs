//! File system of the directories that join volumes into one tree. It contains nothing but directories, of which the leaves are
//! mount points.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::OnceLock;

use parking_lot::Mutex;
use shunt_fuse::mount::MountOptions;
use shunt_fuse::{
    Attributes, Caches, Config, DirectoryBuffer, Entry, Errno, Expiry, FileHandle, FileSystem, FileType,
    Handle, Name, NodeId, Profile, Request, StatFs, Timestamp,
};

const PERMISSIONS: u32 = 0o755;

/// A directory.
struct Directory {
    parent: u64,
    names: BTreeMap<Vec<u8>, u64>,
    changed: Timestamp,
}

impl Directory {
    fn new(parent: u64) -> Self {
        Self { parent, names: BTreeMap::new(), changed: Timestamp::now() }
    }
}

struct Directories {
    by_number: HashMap<u64, Directory>,
    /// Next inode number; numbers are never reused.
    next: u64,
}

/// The directories of a tree, which a FUSE session can serve. They belong to the daemon's user, and only [`set_directories`](Self::set_directories)
/// creates or removes them.
pub struct TreeFs {
    owner: (u32, u32),
    directories: Mutex<Directories>,
    caches: OnceLock<Caches>,
}

impl Default for TreeFs {
    fn default() -> Self {
        let root = NodeId::ROOT.0;
        let by_number = HashMap::from([(root, Directory::new(root))]);
        Self {
            owner: (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw()),
            directories: Mutex::new(Directories { by_number, next: root + 1 }),
            caches: OnceLock::new(),
        }
    }
}

impl std::fmt::Debug for TreeFs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TreeFs").field("directories", &self.len()).finish_non_exhaustive()
    }
}

impl TreeFs {
    /// Returns the session configuration.
    pub fn config(&self) -> Config {
        Config::new(Profile::Passthrough)
    }

    /// Returns the mount options; the kernel checks permissions.
    pub fn mount_options(&self) -> MountOptions {
        MountOptions::new().default_permissions(true).root_permissions(PERMISSIONS as u16)
    }

    /// Returns the mount points: the paths of the leaf directories.
    pub fn mount_points(&self) -> Vec<PathBuf> {
        let directories = self.directories.lock();
        let mut paths = Vec::new();
        let mut next = vec![(NodeId::ROOT.0, PathBuf::from("/"))];
        while let Some((number, path)) = next.pop() {
            let Some(directory) = directories.by_number.get(&number) else { continue };
            let below = |(name, child): (&Vec<u8>, &u64)| (*child, path.join(OsStr::from_bytes(name)));
            next.extend(directory.names.iter().map(below));
            if directory.names.is_empty() && number != NodeId::ROOT.0 {
                paths.push(path);
            }
        }
        paths
    }

    /// Counts the directories.
    pub fn len(&self) -> usize {
        self.directories.lock().by_number.len()
    }

    /// Reports whether the root is the only directory.
    pub fn is_empty(&self) -> bool {
        self.len() == 1
    }

    /// Creates these directories, each given as the names from the root down, with their parents, and removes all others. A
    /// directory that stays keeps its inode number. Nothing may be mounted on one that is removed.
    pub fn set_directories<'a>(&self, paths: impl IntoIterator<Item = &'a [String]>) {
        let mut directories = self.directories.lock();
        let mut kept = vec![NodeId::ROOT.0];
        for path in paths {
            let mut at = NodeId::ROOT.0;
            for name in path {
                at = directories.enter(at, name.as_bytes());
                kept.push(at);
            }
        }
        let gone = directories.retain(kept);
        drop(directories);
        let Some(caches) = self.caches.get() else { return };
        for (parent, child, name) in gone {
            drop(caches.delete_entry(NodeId(parent), NodeId(child), &name));
        }
    }

    fn attributes(&self, ino: NodeId) -> Result<Attributes, Errno> {
        let directories = self.directories.lock();
        let directory = directories.by_number.get(&ino.0).ok_or(Errno::STALE)?;
        Ok(self.of(ino.0, directory))
    }

    fn of(&self, ino: u64, directory: &Directory) -> Attributes {
        Attributes {
            ino,
            mode: FileType::Directory.mode() | PERMISSIONS,
            nlink: 2 + u32::try_from(directory.names.len()).unwrap_or(u32::MAX - 2),
            uid: self.owner.0,
            gid: self.owner.1,
            mtime: directory.changed,
            ctime: directory.changed,
            atime: directory.changed,
            blksize: 4096,
            ..Attributes::default()
        }
    }
}

impl Directories {
    fn enter(&mut self, at: u64, name: &[u8]) -> u64 {
        let number = self.next;
        let Some(directory) = self.by_number.get_mut(&at) else { return at };
        if let Some(there) = directory.names.get(name) {
            return *there;
        }
        directory.names.insert(name.to_vec(), number);
        directory.changed = Timestamp::now();
        self.by_number.insert(number, Directory::new(at));
        self.next += 1;
        number
    }

    /// Removes all directories but `kept`, the deepest first. Returns the parent, number and name of each.
    fn retain(&mut self, mut kept: Vec<u64>) -> Vec<(u64, u64, Vec<u8>)> {
        kept.sort_unstable();
        let mut gone = Vec::new();
        for (parent, directory) in &mut self.by_number {
            let before = directory.names.len();
            directory.names.retain(|name, child| {
                let stays = kept.binary_search(child).is_ok();
                if !stays {
                    gone.push((*parent, *child, name.clone()));
                }
                stays
            });
            if directory.names.len() != before {
                directory.changed = Timestamp::now();
            }
        }
        self.by_number.retain(|number, _| kept.binary_search(number).is_ok());
        // Directories have higher numbers than their parents.
        gone.sort_unstable_by_key(|(_, child, _)| std::cmp::Reverse(*child));
        gone
    }
}

impl FileSystem for TreeFs {
    fn start(&self, session: &Handle) -> std::io::Result<()> {
        self.caches.set(session.caches().clone()).ok();
        Ok(())
    }

    async fn lookup(&self, _request: &Request<'_>, parent: NodeId, name: Name<'_>) -> Result<Entry, Errno> {
        let number = {
            let directories = self.directories.lock();
            let directory = directories.by_number.get(&parent.0).ok_or(Errno::STALE)?;
            directory.names.get(name.as_bytes()).copied()
        };
        match number {
            // The name and number stay together as long as the directory exists, and its removal is notified to the kernel.
            Some(number) => {
                let attributes = self.attributes(NodeId(number))?;
                let entry = Entry::new(NodeId(number), attributes, Expiry::FOREVER);
                Ok(Entry { attributes_expiry: Expiry::NEVER_CACHED, ..entry })
            }
            None => Err(Errno::NOENT),
        }
    }

    async fn getattr(
        &self,
        _request: &Request<'_>,
        ino: NodeId,
        _handle: Option<FileHandle>,
    ) -> Result<(Attributes, Expiry), Errno> {
        Ok((self.attributes(ino)?, Expiry::NEVER_CACHED))
    }

    async fn readdir(
        &self,
        _request: &Request<'_>,
        ino: NodeId,
        _handle: FileHandle,
        offset: u64,
        out: &mut DirectoryBuffer,
    ) -> Result<(), Errno> {
        let directories = self.directories.lock();
        let directory = directories.by_number.get(&ino.0).ok_or(Errno::STALE)?;
        // The offset after an entry derives from its number, which grows; the two dots come first.
        let dots = [(&b"."[..], ino.0, 1), (&b".."[..], directory.parent, 2)];
        let room = dots
            .iter()
            .filter(|(_, _, next)| offset < *next)
            .all(|(name, number, next)| out.push(name, *number, FileType::Directory, *next));
        if !room {
            return Ok(());
        }
        let mut names: Vec<_> = directory.names.iter().map(|(name, number)| (*number, name)).collect();
        names.sort_unstable();
        for (number, name) in names.into_iter().filter(|(number, _)| number + COOKIE_OFFSET > offset) {
            if !out.push(name, number, FileType::Directory, number + COOKIE_OFFSET) {
                break;
            }
        }
        Ok(())
    }

    async fn statfs(&self, _request: &Request<'_>, _node: NodeId) -> Result<StatFs, Errno> {
        let files = self.len() as u64;
        Ok(StatFs { files, bsize: 4096, frsize: 4096, namelen: 255, ..StatFs::default() })
    }
}

/// Offset after a directory entry, less its inode number: the offsets of the two dots.
const COOKIE_OFFSET: u64 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(paths: &[&str]) -> Vec<Vec<String>> {
        paths.iter().map(|path| path.split('/').map(str::to_owned).collect()).collect()
    }

    fn show(tree: &TreeFs, at: &[&str]) {
        tree.set_directories(paths(at).iter().map(Vec::as_slice));
    }

    fn number(tree: &TreeFs, path: &str) -> Option<u64> {
        let directories = tree.directories.lock();
        path.split('/').try_fold(NodeId::ROOT.0, |at, name| {
            directories.by_number.get(&at)?.names.get(name.as_bytes()).copied()
        })
    }

    #[test]
    fn directory_numbers_are_stable_and_unique() {
        let tree = TreeFs::default();
        show(&tree, &["work/team", "notes"]);
        let (work, team, notes) =
            (number(&tree, "work"), number(&tree, "work/team").unwrap(), number(&tree, "notes"));
        assert_eq!(tree.len(), 4);
        show(&tree, &["work/other", "notes"]);
        assert_eq!((number(&tree, "work"), number(&tree, "notes")), (work, notes));
        assert_eq!(number(&tree, "work/team"), None);
        show(&tree, &["work/team"]);
        assert!(number(&tree, "work/team").unwrap() > team);
        show(&tree, &[]);
        assert!(tree.is_empty());
    }

    #[test]
    fn removed_directories_are_reported_bottom_up() {
        let mut directories = Directories { by_number: HashMap::from([(1, Directory::new(1))]), next: 2 };
        let a = directories.enter(1, b"a");
        let b = directories.enter(a, b"b");
        assert_eq!(directories.retain(vec![1]), [(a, b, b"b".to_vec()), (1, a, b"a".to_vec())]);
    }
}
