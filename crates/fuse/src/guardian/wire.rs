//! The messages between a server and its guardian: one packet each, little-endian.
//!
//! | bytes | meaning |
//! |---|---|
//! | 1 | version, [`VERSION`] |
//! | 1 | kind |
//! | 4 | token of the watch; for the kinds from 16 on a number |
//! | 25 | for kinds 1 and 2, a mark: 0 or 1 for a reusable or a unique id, the id (8), the id of mountinfo (8), major (4), minor (4) |
//! | rest | for kinds 1 and 2, the path |
//!
//! Kinds from 16 on belong to takeovers. A descriptor is passed as SCM_RIGHTS.
//!
//! | kind | direction | number | then |
//! |---|---|---|---|
//! | 16 hold | both | class of the descriptor | its id (8), the descriptor |
//! | 17 let go | to the guardian | class of the descriptor | its id (8) |
//! | 18 restart | to the guardian, first | crashes too many | arguments of the next server, each ended by a NUL |
//! | 19 ending | to the guardian | 0 | |
//! | 20 upgrade | to the guardian | 0 | the program, open for execution; without one, what is at the path of the guardian's own program |
//! | 21 go | to the server | number of takeovers, this one included | the value for `oom_score_adj` (4), nanoseconds of CLOCK_MONOTONIC at which the last server was found dead, or began to hand over (8), the [`Cause`] (1) |
//! | 22 serving | to the guardian | 0 | |
//! | 23 unmount only | to the guardian, first | 0 | |
//! | 24 arm | to the guardian | 0 | |
//! | 25 seal | to the guardian | 0 | |
//!
//! The first packet fixes the guardian's abilities: it is of kind 18 or 23, which are ignored later. Unknown messages are
//! dropped.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use super::Cause;
use super::fd_store::{DescriptorClass, Key};
use crate::mount::{Dev, MountId, MountIdentity};

/// Version of the format. Both sides are the same program, or one that reported the same
/// [`takeover::VERSION`](crate::takeover::VERSION), which is incremented with this one: nothing is negotiated.
pub(super) const VERSION: u8 = 2;
/// Sent once by the guardian, when it has become immune to signals.
pub(super) const READY: &[u8; 2] = &[VERSION, b'R'];
/// The largest packet: the arguments of a server. A path, which is at most 4096 bytes long, fits as well.
pub(super) const MAX_PACKET_BYTES: usize = 64 << 10;

const PENDING: u8 = 1;
const MOUNTED: u8 = 2;
const RELEASE: u8 = 3;
const STORE: u8 = 16;
const REMOVE: u8 = 17;
const RESTART: u8 = 18;
const ENDING: u8 = 19;
const UPGRADE: u8 = 20;
const GO: u8 = 21;
const SERVING: u8 = 22;
const UNMOUNT_ONLY: u8 = 23;
const ARM: u8 = 24;
const SEAL: u8 = 25;
const GUEST: u8 = 26;
const CONFINE: u8 = 27;
const END_SESSION: u8 = 28;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// A mount is about to be attached at the path, where `before` is the topmost mount now.
    Pending { token: u32, before: MountIdentity, path: PathBuf },
    /// This mount is, or is about to be, attached at the path.
    Mounted { token: u32, mark: MountIdentity, path: PathBuf },
    /// The mount is no longer to be watched.
    Release { token: u32 },
    /// Store the attached descriptor.
    Store(Key),
    /// Drop a stored descriptor.
    Remove(Key),
    /// Start a successor with these arguments if the server dies. Valid as the first packet only.
    Restart { crashes: u32, arguments: Vec<OsString> },
    /// The server is about to exit, without a successor.
    Ending,
    /// Use the attached program for the next server, or what is installed at the path of the guardian's.
    Upgrade,
    /// All descriptors and the state were sent; start serving.
    Go { takeovers: u32, oom_score: i32, gone_since: u64, cause: Cause },
    /// The new server has taken over.
    Serving,
    /// Never start a successor, whichever messages follow. Valid as the first packet only.
    UnmountOnly,
    /// From now on start a successor if the server dies.
    Arm,
    /// Refuse further mounts and descriptors.
    Seal,
    /// A guest's device is served at the path instead of a mount; its sockets were stored before.
    Guest { token: u32, path: PathBuf },
    /// Accept only what a server of a guest needs from here on: the state and descriptors of its session.
    Confine,
    /// Drop the state and descriptors of the session.
    EndSession,
}

impl Message {
    pub(super) fn encode(&self) -> Vec<u8> {
        let head = |kind: u8, number: u32| {
            let mut out = vec![VERSION, kind];
            out.extend(number.to_le_bytes());
            out
        };
        let mount = |kind, token: u32, mark: &MountIdentity, path: &PathBuf| {
            let mut out = head(kind, token);
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
            out
        };
        let key = |kind, key: &Key| {
            let mut out = head(kind, key.class as u32);
            out.extend(key.id.to_le_bytes());
            out
        };
        match self {
            Message::Pending { token, before, path } => mount(PENDING, *token, before, path),
            Message::Mounted { token, mark, path } => mount(MOUNTED, *token, mark, path),
            Message::Release { token } => head(RELEASE, *token),
            Message::Store(held) => key(STORE, held),
            Message::Remove(held) => key(REMOVE, held),
            Message::Restart { crashes, arguments } => {
                let mut out = head(RESTART, *crashes);
                for argument in arguments {
                    out.extend(argument.as_bytes());
                    out.push(0);
                }
                out
            }
            Message::Ending => head(ENDING, 0),
            Message::Upgrade => head(UPGRADE, 0),
            Message::Go { takeovers, oom_score, gone_since, cause } => {
                let mut out = head(GO, *takeovers);
                out.extend(oom_score.to_le_bytes());
                out.extend(gone_since.to_le_bytes());
                out.push(*cause as u8);
                out
            }
            Message::Serving => head(SERVING, 0),
            Message::UnmountOnly => head(UNMOUNT_ONLY, 0),
            Message::Arm => head(ARM, 0),
            Message::Seal => head(SEAL, 0),
            Message::Guest { token, path } => {
                let mut out = head(GUEST, *token);
                out.extend(path.as_os_str().as_bytes());
                out
            }
            Message::Confine => head(CONFINE, 0),
            Message::EndSession => head(END_SESSION, 0),
        }
    }

    /// Decodes a packet; `None` where it is malformed or unknown.
    pub(super) fn decode(packet: &[u8]) -> Option<Self> {
        let ([VERSION, kind], rest) = packet.split_first_chunk()? else { return None };
        let (token, rest) = rest.split_first_chunk()?;
        let token = u32::from_le_bytes(*token);
        match *kind {
            PENDING | MOUNTED => Self::decode_mount(*kind, token, rest),
            RELEASE => rest.is_empty().then_some(Message::Release { token }),
            STORE => Some(Message::Store(decode_key(token, rest)?)),
            REMOVE => Some(Message::Remove(decode_key(token, rest)?)),
            RESTART => {
                let (&0, arguments) = rest.split_last()? else { return None };
                let arguments = arguments.split(|&byte| byte == 0);
                let arguments = arguments.map(|bytes| OsString::from_vec(bytes.to_vec())).collect();
                Some(Message::Restart { crashes: token, arguments })
            }
            ENDING => rest.is_empty().then_some(Message::Ending),
            UPGRADE => rest.is_empty().then_some(Message::Upgrade),
            GO => {
                let (oom_score, rest) = rest.split_first_chunk()?;
                let (gone_since, rest) = rest.split_first_chunk()?;
                let ([cause], oom_score) = (rest, i32::from_le_bytes(*oom_score)) else { return None };
                let (gone_since, cause) = (u64::from_le_bytes(*gone_since), Cause::from_number(*cause)?);
                Some(Message::Go { takeovers: token, oom_score, gone_since, cause })
            }
            SERVING => rest.is_empty().then_some(Message::Serving),
            UNMOUNT_ONLY => rest.is_empty().then_some(Message::UnmountOnly),
            ARM => rest.is_empty().then_some(Message::Arm),
            SEAL => rest.is_empty().then_some(Message::Seal),
            GUEST => Some(Message::Guest { token, path: OsString::from_vec(rest.to_vec()).into() }),
            CONFINE => rest.is_empty().then_some(Message::Confine),
            END_SESSION => rest.is_empty().then_some(Message::EndSession),
            _ => None,
        }
    }

    fn decode_mount(kind: u8, token: u32, rest: &[u8]) -> Option<Self> {
        let (unique, rest) = rest.split_first()?;
        let (id, rest) = rest.split_first_chunk()?;
        let (old_id, rest) = rest.split_first_chunk()?;
        let (major, rest) = rest.split_first_chunk()?;
        let (minor, path) = rest.split_first_chunk()?;
        let id = u64::from_le_bytes(*id);
        let mark = MountIdentity {
            id: if *unique == 1 { MountId::Unique(id) } else { MountId::Reusable(id) },
            old_id: u64::from_le_bytes(*old_id),
            dev: Dev { major: u32::from_le_bytes(*major), minor: u32::from_le_bytes(*minor) },
        };
        let path = PathBuf::from(OsString::from_vec(path.to_vec()));
        if !path.is_absolute() {
            return None;
        }
        Some(match kind {
            PENDING => Message::Pending { token, before: mark, path },
            _ => Message::Mounted { token, mark, path },
        })
    }
}

fn decode_key(class: u32, id: &[u8]) -> Option<Key> {
    Some(Key { class: DescriptorClass::from_number(class)?, id: u64::from_le_bytes(id.try_into().ok()?) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_back() {
        let mark = MountIdentity { id: MountId::Unique(1 << 40), old_id: 7, dev: Dev { major: 0, minor: 9 } };
        let other = MountIdentity { id: MountId::Reusable(7), ..mark };
        let path = PathBuf::from(OsString::from_vec(b"/a \xff".to_vec()));
        for message in [
            Message::Pending { token: 1, before: other, path: path.clone() },
            Message::Mounted { token: u32::MAX, mark, path: path.clone() },
            Message::Release { token: 3 },
            Message::Store(Key { class: DescriptorClass::Device, id: 7 }),
            Message::Remove(Key { class: DescriptorClass::FileSystem, id: u64::MAX }),
            Message::Restart { crashes: 5, arguments: vec!["shunt".into(), "".into(), "-o".into()] },
            Message::Ending,
            Message::Upgrade,
            Message::Go { takeovers: 2, oom_score: -1000, gone_since: 1 << 40, cause: Cause::Upgrade },
            Message::Serving,
            Message::UnmountOnly,
            Message::Arm,
            Message::Seal,
            Message::Guest { token: 1, path },
            Message::Confine,
            Message::EndSession,
        ] {
            let packet = message.encode();
            assert_eq!(Message::decode(&packet), Some(message));
            // Each shorter packet is refused or has a shorter path; none panics.
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
            &[VERSION - 1, 3, 0, 0, 0, 0],
            &[VERSION + 1, 3, 0, 0, 0, 0],
            &[VERSION, 15, 0, 0, 0, 0],
            &[VERSION, 16, 99, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            &[VERSION, 18, 5, 0, 0, 0],
            &[VERSION, 3, 0, 0, 0, 0, 0],
        ] {
            assert_eq!(Message::decode(packet), None);
        }
    }
}
