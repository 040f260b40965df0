//! `shunt volume mount --extension`: a BPF program that answers requests in the kernel before they reach the daemon.

use std::path::Path;

use shunt_fuse::guardian::Restart;
use shunt_volumefs::VolumeFs;

use super::fs_status;
use crate::args::VolumeMountArgs;
use crate::error::Result;
#[cfg(not(feature = "extension"))]
use crate::extension::NO_FEATURE;
use crate::extension::{self, obstacle, read};
use crate::serve::{self, FsStatus, Service};

/// Serves with the program, or without it when this machine or build cannot load it.
pub fn serve(
    service: Service<VolumeFs>,
    program: &Path,
    args: &VolumeMountArgs,
    restart: Result<Restart, String>,
) -> Result<()> {
    match obstacle() {
        None => serve::serve(extended(service, read(program)?, args), &args.mount, restart),
        Some(reason) => serve::serve(without(service, reason), &args.mount, restart),
    }
}

#[cfg(feature = "extension")]
fn extended(
    mut service: Service<VolumeFs>,
    program: Vec<u8>,
    args: &VolumeMountArgs,
) -> Service<shunt_fuse_ext::Extended<VolumeFs>> {
    use shunt_fuse::Capabilities;
    use shunt_fuse_ext::{AccessTimes, Extended, Extension};

    // Without the adaptive mode every listing uses READDIRPLUS, so that all its entries get into the tables.
    service.config = service.config.without(Capabilities::READDIRPLUS_AUTO);

    // Synchronisation sends invalidations for all changes, so entries can last. The replica must know which files are open, so
    // the daemon opens them.
    let extension = Extension {
        program: Ok(program),
        xattrs: true,
        opens: false,
        access_times: AccessTimes::Unmoved,
        lasting: shunt_volumefs::ATTR_TTL,
        no_kernel_cache: args.no_kernel_cache,
    };
    let held = |extended: &Extended<VolumeFs>| {
        let refusal = extended.refusal();
        FsStatus { extension: Some(serve::Extended { refusal, files: 0 }), ..fs_status(extended.inner()) }
    };
    service.wrap(|fs| Extended::new(fs, extension), held)
}

#[cfg(not(feature = "extension"))]
fn extended(service: Service<VolumeFs>, _program: Vec<u8>, _args: &VolumeMountArgs) -> Service<VolumeFs> {
    without(service, NO_FEATURE)
}

/// Falls back to a daemon that answers everything.
fn without(mut service: Service<VolumeFs>, reason: &str) -> Service<VolumeFs> {
    tracing::warn!("no extension in the kernel: {reason}");
    service.status = |fs| FsStatus { extension: Some(extension::none()), ..fs_status(fs) };
    service
}
