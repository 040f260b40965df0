//! Written blocks that are not yet in the file's map.

use crate::allocate::Reservation;
use crate::buffer::Handle;
use crate::error::Result;
use crate::filesystem::Filesystem;
use crate::inode::Inode;
use crate::map::{self, MappedExtent};

/// Maximum number of pieces that one handle enters.
const MAX_PENDING: usize = 8;

/// Number of blocks that entering one piece may change: the map, and bitmap and descriptor of the blocks.
const CREDITS: u32 = map::CREDITS + 2;

/// Pieces to enter into the map of a file. Their content is already submitted to the device, so that a crash does not expose
/// stale content of these blocks.
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

    /// Number of blocks that entering all pieces and saving the inode may change.
    pub(super) fn credits(&self) -> u32 {
        1 + self.0.len() as u32 * CREDITS
    }

    /// Enters all pieces. The caller must save the inode even on [`Error::NoSpace`](crate::Error::NoSpace): the pieces before the
    /// failure are complete. Returns the file block behind the last complete piece.
    pub(super) fn enter(
        &mut self,
        fs: &Filesystem,
        handle: &mut Handle<'_>,
        inode: &mut Inode,
    ) -> (Option<u64>, Result<()>) {
        let mut end = None;
        for (piece, reservation) in self.0.drain(..) {
            // If the map has no room for the piece, dropping the reservation frees the blocks.
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
