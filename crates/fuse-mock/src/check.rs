//! Validation of replies: the rules that the kernel enforces, per operation, for lengths, attributes, entries, open flags and
//! counts.

use shunt_fuse_abi as abi;
use shunt_fuse_abi::dirent::Records;
use shunt_fuse_abi::{Attr, AttrOut, EntryOut, Opcode, OpenOut, Operation, Wire};

use crate::icache::{NodeCache, attr_fault};

/// Valid length of the payload of a successful reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Length {
    Exactly(usize),
    Between(usize, usize),
}

/// The properties of a request in flight that are needed to validate its reply.
#[derive(Debug, Clone, Copy)]
pub struct Expected {
    /// The operation.
    pub opcode: Opcode,
    /// The node in the request's header.
    pub node: u64,
    length: Length,
    /// Type of the inode to be made, if any.
    made: Option<u32>,
    /// Maximum count in the reply to a WRITE or a copy.
    max: u64,
    /// Open flags of the file that a RELEASE closes.
    closes: u32,
}

impl Expected {
    /// Makes the expectation for a request of `operation` on `node`.
    #[must_use]
    pub fn of(node: u64, operation: &Operation<'_>) -> Self {
        use Operation as Op;
        let size = |size: u32| Length::Between(0, size as usize);
        let xattr = |requested: u32| if requested == 0 { Length::Exactly(8) } else { size(requested) };
        let (mut made, mut max) = (None, u64::MAX);
        let length = match operation {
            Op::Lookup { .. } => Length::Exactly(128),
            Op::Symlink { .. } => {
                made = Some(libc::S_IFLNK);
                Length::Exactly(128)
            }
            Op::Mknod { arg, .. } => {
                made = Some(if arg.mode & libc::S_IFMT == 0 { libc::S_IFREG } else { arg.mode });
                Length::Exactly(128)
            }
            Op::Mkdir { .. } => {
                made = Some(libc::S_IFDIR);
                Length::Exactly(128)
            }
            Op::Link { .. } => {
                made = Some(0);
                Length::Exactly(128)
            }
            Op::Create { .. } | Op::Tmpfile { .. } => {
                made = Some(libc::S_IFREG);
                Length::Exactly(144)
            }
            Op::Getattr { .. } | Op::Setattr { .. } => Length::Exactly(104),
            Op::Statx { .. } => Length::Exactly(288),
            Op::Readlink => size(4095),
            Op::Open { .. } | Op::Opendir { .. } => Length::Exactly(16),
            Op::Read { arg } | Op::Readdir { arg } | Op::Readdirplus { arg } => size(arg.size),
            Op::Write { arg, .. } => {
                max = arg.size.into();
                Length::Exactly(8)
            }
            Op::CopyFileRange { arg } | Op::CopyFileRange64 { arg } => {
                max = arg.len;
                Length::Exactly(8)
            }
            Op::Statfs => Length::Exactly(80),
            Op::Getxattr { arg, .. } | Op::Listxattr { arg } => xattr(arg.size),
            Op::Getlk { .. } => Length::Exactly(24),
            Op::Bmap { .. } | Op::Poll { .. } | Op::Lseek { .. } => Length::Exactly(8),
            Op::Ioctl { arg, .. } => Length::Between(16, 16 + arg.out_size as usize),
            Op::Init { .. } => Length::Between(8, 64),
            _ => Length::Exactly(0),
        };
        Self { opcode: operation.opcode(), node, length, made, max, closes: 0 }
    }

    /// Sets the open flags of the file that a RELEASE closes.
    #[must_use]
    pub fn closing(self, open_flags: u32) -> Self {
        Self { closes: open_flags, ..self }
    }

    /// Validates the payload of a successful reply, and counts the lookups and opens in it.
    ///
    /// # Errors
    /// The violated rule.
    pub(crate) fn judge(&self, payload: &[u8], cache: &mut NodeCache) -> Result<(), String> {
        let fits = match self.length {
            Length::Exactly(length) => payload.len() == length,
            Length::Between(min, max) => (min..=max).contains(&payload.len()),
        };
        if !fits {
            return Err(format!("reply of {} bytes instead of {:?}", payload.len(), self.length));
        }
        match self.opcode {
            Opcode::Lookup | Opcode::Symlink | Opcode::Mknod | Opcode::Mkdir | Opcode::Link => {
                cache.introduce(&take::<EntryOut>(payload).0, self.made)
            }
            Opcode::Create | Opcode::Tmpfile => {
                let (entry, rest) = take::<EntryOut>(payload);
                cache.introduce(&entry, self.made)?;
                cache.open(entry.nodeid, &take::<OpenOut>(rest).0)
            }
            Opcode::Getattr | Opcode::Setattr => cache.refresh(self.node, &take::<AttrOut>(payload).0.attr),
            Opcode::Statx => {
                let stat = take::<abi::StatxOut>(payload).0.stat;
                cache.refresh(self.node, &Attr { mode: stat.mode.into(), size: stat.size, ..Attr::default() })
            }
            Opcode::Open => cache.open(self.node, &take::<OpenOut>(payload).0),
            Opcode::Readlink if payload.is_empty() || payload.contains(&0) => {
                Err("link target is empty or contains a NUL".into())
            }
            Opcode::Write | Opcode::CopyFileRange => {
                at_most(take::<abi::WriteOut>(payload).0.size.into(), self.max)
            }
            Opcode::CopyFileRange64 => {
                at_most(take::<abi::CopyFileRangeOut>(payload).0.bytes_copied, self.max)
            }
            Opcode::Lseek => at_most(take::<abi::LseekOut>(payload).0.offset, i64::MAX as u64),
            Opcode::Readdir => listing(payload, false, cache),
            Opcode::Readdirplus => listing(payload, true, cache),
            _ => Ok(()),
        }
    }

    /// Finishes the request, successful or not.
    pub(crate) fn over(&self, cache: &mut NodeCache) {
        if self.opcode == Opcode::Release {
            cache.close(self.node, self.closes);
        }
    }
}

/// Reads the structure at the front; the length was checked before.
fn take<T: Wire>(payload: &[u8]) -> (T, &[u8]) {
    T::read_from_prefix(payload).expect("the length was checked")
}

fn at_most(result: u64, max: u64) -> Result<(), String> {
    if result <= max { Ok(()) } else { Err(format!("result {result} exceeds the requested {max}")) }
}

fn listing(payload: &[u8], plus: bool, cache: &mut NodeCache) -> Result<(), String> {
    let mut records = Records::new(payload, plus);
    for record in &mut records {
        if record.name.is_empty() || record.name.len() > 4095 || record.name.contains(&b'/') {
            return Err(format!(
                "directory record with the invalid name {:?}",
                String::from_utf8_lossy(record.name)
            ));
        }
        // The kernel continues from this position: 0 would start over forever.
        if record.dirent.off == 0 {
            return Err("directory record with next position 0".into());
        }
        let counts = |entry: &EntryOut| entry.nodeid != 0 && !matches!(record.name, b"." | b"..");
        if let Some(entry) = record.entry.filter(counts) {
            if let Some(fault) = attr_fault(&entry.attr) {
                return Err(fault);
            }
            cache.introduce(&entry, None)?;
        }
    }
    match records.rest() {
        [] => Ok(()),
        rest => Err(format!("{} bytes after the last directory record", rest.len())),
    }
}
