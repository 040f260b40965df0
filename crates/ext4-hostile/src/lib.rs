//! ext4 images that are wrong on purpose, and what is done to them: for tests, and for the fuzz targets.
//!
//! An input, whatever bytes it has, says which [image](images), how it is [changed](Mutant), and what is then
//! [done](operate) to it. [`survive`] does all that; it panics where the engine does what it must not. Images are of
//! many kinds, and come with the crate, so that an input means the same everywhere.

mod check;
mod device;
mod fields;
mod find;
mod images;
mod input;
mod mutate;
mod number;
mod operate;
mod repair;
mod visit;

use std::sync::Arc;

use shunt_ext4::Filesystem;

pub use check::{Checker, Verdict};
pub use device::Guarded;
pub use find::{Journal, KINDS, Kind, Site, Structures, Transaction};
pub use images::{Image, images};
pub use input::Input;
pub use mutate::Mutant;
pub use number::Field;
pub use operate::operate;
pub use visit::{Name, visit};

/// What came of a use.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Survived {
    /// Names that were seen when it was only read.
    pub names: usize,
    /// Operations that worked.
    pub worked: usize,
    /// Reads and writes of the device.
    pub uses: u64,
}

/// Reads a mutant, with its journal applied in memory; then writes to it as the input says.
///
/// # Panics
/// Where the engine panics, touches what is not the image's, writes what it was to read, or finds no end.
pub fn survive(mutant: &Mutant, input: Input<'_>) -> Survived {
    let mut survived = Survived::default();
    let device = Arc::new(Guarded::read_only(mutant));
    if let Ok(fs) = Filesystem::open(device.clone()) {
        survived.names = visit(&fs).len();
    }
    survived.uses = device.uses();
    let device = Arc::new(Guarded::new(mutant));
    survived.worked = write(&device, input);
    survived.uses += device.uses();
    survived
}

/// Writes to a device as the input says, and closes it; tells how many operations worked.
///
/// # Panics
/// As [`survive`].
pub fn write(device: &Arc<Guarded>, input: Input<'_>) -> usize {
    let Ok(fs) = Filesystem::open_writable(device.clone()) else { return 0 };
    fs.discard_freed(input.0.len() % 2 == 1);
    let names = visit(&fs);
    let worked = operate(&fs, names, input);
    fs.close().ok();
    worked
}
