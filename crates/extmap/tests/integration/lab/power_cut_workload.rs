//! Recorded work: writes files on a disk whose writes the lab records; `power_cuts` checks each prefix of them.
//!
//! `CUT_SEED`, `CUT_STEPS`; with `CUT_ON=kernel` the kernel's ext4 does the work, to verify the tests themselves.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{FallocateFlags, fallocate, syncfs};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::aligned::Aligned;
use super::connection_abort::eventually;
use super::disk::{BLOCK, Mount, module_is_here, run, spare_disk};
use super::race::{number, workers::open};
use super::tagged_content::words;
use super::workload_plan::{self, Op, Step, WriteMode};
use super::writes::is_free;

fn write(path: &Path, step: usize, file: u8, (offset, length): (u64, u64), how: WriteMode) {
    let [low, high, ..] = step.to_le_bytes();
    let data = words(file, Some(offset), length as usize, high, low.into());
    match how {
        WriteMode::Cached => open(path, 0).unwrap().write_all_at(&data, offset).unwrap(),
        WriteMode::Direct => {
            let mut room = Aligned::new(data.len(), 0);
            room.copy_from_slice(&data);
            open(path, libc::O_DIRECT).unwrap().write_all_at(&room, offset).unwrap();
        }
        WriteMode::Mapped => {
            let (file, start) = (open(path, 0).unwrap(), offset / BLOCK * BLOCK);
            let whole = (offset - start + length) as usize;
            // SAFETY: a new mapping within the file, written only within its length, and unmapped before anything else can use it.
            unsafe {
                let protection = ProtFlags::READ | ProtFlags::WRITE;
                let at =
                    mmap(std::ptr::null_mut(), whole, protection, MapFlags::SHARED, &file, start).unwrap();
                let to = at.cast::<u8>().add((offset - start) as usize);
                std::ptr::copy_nonoverlapping(data.as_ptr(), to, data.len());
                munmap(at, whole).unwrap();
            }
        }
    }
}

fn do_step(root: &Path, number: usize, step: &Step) {
    let path = root.join(workload_plan::name(step.file));
    match step.op {
        Op::Create => File::create(&path).map(drop).unwrap(),
        Op::Write { offset, length, how } => write(&path, number, step.file, (offset, length), how),
        Op::Truncate { size } => open(&path, 0).unwrap().set_len(size).unwrap(),
        Op::Punch { offset, length } => {
            let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            fallocate(open(&path, 0).unwrap(), mode, offset, length).unwrap();
        }
        Op::Sync => open(&path, 0).unwrap().sync_all().unwrap(),
        Op::SyncAll => syncfs(File::open(root).unwrap()).unwrap(),
        Op::Remove => fs::remove_file(&path).unwrap(),
    }
}

#[test]
fn work_that_is_recorded() {
    let on_kernel = std::env::var("CUT_ON").is_ok_and(|who| who == "kernel");
    if !module_is_here() && !on_kernel {
        return;
    }
    let Some(disk) = spare_disk("cut") else {
        eprintln!("skipped: the lab does not record a disk");
        return;
    };
    // The image is a file, because block devices are not written past the daemon. Its blocks are allocated once, so that writes
    // to it change nothing else on the disk.
    run("mkfs.ext4", &["-q", "-F", "-O", "^has_journal", disk.to_str().unwrap()]);
    let outer = Mount::kernel(&disk, "/tmp/outer", "rw");
    let image = outer.path(workload_plan::IMAGE);
    // The fill byte reveals blocks that are shown although they were never written.
    fs::write(&image, vec![0xdb; workload_plan::SIZE as usize]).unwrap();
    fs::write(outer.path(workload_plan::MARK), vec![0; BLOCK as usize]).unwrap();
    let name = image.to_str().unwrap();
    run(
        "mkfs.ext4",
        &["-q", "-F", "-b", "4096", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0", name],
    );
    rustix::fs::sync();
    let mounted = match on_kernel {
        true => Mount::kernel(&image, "/tmp/cut", "loop"),
        false => Mount::shunt(&image, "/tmp/cut", &["--data", "extmap"]),
    };
    let marks = open(&outer.path(workload_plan::MARK), libc::O_DIRECT).unwrap();
    let mut mark = Aligned::new(BLOCK as usize, 0);
    let steps = workload_plan::steps(number("CUT_SEED", 1), number("CUT_STEPS", 120) as usize);
    for (n, step) in steps.iter().enumerate() {
        mark[..8].copy_from_slice(&(n as u64 + 1).to_le_bytes());
        marks.write_all_at(&mark, 0).unwrap();
        do_step(&mounted.0, n, step);
    }
    drop(mounted);
    assert!(on_kernel || eventually(|| is_free(&image)), "the image stays locked");
    run("e2fsck", &["-fn", name]);
    // A flush marks the end of the log.
    rustix::fs::sync();
    drop((marks, outer));
    println!("cut: {} steps recorded", steps.len());
}
