//! The messages from the server to its guardian: one packet each, little-endian.
//!
//! | bytes | meaning |
//! |---|---|
//! | 1 | version, [`VERSION`] |
//! | 1 | kind |
//! | 4 | token of the watch |
//! | 25 | for kinds 1 and 2, a mark: 0 or 1 for a reusable or a unique id, the id (8), the id of mountinfo (8), major (4), minor (4) |
//! | rest | for kinds 1 and 2, the path |
//!
//! Kinds from 16 on are kept for taking over a session: the guardian will then hold the session's descriptors
//! (`/dev/fuse` and its clones, the state), passed with SCM_RIGHTS, and hand them to the next server. A guardian
//! drops what it does not know.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use crate::mount::{Dev, Mark, MountId};

/// Of the format. Both sides are the same program, so there is nothing to negotiate.
pub(super) const VERSION: u8 = 1;
/// What the guardian sends once, when no signal can end it any more.
pub(super) const READY: &[u8; 2] = &[VERSION, b'R'];
/// The largest packet: the head and a path as long as the kernel takes.
pub(super) const MAX: usize = HEAD + MARK + 4096;

const HEAD: usize = 6;
const MARK: usize = 25;
const PENDING: u8 = 1;
const MOUNTED: u8 = 2;
const RELEASE: u8 = 3;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// A mount is about to come at the path, where `before` is on top now.
    Pending { token: u32, before: Mark, path: PathBuf },
    /// This mount is, or is about to be, at the path.
    Mounted { token: u32, mark: Mark, path: PathBuf },
    /// No longer to be watched.
    Release { token: u32 },
}

impl Message {
    pub(super) fn encode(&self) -> Vec<u8> {
        let (kind, token, rest) = match self {
            Message::Pending { token, before, path } => (PENDING, token, Some((before, path))),
            Message::Mounted { token, mark, path } => (MOUNTED, token, Some((mark, path))),
            Message::Release { token } => (RELEASE, token, None),
        };
        let mut out = vec![VERSION, kind];
        out.extend(token.to_le_bytes());
        if let Some((mark, path)) = rest {
            let (unique, id) = match mark.id {
                MountId::Reusable(id) => (0, id),
                MountId::Unique(id) => (1, id),
            };
            out.push(unique);
            out.extend(id.to_le_bytes());
            out.extend(mark.old_id.to_le_bytes());
            out.extend(mark.dev.major.to_le_bytes());
            out.extend(mark.dev.minor.to_le_bytes());
            out.extend(path.as_os_str().as_bytes());
        }
        out
    }

    /// `None` for what is malformed or not known.
    pub(super) fn decode(packet: &[u8]) -> Option<Self> {
        let ([VERSION, kind], rest) = packet.split_first_chunk()? else { return None };
        let (token, rest) = rest.split_first_chunk()?;
        let token = u32::from_le_bytes(*token);
        if *kind == RELEASE {
            return rest.is_empty().then_some(Message::Release { token });
        }
        let (unique, rest) = rest.split_first()?;
        let (id, rest) = rest.split_first_chunk()?;
        let (old_id, rest) = rest.split_first_chunk()?;
        let (major, rest) = rest.split_first_chunk()?;
        let (minor, path) = rest.split_first_chunk()?;
        let id = u64::from_le_bytes(*id);
        let mark = Mark {
            id: if *unique == 1 { MountId::Unique(id) } else { MountId::Reusable(id) },
            old_id: u64::from_le_bytes(*old_id),
            dev: Dev { major: u32::from_le_bytes(*major), minor: u32::from_le_bytes(*minor) },
        };
        let path = PathBuf::from(OsString::from_vec(path.to_vec()));
        if !path.is_absolute() {
            return None;
        }
        match *kind {
            PENDING => Some(Message::Pending { token, before: mark, path }),
            MOUNTED => Some(Message::Mounted { token, mark, path }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_back() {
        let mark = Mark { id: MountId::Unique(1 << 40), old_id: 7, dev: Dev { major: 0, minor: 9 } };
        let other = Mark { id: MountId::Reusable(7), ..mark };
        let path = PathBuf::from(OsString::from_vec(b"/a \xff".to_vec()));
        for message in [
            Message::Pending { token: 1, before: other, path: path.clone() },
            Message::Mounted { token: u32::MAX, mark, path },
            Message::Release { token: 3 },
        ] {
            let packet = message.encode();
            assert_eq!(Message::decode(&packet), Some(message));
            // Every shorter packet is refused or has a shorter path; none panics.
            for len in 0..packet.len() {
                let _ = Message::decode(&packet[..len]);
            }
        }
    }

    #[test]
    fn the_unknown_is_dropped() {
        for packet in [
            &[][..],
            &[VERSION],
            &[2, 1, 0, 0, 0, 0],
            &[VERSION, 16, 0, 0, 0, 0],
            &[VERSION, 3, 0, 0, 0, 0, 0],
        ] {
            assert_eq!(Message::decode(packet), None);
        }
    }
}
