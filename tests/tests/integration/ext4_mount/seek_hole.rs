//! `SEEK_DATA` and `SEEK_HOLE` of files during writes: dirty pages count as data.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::process::Command;

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;
use shunt_test_support::{needs_mount, run};
use shunt_tests::sys::Shared;
use shunt_tests::{Image, Rng};

const BLOCK: u64 = 4096;

fn data(file: &File, from: u64) -> Option<u64> {
    match seek(file, SeekFrom::Data(from)) {
        Ok(at) => Some(at),
        Err(Errno::NXIO) => None,
        Err(error) => panic!("SEEK_DATA from {from}: {error}"),
    }
}

fn hole(file: &File, from: u64) -> u64 {
    seek(file, SeekFrom::Hole(from)).unwrap()
}

/// Copies of a file that another process keeps writing.
#[test]
fn copies_of_open_files() {
    needs_mount!();
    let image = Image::make(&["-b", "4096"], 64).unwrap();
    let mount = image.by_shunt(&[]);
    let path = mount.at().join("log");
    let mut file = File::options().read(true).append(true).create_new(true).open(&path).unwrap();
    let mut content: Vec<u8> = Vec::new();
    for n in 0..20_u8 {
        let more = vec![n + 1; 3000 + usize::from(n) * 700];
        file.write_all(&more).unwrap();
        content.extend(&more);
        let copy = mount.at().join(format!("copy {n}"));
        run(Command::new("cp").arg("--sparse=auto").args([&path, &copy])).ok();
        assert!(fs::read(&copy).unwrap() == content, "copy {n}");
        assert_eq!(data(&File::open(&path).unwrap(), 0), Some(0));
        assert_eq!(hole(&File::open(&path).unwrap(), 0), content.len() as u64);
    }
    drop(file);
    drop(mount);
    image.check();
}

/// Writes, maps, punches and truncates at random; after each step data and holes have the expected offsets.
#[test]
fn random_steps() {
    needs_mount!();
    let image = Image::make(&["-b", "4096"], 64).unwrap();
    let mount = image.by_shunt(&[]);
    let mut rng = Rng::new(8);
    let file = File::options().read(true).write(true).create_new(true).open(mount.at().join("file")).unwrap();
    const BLOCKS: usize = 200;
    let mut written = [false; BLOCKS];
    let mut size = 0;
    for step in 0..400 {
        let block = rng.below(BLOCKS);
        let at = block as u64 * BLOCK;
        match rng.below(5) {
            0 | 1 => {
                file.write_all_at(b"x", at + 7).unwrap();
                written[block] = true;
                size = size.max(at + 8);
            }
            2 if at < size => {
                use rustix::fs::{FallocateFlags, fallocate};
                fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, at, BLOCK).unwrap();
                written[block] = false;
            }
            3 => {
                file.set_len(at).unwrap();
                size = at;
                written[block..].fill(false);
            }
            _ if at < size => {
                let mut map = Shared::new(&file, BLOCKS * BLOCK as usize).unwrap();
                map[at as usize] = 1;
                written[block] = true;
            }
            _ => {}
        }
        let from = rng.below(BLOCKS) as u64 * BLOCK;
        let blocks = (size.div_ceil(BLOCK) as usize).min(BLOCKS);
        let next =
            |wanted: bool| (from / BLOCK..blocks as u64).find(|&block| written[block as usize] == wanted);
        if from >= size {
            assert_eq!(data(&file, from), None, "step {step}");
            continue;
        }
        assert_eq!(data(&file, from), next(true).map(|block| block * BLOCK), "step {step}, from {from}");
        let expected = next(false).map_or(size, |block| block * BLOCK);
        assert_eq!(hole(&file, from), expected, "step {step}, from {from}");
    }
    drop(file);
    drop(mount);
    image.check();
}
