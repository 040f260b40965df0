//! Parser for `fanotify(7)` events.

/// A file handle in an event: the file system id and the handle of an inode on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RawFid<'a> {
    /// File system id, as returned by `statvfs`.
    pub fsid: u64,
    /// Type of the handle.
    pub kind: i32,
    /// Bytes of the handle.
    pub bytes: &'a [u8],
}

/// A change event.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Event<'a> {
    /// The kind of change: `FAN_CREATE` and others.
    pub mask: u64,
    /// The process that made the change; 0 if it is outside our pid namespace.
    pub pid: u32,
    /// The directory, and the name in it.
    pub name: Option<(RawFid<'a>, &'a [u8])>,
    /// The directory that contains the name, or that changed itself.
    pub dir: Option<RawFid<'a>>,
    /// The changed inode.
    pub target: Option<RawFid<'a>>,
}

/// Size of `struct fanotify_event_metadata`; only length, version, mask and pid are used.
const METADATA_BYTES: usize = 24;

/// `FAN_EVENT_INFO_TYPE_*`.
const FID: u8 = 1;
const DFID_NAME: u8 = 2;
const DFID: u8 = 3;

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Parses and removes the first event of a buffer; `None` if the rest is not an event.
pub(super) fn take<'a>(buffer: &mut &'a [u8]) -> Option<Event<'a>> {
    let length = u32_at(buffer, 0)? as usize;
    if length < METADATA_BYTES {
        return None;
    }
    let (event, rest) = buffer.split_at_checked(length)?;
    *buffer = rest;
    let mut parsed = Event {
        mask: u64::from_ne_bytes(*event.get(8..)?.first_chunk()?),
        pid: u32_at(event, 20)?,
        ..Event::default()
    };
    let mut infos = event.get(usize::from(u16_at(event, 6)?)..)?;
    while let (Some(&kind), Some(length)) = (infos.first(), u16_at(infos, 2)) {
        let Some((info, rest)) = infos.split_at_checked(usize::from(length)).filter(|_| length > 0) else {
            break;
        };
        infos = rest;
        let Some((fid, name)) = fid(info) else { continue };
        match kind {
            FID => parsed.target = Some(fid),
            DFID => parsed.dir = Some(fid),
            DFID_NAME => {
                let end = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
                parsed.name = Some((fid, &name[..end]));
            }
            _ => {}
        }
    }
    Some(parsed)
}

/// Parses a fid record: header (4 bytes), file system id (8), length and type of the handle (8), the handle, and what
/// follows it.
fn fid(info: &[u8]) -> Option<(RawFid<'_>, &[u8])> {
    let (low, high) = (u32_at(info, 4)?, u32_at(info, 8)?);
    let length = u32_at(info, 12)? as usize;
    let kind = u32_at(info, 16)?.cast_signed();
    let (bytes, rest) = info.get(20..)?.split_at_checked(length)?;
    Some((RawFid { fsid: u64::from(high) << 32 | u64::from(low), kind, bytes }, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(kind: u8, handle: &[u8], name: &[u8]) -> Vec<u8> {
        let length = (20 + handle.len() + name.len()).next_multiple_of(4);
        let mut info = vec![kind, 0];
        info.extend((length as u16).to_ne_bytes());
        info.extend([7u32, 9, handle.len() as u32, 1].iter().flat_map(|word| word.to_ne_bytes()));
        info.extend(handle);
        info.extend(name);
        info.resize(length, 0);
        info
    }

    fn event(mask: u64, infos: &[Vec<u8>]) -> Vec<u8> {
        let infos = infos.concat();
        let mut event = ((24 + infos.len()) as u32).to_ne_bytes().to_vec();
        event.extend([3, 0]);
        event.extend(24u16.to_ne_bytes());
        event.extend(mask.to_ne_bytes());
        event.extend((-1i32).to_ne_bytes());
        event.extend(4711u32.to_ne_bytes());
        event.extend(infos);
        event
    }

    #[test]
    fn a_name_and_its_inode() {
        let bytes = event(0x100, &[info(2, b"parent..", b"name\0"), info(1, b"child...", b"")]);
        let mut rest = &bytes[..];
        let event = take(&mut rest).unwrap();
        assert!(rest.is_empty());
        assert_eq!((event.mask, event.pid), (0x100, 4711));
        let fid = |bytes| RawFid { fsid: 9 << 32 | 7, kind: 1, bytes };
        assert_eq!(event.name, Some((fid(b"parent.."), &b"name"[..])));
        assert_eq!(event.target, Some(fid(b"child...")));
    }

    #[test]
    fn truncated_and_damaged_events_do_not_panic() {
        let whole = event(4, &[info(2, b"parent..", b"name\0"), info(1, b"child...", b""), vec![5, 0, 0, 0]]);
        for cut in 0..whole.len() {
            assert_eq!(take(&mut &whole[..cut]), None, "{cut} bytes");
        }
        for index in 0..whole.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut damaged = whole.clone();
                damaged[index] = value;
                let mut rest = &damaged[..];
                while take(&mut rest).is_some() {}
            }
        }
    }
}
