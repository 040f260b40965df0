//! `shunt ext4 info`: prints the superblock of a file system, or the partitions of a disk.

use serde::Serialize;
use shunt_ext4::Filesystem;

use super::Image;
use super::disk::{self, Part};
use super::superblock::{label, uuid};
use crate::args::LocationArgs;
use crate::cmd::print;
use crate::error::{Result, failed};
use crate::text::{Align, Table, bytes, printable};

/// The facts about a file system. Its JSON is a contract.
#[derive(Debug, Serialize)]
struct Info {
    kind: &'static str,
    label: String,
    uuid: String,
    block_size: u32,
    blocks: u64,
    free_blocks: u64,
    inodes: u32,
    free_inodes: u32,
    inode_size: u16,
    groups: u32,
    features: Vec<String>,
    /// `none`, `clean` or `needs recovery`.
    journal: &'static str,
    /// The superblock records a clean unmount and no error.
    clean: bool,
    errors: u32,
}

/// The partitions of a disk. Its JSON is a contract.
#[derive(Debug, Serialize)]
struct Disk {
    /// `gpt` or `mbr`.
    scheme: String,
    /// The primary GPT is damaged; this is the content of the backup.
    backup: bool,
    partitions: Vec<Part>,
}

pub fn run(image: &Image, location: &LocationArgs, json: bool) -> Result<()> {
    let whole = location.offset.is_none() && location.partition.is_none();
    if whole
        && !disk::is_filesystem(&image.device)
        && let Some((table, partitions)) = disk::table(&image.path, &image.device)?
    {
        let disk = Disk { scheme: table.scheme.to_string(), backup: table.is_backup, partitions };
        return show_disk(&disk, json);
    }
    show(&gather(&image.filesystem(location)?), json)
}

fn show_disk(disk: &Disk, json: bool) -> Result<()> {
    if json {
        return print_json(disk);
    }
    let mut table = Table::new(&[
        ("PARTITION", Align::Right),
        ("START", Align::Right),
        ("SIZE", Align::Right),
        ("LABEL", Align::Left),
        ("UUID", Align::Left),
        ("HOLDS", Align::Left),
    ]);
    for part in &disk.partitions {
        let label = part.label.as_ref().or(part.filesystem_label.as_ref());
        table.row([
            part.number.to_string(),
            part.start.to_string(),
            bytes(part.size),
            label.map_or("-", String::as_str).to_owned(),
            part.uuid.clone(),
            part.holds.clone(),
        ]);
    }
    let copy = if disk.backup { ", from its backup: the primary copy is damaged" } else { "" };
    print(format!("partition table {}{copy}\n{}", disk.scheme, table.render()))
}

fn print_json(value: &impl Serialize) -> Result<()> {
    print(format!("{}\n", serde_json::to_string_pretty(value).map_err(failed)?))
}

fn show(info: &Info, json: bool) -> Result<()> {
    if json {
        return print_json(info);
    }
    let size = |blocks: u64| bytes(blocks.saturating_mul(info.block_size.into()));
    let state = match (info.clean, info.errors) {
        (true, 0) => "clean".to_owned(),
        (_, 0) => "not unmounted cleanly".to_owned(),
        (_, errors) => format!("{errors} errors recorded; run e2fsck"),
    };
    let label = if info.label.is_empty() { "-".to_owned() } else { printable(&info.label).into_owned() };
    let rows = [
        ("file system", format!("{}, {state}", info.kind)),
        ("label", label),
        ("uuid", info.uuid.clone()),
        (
            "size",
            format!("{} in {} blocks of {}", size(info.blocks), info.blocks, bytes(info.block_size.into())),
        ),
        ("free", format!("{}, {} of {} inodes", size(info.free_blocks), info.free_inodes, info.inodes)),
        ("groups", format!("{}, inodes of {} bytes", info.groups, info.inode_size)),
        ("journal", info.journal.to_owned()),
        ("features", info.features.join(" ")),
    ];
    print(rows.iter().map(|(name, value)| format!("{name:<12} {value}\n")).collect::<String>())
}

fn gather(filesystem: &Filesystem) -> Info {
    let (geometry, raw) = (filesystem.geometry(), filesystem.superblock());
    let [compat, incompat, ro_compat] =
        [geometry.compat.names(), geometry.incompat.names(), geometry.ro_compat.names()];
    Info {
        kind: filesystem.kind(),
        label: label(raw),
        uuid: uuid(geometry.uuid),
        block_size: geometry.block_size,
        blocks: geometry.blocks,
        free_blocks: filesystem.free_blocks(),
        inodes: geometry.inodes,
        free_inodes: raw.free_inodes_count.get(),
        inode_size: geometry.inode_size,
        groups: geometry.groups,
        features: [compat, incompat, ro_compat].concat(),
        journal: match (filesystem.has_journal(), filesystem.needs_recovery()) {
            (false, _) => "none",
            (true, false) => "clean",
            (true, true) => "needs recovery",
        },
        clean: filesystem.is_clean(),
        errors: raw.error_count.get(),
    }
}
