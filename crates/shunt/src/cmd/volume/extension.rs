//! `shunt volume mount --extension`.

use std::path::Path;

use shunt_fuse::guardian::Restart;
use shunt_volumefs::VolumeFs;

use super::mount::held;
use crate::args::VolumeMountArgs;
use crate::error::Result;
#[cfg(not(feature = "extension"))]
use crate::extension::NO_FEATURE;
use crate::extension::{self, obstacle, read};
use crate::serve::{self, Held, Service};

/// Serves with a program before the daemon; without where there can be none.
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

    // A listing fills the tables with all that it shows, not only with its beginning.
    service.config = service.config.without(Capabilities::READDIRPLUS_AUTO);

    // Whatever synchronisation changes is told. The replica must know which files are open: the daemon opens them.
    let extension = Extension {
        program,
        xattrs: true,
        opens: false,
        access_times: AccessTimes::Unmoved,
        lasting: shunt_volumefs::ATTR_TTL,
        ask_always: args.ask_always,
    };
    let held = |extended: &Extended<VolumeFs>| {
        let refusal = extended.refusal();
        Held { extension: Some(serve::Extended { refusal, files: 0 }), ..held(extended.inner()) }
    };
    service.around(|fs| Extended::new(fs, extension), held)
}

#[cfg(not(feature = "extension"))]
fn extended(service: Service<VolumeFs>, _program: Vec<u8>, _args: &VolumeMountArgs) -> Service<VolumeFs> {
    without(service, NO_FEATURE)
}

/// The daemon answers everything.
fn without(mut service: Service<VolumeFs>, reason: &str) -> Service<VolumeFs> {
    tracing::warn!("no extension in the kernel: {reason}");
    service.held = |fs| Held { extension: Some(extension::none()), ..held(fs) };
    service
}
