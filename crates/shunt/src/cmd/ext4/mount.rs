//! `shunt ext4 IMAGE MOUNTPOINT`.

use std::ffi::OsString;
use std::fs;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use shunt_ext4::{Error, Filesystem, Kind};
use shunt_ext4fs::Ext4;
use shunt_fuse::mount::MountOptions;
use shunt_fuse::mount::bdi::BdiTuning;

use super::{Ext4MountArgs, Image, data, disk, extension, memory, read_times};
use crate::args::{ErrorsArg, PlaceArgs};
use crate::cmd::serve_as_told;
use crate::error::{Result, failed, usage};
use crate::sandbox;
use crate::serve::{self, Block, Held, LockIn, Service};

/// Why no daemon follows one that was killed.
pub(super) const NO_TAKEOVER: &str = "ext4 cannot be taken over yet";

pub fn run(args: &Ext4MountArgs, argv: &[OsString]) -> Result<ExitCode> {
    serve_as_told(&args.mount, argv, 2, || serve(args))
}

/// Opens the image, mounts it, and serves.
fn serve(args: &Ext4MountArgs) -> Result<()> {
    memory::share_arenas();
    let options = args.mount.mount_options(MountOptions::new())?;
    if args.norecovery && !options.is_read_only() {
        return Err(usage(
            "norecovery shows an image as it is and cannot change it: say ro (--read-only) as well",
        ));
    }
    let mut image = Image::open_to_mount(&args.image, &args.place, args.fd, !options.is_read_only())?;
    if image.writable {
        // Before any thread.
        memory::never_wait_for_ourselves();
    }
    let direct = data::leave_cache(args.data, &mut image)?;
    let filesystem = filesystem(&image, &args.place)?;
    if args.norecovery {
        refuse_recovery(args, &filesystem)?;
    }
    check_root(&image, &filesystem)?;
    filesystem.discard_freed(args.discard);
    filesystem.commit_at(Duration::from_secs(match args.commit {
        0 => 5,
        seconds => seconds.into(),
    }));
    let device = data::device(args.data, &image, &filesystem, direct)?;
    let block = block(&mut image, &args.place, &filesystem)?;
    let source = match (fs::canonicalize(&image.path), args.fd) {
        (Ok(source), _) => source,
        // The name is only to be shown.
        (Err(_), Some(_)) => image.path,
        (Err(error), None) => {
            return Err(failed(format_args!("cannot mount {}: {error}", image.path.display())));
        }
    };
    // Content is not fetched by the cache either.
    let content = (!direct).then(|| image.file.into());
    let ext4 = Ext4::new(filesystem, content)
        .map_err(|error| failed(format_args!("cannot start a thread: {error}")))?;
    let ext4 = ext4
        .with_read_times(read_times::of(&args.mount.options))
        .with_end_at_damage(args.errors == ErrorsArg::RemountRo);
    let mapped = device.is_some();
    let ext4 = match device {
        Some(device) => ext4
            .with_device(device)
            .map_err(|error| failed(format_args!("cannot start a thread: {error}")))?,
        None => ext4,
    };
    if args.mlock {
        memory::lock()?;
    }
    let service = Service {
        kind: "ext4",
        source,
        config: ext4.config(),
        options: ext4.mount_options(),
        cache: "exclusive".to_owned(),
        passthrough_off: (!mapped).then(|| "file data is cached by the kernel".to_owned()),
        tuning: BdiTuning {
            // Otherwise writers may dirty one percent of memory, and are slowed down hard.
            max_ratio: ext4.is_writable().then_some(100),
            strict_limit: ext4.is_writable().then_some(false),
            read_ahead_kb: Some(1024),
        },
        lock_in: Some(LockIn::Image { kernel: mapped || args.extension.is_some() }),
        block,
        held,
        fs: Arc::new(ext4),
        mounted: None,
        reload: None,
        online: None,
        answers: None,
    };
    if args.sandbox_probe {
        sandbox::probe_on_entry();
    }
    match &args.extension {
        Some(program) => extension::serve(service, program, args),
        None => serve::serve(service, &args.mount, Err(NO_TAKEOVER.to_owned())),
    }
}

/// A file system whose root cannot be shown is not mounted: nothing in it could be reached, and the mount point neither.
fn check_root(image: &Image, filesystem: &Filesystem) -> Result<()> {
    let found = match filesystem.inode(shunt_ext4::ROOT) {
        Ok(root) if root.kind == Kind::Directory => return Ok(()),
        Ok(_) => "its inode is not that of a directory".to_owned(),
        Err(error) => error.to_string(),
    };
    let path = image.path.display();
    Err(failed(format_args!(
        "cannot mount {path}: the root directory is damaged ({found}); repair it with e2fsck"
    )))
}

/// Without recovery only a file system is shown that needs none: nobody is to see what a crash left half done.
fn refuse_recovery(args: &Ext4MountArgs, filesystem: &Filesystem) -> Result<()> {
    let path = args.image.display();
    match filesystem.recovered() {
        None => Ok(()),
        Some(_) => Err(failed(format_args!(
            "cannot mount {path} with norecovery: its journal holds changes that are not in their places; a read-only mount \
             without it replays them in memory alone"
        ))),
    }
}

pub(super) fn held(ext4: &Ext4) -> Held {
    Held { nodes: ext4.known_inodes(), ..Held::default() }
}

/// A block device, to be mounted by the kernel where the file system is the whole of it and the user is root.
fn block(image: &mut Image, place: &PlaceArgs, filesystem: &Filesystem) -> Result<Option<Block>> {
    let Some(claim) = image.claim.take() else { return Ok(None) };
    let root = rustix::process::geteuid().is_root();
    let whole = root && place.offset.is_none() && disk::is_filesystem(&*image.device);
    let path = fs::canonicalize(&image.path).ok().filter(|_| whole);
    if filesystem.is_writable() {
        // The kernel may drop what it has of the device, and nothing is to be written meanwhile.
        filesystem.sync().map_err(|error| image.cannot("write to", &error))?;
    }
    Ok(Some(Block::new(claim, path.map(|path| (path, filesystem.geometry().block_size)))))
}

/// Opens the file system, to be written where that can be.
fn filesystem(image: &Image, place: &PlaceArgs) -> Result<Filesystem> {
    if !image.writable {
        return image.filesystem(place);
    }
    match image.writable_filesystem(place)? {
        Err(Error::Unsupported(reason)) => image.filesystem(place).inspect(|_| {
            let path = image.path.display();
            tracing::warn!("{path} is mounted read-only: not supported: {reason}");
        }),
        // With or without the wish to write, the journal comes first.
        Err(error @ Error::Journal(_)) => Err(image.cannot("open", &error)),
        opened => opened.map_err(|error| {
            let path = image.path.display();
            // What cannot be mended or replayed may still be fit to be read.
            let hint = if matches!(error, Error::NotExt(_)) { "" } else { "; try --read-only" };
            failed(format_args!("cannot open {path} for writing: {error}{hint}"))
        }),
    }
}
