//! Memory layout of the data that the BPF programs read, as defined in `kernel/policy/policy.h`.
#![cfg_attr(not(feature = "bpf"), allow(dead_code))]

use shunt_policy::{MAX_CELLS, MAX_GROUPS, MAX_USERS, Table};

/// The class of an inode whose rules changed.
pub(crate) const STALE: u32 = u32::MAX;

/// Encodes a `struct policy_class`.
pub(crate) fn class(table: &Table) -> Vec<u8> {
    let mut words = vec![table.users.len() as u32, table.groups.len() as u32];
    let mut list = |values: &[u32], room: usize| {
        words.extend(values.iter().take(room));
        words.extend(std::iter::repeat_n(u32::MAX, room.saturating_sub(values.len())));
    };
    list(&table.users, MAX_USERS);
    list(&table.groups, MAX_GROUPS);
    let mut bytes: Vec<u8> = words.into_iter().flat_map(u32::to_ne_bytes).collect();
    let cells = bytes.len() + MAX_CELLS * 8;
    bytes.extend(table.cells.iter().take(MAX_CELLS).flatten());
    bytes.resize(cells, 0);
    bytes
}

/// Encodes a `struct policy_settings`.
pub(crate) fn settings((major, minor): (u32, u32)) -> [u8; 8] {
    // The device number in the kernel's internal encoding, not in that of `stat`.
    u64::from(major << 20 | minor).to_ne_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_is_as_the_programs_have_it() {
        let table = Table { users: vec![0, 5], groups: vec![0], cells: vec![[0; 8], [2; 8]] };
        let bytes = class(&table);
        assert_eq!(bytes.len(), 8 + 4 * MAX_USERS + 4 * MAX_GROUPS + 8 * MAX_CELLS);
        assert_eq!(bytes[..16], [2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0]);
        let cells = 8 + 4 * (MAX_USERS + MAX_GROUPS);
        assert_eq!(bytes[cells..cells + 16], [0, 0, 0, 0, 0, 0, 0, 0, 2, 2, 2, 2, 2, 2, 2, 2]);
        assert_eq!(settings((0, 77)), 77u64.to_ne_bytes());
    }
}
