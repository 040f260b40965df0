//! Parser for notifications, with the kernel's checks.

use shunt_fuse_abi::{
    NotifyCode, NotifyDeleteOut, NotifyInvalEntryOut, NotifyInvalInodeOut, NotifyPollWakeupOut,
    NotifyPruneOut, NotifyRetrieveOut, NotifyStoreOut, Wire,
};

/// A notification of the server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the fields are those of the wire structures")]
pub enum Notification {
    /// A polled file became ready.
    Poll { kh: u64 },
    /// Attributes, and pages if `off` is not negative, are invalidated.
    InvalInode { node: u64, off: i64, len: i64 },
    /// A name is dropped (flags 0) or expired (1).
    InvalEntry { parent: u64, name: Vec<u8>, flags: u32 },
    /// Data is stored in the page cache.
    Store { node: u64, offset: u64, data: Vec<u8> },
    /// Data is requested from the page cache.
    Retrieve { unique: u64, node: u64, offset: u64, size: u32 },
    /// A name was removed.
    Delete { parent: u64, child: u64, name: Vec<u8> },
    /// All unanswered requests are to be resent.
    Resend,
    /// All names are expired.
    IncEpoch,
    /// Nodes are to be evicted.
    Prune { nodes: Vec<u64> },
}

impl Notification {
    /// Parses the message after the header, with the kernel's checks of lengths and names.
    pub(crate) fn parse(code: i32, body: &[u8]) -> Result<Self, String> {
        let Some(code) = NotifyCode::from_raw(code) else {
            return Err(format!("unknown notification code {code}"));
        };
        let bad = |what: &str| format!("{}: wrong {what} in a message of {} bytes", code.name(), body.len());
        Ok(match code {
            NotifyCode::Poll => {
                Self::Poll { kh: whole::<NotifyPollWakeupOut>(body).ok_or(bad("length"))?.kh }
            }
            NotifyCode::InvalInode => {
                let out: NotifyInvalInodeOut = whole(body).ok_or(bad("length"))?;
                Self::InvalInode { node: out.ino, off: out.off, len: out.len }
            }
            NotifyCode::InvalEntry => {
                let (out, rest) = NotifyInvalEntryOut::read_from_prefix(body).ok_or_else(|| bad("length"))?;
                let name = name(rest, out.namelen).ok_or(bad("name"))?;
                Self::InvalEntry { parent: out.parent, name, flags: out.flags }
            }
            NotifyCode::Store => {
                let (out, data) = NotifyStoreOut::read_from_prefix(body).ok_or_else(|| bad("length"))?;
                if data.len() != out.size as usize {
                    return Err(bad("size"));
                }
                Self::Store { node: out.nodeid, offset: out.offset, data: data.to_vec() }
            }
            NotifyCode::Retrieve => {
                let out: NotifyRetrieveOut = whole(body).ok_or(bad("length"))?;
                let (node, offset, size) = (out.nodeid, out.offset, out.size);
                Self::Retrieve { unique: out.notify_unique, node, offset, size }
            }
            NotifyCode::Delete => {
                let (out, rest) = NotifyDeleteOut::read_from_prefix(body).ok_or_else(|| bad("length"))?;
                let name = name(rest, out.namelen).ok_or(bad("name"))?;
                Self::Delete { parent: out.parent, child: out.child, name }
            }
            NotifyCode::Resend | NotifyCode::IncEpoch if !body.is_empty() => return Err(bad("length")),
            NotifyCode::Resend => Self::Resend,
            NotifyCode::IncEpoch => Self::IncEpoch,
            NotifyCode::Prune => {
                let (out, rest) = NotifyPruneOut::read_from_prefix(body).ok_or_else(|| bad("length"))?;
                if rest.len() != out.count as usize * 8 {
                    return Err(bad("count"));
                }
                let nodes = rest.chunks_exact(8).filter_map(u64::read_from_bytes).collect();
                Self::Prune { nodes }
            }
        })
    }
}

fn whole<T: Wire>(body: &[u8]) -> Option<T> {
    T::read_from_bytes(body)
}

/// Parses a name of `len` bytes and a NUL, and nothing else.
fn name(rest: &[u8], len: u32) -> Option<Vec<u8>> {
    let (name, tail) = rest.split_at_checked(len as usize)?;
    (tail == [0] && !name.is_empty() && name.len() <= 4095 && !name.contains(&0)).then(|| name.to_vec())
}
