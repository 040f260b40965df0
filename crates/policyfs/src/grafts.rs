//! Grafts: bind mounts over directories for which the policy decides nothing, so that accesses bypass FUSE.
//!
//! A graft is a clone of the source's own mount, mounted on the directory by which this mount shows it. It has the
//! restrictions of this mount, and requires that the rules allow everything there. While it is unavailable, the mirror
//! serves the same files like all others.
//!
//! The kernel detaches a mount with the name it is mounted on, and with any name above. So the names that lead to a
//! graft are [pinned](shunt_mirror::Pins): renaming or removing them fails with EBUSY, and changes that others make to
//! them in the source are ignored. A graft is lost when every name is expired at once, after a policy reload or an event
//! overflow. [`PolicyFs::keep_grafts`], called periodically, mounts it again.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};
use rustix::io::Errno;
use rustix::mount::{MoveMountFlags, UnmountFlags};
use shunt_fuse::NodeId;
use shunt_fuse::mount::{MountInfo, MountPoint};
use shunt_mirror::lower::{Component, bind_mount};

use crate::PolicyFs;

/// State of one graft.
#[derive(Default)]
struct State {
    /// The pinned path to it: directory, name and node of each component.
    pinned_path: Vec<(NodeId, Vec<u8>, NodeId)>,
    mounted: bool,
    /// The error that was last logged.
    refused: Option<Errno>,
}

#[derive(Default)]
pub(crate) struct Grafts {
    /// Grafts by path below the root.
    grafts: Mutex<BTreeMap<PathBuf, State>>,
}

impl PolicyFs {
    /// Mounts the grafts that the rules ask for, and unmounts the others. A thread that serves the mount must not call
    /// this, because it walks the mount.
    pub fn keep_grafts(&self, mount: &MountPoint) {
        let paths: Vec<PathBuf> = self.rules().policy.grafts().collect();
        let mut grafts = self.grafts.grafts.lock();
        if paths.is_empty() && grafts.is_empty() {
            return;
        }
        grafts.retain(|path, state| {
            let keep = paths.contains(path);
            if !keep {
                self.unpin(&std::mem::take(&mut state.pinned_path));
                tracing::info!("graft {} removed: no rule names it any more", path.display());
                let _ = rustix::mount::unmount(
                    mount.path().join(relative(path)),
                    UnmountFlags::DETACH | UnmountFlags::NOFOLLOW,
                );
            }
            keep
        });
        let Ok((_, info)) = MountPoint::find_with_info(mount.path()) else { return };
        self.pin(&mut grafts, paths);
        for (path, state) in grafts.iter_mut() {
            let done = self.graft(mount, &info, relative(path));
            state.mounted = done.is_ok();
            match done {
                Ok(fresh) => {
                    if fresh {
                        tracing::info!("graft {} mounted: access below it bypasses FUSE", path.display());
                    }
                    state.refused = None;
                }
                Err(errno) => {
                    if matches!(errno, Errno::NOENT | Errno::STALE) {
                        // The path is resolved again at the next call.
                        self.unpin(&std::mem::take(&mut state.pinned_path));
                    }
                    if state.refused == Some(errno) {
                        continue;
                    }
                    state.refused = Some(errno);
                    tracing::warn!("cannot mount graft {}: {errno}; the daemon serves it", path.display());
                }
            }
        }
    }

    /// Pins the names that lead to the grafts of an earlier daemon.
    pub(crate) fn pin_grafts(&self) {
        let paths = self.rules().policy.grafts().collect();
        self.pin(&mut self.grafts.grafts.lock(), paths);
    }

    fn pin(&self, grafts: &mut BTreeMap<PathBuf, State>, paths: Vec<PathBuf>) {
        for path in paths {
            let state = grafts.entry(path.clone()).or_default();
            if state.pinned_path.is_empty() {
                state.pinned_path = self.pinned_path(relative(&path)).unwrap_or_default();
            }
        }
        self.mirror.pins().set(grafts.values().flat_map(|state| state.pinned_path.iter().cloned()));
    }

    /// Returns the grafts that are mounted, as paths below the root.
    pub fn grafts(&self) -> Vec<PathBuf> {
        let grafts = self.grafts.grafts.lock();
        grafts.iter().filter(|(_, state)| state.mounted).map(|(path, _)| path.clone()).collect()
    }

    /// Resolves the names that lead to a directory. The lookup references taken here keep the nodes.
    fn pinned_path(&self, path: &Path) -> Result<Vec<(NodeId, Vec<u8>, NodeId)>, Errno> {
        let mut pinned_path = Vec::new();
        let mut dir = NodeId::ROOT;
        for name in path.iter().map(|name| name.as_bytes().to_vec()) {
            let c_name = CString::new(name.clone()).map_err(|_| Errno::INVAL)?;
            let lower = self.mirror.engine();
            let found = match self.mirror.pins().get(dir, &name) {
                Some(node) => lower.again(node),
                None => Component::new(&c_name).and_then(|name| lower.lookup(dir, name)),
            };
            match found {
                Ok(found) => {
                    pinned_path.push((dir, name, found.id));
                    dir = found.id;
                }
                Err(errno) => {
                    self.unpin(&pinned_path);
                    return Err(errno);
                }
            }
        }
        Ok(pinned_path)
    }

    fn unpin(&self, pinned_path: &[(NodeId, Vec<u8>, NodeId)]) {
        pinned_path.iter().for_each(|(_, _, node)| self.mirror.engine().forget(*node, 1));
    }

    /// Mounts a graft, unless something is mounted there. Returns whether it did.
    fn graft(&self, mount: &MountPoint, info: &MountInfo, path: &Path) -> Result<bool, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(mount.path(), flags, Mode::empty())?;
        let at = bind_mount::below(&root, path)?;
        let dev = mount.dev();
        if device(&root)? != (dev.major, dev.minor) || device(&at)? != (dev.major, dev.minor) {
            return Ok(false);
        }
        let tree = self.mirror.engine().tree(&self.source, path, &info.options)?;
        let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
        rustix::mount::move_mount(&tree, c"", &at, c"", flags)?;
        Ok(true)
    }
}

fn relative(path: &Path) -> &Path {
    path.strip_prefix("/").unwrap_or(path)
}

fn device(dir: &OwnedFd) -> Result<(u32, u32), Errno> {
    let stat = rustix::fs::statx(dir, c"", AtFlags::EMPTY_PATH, StatxFlags::empty())?;
    Ok((stat.stx_dev_major, stat.stx_dev_minor))
}
