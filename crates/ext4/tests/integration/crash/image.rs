//! Initial images of workloads, and e2fsck for the resulting ones.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::process::Command;

use tempfile::TempDir;

use super::model::{FsState, Node};

/// Creates a directory for images, in memory if possible.
fn scratch() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// Index of the nearly full image, in which freed blocks are soon reused.
pub const FULL: usize = 3;

/// File that fills it, which workloads do not use.
pub const FILLER: &str = "filler";
const FILLER_SIZE: usize = 1_981_000;

/// Creates small images of several kinds, with the initial content of every workload. `None` without mkfs.
pub fn bases() -> Option<Vec<Vec<u8>>> {
    let dir = scratch();
    let tree = dir.path().join("tree");
    fs::create_dir(&tree).unwrap();
    let state = FsState::new();
    for path in ["d", "e", "a", "d/x"] {
        match &state.nodes[&state.find(path).unwrap()] {
            Node::Directory(_) => fs::create_dir(tree.join(path)).unwrap(),
            Node::File { content, .. } => fs::write(tree.join(path), content).unwrap(),
            Node::Symlink(_) => {}
        }
    }
    let kinds: [&[&str]; 4] = [
        &["-O", "metadata_csum_seed,orphan_file"],
        &["-O", "^metadata_csum,^64bit", "-I", "128"],
        &["-t", "ext3"],
        &["-O", "^resize_inode"],
    ];
    let make = |(place, kind): (usize, &&[&str])| {
        if place == FULL {
            fs::write(tree.join(FILLER), vec![0xee; FILLER_SIZE]).unwrap();
        }
        let path = dir.path().join("image");
        fs::remove_file(&path).ok();
        let made = Command::new("mkfs.ext4")
            .args(["-q", "-F", "-b", "1024", "-g", "1024", "-N", "96", "-J", "size=1", "-d"])
            .arg(&tree)
            .args(*kind)
            .arg(&path)
            .arg("3M")
            .output();
        match made {
            Ok(output) if output.status.success() => Some(fs::read(path).unwrap()),
            other => {
                assert!(std::env::var_os("CI").is_none(), "{other:?}");
                eprintln!("skipped: {other:?}");
                None
            }
        }
    };
    kinds.iter().enumerate().map(make).collect()
}

/// Runs e2fsck on a temporary file.
pub struct Checker {
    dir: TempDir,
    file: File,
}

impl Checker {
    pub fn new() -> Self {
        let dir = scratch();
        let file = File::create(dir.path().join("image")).unwrap();
        Self { dir, file }
    }

    /// Checks an image with e2fsck.
    pub fn is_clean(&mut self, image: &[u8]) -> Result<(), String> {
        self.file.write_all_at(image, 0).unwrap();
        let path = self.dir.path().join("image");
        let output = Command::new("e2fsck").args(["-fn"]).arg(path).output().unwrap();
        match output.status.success() {
            true => Ok(()),
            false => Err(format!("e2fsck: {}", String::from_utf8_lossy(&output.stdout))),
        }
    }

    /// Returns the superblock and journal information of an image from dumpe2fs.
    pub fn header(&mut self, image: &[u8]) -> String {
        self.file.write_all_at(image, 0).unwrap();
        let output = Command::new("dumpe2fs").arg("-h").arg(self.dir.path().join("image")).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Saves an image for inspection if `CRASH_KEEP` names a path.
    pub fn keep(&self, image: &[u8]) -> String {
        let Some(path) = std::env::var_os("CRASH_KEEP") else {
            return "set CRASH_KEEP=PATH to keep the image".into();
        };
        fs::write(&path, image).unwrap();
        format!("the image was saved to {}", path.to_string_lossy())
    }
}
