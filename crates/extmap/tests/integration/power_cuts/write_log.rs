//! Reader of the log of a disk's writes, in the format of the lab's emulator and of dm-log-writes.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

const MAGIC: u64 = 0x006a_7366_7773_6872;
const SECTOR: u64 = 512;
const DISCARD: u64 = 4;

/// A logged write.
pub struct Write {
    pub offset: u64,
    pub data: Vec<u8>,
}

impl Write {
    pub fn apply(&self, disk: &mut [u8]) {
        disk[self.offset as usize..][..self.data.len()].copy_from_slice(&self.data);
    }
}

pub struct Log {
    file: File,
    at: u64,
    left: u64,
}

fn word(bytes: &[u8], n: usize) -> u64 {
    u64::from_le_bytes(bytes[n * 8..][..8].try_into().unwrap())
}

impl Log {
    pub fn open(path: &str) -> io::Result<Self> {
        let file = File::open(path)?;
        let mut head = [0; SECTOR as usize];
        file.read_exact_at(&mut head, 0)?;
        assert_eq!([word(&head, 0), word(&head, 1)], [MAGIC, 1], "{path} is not a log of writes");
        assert_eq!(word(&head, 3) as u32, SECTOR as u32);
        Ok(Self { file, at: SECTOR, left: word(&head, 2) })
    }
}

impl Iterator for Log {
    type Item = Write;

    /// Returns writes only: flushes carry no information where each cut is a prefix, and discarded data may remain.
    fn next(&mut self) -> Option<Write> {
        while self.left > 0 {
            self.left -= 1;
            let mut head = [0; SECTOR as usize];
            self.file.read_exact_at(&mut head, self.at).ok()?;
            self.at += SECTOR;
            let [offset, length, flags] = [0, 1, 2].map(|n| word(&head, n));
            if flags & DISCARD != 0 {
                continue;
            }
            let mut data = vec![0; (length * SECTOR) as usize];
            self.file.read_exact_at(&mut data, self.at).ok()?;
            self.at += length * SECTOR;
            if !data.is_empty() {
                return Some(Write { offset: offset * SECTOR, data });
            }
        }
        None
    }
}
