//! Tests of the virtio transport with correct and with malicious guests.

mod correct_driver;
mod malicious_driver;

use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::MemfdFlags;
use shunt_fuse_abi::{InHeader, InitIn, Opcode, OutHeader, Wire};
use vhost_user_backend::{VhostUserBackend, VringRwLock, VringT};
use vmm_sys_util::epoll::EventSet;

use crate::virtiofs::test_driver::*;
use crate::{
    Attributes, Data, Entry, Errno, Expiry, FileHandle, FileRange, FileSystem, Name, NodeId, ReadArgs,
    Request, WriteArgs, WriteData,
};

/// A file system with one file, `f`, whose inode is 2.
struct OneFile(Arc<OwnedFd>);

impl FileSystem for OneFile {
    async fn lookup(&self, _: &Request<'_>, _: NodeId, name: Name<'_>) -> Result<Entry, Errno> {
        match name.as_bytes() {
            b"f" => Ok(Entry::new(NodeId(2), file(), Expiry::FOREVER)),
            _ => Err(Errno::NOENT),
        }
    }

    async fn getattr(
        &self,
        _: &Request<'_>,
        _: NodeId,
        _: Option<FileHandle>,
    ) -> Result<(Attributes, Expiry), Errno> {
        Ok((file(), Expiry::FOREVER))
    }

    async fn read(&self, _: &Request<'_>, _: NodeId, args: ReadArgs) -> Result<Data<'_>, Errno> {
        Ok(Data::File(FileRange { file: self.0.clone(), offset: args.offset, length: args.size }))
    }

    async fn write(
        &self,
        _: &Request<'_>,
        _: NodeId,
        args: WriteArgs,
        data: WriteData<'_>,
    ) -> Result<usize, Errno> {
        if args.offset > 1 << 20 {
            return Err(Errno::FBIG);
        }
        data.write_to(self.0.as_fd(), args.offset)
    }

    async fn fsync(&self, request: &Request<'_>, _: NodeId, _: FileHandle, _: bool) -> Result<(), Errno> {
        request.interrupted().await;
        Err(Errno::INTR)
    }
}

fn file() -> Attributes {
    Attributes { ino: 2, mode: 0o100_644, nlink: 1, ..Attributes::default() }
}

struct OneFileGuest {
    driver: TestDriver<OneFile>,
    content: Arc<OwnedFd>,
}

impl OneFileGuest {
    /// Makes a guest that has mounted.
    fn mounted() -> Self {
        let content: Arc<OwnedFd> =
            Arc::new(rustix::fs::memfd_create("content", MemfdFlags::CLOEXEC).unwrap());
        let shown = content.clone();
        Self { driver: TestDriver::mounted(move || Ok(OneFile(shown.clone()))), content }
    }
}

impl Deref for OneFileGuest {
    type Target = TestDriver<OneFile>;

    fn deref(&self) -> &Self::Target {
        &self.driver
    }
}

impl DerefMut for OneFileGuest {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.driver
    }
}
