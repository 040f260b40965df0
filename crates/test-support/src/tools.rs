//! Tools that tests run: servers and test suites.

use std::path::PathBuf;

/// Returns a tool that `tests/setup` built, or one from `PATH`.
pub fn tool(name: &str) -> Option<PathBuf> {
    let built = tools().join("bin").join(name);
    if built.exists() {
        return Some(built);
    }
    crate::skip::have(&[name]).then(|| name.into())
}

/// Returns the directory for what `tests/setup` builds, as `tests/setup --where` prints it.
fn tools() -> PathBuf {
    if let Some(given) = std::env::var_os("SHUNT_TOOLS") {
        return given.into();
    }
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(std::env::home_dir()?.join(".cache"))).unwrap_or_default();
    cache.join("shunt/tools")
}
