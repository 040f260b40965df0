//! Kernel encryption of directories (fscrypt), with a test key.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::Path;

const SET_POLICY: libc::Ioctl = 0x800c_6613;
const ADD_KEY: libc::Ioctl = 0xc050_6617u32 as libc::Ioctl;

const XTS: u8 = 1;
const CTS: u8 = 4;
const PAD_TO_16: u8 = 2;
const KEY: [u8; 64] = [0x5a; 64];
/// Length of the ioctl argument before the key, and the offsets of the key length and of the identifier in it.
const ADD: (usize, usize, usize) = (80, 40, 8);
const BY_IDENTIFIER: u32 = 2;

fn ioctl(path: &Path, command: libc::Ioctl, argument: &mut [u8]) -> io::Result<()> {
    let file = File::open(path)?;
    // SAFETY: the ioctls access no more than their encoded sizes, and the key behind, all within the argument.
    let done = unsafe { libc::ioctl(file.as_raw_fd(), command, argument.as_mut_ptr()) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Adds the key to a mounted file system. Returns its identifier.
///
/// # Errors
/// A kernel without fscrypt.
pub fn add_key(mount: &Path) -> io::Result<[u8; 16]> {
    let (head, length, identifier) = ADD;
    let mut argument = [&vec![0; head][..], &KEY].concat();
    argument[..4].copy_from_slice(&BY_IDENTIFIER.to_ne_bytes());
    argument[length..length + 4].copy_from_slice(&(KEY.len() as u32).to_ne_bytes());
    ioctl(mount, ADD_KEY, &mut argument)?;
    Ok(argument[identifier..identifier + 16].try_into().expect("sixteen bytes"))
}

/// Sets the encryption policy of an empty directory.
///
/// # Errors
/// A kernel without fscrypt.
pub fn encrypt(directory: &Path, key: [u8; 16]) -> io::Result<()> {
    let mut policy = [&[2, XTS, CTS, PAD_TO_16, 0, 0, 0, 0][..], &key].concat();
    ioctl(directory, SET_POLICY, &mut policy)
}
