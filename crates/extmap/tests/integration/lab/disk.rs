//! A block device with known content, and mounts of an image.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use shunt_extmap::{Connection, Extent, attach, attach_writable};

pub const BLOCK: u64 = 4096;

/// Reports whether the module is loaded; without it the tests are skipped.
pub fn module_is_here() -> bool {
    let here = shunt_extmap::is_available();
    if !here {
        eprintln!("skipped: the module shunt_extmap is not loaded");
    }
    here
}

/// A loop device.
pub struct Disk {
    pub device: File,
    pub bytes: Vec<u8>,
    file: tempfile::NamedTempFile,
}

impl Disk {
    /// Creates a read-only disk of `blocks` blocks, each filled with its own number.
    pub fn new(blocks: u64) -> Self {
        let word = |n: u64| (((n / (BLOCK / 8)) << 32) | (n % (BLOCK / 8))).to_le_bytes();
        Self::with((0..blocks * BLOCK / 8).flat_map(word).collect(), |file| attach(file))
    }

    /// Creates a writable disk of `blocks` blocks. The fill byte stands for data of other files.
    pub fn writable(blocks: u64) -> Self {
        Self::with(vec![0xee; (blocks * BLOCK) as usize], |file| attach_writable(file))
    }

    fn with(bytes: Vec<u8>, attach: impl FnOnce(&File) -> std::io::Result<File>) -> Self {
        let mut file = tempfile::NamedTempFile::new_in("/scratch").unwrap();
        file.write_all(&bytes).unwrap();
        Self { device: attach(file.as_file()).unwrap(), bytes, file }
    }

    /// Path of the backing file.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    pub fn connect(&self) -> Connection {
        Connection::bind(&self.device, BLOCK as u32).unwrap()
    }

    /// Returns the expected content of a file with these extents.
    pub fn content(&self, size: u64, extents: &[Extent]) -> Vec<u8> {
        let mut content = vec![0; size.next_multiple_of(BLOCK) as usize];
        for extent in extents.iter().filter(|extent| extent.written && extent.offset < size) {
            let length = extent.length.min(content.len() as u64 - extent.offset) as usize;
            let (to, from) = (extent.offset as usize, extent.device as usize);
            content[to..to + length].copy_from_slice(&self.bytes[from..from + length]);
        }
        content.truncate(size as usize);
        content
    }
}

/// Builds an extent from block numbers.
pub fn extent(offset: u64, device: u64, length: u64, written: bool) -> Extent {
    Extent { offset: offset * BLOCK, device: device * BLOCK, length: length * BLOCK, written }
}

pub fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {text}{errors}");
    text
}

/// Drops the caches of the kernel.
pub fn forget_caches() {
    rustix::fs::sync();
    fs::write("/proc/sys/vm/drop_caches", "3").unwrap();
}

/// Returns the lab's disk with this serial number, or `None` if the lab was started without it.
pub fn spare_disk(name: &str) -> Option<PathBuf> {
    let is_it =
        |disk: &Path| fs::read_to_string(disk.join("serial")).is_ok_and(|serial| serial.trim() == name);
    let disk =
        fs::read_dir("/sys/block").ok()?.flatten().map(|entry| entry.path()).find(|disk| is_it(disk))?;
    Some(Path::new("/dev").join(disk.file_name()?))
}

/// A mount, unmounted on drop.
pub struct Mount(pub PathBuf);

impl Mount {
    /// Mounts with the kernel's own ext4.
    pub fn kernel(image: &Path, at: &str, options: &str) -> Self {
        fs::create_dir_all(at).unwrap();
        let mount =
            || Command::new("/bin/mount").args(["-t", "ext4", "-o", options]).arg(image).arg(at).output();
        // The loop device may still be in use by its previous owner for a moment.
        let mut last = None;
        super::connection_abort::eventually(|| {
            let output = last.insert(mount().unwrap());
            output.status.success() || !String::from_utf8_lossy(&output.stderr).contains("busy")
        });
        assert!(last.as_ref().is_some_and(|output| output.status.success()), "{}: {last:?}", image.display());
        Self(at.into())
    }

    pub fn shunt(image: &Path, at: &str, more: &[&str]) -> Self {
        fs::create_dir_all(at).unwrap();
        let arguments = [&["ext4", "--daemon"][..], more, &[image.to_str().unwrap(), at]].concat();
        println!("{}", run("shunt", &arguments).trim_end());
        Self(at.into())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Returns the number of requests of one kind so far.
    pub fn requests(&self, kind: &str) -> u64 {
        let stat: serde_json::Value =
            serde_json::from_str(&run("shunt", &["stat", "--json", self.0.to_str().unwrap()])).unwrap();
        stat["requests"][kind]["count"].as_u64().unwrap_or(0)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let unmounted = Command::new("/bin/umount").arg(&self.0).status();
        if !std::thread::panicking() {
            assert!(unmounted.unwrap().success(), "cannot unmount {}", self.0.display());
        }
    }
}
