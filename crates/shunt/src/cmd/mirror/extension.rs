//! `--extension`.

use std::path::Path;

use shunt_fuse::guardian::Restart;
use shunt_mirror::Mirror;

use crate::args::MountArgs;
use crate::cli::MirrorArgs;
use crate::error::Result;
use crate::serve::{self, Held, Service};

const NO_FEATURE: &str = "this build has none (feature `extension`)";
const NO_MODULE: &str = "the module shunt_fuse_ext is not loaded";

/// Why nobody in the kernel can answer, where that is known beforehand.
fn obstacle() -> Option<&'static str> {
    if cfg!(not(feature = "extension")) {
        return Some(NO_FEATURE);
    }
    (!Path::new("/sys/module/shunt_fuse_ext").exists()).then_some(NO_MODULE)
}

/// Whether an extension is wanted, and there may be somebody in the kernel to ask it.
pub fn may_answer(args: &MirrorArgs) -> bool {
    args.extension.is_some() && obstacle().is_none()
}

/// Serves with a program before the daemon; without where there can be none.
pub fn serve(
    service: Service<Mirror>,
    program: &Path,
    args: &MirrorArgs,
    restart: Result<Restart, String>,
) -> Result<()> {
    match obstacle() {
        None => extended(service, program, args, restart),
        Some(reason) => without(service, reason, &args.mount, restart),
    }
}

#[cfg(feature = "extension")]
fn extended(
    service: Service<Mirror>,
    program: &Path,
    args: &MirrorArgs,
    restart: Result<Restart, String>,
) -> Result<()> {
    use shunt_fuse_ext::{Extended, Extension, builtin};

    use crate::error::failed;

    let program = match program.to_str() {
        Some("builtin") => builtin::PROGRAM
            .ok_or_else(|| failed("there is no builtin extension in this build: clang was missing"))?
            .to_vec(),
        _ => std::fs::read(program)
            .map_err(|error| failed(format_args!("cannot read {}: {error}", program.display())))?,
    };
    let extension = Extension {
        program,
        xattrs: true,
        opens: true,
        relatime: service.fs.keeps_access_times_loosely(),
        ask_always: args.ask_always,
    };
    let held = |extended: &Extended<Mirror>| {
        let (refusal, files) = (extended.refusal(), extended.known_files() as u64);
        Held { extension: Some(serve::Extended { refusal, files }), ..super::held(extended.inner()) }
    };
    let service = service.around(|fs| Extended::new(fs, extension).telling(Mirror::tells_of), held);
    serve::serve(service, &args.mount, restart)
}

#[cfg(not(feature = "extension"))]
fn extended(
    service: Service<Mirror>,
    _program: &Path,
    args: &MirrorArgs,
    restart: Result<Restart, String>,
) -> Result<()> {
    without(service, NO_FEATURE, &args.mount, restart)
}

/// The daemon answers everything.
fn without(
    mut service: Service<Mirror>,
    reason: &str,
    args: &MountArgs,
    restart: Result<Restart, String>,
) -> Result<()> {
    tracing::warn!("no extension in the kernel: {reason}");
    service.held = |mirror| {
        let refusal = Some(obstacle().unwrap_or("the module came after the mount").to_owned());
        Held { extension: Some(serve::Extended { refusal, files: 0 }), ..super::held(mirror) }
    };
    serve::serve(service, args, restart)
}
