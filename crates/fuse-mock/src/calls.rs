//! System calls on the mock kernel, reduced to the requests that they cause.

use std::ffi::CString;

use shunt_fuse::{Errno, Name};
use shunt_fuse_abi as abi;
use shunt_fuse_abi::dirent::Records;
use shunt_fuse_abi::{Attr, AttrOut, EntryOut, OpenOut, Operation, SetattrIn, SetattrValid, Wire};

use crate::check::Expected;
use crate::kernel::MockKernel;
use crate::pending::Pending;

/// An open file or directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenFile {
    /// Its node.
    pub node: u64,
    /// The server's handle.
    pub fh: u64,
    /// Flags of the reply to OPEN.
    pub open_flags: u32,
}

/// The result of CREATE and TMPFILE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CreatedFile {
    /// The new inode.
    pub entry: EntryOut,
    /// The open file.
    pub file: OpenFile,
}

/// An entry of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirEntry {
    /// The name itself.
    pub name: Vec<u8>,
    /// Inode number.
    pub ino: u64,
    /// `DT_...`.
    pub kind: u32,
    /// Cookie of the next position.
    pub next: u64,
    /// The entry, in a reply to READDIRPLUS.
    pub entry: Option<EntryOut>,
}

/// Size of the buffer for listings, in bytes.
const LISTING_BYTES: u32 = 4096;

fn take<T: Wire>(payload: &[u8]) -> T {
    T::read_from_prefix(payload).expect("the length was checked").0
}

/// Makes a name that a kernel could send.
pub(crate) fn cstring(name: impl AsRef<[u8]>) -> CString {
    CString::new(name.as_ref()).expect("the name contains no NUL")
}

macro_rules! name {
    ($text:ident as $name:ident) => {
        let text = cstring($text);
        let $name = Name::new(&text).map_err(|error| Errno::from_raw_os_error(error.errno()))?;
    };
}

/// Each call returns the server's errno, or EIO where a kernel would not accept the reply, and panics where no reply arrives.
#[expect(clippy::missing_errors_doc, reason = "the documentation of the impl block lists the errors")]
impl MockKernel {
    /// Sends LOOKUP. A negative entry is ENOENT.
    pub fn lookup(&self, parent: u64, name: impl AsRef<[u8]>) -> Result<EntryOut, Errno> {
        name!(name as name);
        let entry: EntryOut = take(&self.call(parent, &Operation::Lookup { name })?);
        if entry.nodeid == 0 { Err(Errno::NOENT) } else { Ok(entry) }
    }

    /// Sends GETATTR.
    pub fn getattr(&self, node: u64) -> Result<Attr, Errno> {
        let arg = abi::GetattrIn::default();
        Ok(take::<AttrOut>(&self.call(node, &Operation::Getattr { arg })?).attr)
    }

    /// Sends SETATTR.
    pub fn setattr(&self, node: u64, arg: SetattrIn) -> Result<Attr, Errno> {
        Ok(take::<AttrOut>(&self.call(node, &Operation::Setattr { arg })?).attr)
    }

    /// Sends the SETATTR of `truncate(2)`.
    pub fn truncate(&self, node: u64, size: u64) -> Result<Attr, Errno> {
        self.setattr(node, SetattrIn { valid: SetattrValid::SIZE.bits(), size, ..SetattrIn::default() })
    }

    /// Sends READLINK.
    pub fn readlink(&self, node: u64) -> Result<Vec<u8>, Errno> {
        self.call(node, &Operation::Readlink)
    }

    /// Sends SYMLINK.
    pub fn symlink(&self, parent: u64, name: impl AsRef<[u8]>, target: &str) -> Result<EntryOut, Errno> {
        name!(name as name);
        let target = cstring(target);
        Ok(take(&self.call(parent, &Operation::Symlink { name, target: &target })?))
    }

    /// Sends MKNOD.
    pub fn mknod(
        &self,
        parent: u64,
        name: impl AsRef<[u8]>,
        mode: u32,
        rdev: u32,
    ) -> Result<EntryOut, Errno> {
        name!(name as name);
        let arg = abi::MknodIn { mode, rdev, umask: 0o022, padding: 0 };
        Ok(take(&self.call(parent, &Operation::Mknod { arg, name })?))
    }

    /// Sends MKDIR.
    pub fn mkdir(&self, parent: u64, name: impl AsRef<[u8]>, mode: u32) -> Result<EntryOut, Errno> {
        name!(name as name);
        let arg = abi::MkdirIn { mode, umask: 0o022 };
        Ok(take(&self.call(parent, &Operation::Mkdir { arg, name })?))
    }

    /// Sends UNLINK.
    pub fn unlink(&self, parent: u64, name: impl AsRef<[u8]>) -> Result<(), Errno> {
        name!(name as name);
        self.call(parent, &Operation::Unlink { name }).map(drop)
    }

    /// Sends RMDIR.
    pub fn rmdir(&self, parent: u64, name: impl AsRef<[u8]>) -> Result<(), Errno> {
        name!(name as name);
        self.call(parent, &Operation::Rmdir { name }).map(drop)
    }

    /// Sends RENAME, or with flags RENAME2.
    pub fn rename(
        &self,
        parent: u64,
        name: impl AsRef<[u8]>,
        newdir: u64,
        newname: impl AsRef<[u8]>,
        flags: u32,
    ) -> Result<(), Errno> {
        name!(name as name);
        name!(newname as newname);
        let operation = match flags {
            0 => Operation::Rename { newdir, flags, name, newname },
            _ => Operation::Rename2 { newdir, flags, name, newname },
        };
        self.call(parent, &operation).map(drop)
    }

    /// Sends LINK.
    pub fn link(&self, node: u64, parent: u64, newname: impl AsRef<[u8]>) -> Result<EntryOut, Errno> {
        name!(newname as newname);
        Ok(take(&self.call(parent, &Operation::Link { oldnodeid: node, newname })?))
    }

    /// Sends OPEN.
    pub fn open(&self, node: u64, flags: u32) -> Result<OpenFile, Errno> {
        let arg = abi::OpenIn { flags, open_flags: 0 };
        let out: OpenOut = take(&self.call(node, &Operation::Open { arg })?);
        Ok(OpenFile { node, fh: out.fh, open_flags: out.open_flags })
    }

    /// Sends CREATE, for reading and writing.
    pub fn create(&self, parent: u64, name: impl AsRef<[u8]>, mode: u32) -> Result<CreatedFile, Errno> {
        name!(name as name);
        let arg = create_in(mode);
        Ok(made(&self.call(parent, &Operation::Create { arg, name })?))
    }

    /// Sends TMPFILE, for reading and writing.
    pub fn tmpfile(&self, parent: u64, mode: u32) -> Result<CreatedFile, Errno> {
        Ok(made(&self.call(parent, &Operation::Tmpfile { arg: create_in(mode) })?))
    }

    /// Sends READ.
    pub fn read(&self, file: &OpenFile, offset: u64, size: u32) -> Result<Vec<u8>, Errno> {
        self.submit_read(file, offset, size).wait()
    }

    /// Sends READ without waiting for the reply.
    pub fn submit_read(&self, file: &OpenFile, offset: u64, size: u32) -> Pending {
        let arg = abi::ReadIn { fh: file.fh, offset, size, ..Default::default() };
        self.submit(file.node, &Operation::Read { arg })
    }

    /// Sends WRITE.
    pub fn write(&self, file: &OpenFile, offset: u64, data: &[u8]) -> Result<usize, Errno> {
        let arg = abi::WriteIn { fh: file.fh, offset, size: data.len() as u32, ..Default::default() };
        Ok(take::<abi::WriteOut>(&self.call(file.node, &Operation::Write { arg, data })?).size as usize)
    }

    /// Sends FLUSH.
    pub fn flush(&self, file: &OpenFile) -> Result<(), Errno> {
        let arg = abi::FlushIn { fh: file.fh, lock_owner: 7, ..Default::default() };
        self.call(file.node, &Operation::Flush { arg }).map(drop)
    }

    /// Sends FSYNC.
    pub fn fsync(&self, file: &OpenFile) -> Result<(), Errno> {
        let arg = abi::FsyncIn { fh: file.fh, ..Default::default() };
        self.call(file.node, &Operation::Fsync { arg }).map(drop)
    }

    /// Sends RELEASE.
    pub fn release(&self, file: OpenFile) -> Result<(), Errno> {
        let arg = abi::ReleaseIn { fh: file.fh, ..Default::default() };
        let operation = Operation::Release { arg };
        let expected = Expected::of(file.node, &operation).closing(file.open_flags);
        self.submit_expecting(file.node, &operation, expected).wait().map(drop)
    }

    /// Sends OPENDIR.
    pub fn opendir(&self, node: u64) -> Result<OpenFile, Errno> {
        let arg = abi::OpenIn::default();
        let out: OpenOut = take(&self.call(node, &Operation::Opendir { arg })?);
        Ok(OpenFile { node, fh: out.fh, open_flags: out.open_flags })
    }

    /// Sends one READDIR or READDIRPLUS.
    pub fn readdir_once(
        &self,
        dir: &OpenFile,
        offset: u64,
        size: u32,
        plus: bool,
    ) -> Result<Vec<DirEntry>, Errno> {
        let arg = abi::ReadIn { fh: dir.fh, offset, size, ..Default::default() };
        let operation = if plus { Operation::Readdirplus { arg } } else { Operation::Readdir { arg } };
        let payload = self.call(dir.node, &operation)?;
        let line = |record: abi::dirent::Record<'_>| DirEntry {
            name: record.name.to_vec(),
            ino: record.dirent.ino,
            kind: record.dirent.r#type,
            next: record.dirent.off,
            entry: record.entry,
        };
        Ok(Records::new(&payload, plus).map(line).collect())
    }

    /// Lists a whole directory: OPENDIR, READDIR until it is empty, RELEASEDIR.
    pub fn readdir(&self, node: u64) -> Result<Vec<DirEntry>, Errno> {
        self.list(node, false)
    }

    /// Lists a whole directory with READDIRPLUS instead of READDIR.
    pub fn readdirplus(&self, node: u64) -> Result<Vec<DirEntry>, Errno> {
        self.list(node, true)
    }

    fn list(&self, node: u64, plus: bool) -> Result<Vec<DirEntry>, Errno> {
        let dir = self.opendir(node)?;
        let (mut all, mut offset) = (Vec::new(), 0);
        loop {
            let mut some = self.readdir_once(&dir, offset, LISTING_BYTES, plus)?;
            let Some(last) = some.last() else { break };
            offset = last.next;
            all.append(&mut some);
        }
        self.releasedir(dir)?;
        Ok(all)
    }

    /// Sends RELEASEDIR.
    pub fn releasedir(&self, dir: OpenFile) -> Result<(), Errno> {
        let arg = abi::ReleaseIn { fh: dir.fh, ..Default::default() };
        self.call(dir.node, &Operation::Releasedir { arg }).map(drop)
    }

    /// Sends STATFS.
    pub fn statfs(&self) -> Result<abi::Kstatfs, Errno> {
        Ok(take::<abi::StatfsOut>(&self.call(1, &Operation::Statfs)?).st)
    }

    /// Sends SETXATTR.
    pub fn setxattr(&self, node: u64, name: &str, value: &[u8], flags: u32) -> Result<(), Errno> {
        let name = cstring(name);
        let arg = abi::SetxattrIn { size: value.len() as u32, flags, ..Default::default() };
        self.call(node, &Operation::Setxattr { arg, name: &name, value }).map(drop)
    }

    /// Sends GETXATTR with a buffer of `size` bytes; 0 asks for the length, which is returned as 8 bytes.
    pub fn getxattr(&self, node: u64, name: &str, size: u32) -> Result<Vec<u8>, Errno> {
        let name = cstring(name);
        self.call(node, &Operation::Getxattr { arg: abi::GetxattrIn { size, padding: 0 }, name: &name })
    }

    /// Sends LISTXATTR.
    pub fn listxattr(&self, node: u64, size: u32) -> Result<Vec<u8>, Errno> {
        self.call(node, &Operation::Listxattr { arg: abi::GetxattrIn { size, padding: 0 } })
    }

    /// Sends REMOVEXATTR.
    pub fn removexattr(&self, node: u64, name: &str) -> Result<(), Errno> {
        let name = cstring(name);
        self.call(node, &Operation::Removexattr { name: &name }).map(drop)
    }
}

fn create_in(mode: u32) -> abi::CreateIn {
    abi::CreateIn { flags: libc::O_RDWR as u32, mode: mode | libc::S_IFREG, umask: 0o022, open_flags: 0 }
}

fn made(payload: &[u8]) -> CreatedFile {
    let entry: EntryOut = take(payload);
    let out: OpenOut = take(&payload[size_of::<EntryOut>()..]);
    CreatedFile { entry, file: OpenFile { node: entry.nodeid, fh: out.fh, open_flags: out.open_flags } }
}
