//! Extensions at the end of a request (7.38).
//!
//! They occupy the last `total_extlen` * 8 bytes: records that begin with an [`ExtHeader`] and have a length that is a multiple
//! of 8. Types 0 to 31 are security contexts, and the type is their number; 32 is the group list. Creations (CREATE, MKDIR,
//! MKNOD, SYMLINK, TMPFILE) carry them when negotiated.

use std::ffi::CStr;

use crate::consts::{EXT_GROUPS, MAX_NR_SECCTX, XATTR_NAME_MAX};
use crate::cursor::Cursor;
use crate::{ExtHeader, MessagePart, ParseError, Secctx, SuppGroups};

/// The extensions of a request, validated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Extensions<'a> {
    raw: &'a [u8],
}

/// A security label for the node that is created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SecurityContext<'a> {
    /// Name of the extended attribute, such as `security.selinux`.
    pub name: &'a CStr,
    /// Its value.
    pub value: &'a [u8],
}

impl<'a> Extensions<'a> {
    /// Validates all records. Records of unknown type are skipped.
    ///
    /// # Errors
    /// The records do not fill `raw`, or the contents of one do not fit.
    pub fn parse(raw: &'a [u8]) -> Result<Self, ParseError> {
        let mut rest = raw;
        while !rest.is_empty() {
            let (kind, body, next) = record(rest)?;
            rest = next;
            match kind {
                0..=MAX_NR_SECCTX => {
                    let mut body = body;
                    for _ in 0..kind {
                        (_, body) = context(body)?;
                    }
                }
                EXT_GROUPS => {
                    groups(body)?;
                }
                _ => {}
            }
        }
        Ok(Self { raw })
    }

    /// Reports whether there are no extensions.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.raw.is_empty()
    }

    /// Returns the extensions in their wire format.
    #[must_use]
    pub const fn as_bytes(&self) -> &'a [u8] {
        self.raw
    }

    /// Iterates over the security contexts.
    #[must_use]
    pub const fn security_contexts(&self) -> SecurityContexts<'a> {
        SecurityContexts { records: self.raw, body: &[], left: 0 }
    }

    /// Iterates over the supplementary groups of the caller; the kernel sends the one that owns the parent directory.
    #[must_use]
    pub const fn supplementary_groups(&self) -> SupplementaryGroups<'a> {
        SupplementaryGroups { records: self.raw, ids: &[] }
    }
}

/// Iterator over the security contexts.
#[derive(Debug, Clone)]
pub struct SecurityContexts<'a> {
    records: &'a [u8],
    body: &'a [u8],
    left: u32,
}

impl<'a> Iterator for SecurityContexts<'a> {
    type Item = SecurityContext<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.left == 0 {
            let (kind, body, rest) = record(self.records).ok()?;
            self.records = rest;
            if kind <= MAX_NR_SECCTX {
                (self.body, self.left) = (body, kind);
            }
        }
        let (found, rest) = context(self.body).ok()?;
        self.body = rest;
        self.left -= 1;
        Some(found)
    }
}

/// Iterator over the supplementary groups.
#[derive(Debug, Clone)]
pub struct SupplementaryGroups<'a> {
    records: &'a [u8],
    ids: &'a [u8],
}

impl Iterator for SupplementaryGroups<'_> {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        loop {
            if let Some((id, rest)) = self.ids.split_first_chunk() {
                self.ids = rest;
                return Some(u32::from_ne_bytes(*id));
            }
            let (kind, body, rest) = record(self.records).ok()?;
            self.records = rest;
            if kind == EXT_GROUPS {
                self.ids = groups(body).ok()?;
            }
        }
    }
}

/// Splits off the first record: type, contents, remaining bytes.
fn record(bytes: &[u8]) -> Result<(u32, &[u8], &[u8]), ParseError> {
    const HEAD: usize = size_of::<ExtHeader>();
    let head: ExtHeader = Cursor::new(bytes).take(MessagePart::Extension)?;
    let size = head.size as usize;
    let mismatch =
        ParseError::Mismatch { what: MessagePart::Extension, want: u64::from(head.size), got: bytes.len() };
    if size % 8 != 0 {
        return Err(mismatch);
    }
    let (record, rest) = bytes.split_at_checked(size).ok_or(mismatch)?;
    let body = record.get(HEAD..).ok_or(mismatch)?;
    Ok((head.r#type, body, rest))
}

/// Splits off the first security context.
fn context(body: &[u8]) -> Result<(SecurityContext<'_>, &[u8]), ParseError> {
    let what = MessagePart::SecurityContext;
    let mut cursor = Cursor::new(body);
    let head: Secctx = cursor.take(what)?;
    let name = cursor.cstr(what, XATTR_NAME_MAX)?;
    if name.is_empty() {
        return Err(ParseError::Empty { what });
    }
    let (start, size) = (body.len() - cursor.left(), head.size as usize);
    let mismatch = ParseError::Mismatch { what, want: u64::from(head.size), got: cursor.left() };
    let end = start.checked_add(size).ok_or(mismatch)?;
    let value = body.get(start..end).ok_or(mismatch)?;
    let rest = body.get(end.next_multiple_of(8)..).unwrap_or_default();
    Ok((SecurityContext { name, value }, rest))
}

/// Returns the group ids, 4 bytes each.
fn groups(body: &[u8]) -> Result<&[u8], ParseError> {
    const HEAD: usize = size_of::<SuppGroups>();
    let head: SuppGroups = Cursor::new(body).take(MessagePart::Groups)?;
    let len = u64::from(head.nr_groups) * 4;
    let mismatch = ParseError::Mismatch { what: MessagePart::Groups, want: len, got: body.len() - HEAD };
    let end = usize::try_from(len).ok().and_then(|len| len.checked_add(HEAD)).ok_or(mismatch)?;
    body.get(HEAD..end).ok_or(mismatch)
}
