//! Checks of the fields that requests have in common.

use std::path::{Component, Path, PathBuf};

use crate::proto::{AccessType, CapacityRange, Mode, VolumeCapability};
use crate::status::{self, Result, invalid};

/// Limit of names and ids, of the specification.
const MAX_NAME_BYTES: usize = 128;
/// Limit of the paths of the kernel.
const MAX_PATH_BYTES: usize = 4096;

/// Checks a volume id.
///
/// # Errors
/// INVALID_ARGUMENT if it is missing or too long.
pub(crate) fn volume_id(id: &str) -> Result<&str> {
    name("the volume id", id)
}

/// Checks a name.
///
/// # Errors
/// INVALID_ARGUMENT if it is missing or too long.
pub(crate) fn name<'a>(what: &str, name: &'a str) -> Result<&'a str> {
    match name.len() {
        0 => Err(invalid(format_args!("{what} is missing"))),
        1..=MAX_NAME_BYTES => Ok(name),
        length => Err(invalid(format_args!("{what} has {length} bytes; the limit is {MAX_NAME_BYTES}"))),
    }
}

/// Checks a path of the host: absolute, and without `..`.
///
/// # Errors
/// INVALID_ARGUMENT otherwise.
pub(crate) fn path(what: &str, path: &str) -> Result<PathBuf> {
    if path.is_empty() {
        return Err(invalid(format_args!("{what} is missing")));
    }
    let parsed = Path::new(path);
    let is_plain = parsed.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    if !parsed.is_absolute() || !is_plain || path.len() > MAX_PATH_BYTES || path.contains('\0') {
        return Err(invalid(format_args!("{what} {path} is not an absolute path without `..`")));
    }
    Ok(parsed.components().collect())
}

/// How a volume is accessed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Access {
    /// No node writes.
    pub(crate) read_only: bool,
    /// Options of the mount, as of `mount -o`.
    pub(crate) mount_flags: Vec<String>,
}

/// Checks the capability with which a volume is staged or published.
///
/// # Errors
/// INVALID_ARGUMENT if it is missing, or one that mounts do not have.
pub(crate) fn access(capability: Option<&VolumeCapability>) -> Result<Access> {
    let capability = capability.ok_or_else(|| invalid("the volume capability is missing"))?;
    let mode = capability.access_mode.ok_or_else(|| invalid("the access mode is missing"))?;
    let read_only = match Mode::try_from(mode.mode) {
        Ok(Mode::SingleNodeReaderOnly | Mode::MultiNodeReaderOnly) => true,
        Ok(Mode::Unknown) | Err(_) => {
            return Err(invalid(format_args!("unknown access mode {}", mode.mode)));
        }
        Ok(_) => false,
    };
    match &capability.access_type {
        None => Err(invalid("the access type is missing")),
        Some(AccessType::Block(_)) => {
            Err(invalid("volumes are file systems: use volumeMode: Filesystem, not Block"))
        }
        Some(AccessType::Mount(mount)) => {
            let known = ["", "shunt", "fuse", "fuse.shunt.mirror", "fuse.shunt.volume"];
            if !known.contains(&mount.fs_type.as_str()) {
                let wrong = &mount.fs_type;
                return Err(invalid(format_args!("unknown file system type {wrong}: omit fsType")));
            }
            Ok(Access { read_only, mount_flags: mount.mount_flags.clone() })
        }
    }
}

/// Checks all capabilities of a volume.
///
/// # Errors
/// INVALID_ARGUMENT if there is none, or one that mounts do not have.
pub(crate) fn capabilities(capabilities: &[VolumeCapability]) -> Result<()> {
    if capabilities.is_empty() {
        return Err(invalid("the volume capabilities are missing"));
    }
    capabilities.iter().try_for_each(|capability| access(Some(capability)).map(drop))
}

/// Size of a volume, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Capacity {
    /// At least this; zero: any size.
    pub(crate) required_bytes: i64,
    /// At most this.
    limit_bytes: Option<i64>,
}

impl Capacity {
    /// Reports whether a size is within both limits.
    pub(crate) fn admits(self, bytes: i64) -> bool {
        bytes >= self.required_bytes && self.limit_bytes.is_none_or(|limit| bytes <= limit)
    }
}

/// Checks a range of sizes.
///
/// # Errors
/// INVALID_ARGUMENT for negative sizes, OUT_OF_RANGE for a limit below what is required.
pub(crate) fn capacity(range: Option<CapacityRange>) -> Result<Capacity> {
    let Some(CapacityRange { required_bytes, limit_bytes }) = range else { return Ok(Capacity::default()) };
    if required_bytes < 0 || limit_bytes < 0 {
        return Err(invalid("a negative capacity"));
    }
    if limit_bytes > 0 && limit_bytes < required_bytes {
        return Err(status::new(
            tonic::Code::OutOfRange,
            format_args!("the limit of {limit_bytes} bytes is below the required {required_bytes} bytes"),
        ));
    }
    Ok(Capacity { required_bytes, limit_bytes: (limit_bytes > 0).then_some(limit_bytes) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::{AccessMode, BlockVolume, MountVolume};
    use tonic::Code;

    #[test]
    fn paths_lead_nowhere_else() {
        assert_eq!(path("p", "/a//b/").unwrap(), Path::new("/a/b"));
        for wrong in ["", "a", "some/path", "/a/../b", "/a\0"] {
            assert_eq!(path("p", wrong).unwrap_err().code(), Code::InvalidArgument, "{wrong}");
        }
    }

    #[test]
    fn block_devices_and_unknown_modes_are_refused() {
        let with = |access_type, mode| {
            let access_mode = Some(AccessMode { mode });
            access(Some(&VolumeCapability { access_type: Some(access_type), access_mode }))
                .map(|a| a.read_only)
        };
        let mount = || AccessType::Mount(MountVolume::default());
        assert_eq!(with(mount(), Mode::SingleNodeWriter as i32).ok(), Some(false));
        assert_eq!(with(mount(), Mode::MultiNodeReaderOnly as i32).ok(), Some(true));
        with(mount(), 0).unwrap_err();
        with(mount(), 99).unwrap_err();
        with(AccessType::Block(BlockVolume {}), Mode::SingleNodeWriter as i32).unwrap_err();
        with(AccessType::Mount(MountVolume { fs_type: "xfs".into(), ..MountVolume::default() }), 1)
            .unwrap_err();
        access(None).unwrap_err();
    }

    #[test]
    fn sizes_are_ranges() {
        let of = |required_bytes, limit_bytes| capacity(Some(CapacityRange { required_bytes, limit_bytes }));
        let range = of(10, 20).unwrap();
        assert!(range.admits(10) && range.admits(20) && !range.admits(9) && !range.admits(21));
        assert!(of(10, 0).unwrap().admits(i64::MAX));
        assert_eq!(of(10, 5).unwrap_err().code(), Code::OutOfRange);
        assert_eq!(of(-1, 0).unwrap_err().code(), Code::InvalidArgument);
    }
}
