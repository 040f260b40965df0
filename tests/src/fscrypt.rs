//! Encryption of directories by the kernel, with a key that only tests have.

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
/// Bytes in front of the key, and where in them its length and its identifier are.
const ADD: (usize, usize, usize) = (80, 40, 8);
const BY_IDENTIFIER: u32 = 2;

fn ioctl(path: &Path, command: libc::Ioctl, argument: &mut [u8]) -> io::Result<()> {
    let file = File::open(path)?;
    // SAFETY: the commands read and write no more than the sizes in them, and the key behind, which are there.
    let done = unsafe { libc::ioctl(file.as_raw_fd(), command, argument.as_mut_ptr()) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Gives a mounted file system the key; tells its identifier.
///
/// # Errors
/// A kernel without encryption.
pub fn add_key(mount: &Path) -> io::Result<[u8; 16]> {
    let (head, length, identifier) = ADD;
    let mut argument = [&vec![0; head][..], &KEY].concat();
    argument[..4].copy_from_slice(&BY_IDENTIFIER.to_ne_bytes());
    argument[length..length + 4].copy_from_slice(&(KEY.len() as u32).to_ne_bytes());
    ioctl(mount, ADD_KEY, &mut argument)?;
    Ok(argument[identifier..identifier + 16].try_into().expect("sixteen bytes"))
}

/// Has all that will be in an empty directory encrypted.
///
/// # Errors
/// A kernel without encryption.
pub fn encrypt(directory: &Path, key: [u8; 16]) -> io::Result<()> {
    let mut policy = [&[2, XTS, CTS, PAD_TO_16, 0, 0, 0, 0][..], &key].concat();
    ioctl(directory, SET_POLICY, &mut policy)
}
