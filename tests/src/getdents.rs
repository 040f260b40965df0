//! Reading directories as the kernel gives them: order, cookies and types included.

use std::ffi::OsString;
use std::fs::File;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStringExt as _;
use std::path::Path;

use rustix::fs::{FileType, RawDir, SeekFrom, seek};

/// One entry of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The name, as bytes.
    pub name: OsString,
    /// The inode number in the listing.
    pub ino: u64,
    /// The type in the listing.
    pub kind: FileType,
    /// Offset to continue the listing after this entry.
    pub next: u64,
}

/// Returns the listing from a position (0: the start) on, including `.` and `..`.
pub fn list_from(dir: &File, position: u64) -> Vec<Entry> {
    seek(dir, SeekFrom::Start(position)).expect("seekdir");
    let mut entries = Vec::new();
    let mut buffer = [MaybeUninit::<u8>::uninit(); 16384];
    let mut raw = RawDir::new(dir, &mut buffer);
    while let Some(entry) = raw.next() {
        let entry = entry.expect("getdents");
        entries.push(Entry {
            name: OsString::from_vec(entry.file_name().to_bytes().to_vec()),
            ino: entry.ino(),
            kind: entry.file_type(),
            next: entry.next_entry_cookie(),
        });
    }
    entries
}

/// Returns the listing of a directory without `.` and `..`.
pub fn list(path: &Path) -> Vec<Entry> {
    let dir = File::open(path).expect("opendir");
    list_from(&dir, 0).into_iter().filter(|e| e.name != "." && e.name != "..").collect()
}
