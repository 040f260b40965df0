//! `shunt install-helpers`: links this binary to the names of helpers that mount(8) and umount(8) look for.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::cli::InstallHelpersArgs;
use crate::error::{Code, Failure, Result, failed};
use crate::helper::{BLOCK_KINDS, KINDS};

pub fn run(args: &InstallHelpersArgs) -> Result<()> {
    let own = std::env::current_exe()
        .map_err(|error| failed(format_args!("cannot find the path of this binary: {error}")))?;
    for kind in KINDS {
        for name in [format!("mount.shunt.{kind}"), format!("umount.fuse.shunt.{kind}")] {
            link(&own, &args.dir.join(name))?;
        }
    }
    for kind in BLOCK_KINDS {
        link(&own, &args.dir.join(format!("umount.fuseblk.shunt.{kind}")))?;
    }
    Ok(())
}

/// Creates or replaces a link; refuses to replace a file that is not a link.
fn link(target: &Path, path: &Path) -> Result<()> {
    let cannot = |error: io::Error| {
        let code = match error.kind() {
            io::ErrorKind::PermissionDenied => Code::Privilege,
            _ => Code::Failed,
        };
        let hint = "; run as root, or name another directory with --dir";
        Failure::new(code, format_args!("cannot create the link {}: {error}{hint}", path.display()))
    };
    match fs::symlink_metadata(path) {
        Ok(there) if !there.is_symlink() => {
            return Err(failed(format_args!(
                "cannot create the link {}: a file exists there that is not a link; remove it",
                path.display()
            )));
        }
        Ok(_) => fs::remove_file(path).map_err(cannot)?,
        Err(_) => {}
    }
    symlink(target, path).map_err(cannot)?;
    super::print(format!("{} -> {}\n", path.display(), target.display()))
}
