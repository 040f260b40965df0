//! `shunt ext4 IMAGE MOUNTPOINT`: has the image surveyed, opens it and serves it until it is unmounted.

mod extension;

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use std::{fs, io};

use rustix::fs::MemfdFlags;
use rustix::thread::CapabilitySet;
use shunt_ext4fs::{DirtyData, Ext4, ReadTimes};
use shunt_extmap::Connection;
use shunt_fuse::mount::MountOptions;
use shunt_fuse::mount::bdi::BdiTuning;

use super::survey::Survey;
use super::{Ext4MountArgs, Image, data, memory, read_times, survey};
use crate::args::ErrorsArg;
use crate::cmd::serve_by_mode;
use crate::error::{Result, failed, usage};
use crate::own_mounts::LOOP_FILE_NAME;
use crate::report::counters::Ext4Report;
use crate::sandbox;
use crate::serve::{self, BeforeSandbox, Block, ExclusiveClaim, FsStatus, SandboxKind, Service, Source};

/// Size of the file behind the loop device of an image, in bytes.
const LOOP_FILE_BYTES: u64 = 1 << 20;

/// The reason why no other daemon takes over from one that was killed.
const NO_TAKEOVER: &str = "takeover is not supported for ext4";

pub fn run(args: &Ext4MountArgs, argv: &[OsString]) -> Result<ExitCode> {
    serve_by_mode(&args.mount, argv, 2, || serve(args))
}

/// Opens the image, mounts it, and serves.
fn serve(args: &Ext4MountArgs) -> Result<()> {
    memory::share_arenas();
    let options = args.mount.mount_options(MountOptions::new())?;
    if args.norecovery && !options.is_read_only() {
        return Err(usage("norecovery requires a read-only mount; add ro (--read-only)"));
    }
    let journal = args.location.journal.as_deref();
    let mut image = Image::open_to_mount(&args.image, journal, args.fd, !options.is_read_only())?;
    if image.writable {
        // Inherited by all threads, so set before the first one.
        memory::set_io_flusher();
    }
    let survey = survey::of(&image, args)?;
    let direct = data::switch_to_direct(args.data, &mut image, &survey)?;
    let device = data::device(args.data, &image, &survey, direct)?;
    let block = block(&mut image, &survey, args);
    let source = match (fs::canonicalize(&image.path), args.fd) {
        (Ok(source), _) => source,
        // With `--fd` the path is only for display.
        (Err(_), Some(_)) => image.path.clone(),
        (Err(error), None) => {
            return Err(failed(format_args!("cannot mount {}: {error}", image.path.display())));
        }
    };
    let kept = if args.mlock { memory::lock()? } else { CapabilitySet::empty() };
    let (mapped, summary) = (device.is_some(), survey.summary());
    let writable = summary.writable;
    let kernel = mapped || args.extension.is_some();
    let wishes = ServeOptions {
        commit: Duration::from_secs(match args.commit {
            0 => 5,
            seconds => seconds.into(),
        }),
        discard: args.discard,
        errors_remount_ro: args.errors == ErrorsArg::RemountRo,
        read_times: read_times::of(&args.mount.options),
    };
    let dirty = DirtyData::open();
    let limit_dirty = writable.then(|| limit_dirty(dirty.clone()));
    let access = HeldResources { image, direct, device, dirty };
    let mut fs = Source::deferred(move || open(access, &survey, wishes).map(Arc::new));
    if args.extension.is_some() {
        // The program is loaded when the file system opens, which needs privileges that the sandbox gives up later.
        let opened = fs.open()?;
        // The kernel may drop cached pages of a device that it mounts.
        opened
            .filesystem()
            .sync()
            .map_err(|error| failed(format_args!("cannot write to {}: {error}", args.image.display())))?;
    }
    let service = Service {
        kind: "ext4",
        source,
        config: summary.config(mapped),
        options: summary.mount_options(),
        cache: "exclusive".to_owned(),
        passthrough_off: (!mapped).then(|| "file data is cached by the kernel".to_owned()),
        tuning: BdiTuning {
            // With the default, writers may dirty one percent of memory and are throttled hard.
            max_ratio: writable.then_some(100),
            strict_limit: writable.then_some(false),
            ..Default::default()
        },
        sandbox: Some(SandboxKind::Image { kernel, kept }),
        block,
        status: fs_status,
        fs,
        before_sandbox: limit_dirty,
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

/// Opens the limit of dirty data before the sandbox is entered.
fn limit_dirty(dirty: DirtyData) -> BeforeSandbox {
    Arc::new(move |mount| {
        if let Err(error) = dirty.attach(mount) {
            tracing::info!(
                "cannot limit dirty data of {}: {error}; close may report ENOSPC instead of write",
                mount.path().display()
            );
        }
    })
}

/// The options of the command line for serving a file system.
struct ServeOptions {
    commit: Duration,
    discard: bool,
    errors_remount_ro: bool,
    read_times: ReadTimes,
}

/// The resources that the sandboxed daemon holds open.
struct HeldResources {
    image: Image,
    /// The image is accessed by direct I/O.
    direct: bool,
    /// The connection to the module that reads and writes files in the kernel.
    device: Option<Connection>,
    dirty: DirtyData,
}

/// Opens the file system for serving. The [survey] process has opened it successfully before, so a failure is unlikely.
fn open(access: HeldResources, survey: &Survey, wishes: ServeOptions) -> Result<Ext4> {
    let HeldResources { image, direct, device, dirty } = access;
    let filesystem = match survey.writable {
        true => image.open_writable(survey.part.clone())?.map_err(|error| image.failure("open", &error))?,
        false => image.open_to_read(survey.part.clone())?,
    };
    filesystem.discard_freed(wishes.discard);
    filesystem.commit_at(wishes.commit);
    let no_thread = |error: io::Error| failed(format_args!("cannot start a thread: {error}"));
    // With direct I/O, file data is not prefetched through the page cache either.
    let content = (!direct).then(|| image.file.try_clone()).transpose();
    let content = content
        .map_err(|error| failed(format_args!("cannot duplicate the descriptor of the image: {error}")))?;
    let ext4 = Ext4::locked_in(filesystem, content.map(Into::into), dirty).map_err(no_thread)?;
    let ext4 = ext4.with_read_times(wishes.read_times).with_errors_remount_ro(wishes.errors_remount_ro);
    match device {
        Some(device) => ext4.with_device(device).map_err(no_thread),
        None => Ok(ext4),
    }
}

fn fs_status(ext4: &Ext4) -> FsStatus {
    let (filesystem, damage) = (ext4.filesystem(), ext4.damage_counts());
    let report = Ext4Report {
        writable: filesystem.is_writable(),
        mounted_writable: filesystem.was_opened_writable(),
        commits: filesystem.commits(),
        metadata_reads: filesystem.metadata_reads(),
        corruptions: damage.corruptions,
        io_errors: damage.io_errors,
    };
    FsStatus { nodes: ext4.known_inodes(), ext4: Some(report), ..FsStatus::default() }
}

/// The block device for a `fuseblk` mount, if the file system is all of it and the user is root.
fn block(image: &mut Image, survey: &Survey, args: &Ext4MountArgs) -> Option<Block> {
    let whole = rustix::process::geteuid().is_root() && survey.part.is_none();
    if let Some(claim) = image.claim.take() {
        let path = fs::canonicalize(&image.path).ok().filter(|_| whole);
        return Some(Block::new(claim, path.map(|path| (path, survey.block_size))));
    }
    let is_file = image.file.metadata().is_ok_and(|metadata| metadata.is_file());
    if !(whole && is_file && survey.writable && data::has_sys_admin()) || args.no_loop {
        return None;
    }
    let attached = loop_device(survey.block_size);
    let inform = |error: &io::Error| {
        tracing::info!(
            "cannot attach a loop device for {}: {error}; `sync` and `umount` return before changes are durable",
            image.path.display()
        );
    };
    attached.inspect_err(inform).ok()
}

/// Returns a loop device by which a writable image file is mounted as a block device: only to such a mount the kernel passes `syncfs`
/// on (Linux 6.18), and only its `umount` waits for the last commit.
///
/// The device is empty, because the kernel neither reads nor writes it. One over the image would be a second way to change the image,
/// would show the file system's UUID a second time, and would stay attached while a killed daemon's mount is busy.
fn loop_device(block_size: u32) -> io::Result<Block> {
    let empty = rustix::fs::memfd_create(LOOP_FILE_NAME, MemfdFlags::CLOEXEC)?;
    rustix::fs::ftruncate(&empty, LOOP_FILE_BYTES)?;
    let claim = ExclusiveClaim::new(shunt_extmap::attach_exclusive(&empty)?, true)?;
    let path = claim.path()?;
    Ok(Block::new(claim, Some((path, block_size))))
}
