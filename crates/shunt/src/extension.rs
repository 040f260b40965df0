//! The parts of `--extension` that the commands share.

use std::path::Path;

use crate::error::{Result, failed};
use crate::serve::Extended;

pub const NO_FEATURE: &str = "this build lacks the feature `extension`";
const NO_MODULE: &str = "the module shunt_fuse_ext is not loaded";

/// The reason why there can be no extension in the kernel, if that is known beforehand.
pub fn obstacle() -> Option<&'static str> {
    if cfg!(not(feature = "extension")) {
        return Some(NO_FEATURE);
    }
    (!Path::new("/sys/module/shunt_fuse_ext").exists()).then_some(NO_MODULE)
}

/// The report of a mount whose daemon answers everything.
pub fn none() -> Extended {
    let reason =
        obstacle().unwrap_or("the module shunt_fuse_ext was loaded after the mount; mount again to use it");
    Extended { refusal: Some(reason.to_owned()), files: 0 }
}

#[cfg(feature = "extension")]
pub fn read(program: &Path) -> Result<Vec<u8>> {
    if program == Path::new("builtin") {
        let builtin = shunt_fuse_ext::builtin::PROGRAM;
        return builtin.map(<[u8]>::to_vec).ok_or_else(|| {
            failed("this build has no builtin extension, because clang was missing; name an object file")
        });
    }
    std::fs::read(program).map_err(|error| failed(format_args!("cannot read {}: {error}", program.display())))
}

#[cfg(not(feature = "extension"))]
pub fn read(_program: &Path) -> Result<Vec<u8>> {
    Err(failed(NO_FEATURE))
}
