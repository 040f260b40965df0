//! Reserved blocks: the disk is full for users at the same point as with the kernel.

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::Path;

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use shunt_test_support::{User, needs_mount, requirement};
use shunt_tests::Image;

const USER: u32 = 1000;

/// Returns a name of which four fill a block of 1 KiB.
fn name(n: usize) -> String {
    format!("{n:x<230}")
}

/// Returns how many of twenty operations succeed. The others must fail with ENOSPC.
fn tried(mut one: impl FnMut(usize) -> std::io::Result<()>) -> usize {
    let results = (0..20).map(|n| one(n).map_err(|error| error.raw_os_error()));
    let (done, refused): (Vec<_>, Vec<_>) = results.partition(Result::is_ok);
    assert!(refused.iter().all(|error| *error == Err(Some(Errno::NOSPC.raw_os_error()))), "{refused:?}");
    done.len()
}

/// Counts what a user, and then root, can do once the user has filled the disk: new names, hard links, and names moved into
/// another directory.
fn names_on_a_full_disk(at: &Path) -> [usize; 6] {
    for dir in ["made", "linked", "from", "to", "more"] {
        fs::create_dir(at.join(dir)).unwrap();
        fs::set_permissions(at.join(dir), fs::Permissions::from_mode(0o777)).unwrap();
    }
    for n in 0..40 {
        fs::write(at.join("from").join(name(n)), b"").unwrap();
        chown(at.join("from").join(name(n)), Some(USER), Some(USER)).unwrap();
    }
    let filled = |length: &mut u64, size: u64| {
        let file = File::options().create(true).append(true).open(at.join("more/fill")).unwrap();
        while fallocate(&file, FallocateFlags::empty(), *length, size) == Ok(()) {
            *length += size;
        }
    };
    let work = |first: usize| {
        let make = |n| File::create_new(at.join("made").join(name(first + n))).map(drop);
        let link = |n| fs::hard_link(at.join("more/fill"), at.join("linked").join(name(first + n)));
        let step = |n| fs::rename(at.join("from").join(name(first + n)), at.join("to").join(name(first + n)));
        [tried(make), tried(link), tried(step)]
    };
    let user = User::new(USER).run(|| {
        let mut length = 0;
        [1 << 20, 64 << 10, 1 << 10].into_iter().for_each(|size| filled(&mut length, size));
        work(0)
    });
    let root = work(20);
    [user, root].concat().try_into().unwrap()
}

#[test]
fn names_of_users_find_no_room_where_root_does() {
    needs_mount!();
    requirement!(rustix::process::geteuid().is_root(), "needs root");
    let new = || Image::make(&["-b", "1024", "-m", "20"], 32).unwrap();
    let (ours, theirs) = (new(), new());
    let expected = names_on_a_full_disk(theirs.by_kernel("rw").unwrap().at());
    println!("made, linked and moved by a user, and by root: {expected:?}");
    assert!(expected[..3].iter().all(|&done| done < 20) && expected[3..] == [20; 3], "{expected:?}");
    let mount = ours.by_shunt(&["-o", "allow_other,default_permissions"]);
    assert_eq!(names_on_a_full_disk(mount.at()), expected);
    drop(mount);
    ours.check();
}
