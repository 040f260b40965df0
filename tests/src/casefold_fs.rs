//! A case-insensitive file system that contains `secret/key`, served by the test itself.

use std::path::{Path, PathBuf};

use shunt_fuse::mount::MountOptions;
use shunt_fuse::{
    Attributes, Config, Data, DirectoryBuffer, Entry, Errno, Expiry, FileHandle, FileSystem, FileType, Name,
    NodeId, Profile, ReadArgs, Request,
};

use crate::mounts;

/// Content of the file.
pub const KEY: &[u8] = b"the key";

const DIR: NodeId = NodeId(2);
const FILE: NodeId = NodeId(3);

struct CasefoldFs;

fn attributes(node: NodeId) -> Result<Attributes, Errno> {
    let (kind, permissions, size, nlink) = match node {
        NodeId::ROOT | DIR => (FileType::Directory, 0o755, 0, 2),
        FILE => (FileType::Regular, 0o644, KEY.len() as u64, 1),
        _ => return Err(Errno::STALE),
    };
    Ok(Attributes { ino: node.0, mode: kind.mode() | permissions, size, nlink, ..Attributes::default() })
}

/// Folds a name like `chattr +F`: U+017F folds to an s.
fn folded(name: &[u8]) -> String {
    String::from_utf8_lossy(name).to_uppercase()
}

impl FileSystem for CasefoldFs {
    async fn lookup(&self, _: &Request<'_>, parent: NodeId, name: Name<'_>) -> Result<Entry, Errno> {
        let found = match (parent, folded(name.as_bytes()).as_str()) {
            (NodeId::ROOT, "SECRET") => DIR,
            (DIR, "KEY") => FILE,
            _ => return Ok(Entry::absent(Expiry::FOREVER)),
        };
        Ok(Entry::new(found, attributes(found)?, Expiry::FOREVER))
    }

    async fn getattr(
        &self,
        _: &Request<'_>,
        node: NodeId,
        _: Option<FileHandle>,
    ) -> Result<(Attributes, Expiry), Errno> {
        Ok((attributes(node)?, Expiry::FOREVER))
    }

    async fn read(&self, _: &Request<'_>, _: NodeId, args: ReadArgs) -> Result<Data<'_>, Errno> {
        Ok(Data::window(KEY, args.offset, args.size))
    }

    async fn readdir(
        &self,
        _: &Request<'_>,
        node: NodeId,
        _: FileHandle,
        offset: u64,
        out: &mut DirectoryBuffer,
    ) -> Result<(), Errno> {
        match (node, offset) {
            (NodeId::ROOT, 0) => _ = out.push(b"secret", DIR.0, FileType::Directory, 1),
            (DIR, 0) => _ = out.push(b"key", FILE.0, FileType::Regular, 1),
            _ => {}
        }
        Ok(())
    }
}

/// A mount of the file system. Its session ends after this was dropped and its last user is gone.
pub struct CasefoldMount(PathBuf);

impl CasefoldMount {
    /// Mounts it.
    pub fn at(mount_point: &Path) -> Self {
        let options = MountOptions::new().fsname("shunt-test-folding").read_only(true).allow_other(true);
        let mounted = shunt_fuse::mount(CasefoldFs, Config::new(Profile::Passthrough), mount_point, &options);
        // Its threads run until then: waiting for them would mean waiting for the mirror above.
        std::mem::forget(mounted.expect("it is mounted"));
        Self(mount_point.to_owned())
    }
}

impl Drop for CasefoldMount {
    fn drop(&mut self) {
        mounts::detach(&self.0);
    }
}
