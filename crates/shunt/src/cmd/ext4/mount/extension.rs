//! `shunt ext4 --extension`: a BPF program that answers requests in the kernel before they reach the daemon.

use std::path::Path;

use shunt_ext4fs::Ext4;
use shunt_fuse::guardian::Restart;

use super::fs_status;
use crate::args::Ext4MountArgs;
use crate::error::Result;
#[cfg(not(feature = "extension"))]
use crate::extension::NO_FEATURE;
use crate::extension::{self, obstacle, read};
use crate::serve::{self, FsStatus, Service};

/// Serves with the program, or without it when this machine or build cannot load it.
pub fn serve(
    service: Service<Ext4>,
    program: &Path,
    args: &Ext4MountArgs,
    restart: Result<Restart, String>,
) -> Result<()> {
    match obstacle() {
        None => serve::serve(extended(service, read(program)?, args), &args.mount, restart),
        Some(reason) => serve::serve(without(service, reason), &args.mount, restart),
    }
}

#[cfg(feature = "extension")]
fn extended(
    service: Service<Ext4>,
    program: Vec<u8>,
    args: &Ext4MountArgs,
) -> Service<shunt_fuse_ext::Extended<Ext4>> {
    use shunt_fuse::Expiry;
    use shunt_fuse_ext::{AccessTimes, Extended, Extension};

    // This daemon is the only writer of the image, so entries never expire. Data goes through the daemon, which sees each read
    // and write that misses the page cache, so the program opens no files.
    let extension = Extension {
        program: Ok(program),
        xattrs: true,
        opens: false,
        access_times: AccessTimes::Moved,
        lasting: Expiry::FOREVER,
        no_kernel_cache: args.no_kernel_cache,
    };
    let held = |extended: &Extended<Ext4>| {
        let refusal = extended.refusal();
        FsStatus { extension: Some(serve::Extended { refusal, files: 0 }), ..fs_status(extended.inner()) }
    };
    service.wrap(|fs| Extended::new(fs, extension), held)
}

#[cfg(not(feature = "extension"))]
fn extended(service: Service<Ext4>, _program: Vec<u8>, _args: &Ext4MountArgs) -> Service<Ext4> {
    without(service, NO_FEATURE)
}

/// Falls back to a daemon that answers everything.
fn without(mut service: Service<Ext4>, reason: &str) -> Service<Ext4> {
    tracing::warn!("no extension in the kernel: {reason}");
    service.status = |ext4| FsStatus { extension: Some(extension::none()), ..fs_status(ext4) };
    service
}
