//! Feature flags of the superblock, by the names that `dumpe2fs` uses.
#![allow(missing_docs, reason = "flags and fields are named as in the format's documentation")]

bitflags::bitflags! {
    /// Compatible features: implementations may ignore unknown ones.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Compat: u32 {
        const DIR_PREALLOC = 0x1;
        const IMAGIC_INODES = 0x2;
        const HAS_JOURNAL = 0x4;
        const EXT_ATTR = 0x8;
        const RESIZE_INODE = 0x10;
        const DIR_INDEX = 0x20;
        const SPARSE_SUPER2 = 0x200;
        const FAST_COMMIT = 0x400;
        const STABLE_INODES = 0x800;
        const ORPHAN_FILE = 0x1000;
    }

    /// Incompatible features: reading and writing require support for all of them.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Incompat: u32 {
        const COMPRESSION = 0x1;
        const FILETYPE = 0x2;
        const NEEDS_RECOVERY = 0x4;
        const JOURNAL_DEV = 0x8;
        const META_BG = 0x10;
        const EXTENT = 0x40;
        const BIT64 = 0x80;
        const MMP = 0x100;
        const FLEX_BG = 0x200;
        const EA_INODE = 0x400;
        const DIRDATA = 0x1000;
        const CSUM_SEED = 0x2000;
        const LARGE_DIR = 0x4000;
        const INLINE_DATA = 0x8000;
        const ENCRYPT = 0x1_0000;
        const CASEFOLD = 0x2_0000;
    }

    /// Read-only compatible features: writing requires support for all of them.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct RoCompat: u32 {
        const SPARSE_SUPER = 0x1;
        const LARGE_FILE = 0x2;
        const BTREE_DIR = 0x4;
        const HUGE_FILE = 0x8;
        const GDT_CSUM = 0x10;
        const DIR_NLINK = 0x20;
        const EXTRA_ISIZE = 0x40;
        const QUOTA = 0x100;
        const BIGALLOC = 0x200;
        const METADATA_CSUM = 0x400;
        const READONLY = 0x1000;
        const PROJECT = 0x2000;
        const VERITY = 0x8000;
        const ORPHAN_PRESENT = 0x1_0000;
    }
}

impl Incompat {
    /// Incompatible features that this engine can read.
    pub(crate) const READABLE: Self = Self::FILETYPE
        .union(Self::NEEDS_RECOVERY)
        .union(Self::META_BG)
        .union(Self::EXTENT)
        .union(Self::BIT64)
        .union(Self::MMP)
        .union(Self::FLEX_BG)
        .union(Self::EA_INODE)
        .union(Self::CSUM_SEED)
        .union(Self::LARGE_DIR)
        .union(Self::INLINE_DATA)
        .union(Self::ENCRYPT)
        .union(Self::CASEFOLD);

    /// Incompatible features that this engine can write.
    pub(crate) const WRITABLE: Self = Self::FILETYPE
        .union(Self::NEEDS_RECOVERY)
        .union(Self::EXTENT)
        .union(Self::BIT64)
        .union(Self::FLEX_BG)
        .union(Self::CSUM_SEED)
        .union(Self::LARGE_DIR)
        .union(Self::ENCRYPT);
}

impl RoCompat {
    /// Read-only compatible features that this engine can write.
    pub(crate) const WRITABLE: Self = Self::SPARSE_SUPER
        .union(Self::LARGE_FILE)
        .union(Self::HUGE_FILE)
        .union(Self::GDT_CSUM)
        .union(Self::DIR_NLINK)
        .union(Self::EXTRA_ISIZE)
        .union(Self::METADATA_CSUM)
        .union(Self::ORPHAN_PRESENT);
}

/// Returns the names of flags in lower case, and unnamed flags as numbers, as `dumpe2fs` prints them.
fn names<F: bitflags::Flags<Bits = u32>>(flags: &F) -> Vec<String> {
    let mut names: Vec<String> = flags
        .iter_names()
        .map(|(name, _)| match name {
            "BIT64" => "64bit".to_owned(),
            "NEEDS_RECOVERY" => "needs_recovery".to_owned(),
            "EXTENT" => "extent".to_owned(),
            "CSUM_SEED" => "metadata_csum_seed".to_owned(),
            "GDT_CSUM" => "uninit_bg".to_owned(),
            "READONLY" => "read-only".to_owned(),
            name => name.to_ascii_lowercase(),
        })
        .collect();
    let unknown = flags.bits() & !F::all().bits();
    if unknown != 0 {
        names.push(format!("{unknown:#x}"));
    }
    names
}

impl Compat {
    /// Returns the names of the features.
    pub fn names(&self) -> Vec<String> {
        names(self)
    }
}

impl Incompat {
    /// Returns the names of the features.
    pub fn names(&self) -> Vec<String> {
        names(self)
    }
}

impl RoCompat {
    /// Returns the names of the features.
    pub fn names(&self) -> Vec<String> {
        names(self)
    }
}
