//! A file system with one file: the tutorial's program.
//!
//! `cargo run -p shunt-fuse --example hello -- /mnt/hello`, then `cat /mnt/hello/greeting`.

use shunt_fuse::mount::MountOptions;
use shunt_fuse::{
    Attributes, Config, Data, DirectoryBuffer, Entry, Errno, Expiry, FileHandle, FileSystem, FileType, Name,
    NodeId, Profile, ReadArgs, Request,
};

const GREETING: &[u8] = b"Hello from user space!\n";
const FILE: NodeId = NodeId(2);

struct Hello;

fn attributes(node: NodeId) -> Result<Attributes, Errno> {
    let (kind, permissions, size, nlink) = match node {
        NodeId::ROOT => (FileType::Directory, 0o555, 0, 2),
        FILE => (FileType::Regular, 0o444, GREETING.len() as u64, 1),
        _ => return Err(Errno::STALE),
    };
    Ok(Attributes { ino: node.0, mode: kind.mode() | permissions, size, nlink, ..Attributes::default() })
}

impl FileSystem for Hello {
    async fn lookup(&self, _: &Request<'_>, parent: NodeId, name: Name<'_>) -> Result<Entry, Errno> {
        match (parent, name.as_bytes()) {
            (NodeId::ROOT, b"greeting") => Ok(Entry::new(FILE, attributes(FILE)?, Expiry::FOREVER)),
            _ => Ok(Entry::absent(Expiry::FOREVER)),
        }
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
        Ok(Data::window(GREETING, args.offset, args.size))
    }

    async fn readdir(
        &self,
        _: &Request<'_>,
        _: NodeId,
        _: FileHandle,
        offset: u64,
        out: &mut DirectoryBuffer,
    ) -> Result<(), Errno> {
        if offset == 0 {
            out.push(b"greeting", FILE.0, FileType::Regular, 1);
        }
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mountpoint = std::env::args_os().nth(1).ok_or("usage: hello MOUNTPOINT")?;
    let options = MountOptions::new().fsname("hello").read_only(true).default_permissions(true);
    let config = Config::new(Profile::Passthrough);
    shunt_fuse::mount(Hello, config, mountpoint.as_ref(), &options)?.wait()?;
    Ok(())
}
