//! Checks that both sides have room before anything is written.

use std::path::Path;

use super::case::Plan;
use super::sides::Sides;
use crate::error::{Result, failed};
use crate::probe::Space;
use crate::text::bytes;

/// Fails if a side has less space or fewer inodes than the plan needs. A mount usually shows the space of the directory below it, so
/// both sides share it; then it must suffice for both.
///
/// # Errors
/// There is too little, or it cannot be asked.
pub fn check(plan: &Plan, sides: &Sides) -> Result<()> {
    // Space is shared unless the totals differ.
    let (mount, against) = (of(&sides.mount.dir)?, of(&sides.against.dir)?);
    let times = if mount.total_bytes == against.total_bytes { 2 } else { 1 };
    for (dir, space) in [(&sides.mount.dir, &mount), (&sides.against.dir, &against)] {
        enough(plan, dir, space, times)?;
    }
    Ok(())
}

fn of(dir: &Path) -> Result<Space> {
    Space::of(dir)
        .map_err(|errno| failed(format_args!("cannot read the free space of {}: {errno}", dir.display())))
}

fn enough(plan: &Plan, dir: &Path, space: &Space, times: u64) -> Result<()> {
    let (needed, inodes) = (plan.needed_bytes().saturating_mul(times), plan.needed_inodes() * times);
    let dir = dir.display();
    if needed > space.free_bytes {
        let (needed, free) = (bytes(needed), bytes(space.free_bytes));
        let message = format_args!(
            "cannot benchmark {dir}: {needed} are needed, and {free} are free; give a smaller --size"
        );
        return Err(failed(message));
    }
    if space.inodes > 0 && inodes > space.free_inodes {
        let free = space.free_inodes;
        let message = format_args!(
            "cannot benchmark {dir}: {inodes} inodes are needed, and {free} are free; give a smaller --files"
        );
        return Err(failed(message));
    }
    Ok(())
}
