//! Mutated ext4 images, for tests and fuzz targets.
//!
//! Any bytes are a valid input. An input selects an [image](images), its [mutations](Mutant), and the [operations](operate) on
//! it. [`survive`] runs them; it panics if the engine misbehaves. The images, of many kinds, are part of the crate, so that an
//! input means the same everywhere.

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

/// Statistics of a run.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Survived {
    /// Names seen by the read-only run.
    pub names: usize,
    /// Number of successful operations.
    pub worked: usize,
    /// Number of device accesses.
    pub uses: u64,
}

/// Reads a mutant with its journal replayed in memory, then writes to it as the input specifies.
///
/// # Panics
/// If the engine panics, accesses the device out of bounds, writes to a read-only device, or does not terminate.
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

/// Writes to a device as the input specifies, and closes it; returns the number of successful operations.
///
/// # Panics
/// Under the conditions of [`survive`].
pub fn write(device: &Arc<Guarded>, input: Input<'_>) -> usize {
    let Ok(fs) = Filesystem::open_writable(device.clone()) else { return 0 };
    fs.discard_freed(input.0.len() % 2 == 1);
    let names = visit(&fs);
    let worked = operate(&fs, names, input);
    fs.close().ok();
    worked
}
