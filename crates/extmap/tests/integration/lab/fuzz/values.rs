//! Random numbers of the kinds that find errors: limits, their neighbours, and valid ones.

use super::super::disk::BLOCK;
use super::super::rng::Rng;

/// Returns a number that is valid with a good chance as an offset or length in a file or on the disk, and an extreme one otherwise.
pub fn position(rng: &mut Rng, blocks: u64) -> u64 {
    match rng.roll(8) {
        0 => extreme(rng),
        1 => rng.roll(blocks * BLOCK),
        _ => rng.roll(blocks) * BLOCK,
    }
}

/// Returns a number of blocks in bytes, from one block to a few.
pub fn length(rng: &mut Rng) -> u64 {
    match rng.roll(8) {
        0 => extreme(rng),
        1 => rng.roll(3 * BLOCK),
        _ => (1 + rng.roll(24)) * BLOCK,
    }
}

/// Returns a limit of a type, of a page or of a file, or a neighbour of one.
pub fn extreme(rng: &mut Rng) -> u64 {
    const LIMITS: [u64; 14] = [
        0,
        512,
        BLOCK,
        1 << 16,
        1 << 20,
        1 << 31,
        1 << 32,
        1 << 44,
        (1 << 44) * BLOCK,
        (1 << 63) - BLOCK,
        1 << 63,
        u64::MAX - BLOCK,
        u64::MAX,
        0xffff_8880_0000_0000,
    ];
    let limit = LIMITS[rng.roll(LIMITS.len() as u64) as usize];
    match rng.roll(4) {
        0 => limit.wrapping_add(1),
        1 => limit.wrapping_sub(1),
        _ => limit,
    }
}

/// Returns 32 bits: mostly few of the low ones.
pub fn flags(rng: &mut Rng) -> u32 {
    match rng.roll(8) {
        0 => extreme(rng) as u32,
        _ => rng.roll(16) as u32,
    }
}
