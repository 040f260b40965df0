//! `--extension`.

use std::path::Path;

use shunt_fuse::guardian::Restart;
use shunt_mirror::Mirror;

use crate::args::MountArgs;
use crate::error::Result;
use crate::serve::{self, Held, Service};

/// Whether there is anyone in the kernel to answer.
pub fn may_answer() -> bool {
    cfg!(feature = "extension") && Path::new("/sys/module/shunt_fuse_ext").exists()
}

/// Serves with a program before the daemon.
#[cfg(feature = "extension")]
pub fn serve(
    service: Service<Mirror>,
    program: &Path,
    asks_always: bool,
    args: &MountArgs,
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
        ask_always: asks_always,
    };
    let service = service.around(|fs| Extended::new(fs, extension).telling(Mirror::tells_of), held);
    serve::serve(service, args, restart)
}

#[cfg(feature = "extension")]
fn held(extended: &shunt_fuse_ext::Extended<Mirror>) -> Held {
    let (refusal, files) = (extended.refusal(), extended.known_files() as u64);
    Held { extension: Some(serve::Extended { refusal, files }), ..super::held(extended.inner()) }
}

#[cfg(not(feature = "extension"))]
const MISSING: &str = "this build has none (feature `extension`)";

/// Serves without.
#[cfg(not(feature = "extension"))]
pub fn serve(
    mut service: Service<Mirror>,
    _program: &Path,
    _asks_always: bool,
    args: &MountArgs,
    restart: Result<Restart, String>,
) -> Result<()> {
    tracing::warn!("no extension in the kernel: {MISSING}");
    service.held = |mirror| {
        let extension = serve::Extended { refusal: Some(MISSING.to_owned()), files: 0 };
        Held { extension: Some(extension), ..super::held(mirror) }
    };
    serve::serve(service, args, restart)
}
