//! Directories of a user, by the XDG standard; of the machine, for who has no home.

use std::path::PathBuf;

/// Where programs keep what the variable is for: by the variable, below the home, or there. Only absolute paths count.
fn of(variable: &str, below_home: &str, without: &str) -> PathBuf {
    let of = |variable: &str| std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    of(variable).or_else(|| of("HOME").map(|home| home.join(below_home))).unwrap_or_else(|| without.into())
}

/// What must not be lost: `$XDG_DATA_HOME`.
pub fn data() -> PathBuf {
    of("XDG_DATA_HOME", ".local/share", "/var/lib")
}

/// What can be had again: `$XDG_CACHE_HOME`.
pub fn cache() -> PathBuf {
    of("XDG_CACHE_HOME", ".cache", "/var/cache")
}

/// What was set up: `$XDG_CONFIG_HOME`.
pub fn config() -> PathBuf {
    of("XDG_CONFIG_HOME", ".config", "/etc")
}
