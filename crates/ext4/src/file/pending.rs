//! What a write did to blocks and the map does not know yet.

use crate::allocate::Reservation;
use crate::buffer::Handle;
use crate::error::Result;
use crate::filesystem::Filesystem;
use crate::inode::Inode;
use crate::map::{self, MappedExtent};

/// Most pieces that one handle enters.
const MAX_PENDING: usize = 8;

/// Blocks that entering one piece may change: the map, and bitmap and descriptor of the blocks.
const CREDITS: u32 = map::CREDITS + 2;

/// Pieces to be entered into the map of a file, their content already on the way to the device: no crash shows what
/// somebody else had in these blocks.
#[derive(Default)]
pub(super) struct Pending<'a>(Vec<(MappedExtent, Option<Reservation<'a>>)>);

impl<'a> Pending<'a> {
    pub(super) fn push(&mut self, piece: MappedExtent, reservation: Option<Reservation<'a>>) {
        self.0.push((piece, reservation));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.0.len() >= MAX_PENDING
    }

    /// Blocks that entering all of it, and the inode, may change.
    pub(super) fn credits(&self) -> u32 {
        1 + self.0.len() as u32 * CREDITS
    }

    /// Enters all of it. The inode is to be saved, also where this fails for want of space: what was entered before is
    /// whole. Tells how far it came, as a block of the file.
    pub(super) fn enter(
        &mut self,
        fs: &Filesystem,
        handle: &mut Handle<'_>,
        inode: &mut Inode,
    ) -> (Option<u64>, Result<()>) {
        let mut end = None;
        for (piece, reservation) in self.0.drain(..) {
            // Where the map has no room for it, the reservation is dropped, and the blocks stay free.
            let replaced = map::replace(fs, handle, inode, (piece.logical.into(), piece.end()), &[piece]);
            let taken = replaced.and_then(|_| match reservation {
                Some(mut reservation) => {
                    inode.blocks += fs.units(piece.length.into());
                    reservation.take(handle, piece.length)
                }
                None => Ok(()),
            });
            if let Err(error) = taken {
                return (end, Err(error));
            }
            end = Some(piece.end());
        }
        (end, Ok(()))
    }
}
