//! What a directory shows, for tests that wait until it shows something: what cannot be read yet is empty.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;

use crate::cmd::within;

/// A file's text.
pub fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// A directory's names in order.
pub fn names(path: &Path) -> Vec<String> {
    let entries = fs::read_dir(path).into_iter().flatten();
    let mut names: Vec<_> = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    names.sort();
    names
}

/// Waits half a minute for what comes by itself.
///
/// # Panics
/// When it does not come.
#[track_caller]
pub fn soon(what: impl Fn() -> bool) {
    assert!(within(Duration::from_secs(30), what), "it does not come");
}

/// Asserts that something was refused with an error number.
///
/// # Panics
/// When it was not.
#[track_caller]
pub fn refused<T: std::fmt::Debug>(done: io::Result<T>, errno: Errno) {
    assert_eq!(done.unwrap_err().raw_os_error(), Some(errno.raw_os_error()));
}
