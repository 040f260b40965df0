//! `shunt mirror --extension`: a BPF program that answers requests in the kernel before they reach the daemon.

use std::path::Path;

use shunt_fuse::guardian::{HandOver, Restart};
use shunt_mirror::Mirror;

use crate::cli::MirrorArgs;
use crate::error::Result;
#[cfg(not(feature = "extension"))]
use crate::extension::NO_FEATURE;
use crate::extension::{self, obstacle, read};
use crate::serve::{self, FsStatus, Service};

#[cfg(feature = "extension")]
pub use shunt_fuse_ext::EarlierProgram;

/// This build knows no programs: the mirror drops what an earlier one left, which detaches it.
#[cfg(not(feature = "extension"))]
#[derive(Default)]
pub struct EarlierProgram(());

#[cfg(not(feature = "extension"))]
impl EarlierProgram {
    pub fn take(_hand_over: &mut HandOver) -> Self {
        Self(())
    }
}

/// Reports whether the program opens files as well.
pub fn opens_files(args: &MirrorArgs) -> bool {
    args.extension.is_some() && obstacle().is_none()
}

/// Serves with the program, or without it when this machine or build cannot load it.
pub fn serve(
    service: Service<Mirror>,
    program: &Path,
    args: &MirrorArgs,
    restart: Result<Restart, String>,
) -> Result<()> {
    match obstacle() {
        None => {
            let service = extended(service, Ok(read(program)?), args, EarlierProgram::default());
            serve::serve(service, &args.mount, restart)
        }
        Some(reason) => serve::serve(without(service, reason), &args.mount, restart),
    }
}

/// Takes over from another daemon, with a new program in the place of its program.
pub fn take_over(
    service: Service<Mirror>,
    program: &Path,
    args: &MirrorArgs,
    earlier: EarlierProgram,
    hand_over: HandOver,
) -> Result<()> {
    // The mount must be served in any case, and the files that the earlier program opened must be known.
    let program = match obstacle() {
        None => read(program).map_err(|failure| failure.to_string()),
        Some(reason) => Err(reason.to_owned()),
    };
    serve::take_over(extended(service, program, args, earlier), &args.mount, hand_over)
}

#[cfg(feature = "extension")]
fn extended(
    service: Service<Mirror>,
    program: Result<Vec<u8>, String>,
    args: &MirrorArgs,
    earlier: EarlierProgram,
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
    let around = |fs| {
        let extended = Extended::new(fs, extension).with_cacheable_nodes(Mirror::is_invalidated_on_change);
        extended.resuming(earlier)
    };
    service.wrap(around, held)
}

#[cfg(not(feature = "extension"))]
fn extended(
    service: Service<Mirror>,
    _program: Result<Vec<u8>, String>,
    _args: &MirrorArgs,
    _earlier: EarlierProgram,
) -> Service<Mirror> {
    without(service, NO_FEATURE)
}

/// Falls back to a daemon that answers everything.
fn without(mut service: Service<Mirror>, reason: &str) -> Service<Mirror> {
    tracing::warn!("no extension in the kernel: {reason}");
    service.status = |mirror| FsStatus { extension: Some(extension::none()), ..super::fs_status(mirror) };
    service
}
