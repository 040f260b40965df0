//! Tables made by `sfdisk`, and synthetic tables.

use std::io::Write as _;
use std::process::{Command, Stdio};

use super::*;
use crate::device::MemoryDevice;

/// Returns a disk partitioned by `sfdisk`; `None` if the program is missing.
fn disk(script: &str) -> Option<Vec<u8>> {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(32 << 20).unwrap();
    let child =
        Command::new("sfdisk").arg("-q").arg(file.path()).stdin(Stdio::piped()).stdout(Stdio::null()).spawn();
    let Ok(mut child) = child else {
        assert!(std::env::var_os("CI").is_none(), "sfdisk is not installed");
        return None;
    };
    child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
    Some(std::fs::read(file.path()).unwrap())
}

fn table(disk: Vec<u8>) -> Result<Option<Table>> {
    read(&MemoryDevice::new(disk))
}

const GPT: &str = "label: gpt\nsize=1M, name=first\nsize=8M, name=\"the second\", \
                   uuid=11111111-2222-3333-4444-555566667777\n";

const MBR: &str = "label: dos\nlabel-id: 0x12345678\n1: size=1M, type=c\n2: size=20M, type=5\n\
                   5: size=2M\n6: size=3M, type=82\n";

#[test]
fn gpt_is_read() {
    let Some(disk) = disk(GPT) else { return };
    let table = table(disk).unwrap().unwrap();
    assert_eq!((table.scheme, table.is_backup, table.partitions.len()), (Scheme::Gpt, false, 2));
    let second = &table.partitions[1];
    assert_eq!((second.number, second.start, second.size), (2, 2 << 20, 8 << 20));
    assert_eq!(second.label.as_deref(), Some("the second"));
    assert_eq!(second.uuid, "11111111-2222-3333-4444-555566667777");
    assert_eq!(second.kind, "0fc63daf-8483-4772-8e79-3d69d8477de4");
}

#[test]
fn backup_gpt_replaces_damaged_primary() {
    let Some(disk) = disk(GPT) else { return };
    for offset in [512 + 40, 1024 + 56, 512] {
        let mut damaged = disk.clone();
        damaged[offset] ^= 1;
        let table = table(damaged).unwrap().unwrap();
        assert!(table.is_backup && table.partitions.len() == 2, "{offset}");
    }
    let mut damaged = disk.clone();
    let end = damaged.len();
    damaged[512 + 40] ^= 1;
    damaged[end - 512 + 40] ^= 1;
    let error = table(damaged).unwrap_err().to_string();
    assert!(error.contains("partition table at 512: checksum"), "{error}");
}

#[test]
fn backup_gpt_is_found_after_wiped_start() {
    let Some(disk) = disk(GPT) else { return };
    let mut wiped = disk.clone();
    wiped[..34 * 512].fill(0);
    let found = table(wiped.clone()).unwrap().unwrap();
    assert!(found.is_backup && found.partitions.len() == 2);
    // Another boot sector: the backup may be a leftover of the disk's previous use.
    let mut other = wiped.clone();
    other[3] = b'N';
    assert_eq!(table(other).unwrap(), None);
    let end = wiped.len();
    wiped[end - 512 + 40] ^= 1;
    assert_eq!(table(wiped).unwrap(), None);
}

#[test]
fn logical_partitions_are_found() {
    let Some(disk) = disk(MBR) else { return };
    let table = table(disk).unwrap().unwrap();
    assert_eq!(table.scheme, Scheme::Mbr);
    let seen: Vec<_> = table.partitions.iter().map(|p| (p.number, p.kind.as_str(), p.size)).collect();
    assert_eq!(seen[0], (1, "0c", 1 << 20));
    assert_eq!(seen[1..], [(5, "83", 2 << 20), (6, "82", 3 << 20)]);
    assert_eq!(table.partitions[1].uuid, "12345678-05");
}

#[test]
fn cyclic_boot_record_chain_ends() {
    let Some(mut disk) = disk(MBR) else { return };
    // The first record of the chain names itself as the next: sector 1 of the extended partition would be 0.
    let at = (2 << 20) + 446;
    disk[at + 16 + 8..at + 16 + 12].copy_from_slice(&1_u32.to_le_bytes());
    let next = (2 << 20) + 512;
    let record: Vec<u8> = disk[2 << 20..next].to_vec();
    disk[next..next + 512].copy_from_slice(&record);
    let error = table(disk).unwrap_err().to_string();
    assert!(error.contains("more than 256 logical"), "{error}");
}

#[test]
fn missing_table_is_not_an_error() {
    assert_eq!(table(Vec::new()).unwrap(), None);
    assert_eq!(table(vec![0; 1 << 20]).unwrap(), None);
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]

    /// Any change yields a result or an error, and partitions lie on the disk.
    #[test]
    fn any_bytes_are_survived(
        gpt: bool,
        changes in proptest::collection::vec((0_usize..4096, proptest::num::u8::ANY), 0..20),
    ) {
        let Some(mut disk) = disk_once(gpt) else { return Ok(()) };
        let size = disk.len() as u64;
        for (at, byte) in changes {
            disk[at] = byte;
        }
        if let Ok(Some(table)) = table(disk) {
            for partition in table.partitions {
                proptest::prop_assert!(partition.size > 0 && partition.start + partition.size <= size);
            }
        }
    }
}

fn disk_once(gpt: bool) -> Option<Vec<u8>> {
    static DISKS: [std::sync::OnceLock<Option<Vec<u8>>>; 2] = [const { std::sync::OnceLock::new() }; 2];
    DISKS[usize::from(gpt)].get_or_init(|| disk(if gpt { GPT } else { MBR })).clone()
}
