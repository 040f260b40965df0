//! Parser for directory records, as the kernel reads them: for mock kernels and tests.

use crate::{Dirent, EntryOut, Wire};

/// One record of a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// The entry, in a reply to READDIRPLUS.
    pub entry: Option<EntryOut>,
    /// The head.
    pub dirent: Dirent,
    /// The name.
    pub name: &'a [u8],
}

/// Iterator over the records of a listing. Stops at the first incomplete one; [`Records::rest`] then returns it.
#[derive(Debug, Clone)]
pub struct Records<'a> {
    rest: &'a [u8],
    plus: bool,
}

impl<'a> Records<'a> {
    /// Iterates over the records in the reply to READDIR, or with `plus` to READDIRPLUS.
    #[must_use]
    pub const fn new(payload: &'a [u8], plus: bool) -> Self {
        Self { rest: payload, plus }
    }

    /// Returns the bytes that have not been read yet.
    #[must_use]
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Record<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        let (entry, rest) = if self.plus {
            let (entry, rest) = EntryOut::read_from_prefix(self.rest)?;
            (Some(entry), rest)
        } else {
            (None, self.rest)
        };
        let (dirent, rest) = Dirent::read_from_prefix(rest)?;
        let len = dirent.namelen as usize;
        let name = rest.get(..len)?;
        self.rest = rest.get(len.checked_next_multiple_of(8)?..)?;
        Some(Record { entry, dirent, name })
    }
}
