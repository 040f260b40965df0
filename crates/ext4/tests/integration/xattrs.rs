//! Extended attributes written by the engine are read by the kernel, and e2fsck finds no error.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use shunt_ext4::{Error, FileDevice, Filesystem, SetMode};

use crate::common::{Image, run, seen_by_engine, seen_by_kernel};

fn open(path: &Path) -> Filesystem {
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    Filesystem::open_writable(Arc::new(FileDevice::new(file, false).unwrap())).unwrap()
}

/// Expected attributes, by file and name.
type Model = BTreeMap<(usize, String), Vec<u8>>;

#[derive(Debug, Clone)]
enum Step {
    Set(usize, String, usize),
    Remove(usize, String),
    Mode(usize, u16),
}

const FILES: usize = 6;

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let name = prop_oneof!["user\\.[a-d]", "trusted\\.[a-d]{1,9}", "security\\.[a-b]{1,200}"];
    let size = prop_oneof![4 => 0..80_usize, 2 => 80..900_usize, 1 => 3000..5000_usize];
    let step = prop_oneof![
        5 => (0..FILES, name.clone(), size).prop_map(|(file, name, size)| Step::Set(file, name, size)),
        3 => (0..FILES, name).prop_map(|(file, name)| Step::Remove(file, name)),
        1 => (0..FILES, 0..0o1000_u16).prop_map(|(file, mode)| Step::Mode(file, mode)),
    ];
    proptest::collection::vec(step, 1..120)
}

fn play(fs: &Filesystem, numbers: &[u32], steps: &[Step]) {
    let mut model = Model::new();
    for step in steps {
        match step {
            Step::Set(file, name, size) => {
                // Equal values in many files, whose attribute blocks are shared.
                let value = vec![*size as u8; *size];
                match fs.set_xattr(numbers[*file], name.as_bytes(), &value, SetMode::Either) {
                    Ok(_) => drop(model.insert((*file, name.clone()), value)),
                    Err(Error::NoSpace) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            Step::Remove(file, name) => {
                let there = model.remove(&(*file, name.clone())).is_some();
                match fs.remove_xattr(numbers[*file], name.as_bytes()) {
                    Ok(_) => assert!(there),
                    Err(Error::NoAttribute) => assert!(!there),
                    Err(error) => panic!("{error}"),
                }
            }
            Step::Mode(file, mode) => {
                let change =
                    shunt_ext4::Attributes { permissions: Some(*mode), ..shunt_ext4::Attributes::default() };
                fs.set_attributes(numbers[*file], &change).unwrap();
            }
        }
    }
    for (file, &number) in numbers.iter().enumerate() {
        let inode = fs.inode(number).unwrap();
        let mut names = fs.xattr_names(&inode).unwrap();
        names.sort();
        let expected = model.iter().filter(|((owner, _), _)| *owner == file);
        let mut seen = Vec::new();
        for ((_, name), value) in expected {
            assert_eq!(fs.xattr(&inode, name.as_bytes()).unwrap().as_ref(), Some(value), "{name}");
            seen.push(name.clone().into_bytes());
        }
        assert_eq!(names, seen);
    }
}

fn at_random(mkfs: &[&str]) {
    let config = Config { cases: 12, failure_persistence: None, ..Config::default() };
    let result = TestRunner::new(config).run(&steps(), |steps| {
        let Some(mut image) = Image::new(mkfs, 16, false) else { return Ok(()) };
        (0..FILES).for_each(|n| drop(File::create(image.mnt().join(format!("{n}"))).unwrap()));
        image.unmount();
        let fs = open(&image.path());
        let numbers: Vec<u32> =
            (0..FILES).map(|n| fs.walk(format!("{n}").as_bytes()).unwrap().number).collect();
        play(&fs, &numbers, &steps);
        let seen = seen_by_engine(&fs);
        fs.close().unwrap();
        image.check();
        let image = image.mount().unwrap();
        assert_eq!(seen_by_kernel(&image.mnt()), seen);
        Ok(())
    });
    result.unwrap();
}

#[test]
fn random_ones_with_large_inodes() {
    at_random(&["-b", "4096", "-I", "256"]);
}

#[test]
fn random_ones_with_blocks_of_1k_and_small_inodes() {
    at_random(&["-b", "1024", "-I", "128", "-t", "ext3"]);
}

#[test]
fn blocks_are_shared_and_copied() {
    let Some(mut image) = Image::new(&["-I", "128", "-b", "1024"], 16, false) else { return };
    (0..5).for_each(|n| drop(File::create(image.mnt().join(format!("{n}"))).unwrap()));
    image.unmount();
    let fs = open(&image.path());
    let set = |n: usize, value: &[u8]| {
        let number = fs.walk(format!("{n}").as_bytes()).unwrap().number;
        fs.set_xattr(number, b"user.same", value, SetMode::Either).unwrap().xattr_block
    };
    let first = set(0, b"value");
    assert!((1..5).all(|n| set(n, b"value") == first), "all inodes share one attribute block");
    assert_ne!(set(2, b"other"), first);
    assert_eq!(set(2, b"value"), first);
    let number = fs.walk(b"1").unwrap().number;
    let left = fs.remove_xattr(number, b"user.same").unwrap();
    assert_eq!((left.xattr_block, left.blocks), (0, 0));
    fs.close().unwrap();
    image.check();
    // The kernel changes one file's attribute, and the others keep theirs.
    let mut image = image.mount().unwrap();
    let none = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(image.mnt().join("0"), "user.same", b"kernel", none).unwrap();
    image.unmount();
    let fs = open(&image.path());
    let value = |n: &[u8]| fs.xattr(&fs.walk(n).unwrap(), b"user.same").unwrap();
    assert_eq!((value(b"0").unwrap(), value(b"3").unwrap()), (b"kernel".to_vec(), b"value".to_vec()));
}

#[test]
fn acls_match_the_kernel() {
    let Some(mut image) = Image::new(&[], 16, false) else { return };
    for name in ["kernel", "engine", "plain"] {
        fs::create_dir(image.mnt().join(name)).unwrap();
    }
    let mnt = image.mnt();
    let path = |name: &str| mnt.join(name).to_str().unwrap().to_owned();
    run("setfacl", &["-m", "u:1234:rwx,g:4321:r,m::rx,d:u:1234:rx", &path("kernel")]).unwrap();
    image.unmount();
    let fs = open(&image.path());
    let number = |name: &[u8]| fs.walk(name).unwrap().number;
    let theirs = fs.walk(b"kernel").unwrap();
    for name in ["system.posix_acl_access", "system.posix_acl_default"] {
        let value = fs.xattr(&theirs, name.as_bytes()).unwrap().unwrap();
        fs.set_xattr(number(b"engine"), name.as_bytes(), &value, SetMode::Create).unwrap();
    }
    assert_eq!(fs.walk(b"engine").unwrap().permissions, theirs.permissions);
    let change = shunt_ext4::Attributes { permissions: Some(0o701), ..Default::default() };
    fs.set_attributes(number(b"engine"), &change).unwrap();
    // An ACL equivalent to the permissions is not stored.
    let entry = |tag: u8, permissions: u8| [tag, 0, permissions, 0, 255, 255, 255, 255];
    let plain = [vec![2, 0, 0, 0], entry(1, 6).into(), entry(4, 4).into(), entry(32, 0).into()].concat();
    let after = fs.set_xattr(number(b"plain"), b"system.posix_acl_access", &plain, SetMode::Either).unwrap();
    assert_eq!(after.permissions, 0o640);
    assert!(fs.xattr_names(&after).unwrap().is_empty());
    fs.close().unwrap();
    image.check();
    let image = image.mount().unwrap();
    run("chmod", &["701", &path("kernel")]).unwrap();
    let acl = |name: &str| {
        let output = Command::new("getfacl").args(["-c", "-n", "-p", &path(name)]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(acl("engine"), acl("kernel"));
    assert!(acl("engine").contains("mask::---"), "{}", acl("engine"));
    drop(image);
}
