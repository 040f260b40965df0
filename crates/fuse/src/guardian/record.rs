//! The record of a mount that a service manager keeps for the next server: a memory file with the mount, the arguments of the
//! server, and the history of takeovers. It tells the next server whether it may continue, before it touches anything.
//!
//! | bytes | meaning |
//! |---|---|
//! | 0..8 | [`MAGIC`] |
//! | 8..12 | version of the messages, [`VERSION`] |
//! | 12..16 | 1 if the last server ended on purpose, for a restart |
//! | 16..20 | takeovers so far |
//! | 20..24 | attempts to take over since a server served |
//! | 24..32 | CLOCK_MONOTONIC in nanoseconds at which the last server began to hand over, or 0 |
//! | 32..96 | the last eight times at which a server was found to have crashed, 0 for none |
//! | from 4096 | a [`Message::Restart`] and a [`Message::Mounted`], each after its length (4) |

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::{pread, pwrite};

use super::wire::{MAX_PACKET_BYTES, Message, VERSION};
use crate::mount::MountIdentity;

const MAGIC: &[u8; 8] = b"shunt\0sm";
const HEADER_BYTES: usize = 96;
const MESSAGES_AT: u64 = 4096;
/// Number of crash times that are kept.
pub(super) const MAX_CRASH_TIMES: usize = 8;

/// The part of a record that changes. It is written by one call, so that a crash leaves the old or the new one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) planned: bool,
    pub(super) takeovers: u32,
    pub(super) attempts: u32,
    pub(super) gone: u64,
    pub(super) crashes: [u64; MAX_CRASH_TIMES],
}

impl Header {
    fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut out = Vec::with_capacity(HEADER_BYTES);
        out.extend(MAGIC);
        for number in [u32::from(VERSION), u32::from(self.planned), self.takeovers, self.attempts] {
            out.extend(number.to_le_bytes());
        }
        out.extend(self.gone.to_le_bytes());
        self.crashes.iter().for_each(|time| out.extend(time.to_le_bytes()));
        out.try_into().unwrap_or([0; HEADER_BYTES])
    }

    fn decode(bytes: &[u8; HEADER_BYTES]) -> Option<Self> {
        let word = |at: usize| bytes[at..at + 4].try_into().map(u32::from_le_bytes).unwrap_or(0);
        let long = |at: usize| bytes[at..at + 8].try_into().map(u64::from_le_bytes).unwrap_or(0);
        (bytes[..8] == *MAGIC && word(8) == u32::from(VERSION)).then(|| Self {
            planned: word(12) == 1,
            takeovers: word(16),
            attempts: word(20),
            gone: long(24),
            crashes: std::array::from_fn(|index| long(32 + 8 * index)),
        })
    }

    /// Adds a crash, and returns the number of those within `window` nanoseconds before `now`, this one included.
    pub(super) fn count_crash(&mut self, now: u64, window: u64) -> usize {
        self.crashes.rotate_right(1);
        self.crashes[0] = now;
        self.crashes.iter().filter(|time| **time > 0 && now.saturating_sub(**time) < window).count()
    }
}

/// A record, shared with the next server through the service manager.
#[derive(Debug)]
pub(super) struct Record {
    file: OwnedFd,
    pub(super) header: Header,
    pub(super) arguments: Vec<OsString>,
    pub(super) mount: Option<(u32, MountIdentity, PathBuf)>,
}

impl Record {
    /// Makes the record of a new mount.
    pub(super) fn create(arguments: Vec<OsString>) -> io::Result<Self> {
        let file = memfd_create("shunt-mount", MemfdFlags::CLOEXEC)?;
        let record = Self { file, header: Header::default(), arguments, mount: None };
        record.write_header()?;
        Ok(record)
    }

    /// Reads the record of another server; `None` where it is damaged, or of another version.
    pub(super) fn open(file: OwnedFd) -> Option<Self> {
        let mut header = [0; HEADER_BYTES];
        (pread(&file, &mut header, 0) == Ok(HEADER_BYTES)).then_some(())?;
        let header = Header::decode(&header)?;
        let (first, at) = read_message(file.as_fd(), MESSAGES_AT)?;
        let (second, _) = read_message(file.as_fd(), at)?;
        let (Message::Restart { arguments, .. }, Message::Mounted { token, mark, path }) = (first, second)
        else {
            return None;
        };
        Some(Self { file, header, arguments, mount: Some((token, mark, path)) })
    }

    pub(super) fn write_header(&self) -> io::Result<()> {
        pwrite(&self.file, &self.header.encode(), 0)?;
        Ok(())
    }

    /// Writes the mount and the arguments, once the mount is known.
    pub(super) fn set_mount(&mut self, token: u32, mark: MountIdentity, path: PathBuf) -> io::Result<()> {
        self.mount = Some((token, mark, path.clone()));
        let messages = [
            Message::Restart { crashes: 0, arguments: self.arguments.clone() },
            Message::Mounted { token, mark, path },
        ];
        let mut out = Vec::new();
        for packet in messages.map(|message| message.encode()) {
            out.extend((packet.len() as u32).to_le_bytes());
            out.extend(packet);
        }
        pwrite(&self.file, &out, MESSAGES_AT)?;
        Ok(())
    }
}

impl AsFd for Record {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Reads the message at `at`, and returns it with the place behind it.
fn read_message(file: BorrowedFd<'_>, at: u64) -> Option<(Message, u64)> {
    let mut length = [0; 4];
    (pread(file, &mut length, at) == Ok(4)).then_some(())?;
    let length = u32::from_le_bytes(length) as usize;
    let mut packet = vec![0; Some(length).filter(|length| *length <= MAX_PACKET_BYTES)?];
    (pread(file, &mut packet, at + 4) == Ok(length)).then_some(())?;
    Some((Message::decode(&packet)?, at + 4 + length as u64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mount::{Dev, MountId};

    #[test]
    fn a_record_is_read_by_the_next_server() {
        let mark = MountIdentity { id: MountId::Unique(1 << 40), old_id: 7, dev: Dev { major: 0, minor: 9 } };
        let mut record = Record::create(vec!["shunt".into(), "mirror".into()]).unwrap();
        record.set_mount(0, mark, "/mnt".into()).unwrap();
        record.header = Header { planned: true, takeovers: 3, attempts: 1, gone: 1 << 50, crashes: [7; 8] };
        record.write_header().unwrap();
        let read = Record::open(record.file.try_clone().unwrap()).unwrap();
        assert_eq!((read.header, read.mount), (record.header, record.mount));
        assert_eq!(read.arguments, record.arguments);
    }

    #[test]
    fn a_damaged_record_is_refused() {
        let record = Record::create(Vec::new()).unwrap();
        assert!(Record::open(record.file.try_clone().unwrap()).is_none(), "no mount");
        pwrite(&record.file, &u32::MAX.to_le_bytes(), MESSAGES_AT).unwrap();
        assert!(Record::open(record.file.try_clone().unwrap()).is_none(), "an impossible length");
        pwrite(&record.file, &99_u32.to_le_bytes(), 8).unwrap();
        assert!(Record::open(record.file).is_none(), "another version");
    }

    #[test]
    fn crashes_count_within_the_window() {
        let mut header = Header::default();
        assert_eq!([10, 20, 30, 200].map(|now| header.count_crash(now, 50)), [1, 2, 3, 1]);
        assert_eq!((0..20).map(|step| header.count_crash(300 + step, 50)).max(), Some(MAX_CRASH_TIMES));
    }
}
