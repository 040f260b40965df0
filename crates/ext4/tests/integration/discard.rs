//! Discard: freed blocks, and no others, become holes of the image file. Needs no root.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::MetadataExt;
use std::process::Command;
use std::sync::Arc;

use shunt_ext4::{Fallocate, FileDevice, Filesystem, NewInode, NewInodeKind, ROOT};

const SIZE: usize = 16 << 20;

#[test]
fn freed_blocks_become_holes_of_the_image() {
    for options in [&["-b", "4096"][..], &["-b", "4096", "-O", "^has_journal"]] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        File::create(&path).unwrap().set_len(64 << 20).unwrap();
        match Command::new("mkfs.ext4").args(["-q", "-F"]).args(options).arg(&path).output() {
            Ok(output) if output.status.success() => {}
            other => {
                assert!(std::env::var_os("CI").is_none(), "{other:?}");
                return;
            }
        }
        let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let fs = Filesystem::open_writable(Arc::new(FileDevice::new(file, false).unwrap())).unwrap();
        let taken = || fs::metadata(&path).unwrap().blocks() as usize * 512;
        let data: Vec<u8> = (0..SIZE).map(|at| (at / 4096) as u8 | 1).collect();
        let make = |name: &[u8]| {
            let number = fs.create(ROOT, name, NewInodeKind::Regular, &NewInode::default()).unwrap().number;
            assert_eq!(fs.write(number, 0, &data).unwrap(), SIZE);
            number
        };
        // Not before discard is enabled.
        let first = make(b"first");
        fs.sync().unwrap();
        let full = taken();
        fs.truncate(first, 0).unwrap();
        fs.sync().unwrap();
        assert!(taken() >= full, "{full} bytes allocated before, {} after", taken());
        fs.discard_freed(true);
        let second = make(b"second");
        fs.sync().unwrap();
        let full = taken();
        fs.fallocate(second, Fallocate::Punch, 4 << 20, 8 << 20).unwrap();
        // Only after the commit: a crash before it would bring the file back.
        assert!(taken() >= full, "{full} bytes allocated before, {} after", taken());
        fs.sync().unwrap();
        assert!(taken() + (7 << 20) < full, "{full} bytes allocated before, {} after", taken());
        let mut read = vec![0; SIZE];
        fs.read(&fs.inode(second).unwrap(), 0, &mut read).unwrap();
        assert!(read[..4 << 20] == data[..4 << 20] && read[12 << 20..] == data[12 << 20..]);
        assert!(read[4 << 20..12 << 20].iter().all(|&byte| byte == 0));
        fs.close().unwrap();
        let checked = Command::new("e2fsck").args(["-fn"]).arg(&path).output().unwrap();
        assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
    }
}
