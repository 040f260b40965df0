//! Mount options of other file systems and of mount(8) that users carry over from fstab, with their meaning here.
//!
//! An option that holds anyway is accepted, one that changes nothing visible is accepted with a warning, and all others are
//! refused with the reason. The table in the book (`docs/src/reference/mount-options.md`) has the same rows.

use crate::error::{Result, usage};

/// The treatment of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Accepted: it describes the behaviour of this program anyway.
    Holds,
    /// Accepted without effect; a line with the reason is printed.
    Ignored(&'static str),
    /// Refused, with the reason.
    Refused(&'static str),
}

use Verdict::{Holds, Ignored, Refused};

/// Key, value (`None`: any value, or none), and verdict. The first matching row counts.
type Row = (&'static str, Option<&'static str>, Verdict);

/// Options of every kind of mount.
const OF_ALL: &[Row] = &[
    ("daemon", None, Holds),
    ("iversion", None, Ignored("FUSE has no version counter of inodes")),
    ("noiversion", None, Holds),
    ("mand", None, Ignored("Linux has no mandatory locks since 5.15")),
    ("nomand", None, Holds),
    ("pri", None, Refused("it is an option of swap space")),
    ("context", None, Refused("FUSE mounts take their SELinux label from the policy of the system")),
    ("fscontext", None, Refused("FUSE mounts take their SELinux label from the policy of the system")),
    ("defcontext", None, Refused("FUSE mounts take their SELinux label from the policy of the system")),
    ("rootcontext", None, Refused("FUSE mounts take their SELinux label from the policy of the system")),
];

const NO_QUOTAS: Verdict = Refused("quotas of an image are not kept up to date");
const NOT_JOURNALED: Verdict = Refused("file data does not go through the journal");
const A_HINT: Verdict = Ignored("it is a hint for the kernel's own ext4");
const ALWAYS_THERE: Verdict = Refused("it is always on");

/// Options of ext4(5).
const OF_EXT4: &[Row] = &[
    ("acl", None, Holds),
    ("noacl", None, ALWAYS_THERE),
    ("user_xattr", None, Holds),
    ("nouser_xattr", None, ALWAYS_THERE),
    ("data", Some("ordered"), Holds),
    ("data", Some("writeback"), Ignored("data is written before the transaction that refers to it")),
    ("data", Some("journal"), NOT_JOURNALED),
    ("data_err", Some("abort"), Holds),
    ("data_err", Some("ignore"), Holds),
    ("barrier", Some("0"), Ignored("a commit always flushes the device")),
    ("barrier", None, Holds),
    ("nobarrier", None, Ignored("a commit always flushes the device")),
    ("errors", Some("continue"), Holds),
    ("errors", Some("panic"), Refused("a daemon does not stop the machine; use errors=remount-ro")),
    ("usrquota", None, NO_QUOTAS),
    ("grpquota", None, NO_QUOTAS),
    ("prjquota", None, NO_QUOTAS),
    ("quota", None, NO_QUOTAS),
    ("usrjquota", None, NO_QUOTAS),
    ("grpjquota", None, NO_QUOTAS),
    ("jqfmt", None, NO_QUOTAS),
    ("noquota", None, Holds),
    ("init_itable", None, Ignored("inode tables are initialised as they are used")),
    ("noinit_itable", None, Holds),
    (
        "grpid",
        None,
        Refused("new files take their group as with sysvgroups; set the setgid bit of directories"),
    ),
    (
        "bsdgroups",
        None,
        Refused("new files take their group as with sysvgroups; set the setgid bit of directories"),
    ),
    ("nogrpid", None, Holds),
    ("sysvgroups", None, Holds),
    ("bsddf", None, Holds),
    ("minixdf", None, Refused("df does not count the blocks of metadata")),
    ("block_validity", None, Holds),
    ("noblock_validity", None, Ignored("blocks are always checked against those of metadata")),
    ("check", Some("none"), Holds),
    ("nocheck", None, Holds),
    ("journal_checksum", None, Holds),
    ("nojournal_checksum", None, Ignored("the features of the journal decide")),
    ("journal_async_commit", None, A_HINT),
    ("journal_ioprio", None, A_HINT),
    ("journal_dev", None, Refused("name the device with journal=PATH")),
    ("journal_path", None, Refused("name the device with journal=PATH")),
    ("auto_da_alloc", None, A_HINT),
    ("noauto_da_alloc", None, A_HINT),
    ("delalloc", None, A_HINT),
    ("nodelalloc", None, A_HINT),
    ("dioread_lock", None, A_HINT),
    ("dioread_nolock", None, A_HINT),
    ("inode_readahead_blks", None, A_HINT),
    ("max_batch_time", None, A_HINT),
    ("min_batch_time", None, A_HINT),
    ("mb_optimize_scan", None, A_HINT),
    ("nombcache", None, A_HINT),
    ("prefetch_block_bitmaps", None, A_HINT),
    ("no_prefetch_block_bitmaps", None, A_HINT),
    ("stripe", None, A_HINT),
    ("i_version", None, Ignored("FUSE has no version counter of inodes")),
    ("nouid32", None, Refused("owners have 32 bits")),
    ("resuid", None, Refused("set it in the superblock with tune2fs -u")),
    ("resgid", None, Refused("set it in the superblock with tune2fs -g")),
    ("sb", None, Refused("a backup superblock is used by e2fsck -b alone")),
    (
        "dax",
        None,
        Refused(
            "files are not mapped from the device; --data extmap has the kernel read and write by itself",
        ),
    ),
    ("abort", None, Refused("mount read-only with ro")),
    ("debug", None, Refused("use verbose messages: -v, or RUST_LOG")),
];

/// The verdict on an option that belongs neither to mount(8) nor to the command; `None`: the option is unknown.
fn verdict(command: &str, key: &str, value: Option<&str>) -> Option<Verdict> {
    let own: &[Row] = if command == "ext4" { OF_EXT4 } else { &[] };
    let fits = |row: &&Row| row.0 == key && row.1.is_none_or(|required| value == Some(required));
    own.iter().chain(OF_ALL).find(fits).map(|row| row.2)
}

/// Handles an option of the tables: `None` when it is in none of them, else with the line to print when it has no effect.
///
/// # Errors
/// An option that is refused, with the reason.
pub fn resolve(command: &str, option: &str) -> Result<Option<Option<String>>> {
    let (key, value) = match option.split_once('=') {
        Some((key, value)) => (key, Some(value)),
        None => (option, None),
    };
    match verdict(command, key, value) {
        None => Ok(None),
        Some(Holds) => Ok(Some(None)),
        Some(Ignored(reason)) => Ok(Some(Some(format!("mount option `{option}` has no effect: {reason}")))),
        Some(Refused(reason)) => Err(usage(format_args!("mount option `{option}` is refused: {reason}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The page of the book lists every option of the tables.
    #[test]
    fn the_book_has_the_same_rows() {
        let page = include_str!("../../../../docs/src/reference/mount-options.md");
        for (key, value, verdict) in OF_ALL.iter().chain(OF_EXT4) {
            let option = value.map_or((*key).to_owned(), |value| format!("{key}={value}"));
            let row = page.lines().find(|line| {
                line.starts_with('|')
                    && line.split('|').nth(1).is_some_and(|cell| {
                        cell.split(',').any(|word| word.trim().trim_matches('`') == option)
                    })
            });
            let row = row.unwrap_or_else(|| panic!("{option} is not in the book"));
            let expected = match verdict {
                Holds => "accepted",
                Ignored(_) => "ignored",
                Refused(_) => "refused",
            };
            assert!(row.contains(expected), "{option}: {row}");
        }
    }

    #[test]
    fn values_count() {
        assert_eq!(verdict("ext4", "data", Some("ordered")), Some(Holds));
        assert_eq!(verdict("ext4", "data", Some("journal")), Some(NOT_JOURNALED));
        assert_eq!(verdict("ext4", "data", Some("extmap")), None);
        assert_eq!(verdict("mirror", "acl", None), None);
        assert_eq!(verdict("mirror", "daemon", None), Some(Holds));
    }
}
