//! Requests that read about a volume: its conflicts, and the versions of a path.

use std::path::{Path, PathBuf};

use axum::http::StatusCode;
use serde_json::Value;
use shunt_volume::history::{HISTORY, PointInTime};

use crate::control::{self, QueryResult};
use crate::own_mounts;

use super::error::{Failure, Result};
use super::own_command;
use super::query::Parameters;

/// A mounted volume.
#[derive(Debug)]
pub struct MountedVolume {
    pub mountpoint: PathBuf,
    /// Its name.
    pub name: String,
}

impl MountedVolume {
    /// The volume mounted at the parameter `mount`: one that the list of mounts has, never another directory.
    ///
    /// Its daemon alone is queried: one of another mount that does not reply must not delay requests about this one.
    pub fn of(parameters: &Parameters) -> Result<Self> {
        let mountpoint = parameters.text("mount")?;
        let mounts = own_mounts::all().unwrap_or_default();
        // Of mounts over each other, the last one is visible.
        let mount = mounts.iter().rfind(|info| info.mountpoint.to_string_lossy() == mountpoint);
        let stat = mount.and_then(|info| {
            control::query_all_stats(&[own_mounts::query_target(info)])
                .pop()
                .and_then(QueryResult::into_answer)
        });
        match stat.and_then(|stat| stat.volume) {
            Some(volume) => Ok(Self { mountpoint: mountpoint.into(), name: volume.name }),
            None => Err(Failure::new(
                StatusCode::NOT_FOUND,
                format_args!("no volume is mounted at {mountpoint}, or its daemon does not answer"),
            )),
        }
    }

    /// The absolute path of a path in the volume.
    pub fn path(&self, inside: &Path) -> PathBuf {
        // Joining an empty path would append a slash.
        if inside.as_os_str().is_empty() { self.mountpoint.clone() } else { self.mountpoint.join(inside) }
    }
}

/// The path at which the mount shows a requested state: `path` now, as of the time `at` in the whole volume, or as of the commit
/// `version` in its present directory.
pub fn shown_path(parameters: &Parameters) -> Result<PathBuf> {
    let path = parameters.path()?;
    if let Some(at) = parameters.optional("at")? {
        if PointInTime::parse(at.as_bytes()).is_none() {
            return Err(Failure::bad(
                "the time must be YYYY-MM-DD or YYYY-MM-DDTHH:MM:SS, or # and a commit",
            ));
        }
        return Ok(Path::new(HISTORY).join(at).join(path));
    }
    let Some(version) = parameters.optional("version")? else { return Ok(path) };
    let version: u64 = version.parse().map_err(|_| Failure::bad("the version must be a number"))?;
    let mut name = path.file_name().ok_or_else(|| Failure::bad("the path is empty"))?.to_owned();
    name.push(format!("@#{version}"));
    Ok(path.parent().unwrap_or(Path::new("")).join(HISTORY).join(name))
}

/// Conflicts at a path and below it.
pub fn conflicts(parameters: &Parameters) -> Result<Value> {
    let volume = MountedVolume::of(parameters)?;
    own_command::json(&["conflicts", "--json"], &[volume.path(&parameters.path()?).as_os_str()])
}

/// Versions of a path.
pub fn history(parameters: &Parameters) -> Result<Value> {
    let volume = MountedVolume::of(parameters)?;
    own_command::json(&["history", "--json"], &[volume.path(&parameters.path()?).as_os_str()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_of_the_past_have_paths() {
        let path = |query: &str| shown_path(&Parameters::parse(query)).ok();
        assert_eq!(path("path=a/b"), Some("a/b".into()));
        assert_eq!(path("path=a/b&version=7"), Some("a/.shunt-history/b@#7".into()));
        assert_eq!(path("path=a/b&at=2026-01-02"), Some(".shunt-history/2026-01-02/a/b".into()));
        assert_eq!(path("path=&at=%2312"), Some(".shunt-history/#12".into()));
        for wrong in
            ["path=a&version=x", "path=a&version=-1", "path=&version=1", "path=a&at=../..", "path=a&at=x"]
        {
            assert_eq!(path(wrong), None, "{wrong}");
        }
    }
}
