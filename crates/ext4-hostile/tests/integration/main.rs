//! Damaged images, given to the engine.

mod clean;
mod dice;
mod hostile;
