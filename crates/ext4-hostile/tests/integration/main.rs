//! Runs the engine on damaged images.

mod clean;
mod dice;
mod hostile;
