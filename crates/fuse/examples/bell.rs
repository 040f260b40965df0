//! A bell: a file passed through, a read that waits, a notification. The tutorial's second program.
//!
//! `bell FILE MOUNTPOINT`, then `cat MOUNTPOINT/wait` in one shell and `echo > MOUNTPOINT/ring` in another.

use std::fs::File;
use std::future::poll_fn;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::Duration;

use shunt_fuse::mount::MountOptions;
use shunt_fuse::{
    Attributes, Capabilities, Config, Data, DirectoryBuffer, Entry, Errno, Expiry, FileHandle, FileRange,
    FileSystem, FileType, Name, NodeId, OpenArgs, Opened, Profile, ReadArgs, Request, WriteArgs, WriteData,
};

/// Another file, shown again.
const FILE: NodeId = NodeId(2);
/// Written to ring.
const RING: NodeId = NodeId(3);
/// Read to wait for the next ring.
const WAIT: NodeId = NodeId(4);
/// How often it rang.
const COUNT: NodeId = NodeId(5);
const NAMES: [(&[u8], NodeId); 4] = [(b"file", FILE), (b"ring", RING), (b"wait", WAIT), (b"count", COUNT)];

#[derive(Default)]
struct Rung {
    times: u64,
    waiting: Vec<Waker>,
}

struct Bell {
    file: Arc<OwnedFd>,
    rung: Mutex<Rung>,
}

impl Bell {
    fn times(&self) -> u64 {
        self.rung.lock().unwrap().times
    }

    fn count(&self) -> Vec<u8> {
        format!("{}\n", self.times()).into_bytes()
    }

    /// Completes when the bell rings.
    async fn next_ring(&self) {
        let before = self.times();
        poll_fn(|context| {
            let mut rung = self.rung.lock().unwrap();
            if rung.times > before {
                return Poll::Ready(());
            }
            rung.waiting.push(context.waker().clone());
            Poll::Pending
        })
        .await
    }

    fn attributes(&self, node: NodeId) -> Result<(Attributes, Expiry), Errno> {
        let (mode, size, expiry) = match node {
            NodeId::ROOT => (0o040_755, 0, Expiry::FOREVER),
            FILE => {
                let size = rustix::fs::fstat(&self.file)?.st_size;
                (0o100_644, size as u64, Expiry::after(Duration::from_secs(1)))
            }
            RING => (0o100_222, 0, Expiry::FOREVER),
            WAIT => (0o100_444, 0, Expiry::FOREVER),
            // Cached for ever: each ring says that it changed.
            COUNT => (0o100_444, self.count().len() as u64, Expiry::FOREVER),
            _ => return Err(Errno::STALE),
        };
        Ok((Attributes { ino: node.0, mode, size, nlink: 1, ..Attributes::default() }, expiry))
    }
}

impl FileSystem for Bell {
    async fn lookup(&self, _: &Request<'_>, _: NodeId, name: Name<'_>) -> Result<Entry, Errno> {
        let known = NAMES.iter().find(|(known, _)| *known == name.as_bytes());
        let (_, node) = known.ok_or(Errno::NOENT)?;
        let (attributes, expiry) = self.attributes(*node)?;
        Ok(Entry { attributes_expiry: expiry, ..Entry::new(*node, attributes, Expiry::FOREVER) })
    }

    async fn getattr(
        &self,
        _: &Request<'_>,
        node: NodeId,
        _: Option<FileHandle>,
    ) -> Result<(Attributes, Expiry), Errno> {
        self.attributes(node)
    }

    // part: open
    async fn open(&self, request: &Request<'_>, node: NodeId, _: OpenArgs) -> Result<Opened, Errno> {
        let handle = FileHandle(0);
        match node {
            FILE => match request.session().passthrough().map(|files| files.share(FILE, self.file.as_fd())) {
                Some(Ok(backing)) => Ok(Opened::passthrough(handle, backing)),
                // Not root, an old kernel, a lower file system that cannot: `read` and `write` are asked instead.
                Some(Err(_)) | None => Ok(Opened::cached(handle)),
            },
            COUNT => Ok(Opened::cached(handle).keep_cache()),
            _ => Ok(Opened::direct(handle)),
        }
    }
    // end

    // part: read
    async fn read(&self, _: &Request<'_>, node: NodeId, args: ReadArgs) -> Result<Data<'_>, Errno> {
        match node {
            FILE => {
                let file = self.file.clone();
                Ok(Data::File(FileRange { file, offset: args.offset, length: args.size }))
            }
            WAIT if args.offset == 0 => {
                self.next_ring().await;
                Ok(Data::Slice(b"ding\n"))
            }
            // At most 21 bytes, and the kernel reads pages: what follows the first answer is the end.
            COUNT if args.offset == 0 => Ok(Data::Owned(self.count())),
            _ => Ok(Data::Slice(b"")),
        }
    }
    // end

    // part: write
    async fn write(
        &self,
        request: &Request<'_>,
        node: NodeId,
        args: WriteArgs,
        data: WriteData<'_>,
    ) -> Result<usize, Errno> {
        if node == FILE {
            return data.write_to(self.file.as_fd(), args.offset);
        }
        let waiting = {
            let mut rung = self.rung.lock().unwrap();
            rung.times += 1;
            std::mem::take(&mut rung.waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
        // Sent once this write is answered. Nobody may wait for it here.
        request.session().caches().invalidate_node_whole(COUNT);
        Ok(data.len())
    }
    // end

    async fn readdir(
        &self,
        _: &Request<'_>,
        _: NodeId,
        _: FileHandle,
        offset: u64,
        out: &mut DirectoryBuffer,
    ) -> Result<(), Errno> {
        for (at, (name, node)) in NAMES.iter().enumerate().skip(offset as usize) {
            if !out.push(name, node.0, FileType::Regular, at as u64 + 1) {
                break;
            }
        }
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args_os().skip(1);
    let (Some(file), Some(mountpoint)) = (args.next(), args.next()) else {
        return Err("usage: bell FILE MOUNTPOINT".into());
    };
    let file = File::options().read(true).write(true).open(file)?;
    eprintln!("shows a file of {} bytes", file.metadata()?.size());
    let bell = Bell { file: Arc::new(file.into()), rung: Mutex::default() };
    // part: config
    // `echo > ring` opens with O_TRUNC: with this the open says so, and no SETATTR comes for it.
    let config = Config::new(Profile::Passthrough).request(Capabilities::ATOMIC_O_TRUNC);
    // end
    let options = MountOptions::new().fsname("bell").default_permissions(true);
    shunt_fuse::mount(bell, config, mountpoint.as_ref(), &options)?.wait()?;
    Ok(())
}
