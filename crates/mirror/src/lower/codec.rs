//! File handle layouts: the encoding of inode number and generation used by each file system.

use super::handle::FileHandle;

/// The layout by which a file system builds handles from inode number and generation. These layouts are not a stable
/// interface, so a built handle is used only if it equals one that the file system made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Codec {
    /// ext2, ext3, ext4, F2FS and others: number and generation, 32 bits each.
    Ino32,
    /// tmpfs: generation, then the low and high half of the number.
    Tmpfs,
    /// XFS: the number in 64 bits, then the generation.
    Ino64,
    /// btrfs: number, subvolume and generation.
    Btrfs {
        /// Id of the subvolume.
        root: u64,
    },
}

const INO32_GEN: i32 = 1;
const INO64_GEN: i32 = 0x81;
const BTRFS: i32 = 0x4d;

impl Codec {
    /// Detects the codec of this handle of inode `ino`; returns it with the generation.
    pub(super) fn of(handle: &FileHandle, ino: u64) -> Option<(Self, u32)> {
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

    /// Returns the generation in a handle of inode `ino`, if the handle has this layout.
    pub(super) fn generation(self, handle: &FileHandle, ino: u64) -> Option<u32> {
        Self::of(handle, ino).filter(|(codec, _)| *codec == self).map(|(_, generation)| generation)
    }

    /// Returns inode number and generation of a handle, if it has this layout.
    pub(super) fn read(self, handle: &FileHandle) -> Option<(u64, u32)> {
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

    /// Builds the handle of an inode. `None` if the number is too large for this layout.
    pub(super) fn handle(self, ino: u64, generation: u32) -> Option<FileHandle> {
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
