//! What is inside of a file handle: inode number and generation, as each file system writes them.

use super::handle::FileHandle;

/// How a file system makes handles of inode number and generation. Nobody promises these layouts, so a handle made
/// is only used where the file system made the very same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Codec {
    /// ext2, ext3, ext4, F2FS and others: number and generation, 32 bits each.
    Ino32,
    /// tmpfs: generation, low and high half of the number.
    Tmpfs,
    /// XFS: the number in 64 bits, and the generation.
    Ino64,
    /// btrfs: number, subvolume and generation.
    Btrfs {
        /// The subvolume's number.
        root: u64,
    },
}

const INO32_GEN: i32 = 1;
const INO64_GEN: i32 = 0x81;
const BTRFS: i32 = 0x4d;

impl Codec {
    /// The codec of the file system that made this handle of inode `ino`, and the generation in it.
    pub fn of(handle: &FileHandle, ino: u64) -> Option<(Self, u32)> {
        let word = |at: usize| Some(u32::from_ne_bytes(handle.bytes().get(at..at + 4)?.try_into().ok()?));
        let long = |at: usize| Some(u64::from_ne_bytes(handle.bytes().get(at..at + 8)?.try_into().ok()?));
        let (codec, generation) = match (handle.kind(), handle.bytes().len()) {
            (INO32_GEN, 8) => (Self::Ino32, word(4)?),
            (INO32_GEN, 12) => (Self::Tmpfs, word(0)?),
            (INO64_GEN, 12) => (Self::Ino64, word(8)?),
            (BTRFS, 20) => (Self::Btrfs { root: long(8)? }, word(16)?),
            _ => return None,
        };
        (codec.handle(ino, generation)? == *handle).then_some((codec, generation))
    }

    /// The generation in a handle of inode `ino`, if it is of this codec.
    pub fn generation(self, handle: &FileHandle, ino: u64) -> Option<u32> {
        Self::of(handle, ino).filter(|(codec, _)| *codec == self).map(|(_, generation)| generation)
    }

    /// Number and generation in a handle, if it is of this codec.
    pub fn read(self, handle: &FileHandle) -> Option<(u64, u32)> {
        let bytes = handle.bytes();
        let ino = match self {
            Self::Ino32 => u32::from_ne_bytes(*bytes.first_chunk()?).into(),
            Self::Tmpfs => {
                let half = |at: usize| Some(u64::from(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?)));
                half(4)? | half(8)? << 32
            }
            Self::Ino64 | Self::Btrfs { .. } => u64::from_ne_bytes(*bytes.first_chunk()?),
        };
        Some((ino, self.generation(handle, ino)?))
    }

    /// The handle of an inode. `None` where the number is too large to be one of this file system's.
    pub fn handle(self, ino: u64, generation: u32) -> Option<FileHandle> {
        let mut bytes = [0; 20];
        let mut length = 0;
        let mut put = |part: &[u8]| {
            bytes[length..length + part.len()].copy_from_slice(part);
            length += part.len();
        };
        let kind = match self {
            Self::Ino32 => {
                put(&u32::try_from(ino).ok()?.to_ne_bytes());
                put(&generation.to_ne_bytes());
                INO32_GEN
            }
            Self::Tmpfs => {
                put(&generation.to_ne_bytes());
                put(&(ino as u32).to_ne_bytes());
                put(&((ino >> 32) as u32).to_ne_bytes());
                INO32_GEN
            }
            Self::Ino64 => {
                put(&ino.to_ne_bytes());
                put(&generation.to_ne_bytes());
                INO64_GEN
            }
            Self::Btrfs { root } => {
                put(&ino.to_ne_bytes());
                put(&root.to_ne_bytes());
                put(&generation.to_ne_bytes());
                BTRFS
            }
        };
        Some(FileHandle::new(kind, &bytes[..length]))
    }
}
