//! Tests of the module itself, and of ext4 over it. They need the module: `lab/extmap` runs them in the lab, where it is
//! loaded.

mod content;
mod cut;
pub mod dice;
mod disk;
mod end_of_io;
mod ended;
mod ext4;
mod hostile;
mod little_memory;
pub mod plan;
mod race;
mod speed;
pub mod stamps;
mod writes;
mod writes_failing;
mod writes_random;
mod writing;
