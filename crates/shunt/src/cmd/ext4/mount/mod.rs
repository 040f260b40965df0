//! `shunt ext4 IMAGE MOUNTPOINT`: has the image surveyed, opens it and serves it until it is unmounted.

mod extension;
mod takeover;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use std::{fs, io};

use rustix::fs::MemfdFlags;
use rustix::thread::CapabilitySet;
use shunt_ext4fs::{DirtyData, Ext4, ReadTimes, TakeoverMemory};
use shunt_extmap::Connection;
use shunt_fuse::guardian::HandOver;
use shunt_fuse::mount::MountOptions;
use shunt_fuse::mount::bdi::BdiTuning;

use super::survey::Survey;
use super::{Ext4MountArgs, Image, data, memory, read_times, survey};
use crate::args::{ErrorsArg, TakeoverArg};
use crate::cmd::serve_by_mode;
use crate::daemon;
use crate::error::{Result, failed, usage};
use crate::own_mounts::LOOP_FILE_NAME;
use crate::report::counters::Ext4Report;
use crate::sandbox;
use crate::serve::{self, BeforeSandbox, Block, ExclusiveClaim, FsStatus, SandboxKind, Service, Source};
use takeover::{Bequest, Inheritance};

/// Size of the file behind the loop device of an image, in bytes.
const LOOP_FILE_BYTES: u64 = 1 << 20;

pub fn run(args: &Ext4MountArgs, argv: &[OsString]) -> Result<ExitCode> {
    if args.mount.probe {
        crate::cmd::print(serve::probe()?)?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.mount.successor {
        return Ok(daemon::take_over(&args.mount.log, |hand_over| take_over(args, hand_over)));
    }
    serve_by_mode(&args.mount, argv, 2, || serve(args, argv))
}

/// Opens the image, mounts it, and serves.
fn serve(args: &Ext4MountArgs, argv: &[OsString]) -> Result<()> {
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
    let restart = match (&device, args.mount.takeover) {
        (Some(_), _) => Err("the kernel module transfers file data".to_owned()),
        (None, _) if args.extension.is_some() => Err("an extension answers in the kernel".to_owned()),
        (None, TakeoverArg::Service) => Err("a service manager cannot hold the state of an image".to_owned()),
        (None, _) => serve::restart(argv, &args.mount),
    };
    let bequest = Bequest::new(&image, &survey, &source)
        .map_err(|error| failed(format_args!("cannot duplicate the descriptor of the image: {error}")))?;
    let memory = Memory { files: bequest.memory.clone(), is_inherited: false };
    let access = HeldResources { image, direct, device, dirty: DirtyData::open() };
    let mut service = Service { block, ..service(args, access, survey, (source, Some(bequest), memory))? };
    if args.extension.is_some() {
        // The program is loaded when the file system opens, which needs privileges that the sandbox gives up later.
        let opened = service.fs.open()?;
        // The kernel may drop cached pages of a device that it mounts.
        opened
            .filesystem()
            .sync()
            .map_err(|error| failed(format_args!("cannot write to {}: {error}", args.image.display())))?;
    }
    if args.sandbox_probe {
        sandbox::probe_on_entry();
    }
    match &args.extension {
        Some(program) => extension::serve(service, program, args, restart),
        None => serve::serve(service, &args.mount, restart),
    }
}

/// Takes over from another daemon. No path is accessed: it may lead through the mount, which no process serves at this moment.
fn take_over(args: &Ext4MountArgs, mut hand_over: HandOver) -> Result<()> {
    memory::share_arenas();
    let Inheritance { image, journal, survey, source, memory, claim: _claim } =
        Inheritance::take(&mut hand_over)?;
    let journal = args.location.journal.as_deref().zip(journal);
    let image = Image::resumed(&args.image, image, journal, survey.writable)?;
    if image.writable {
        memory::set_io_flusher();
    }
    let files: Arc<OnceLock<TakeoverMemory>> = Arc::default();
    if let Some(memory) = memory {
        let _ = files.set(memory);
    }
    let access = HeldResources { image, direct: false, device: None, dirty: DirtyData::open() };
    let memory = Memory { files, is_inherited: true };
    serve::take_over(service(args, access, survey, (source, None, memory))?, &args.mount, hand_over)
}

/// The service of an image, without its block device. `bequest` is what a new mount leaves to a later daemon.
fn service(
    args: &Ext4MountArgs,
    access: HeldResources,
    survey: Survey,
    (source, bequest, memory): (PathBuf, Option<Bequest>, Memory),
) -> Result<Service<Ext4>> {
    let kept = if args.mlock { memory::lock()? } else { CapabilitySet::empty() };
    let (mapped, summary) = (access.device.is_some(), survey.summary());
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
    let before_sandbox = before_sandbox(writable.then(|| access.dirty.clone()), bequest);
    Ok(Service {
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
        block: None,
        status: fs_status,
        fs: Source::deferred(move || open(access, &survey, wishes, &memory).map(Arc::new)),
        before_sandbox: Some(before_sandbox),
        mounted: None,
        reload: None,
        online: None,
        answers: None,
    })
}

/// Opens the limit of dirty data, and stores what a later daemon needs, before the sandbox is entered.
fn before_sandbox(dirty: Option<DirtyData>, bequest: Option<Bequest>) -> BeforeSandbox {
    Arc::new(move |mount, session| {
        let path = mount.path().display();
        if let Some(Err(error)) = dirty.as_ref().map(|dirty| dirty.attach(mount)) {
            tracing::info!(
                "cannot limit dirty data of {path}: {error}; close may report ENOSPC instead of write"
            );
        }
        if let Some((bequest, takeover)) = bequest.as_ref().zip(session.takeover())
            && let Err(error) = bequest.store(takeover)
        {
            tracing::warn!("no takeover of {path} after a crash: cannot create a memory file: {error}");
        }
    })
}

/// The memory files for the process that continues after this one, if one can.
struct Memory {
    files: Arc<OnceLock<TakeoverMemory>>,
    /// They are those of an earlier process.
    is_inherited: bool,
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
fn open(access: HeldResources, survey: &Survey, wishes: ServeOptions, memory: &Memory) -> Result<Ext4> {
    let HeldResources { image, direct, device, dirty } = access;
    let (part, memory) = (survey.part.clone(), (memory.files.get(), memory.is_inherited));
    let failure = |error| image.failure("open", &error);
    let (filesystem, outcomes) = match memory {
        _ if !survey.writable => (image.open_to_read(part)?, Vec::new()),
        (None, _) => (image.open_writable(part)?.map_err(failure)?, Vec::new()),
        (Some(files), false) => (image.open_resumable(part, files.changes())?.map_err(failure)?, Vec::new()),
        (Some(files), true) => image.resume(part, files.changes())?.map_err(failure)?,
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
    let ext4 = match memory.0.filter(|_| survey.writable) {
        Some(files) => ext4.with_takeover(files, &outcomes),
        None => ext4,
    };
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
