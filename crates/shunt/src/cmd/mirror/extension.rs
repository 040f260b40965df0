//! `shunt mirror --extension`: a BPF program that answers requests in the kernel before they reach the daemon.

use std::path::Path;

use shunt_fuse::guardian::{HandOver, Restart};
use shunt_mirror::Mirror;

use crate::args::TakeoverArg;
use crate::cli::MirrorArgs;
use crate::error::Result;
#[cfg(not(feature = "extension"))]
use crate::extension::NO_FEATURE;
use crate::extension::{self, obstacle, read};
use crate::serve::{self, FsStatus, Service};

/// Reports whether the program opens files as well: only without takeover, since another daemon would not know those files.
pub fn opens_files(args: &MirrorArgs) -> bool {
    args.extension.is_some() && args.mount.takeover == TakeoverArg::Off && obstacle().is_none()
}

/// Serves with the program, or without it when this machine or build cannot load it.
pub fn serve(
    service: Service<Mirror>,
    program: &Path,
    args: &MirrorArgs,
    restart: Result<Restart, String>,
) -> Result<()> {
    match obstacle() {
        None => serve::serve(extended(service, read(program)?, args), &args.mount, restart),
        Some(reason) => serve::serve(without(service, reason), &args.mount, restart),
    }
}

/// Takes over from another daemon. Its program ended with it, so a new one is loaded.
pub fn take_over(
    service: Service<Mirror>,
    program: &Path,
    args: &MirrorArgs,
    hand_over: HandOver,
) -> Result<()> {
    let program = match obstacle() {
        None => read(program).map_err(|failure| failure.to_string()),
        Some(reason) => Err(reason.to_owned()),
    };
    match program {
        Ok(program) => serve::take_over(extended(service, program, args), &args.mount, hand_over),
        // The mount must be served in any case.
        Err(reason) => serve::take_over(without(service, &reason), &args.mount, hand_over),
    }
}

#[cfg(feature = "extension")]
fn extended(
    service: Service<Mirror>,
    program: Vec<u8>,
    args: &MirrorArgs,
) -> Service<shunt_fuse_ext::Extended<Mirror>> {
    use shunt_fuse::Expiry;
    use shunt_fuse_ext::{AccessTimes, Extended, Extension};

    let extension = Extension {
        program,
        xattrs: true,
        opens: opens_files(args),
        access_times: match service.fs.get().is_some_and(|mirror| mirror.uses_relatime()) {
            true => AccessTimes::Loosely,
            false => AccessTimes::Moved,
        },
        lasting: Expiry::FOREVER,
        no_kernel_cache: args.no_kernel_cache,
    };
    let held = |extended: &Extended<Mirror>| {
        let (refusal, files) = (extended.refusal(), extended.known_files() as u64);
        FsStatus { extension: Some(serve::Extended { refusal, files }), ..super::fs_status(extended.inner()) }
    };
    service
        .wrap(|fs| Extended::new(fs, extension).with_cacheable_nodes(Mirror::is_invalidated_on_change), held)
}

#[cfg(not(feature = "extension"))]
fn extended(service: Service<Mirror>, _program: Vec<u8>, _args: &MirrorArgs) -> Service<Mirror> {
    without(service, NO_FEATURE)
}

/// Falls back to a daemon that answers everything.
fn without(mut service: Service<Mirror>, reason: &str) -> Service<Mirror> {
    tracing::warn!("no extension in the kernel: {reason}");
    service.status = |mirror| FsStatus { extension: Some(extension::none()), ..super::fs_status(mirror) };
    service
}
