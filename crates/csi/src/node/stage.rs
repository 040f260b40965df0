//! NodeStageVolume and NodeUnstageVolume: the mount of a volume, once per node.

use std::fs;
use std::path::Path;

use tonic::Code;

use super::NodeService;
use crate::mount_table;
use crate::parameters::{self, MountSpec};
use crate::proto::{NodeStageVolumeRequest, NodeUnstageVolumeRequest};
use crate::record_file::create_private_dir;
use crate::request;
use crate::secrets::Secrets;
use crate::stages::Stage;
use crate::status::{Result, exists, internal, not_found, precondition};

impl NodeService {
    /// Mounts a volume. Repeated calls do nothing, unless the daemon has died: then it is mounted again.
    pub(super) fn stage(&self, request: &NodeStageVolumeRequest) -> Result<()> {
        let id = request::volume_id(&request.volume_id)?;
        let path = request::path("staging_target_path", &request.staging_target_path)?;
        let access = request::access(request.volume_capability.as_ref())?;
        parameters::mount_flags(&access.mount_flags)?;
        let secrets = Secrets::parse(&request.secrets)?;
        let stage = Stage {
            volume_id: id.to_owned(),
            staging_path: path,
            spec: MountSpec::parse(&request.volume_context)?,
            read_only: access.read_only,
            mount_flags: access.mount_flags,
            has_secrets: !secrets.is_empty(),
        };
        let _operation = self.calls.begin(id)?;
        match self.stages.get(id).map_err(internal)? {
            Some(old) if old == stage => {}
            Some(old) if mount_table::at(&old.staging_path)?.is_some() => {
                let path = old.staging_path.display();
                return Err(exists(format_args!(
                    "the volume {id} is staged at {path} already, with another path or other attributes"
                )));
            }
            None if mount_table::at(&stage.staging_path)?.is_some() => {
                let path = stage.staging_path.display();
                return Err(precondition(format_args!(
                    "{path} is a mount of another volume: unmount it by `shunt umount {path}`"
                )));
            }
            Some(_) | None => self.stages.put(&stage).map_err(internal)?,
        }
        self.ensure_served(&stage, &secrets).inspect_err(|_| {
            // Without a mount there is nothing to remember.
            if matches!(mount_table::at(&stage.staging_path), Ok(None)) {
                let _ = self.stages.remove(id);
                self.commands.forget_keys(id);
            }
        })
    }

    /// Mounts a staged volume if it is not mounted, or if no daemon serves its mount.
    pub(super) fn ensure_served(&self, stage: &Stage, secrets: &Secrets) -> Result<()> {
        let path = &stage.staging_path;
        if mount_table::at(path)?.is_some() {
            if self.commands.is_served(path) {
                return Ok(());
            }
            tracing::warn!("no daemon serves the volume {}: mounting it again", stage.volume_id);
            detach(path)?;
        }
        if let MountSpec::Mirror { source, .. } = &stage.spec
            && !source.is_dir()
        {
            return Err(not_found(format_args!("the source {} is not a directory", source.display())));
        }
        create_private_dir(path)
            .map_err(|error| internal(format_args!("cannot create {}: {error}", path.display())))?;
        self.commands.mount(stage, secrets)
    }

    /// Unmounts a volume, and waits for the last commit of its daemon.
    pub(super) fn unstage(&self, request: &NodeUnstageVolumeRequest) -> Result<()> {
        let id = request::volume_id(&request.volume_id)?;
        let path = request::path("staging_target_path", &request.staging_target_path)?;
        let _operation = self.calls.begin(id)?;
        let stage = self.stages.get(id).map_err(internal)?;
        if stage.as_ref().is_some_and(|stage| stage.staging_path != path) {
            // The call means another mount, which is not there.
            return Ok(());
        }
        if let Some(mount) = mount_table::at(&path)? {
            if stage.is_none() {
                return Err(precondition(format_args!("{} is a mount of another volume", path.display())));
            }
            if let [published, ..] = mount_table::others(mount.dev, &path)?.as_slice() {
                let published = published.display();
                return Err(precondition(format_args!("the volume {id} is still published at {published}")));
            }
            // A busy mount: somebody of the host has a file open.
            self.commands.umount(&path).map_err(|failure| match failure.code() {
                Code::Aborted => precondition(failure.message()),
                _ => failure,
            })?;
        }
        self.stages.remove(id).map_err(internal)?;
        self.commands.forget(id);
        Ok(())
    }
}

/// Removes all mounts of Shunt at a path, without waiting for their users.
pub(super) fn detach(path: &Path) -> Result<()> {
    let flags = rustix::mount::UnmountFlags::DETACH | rustix::mount::UnmountFlags::NOFOLLOW;
    while mount_table::at(path)?.is_some() {
        rustix::mount::unmount(path, flags)
            .map_err(|error| internal(format_args!("cannot unmount {}: {error}", path.display())))?;
    }
    Ok(())
}

/// Creates the directory of a mount point; its parent exists.
pub(super) fn create_mountpoint(path: &Path) -> Result<()> {
    match fs::create_dir(path) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            Err(internal(format_args!("cannot create {}: {error}", path.display())))
        }
        _ => Ok(()),
    }
}
