//! Polling helpers for tests that wait for a change: a file or directory that cannot be read yet counts as empty.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;

use shunt_test_support::cmd::within;

/// Returns the text of a file, or an empty string.
pub fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// Returns the sorted names in a directory.
pub fn names(path: &Path) -> Vec<String> {
    let entries = fs::read_dir(path).into_iter().flatten();
    let mut names: Vec<_> = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    names.sort();
    names
}

/// Waits up to half a minute for a condition.
///
/// # Panics
/// If it does not become true.
#[track_caller]
pub fn soon(what: impl Fn() -> bool) {
    assert!(within(Duration::from_secs(30), what), "it does not come");
}

/// Asserts that a call failed with this errno.
///
/// # Panics
/// If it did not.
#[track_caller]
pub fn refused<T: std::fmt::Debug>(done: io::Result<T>, errno: Errno) {
    assert_eq!(done.unwrap_err().raw_os_error(), Some(errno.raw_os_error()));
}
