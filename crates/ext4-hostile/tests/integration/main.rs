//! Runs the engine on damaged images.

mod clean_images;
mod mutated_images;
mod rng;
