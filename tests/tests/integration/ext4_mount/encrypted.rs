//! Directories encrypted by the kernel, without their key: listed, looked up and removed as by the kernel.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::{Path, PathBuf};

use shunt_test_support::{needs_mount, requirement, sh};
use shunt_tests::{Image, fscrypt};

const ENOKEY: i32 = 126;

/// Names of all relevant lengths, symlinks, and directories of one block and of many.
const FILL: &str = r#"
n() { printf 'x%.0s' $(seq 1 $1); }
for l in 1 15 16 17 32 140 148 149 150 160 200 254 255; do echo $l > $(n $l); done
mkdir sub empty many; echo deep > sub/deep; ln $(n 200) sub/other
ln -s target short; ln -s $(n 30) shorter; ln -s $(n 500) long
(cd many; seq -f 'a name of some length %.0f' 1 1500 | tr '\n' '\0' | xargs -0 touch; i=0; while [ $i -lt 20 ]; do echo $i > "$(n 180)$i"; i=$((i + 1)); done)
"#;

/// Returns the visible state of a tree: type and mode, size, links, inode, and the targets of symlinks.
fn shown(root: &Path) -> BTreeMap<PathBuf, (u32, u64, u64, u64, Option<PathBuf>)> {
    let (mut all, mut left) = (BTreeMap::new(), vec![root.to_owned()]);
    while let Some(dir) = left.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let found = fs::symlink_metadata(&path).unwrap();
            if found.is_dir() {
                left.push(path.clone());
            }
            let seen = (found.mode(), found.len(), found.nlink(), found.ino(), fs::read_link(&path).ok());
            all.insert(path.strip_prefix(root).unwrap().to_owned(), seen);
        }
    }
    all
}

fn errno<T>(result: io::Result<T>) -> Option<i32> {
    result.err().and_then(|error| error.raw_os_error())
}

fn same(mkfs: &[&str]) {
    needs_mount!();
    requirement!(rustix::process::geteuid().is_root(), "needs root");
    let options = [&["-b", "4096", "-O", "encrypt"], mkfs].concat();
    let image = match Image::make(&options, 64) {
        Ok(image) => image,
        Err(why) => return shunt_test_support::skip::skip(&why),
    };
    let kernel = match image.by_kernel("rw") {
        Ok(kernel) => kernel,
        Err(why) => return shunt_test_support::skip::kernel_cannot(&why),
    };
    let secret = |at: &Path| at.join("secret");
    fs::create_dir(secret(kernel.at())).unwrap();
    let made = fscrypt::add_key(kernel.at()).and_then(|key| fscrypt::encrypt(&secret(kernel.at()), key));
    if let Err(error) = made {
        return shunt_test_support::skip::kernel_cannot(&format!("no encryption: {error}"));
    }
    sh(&secret(kernel.at()), FILL).ok();
    drop(kernel);

    let kernel = image.by_kernel("ro").unwrap();
    let theirs = shown(kernel.at());
    drop(kernel);
    assert!(theirs.len() > 1500);
    let mount = image.by_shunt(&[]);
    // Each is looked up by name before it is listed.
    for (path, seen) in &theirs {
        let found =
            fs::symlink_metadata(mount.at().join(path)).unwrap_or_else(|error| panic!("{path:?}: {error}"));
        assert_eq!((found.mode(), found.len(), found.ino()), (seen.0, seen.1, seen.3), "{path:?}");
    }
    let ours = shown(mount.at());
    assert_eq!(ours.keys().collect::<Vec<_>>(), theirs.keys().collect::<Vec<_>>());
    assert_eq!(ours, theirs);

    // Reading, creating and renaming fail.
    let dir = secret(mount.at());
    let of = |wanted: fn(&fs::FileType) -> bool| {
        let mut entries = fs::read_dir(&dir).unwrap().flatten();
        entries.find(|entry| wanted(&entry.file_type().unwrap())).unwrap().path()
    };
    let file = of(fs::FileType::is_file);
    assert_eq!(errno(File::open(&file)), Some(ENOKEY));
    assert_eq!(errno(fs::write(&file, "x")), Some(ENOKEY));
    assert_eq!(errno(File::create(dir.join("new"))), Some(ENOKEY));
    assert_eq!(errno(fs::create_dir(dir.join("new"))), Some(ENOKEY));
    assert_eq!(errno(symlink("target", dir.join("new"))), Some(ENOKEY));
    assert_eq!(errno(fs::hard_link(&file, dir.join("new"))), Some(ENOKEY));
    assert_eq!(errno(fs::rename(&file, dir.join("new"))), Some(ENOKEY));
    assert_eq!(errno(fs::rename(&file, mount.at().join("new"))), Some(ENOKEY));
    assert_eq!(errno(fs::metadata(dir.join("new"))), Some(2));
    assert_eq!(errno(fs::create_dir(&file)), Some(17));

    // Removing works.
    let before = theirs.len();
    let mut removed = 0;
    for (path, seen) in theirs.iter().filter(|(path, _)| path.components().count() == 2).take(9) {
        if seen.0 & 0o170_000 != 0o040_000 {
            fs::remove_file(mount.at().join(path)).unwrap();
            removed += 1;
        }
    }
    let empty = |path: &PathBuf| fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none());
    let dirs = theirs.keys().map(|path| mount.at().join(path));
    let empty = dirs.filter(|path| path.starts_with(&dir)).find(empty).unwrap();
    fs::remove_dir(empty).unwrap();
    let many = theirs.keys().filter(|path| path.components().count() == 3);
    for path in many.take(700) {
        fs::remove_file(mount.at().join(path)).unwrap();
        removed += 1;
    }
    mount.umount().ok();
    drop(mount);
    image.check();

    // The rest is intact for the holder of the key.
    let kernel = image.by_kernel("rw").unwrap();
    fscrypt::add_key(kernel.at()).unwrap();
    assert_eq!(shown(kernel.at()).len(), before - removed - 1);
    sh(&secret(kernel.at()), "find . -type f -exec cat {} + >/dev/null; echo new > new").ok();
    drop(kernel);
    image.check();
}

#[test]
fn names_are_those_of_the_kernel() {
    same(&[]);
}

#[test]
fn names_are_those_of_the_kernel_without_an_index() {
    same(&["-O", "^dir_index"]);
}
