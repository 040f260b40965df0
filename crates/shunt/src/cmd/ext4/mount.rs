//! `shunt ext4 IMAGE MOUNTPOINT`.

use std::ffi::OsString;
use std::fs;
use std::process::ExitCode;
use std::sync::Arc;

use shunt_ext4fs::Ext4;

use super::{Ext4MountArgs, Image};
use crate::cmd::print;
use crate::daemon;
use crate::error::{Result, failed};
use crate::log;
use crate::serve::{self, Held, Service};

pub fn run(args: &Ext4MountArgs, argv: &[OsString]) -> Result<ExitCode> {
    if args.mount.background {
        return Ok(daemon::run(&args.mount.log, || serve(args)));
    }
    if args.mount.daemon {
        let line = daemon::launch(argv)?;
        print(format!("{line}\n"))?;
    } else {
        log::start(&args.mount.log)?;
        serve(args)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Opens the image, mounts it, and serves.
fn serve(args: &Ext4MountArgs) -> Result<()> {
    let image = Image::open_to_mount(&args.image, args.fd)?;
    let filesystem = image.filesystem(&args.place)?;
    let source = match (fs::canonicalize(&image.path), args.fd) {
        (Ok(source), _) => source,
        // The name is only to be shown.
        (Err(_), Some(_)) => image.path,
        (Err(error), None) => {
            return Err(failed(format_args!("cannot mount {}: {error}", image.path.display())));
        }
    };
    let ext4 = Ext4::new(filesystem, Some(image.file.into()));
    let service = Service {
        kind: "ext4",
        source,
        config: ext4.config(),
        options: Ext4::mount_options(),
        cache: "exclusive".to_owned(),
        passthrough_off: Some("file data is cached by the kernel".to_owned()),
        held: |_| Held::default(),
        fs: Arc::new(ext4),
    };
    serve::serve(service, &args.mount, Err("ext4 cannot be taken over yet".to_owned()))
}
