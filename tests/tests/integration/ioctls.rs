//! Flag ioctls: `chattr` may use them, and only the owner.

use std::fs::{self, File};
use std::os::fd::AsRawFd as _;

use shunt_test_support::User;
use shunt_tests::Fixture;

shunt_tests::behaviours! { everywhere: flags_are_the_owners_in_every_form_of_the_command }

/// Issues a flag command with a `long`, as its number declares.
fn flags(file: &File, command: u32, flags: i64) -> Result<i64, i32> {
    let mut argument = flags;
    // SAFETY: no command used here transfers more than the eight bytes behind the pointer.
    match unsafe { libc::ioctl(file.as_raw_fd(), command as libc::Ioctl, &raw mut argument) } {
        0 => Ok(argument),
        _ => Err(std::io::Error::last_os_error().raw_os_error().unwrap()),
    }
}

fn flags_are_the_owners_in_every_form_of_the_command(s: &Fixture) {
    const GET: u32 = 0x8008_6601;
    const IMMUTABLE: i64 = 0x10;
    fs::write(s.path("f"), b"data").unwrap();
    let file = File::open(s.path("f")).unwrap();
    let before = flags(&file, GET, 0).unwrap() & 0xffff_ffff;
    // The command, its form for 32-bit programs, and variants of its number with other sizes.
    for command in [0x4008_6602, 0x4004_6602, 0x4001_6602, 0xc008_6602, 0xc004_6602] {
        let refused = User::new(65_534).run(|| flags(&File::open(s.path("f")).unwrap(), command, IMMUTABLE));
        assert!(matches!(refused, Err(libc::EPERM | libc::ENOTTY)), "{command:#x}: {refused:?}");
        assert_eq!(flags(&file, GET, 0).unwrap() & 0xffff_ffff, before, "{command:#x}");
    }
    // Not for root either: the source does not support this form, and neither does the mirror.
    assert_eq!(flags(&file, 0x4004_6602, before), Err(libc::ENOTTY));
    // The owner's changes work.
    flags(&file, 0x4008_6602, before | 0x80).unwrap();
    assert_eq!(flags(&file, GET, 0).unwrap() & 0xffff_ffff, before | 0x80);
    fs::write(s.path("f"), b"still writable").unwrap();
}
