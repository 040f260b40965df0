//! The directories of the XDG Base Directory standard, or those of the machine for users without a home; and helpers for parent
//! directories.

use std::io;
use std::path::{Path, PathBuf};

/// The directory that a file is in.
pub fn directory_of(file: &Path) -> &Path {
    file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Creates the directory that a file is in, and its parents.
///
/// # Errors
/// The errors of the file system, with the directory.
pub fn make_directory_of(file: &Path) -> io::Result<()> {
    let directory = directory_of(file);
    std::fs::create_dir_all(directory).map_err(|error| {
        io::Error::new(error.kind(), format!("cannot create {}: {error}", directory.display()))
    })
}

/// A base directory: the value of the variable, else `below_home` in the home directory, else `without`. Only absolute paths
/// count.
fn of(variable: &str, below_home: &str, without: &str) -> PathBuf {
    let of = |variable: &str| std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    of(variable).or_else(|| of("HOME").map(|home| home.join(below_home))).unwrap_or_else(|| without.into())
}

/// The directory of data that must not be lost: `$XDG_DATA_HOME`.
pub fn data() -> PathBuf {
    of("XDG_DATA_HOME", ".local/share", "/var/lib")
}

/// The directory of data that can be recreated: `$XDG_CACHE_HOME`.
pub fn cache() -> PathBuf {
    of("XDG_CACHE_HOME", ".cache", "/var/cache")
}

/// The directory of configuration: `$XDG_CONFIG_HOME`.
pub fn config() -> PathBuf {
    of("XDG_CONFIG_HOME", ".config", "/etc")
}
