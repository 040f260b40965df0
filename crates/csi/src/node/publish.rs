//! NodePublishVolume and NodeUnpublishVolume: bind mounts of a staged volume, one for each pod.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use rustix::mount::{MountFlags, UnmountFlags};

use super::NodeService;
use super::stage::{create_mountpoint, detach};
use crate::mount_table;
use crate::proto::{NodePublishVolumeRequest, NodeUnpublishVolumeRequest};
use crate::request;
use crate::secrets::Secrets;
use crate::status::{Result, exists, internal, invalid, precondition};

impl NodeService {
    /// Binds a staged volume to the path of a pod. A volume whose daemon has died is mounted again before, and then bound again.
    pub(super) fn publish(&self, request: &NodePublishVolumeRequest) -> Result<()> {
        let id = request::volume_id(&request.volume_id)?;
        let target = request::path("target_path", &request.target_path)?;
        let access = request::access(request.volume_capability.as_ref())?;
        if request.staging_target_path.is_empty() {
            return Err(precondition("the staging target path is missing: call NodeStageVolume first"));
        }
        let staging = request::path("staging_target_path", &request.staging_target_path)?;
        let secrets = Secrets::parse(&request.secrets)?;
        if target.starts_with(&staging) {
            return Err(invalid("the target path is inside of the staging path"));
        }
        let _operation = self.calls.begin(id)?;
        let stage = self.stages.get(id).map_err(internal)?.filter(|stage| stage.staging_path == staging);
        let stage = stage.ok_or_else(|| {
            precondition(format_args!("the volume {id} is not staged at {}", staging.display()))
        })?;
        if stage.has_secrets && secrets.is_empty() && !self.commands.is_served(&staging) {
            return Err(precondition(format_args!(
                "no daemon serves the volume {id}, and its credentials are needed to start one: delete the pods that use it"
            )));
        }
        self.ensure_served(&stage, &secrets)?;
        let not_mounted = || internal(format_args!("the volume {id} was unmounted by somebody else"));
        let mount = mount_table::at(&staging)?.ok_or_else(not_mounted)?;
        let read_only = request.readonly || access.read_only;
        if let Some(old) = mount_table::at(&target)? {
            if old.dev == mount.dev {
                return match mount_table::is_read_only(&old)
                    == (read_only || mount_table::is_read_only(&mount))
                {
                    true => Ok(()),
                    false => Err(exists(format_args!(
                        "the volume {id} is published at {} already, and read-only differs",
                        target.display()
                    ))),
                };
            }
            // A bind mount of the file system of a daemon that died.
            detach(&target)?;
        }
        create_mountpoint(&target)?;
        let cannot =
            |error| internal(format_args!("cannot bind the volume {id} to {}: {error}", target.display()));
        rustix::mount::mount_bind(&staging, &target).map_err(cannot)?;
        if read_only {
            let flags = MountFlags::BIND | MountFlags::RDONLY | mount_table::flags(&mount);
            rustix::mount::mount_remount(&target, flags, "").map_err(|error| {
                let _ = detach(&target);
                cannot(error)
            })?;
        }
        Ok(())
    }

    /// Removes the bind mount at the path of a pod, and the path.
    pub(super) fn unpublish(&self, request: &NodeUnpublishVolumeRequest) -> Result<()> {
        let id = request::volume_id(&request.volume_id)?;
        let target = request::path("target_path", &request.target_path)?;
        let _operation = self.calls.begin(id)?;
        if self.stages.get(id).map_err(internal)?.is_some_and(|stage| stage.staging_path == target) {
            return Err(invalid("the target path is the staging path of the volume"));
        }
        while mount_table::at(&target)?.is_some() {
            rustix::mount::unmount(&target, UnmountFlags::NOFOLLOW)
                .map_err(|error| internal(format_args!("cannot unmount {}: {error}", target.display())))?;
        }
        remove_mountpoint(&target)
    }
}

fn remove_mountpoint(path: &Path) -> Result<()> {
    match fs::remove_dir(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(internal(format_args!("cannot remove {}: {error}", path.display())))
        }
        _ => Ok(()),
    }
}
