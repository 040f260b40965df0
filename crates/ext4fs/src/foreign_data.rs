//! The data of a WRITE that is still in the kernel's pages: it moves from there to the image, without a copy in memory.

use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use shunt_ext4::ForeignData;
use shunt_fuse::KernelPages;

/// Data in pages, and the image that they are written to.
pub(crate) struct DataInPages<'a> {
    pub(crate) pages: KernelPages<'a>,
    pub(crate) image: BorrowedFd<'a>,
}

impl ForeignData for DataInPages<'_> {
    fn len(&self) -> usize {
        self.pages.len()
    }

    fn write_to_backing_file(&self, range: Range<usize>, offset: u64) -> io::Result<()> {
        let (mut rest, mut offset) = (range, offset);
        while !rest.is_empty() {
            match self.pages.write_to(rest.clone(), self.image, offset)? {
                0 => return Err(Errno::IO.into()),
                written => {
                    rest.start += written;
                    offset += written as u64;
                }
            }
        }
        Ok(())
    }

    fn to_bytes(&self, range: Range<usize>) -> io::Result<Vec<u8>> {
        Ok(self.pages.to_bytes(range)?)
    }
}
