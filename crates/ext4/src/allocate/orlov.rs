//! Orlov directory allocator (Grigory Orlov, from BSD): chooses the group of a new directory. Top-level directories are spread
//! over the device; others stay near their parents. Both go to groups with room for their future content.

use std::sync::atomic::Ordering;

use super::{Allocator, State};
use crate::buffer::MetadataCache;

/// Free space of a flex group.
struct Room {
    first: u32,
    blocks: u64,
    inodes: u64,
    directories: u64,
}

impl Allocator {
    fn room(&self, first: u32, groups: u32) -> Room {
        let mut room = Room { first, blocks: 0, inodes: 0, directories: 0 };
        for group in self.groups.iter().skip(first as usize).take(groups as usize) {
            room.blocks += u64::from(group.blocks.load(Ordering::Relaxed));
            room.inodes += u64::from(group.inodes.load(Ordering::Relaxed));
            room.directories += u64::from(group.directories.load(Ordering::Relaxed));
        }
        room
    }

    /// Returns the group at which the search for the inode of a new directory starts. `home` is the parent's group; `top` is set
    /// if the parent is the root or is marked as the top of a hierarchy.
    pub(super) fn place_directory(&self, store: &MetadataCache, home: u32, top: bool) -> u32 {
        let flex = store.geometry().groups_per_flex();
        let rooms: Vec<Room> = (0..self.groups.len() as u32)
            .step_by(flex as usize)
            .map(|first| self.room(first, flex))
            .collect();
        let count = rooms.len() as u64;
        let average = |of: fn(&Room) -> u64| rooms.iter().map(of).sum::<u64>() / count;
        let (inodes, blocks) = (average(|room| room.inodes), average(|room| room.blocks));
        let directories = average(|room| room.directories);
        // Ties are broken in rotation, so that directories created in quick succession are spread too.
        let turn = if top { self.spread.fetch_add(1, Ordering::Relaxed) as usize } else { 0 };
        let chosen = if top {
            let start = turn % rooms.len();
            let (before, after) = rooms.split_at(start);
            let good = |room: &&Room| room.inodes > 0 && room.inodes >= inodes && room.blocks >= blocks;
            after.iter().chain(before).filter(good).min_by_key(|room| room.directories)
        } else {
            let own = (home / flex) as usize;
            let (before, after) = rooms.split_at(own.min(rooms.len() - 1));
            let good = |room: &&Room| {
                room.inodes > 0
                    && room.inodes >= inodes / 4 * 3
                    && room.blocks >= blocks / 4 * 3
                    && room.directories <= directories + u64::from(flex) * 64
            };
            after.iter().chain(before).find(good)
        };
        match chosen {
            // Prefer the parent's own group if it belongs to the chosen flex group.
            Some(room) if (room.first..room.first + flex).contains(&home) && !top => home,
            Some(room) if top => self.one_of(room, flex, turn / rooms.len()),
            Some(room) => room.first,
            None => home,
        }
    }

    /// Returns the group of a flex group with the fewest directories, in rotation among equals: writers in different groups take
    /// different locks.
    fn one_of(&self, room: &Room, groups: u32, turn: usize) -> u32 {
        let those: Vec<_> =
            (room.first..).zip(self.groups.iter().skip(room.first as usize).take(groups as usize)).collect();
        let count = those.len() as u64;
        let good = |group: &State| {
            // The first group may have less room because of the journal.
            let (inodes, blocks) = (&group.inodes, &group.blocks);
            u64::from(inodes.load(Ordering::Relaxed)) * count * 2 >= room.inodes
                && u64::from(blocks.load(Ordering::Relaxed)) * count * 2 >= room.blocks
        };
        let (before, after) = those.split_at(turn % those.len().max(1));
        let roomy = after.iter().chain(before).filter(|(_, group)| good(group));
        let fewest = roomy.min_by_key(|(_, group)| group.directories.load(Ordering::Relaxed));
        fewest.map_or(room.first, |(number, _)| *number)
    }
}
