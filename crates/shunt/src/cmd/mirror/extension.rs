//! `--extension`.

use std::path::Path;

use shunt_fuse::guardian::Restart;
use shunt_mirror::Mirror;

use crate::args::MountArgs;
use crate::error::Result;
use crate::serve::{self, Service};

/// Serves with a program before the daemon.
#[cfg(feature = "extension")]
pub fn serve(
    service: Service<Mirror>,
    program: &Path,
    args: &MountArgs,
    restart: Result<Restart, String>,
) -> Result<()> {
    use std::sync::Arc;

    use shunt_fuse_ext::{Extended, Extension, builtin};

    use crate::error::failed;

    let program = match program.to_str() {
        Some("builtin") => builtin::PROGRAM
            .ok_or_else(|| failed("there is no builtin extension in this build: clang was missing"))?
            .to_vec(),
        _ => std::fs::read(program)
            .map_err(|error| failed(format_args!("cannot read {}: {error}", program.display())))?,
    };
    // Only requests of this mount change anything: that is what `--cache exclusive` says.
    let extension = Extension { program, xattrs: true, ask_always: false };
    let service = Service {
        kind: service.kind,
        source: service.source,
        fs: Arc::new(Extended::new(service.fs, extension)),
        config: service.config,
        options: service.options,
        cache: service.cache,
        passthrough_off: service.passthrough_off,
        tuning: service.tuning,
        block: service.block,
        untrusted: service.untrusted,
        held: |extended: &Extended<Mirror>| super::held(extended.inner()),
    };
    serve::serve(service, args, restart)
}

/// Serves without.
#[cfg(not(feature = "extension"))]
pub fn serve(
    service: Service<Mirror>,
    _program: &Path,
    args: &MountArgs,
    restart: Result<Restart, String>,
) -> Result<()> {
    tracing::warn!("no extension in the kernel: this build has none (feature `extension`)");
    serve::serve(service, args, restart)
}
