//! `shunt mirror`: opens the source, mounts it and serves it, or takes over from another daemon.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use shunt_fuse::guardian::HandOver;
use shunt_fuse::mount::MountOptions;
use shunt_fuse::mount::bdi::BdiTuning;
use shunt_fuse::{Capabilities, Config};
use shunt_mirror::{CacheMode, Mirror, MirrorError, MirrorOptions, PassthroughMode, ReadTimes};

use crate::args::{CacheArg, KillprivArg, PassthroughArg, ids};
use crate::cli::MirrorArgs;
use crate::daemon;
use crate::error::{Code, Failure, Result, failed};
use crate::report::Watch;
use crate::serve::{self, FsStatus, Service};
use crate::service_manager;

mod extension;
mod policy;
mod virtiofs;

pub fn run(args: &MirrorArgs, argv: &[OsString]) -> Result<ExitCode> {
    if args.mount.probe {
        super::print(serve::probe()?)?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.mount.successor {
        return Ok(daemon::take_over(&args.mount.log, |hand_over| continue_from(args, hand_over)));
    }
    super::serve_by_mode(&args.mount, argv, 2, || match service_manager::inherit(&args.mount, argv)? {
        Some(hand_over) => continue_from(args, hand_over),
        None => serve(args, argv),
    })
}

fn continue_from(args: &MirrorArgs, hand_over: HandOver) -> Result<()> {
    if let Some(socket) = &args.virtiofs {
        return virtiofs::take_over(args, socket, hand_over);
    }
    match args.policy {
        Some(_) => policy::take_over(args, hand_over),
        None => take_over(args, hand_over),
    }
}

/// Opens the source, mounts it, and serves.
fn serve(args: &MirrorArgs, argv: &[OsString]) -> Result<()> {
    if let Some(socket) = &args.virtiofs {
        return virtiofs::serve(args, argv, socket);
    }
    if args.tag.is_some() || args.sandbox_probe {
        return Err(Failure::new(Code::Usage, "--tag and --sandbox-probe require --virtiofs"));
    }
    if args.policy.is_some() && args.extension.is_some() {
        return Err(Failure::new(
            Code::Usage,
            "--policy cannot be combined with --extension: replies from the kernel would bypass the rules",
        ));
    }
    if let Some(file) = &args.policy {
        return policy::serve(args, argv, file);
    }
    let mirror = Mirror::open(options(args)?).map_err(explain)?;
    tracing::info!("{}", mirror.describe());
    let source = source(args)?;
    let restart = match mirror.can_be_taken_over() {
        true => serve::restart(argv, &args.mount),
        false => Err(no_handles(&source)),
    };
    let service = service(args, mirror, source);
    match &args.extension {
        Some(program) => extension::serve(service, program, args, restart),
        None => serve::serve(service, &args.mount, restart),
    }
}

/// The reason why no daemon can take over: it could not find the inodes that the kernel holds.
fn no_handles(source: &Path) -> String {
    format!("{} has no file handles that this user may open", source.display())
}

fn source(args: &MirrorArgs) -> Result<PathBuf> {
    fs::canonicalize(&args.source)
        .map_err(|error| failed(format_args!("cannot mirror {}: {error}", args.source.display())))
}

/// Takes over from another daemon. No path is accessed: it may lead through the mount, which no process serves at this moment.
fn take_over(args: &MirrorArgs, mut hand_over: HandOver) -> Result<()> {
    let extension = args.extension.as_ref();
    let extension = extension.map(|program| (program, extension::EarlierProgram::take(&mut hand_over)));
    let mirror = Mirror::resume(options(args)?, &mut hand_over).map_err(explain)?;
    let source = args.source.clone();
    let service = service(args, mirror, source);
    match extension {
        Some((program, earlier)) => extension::take_over(service, program, args, earlier, hand_over),
        None => serve::take_over(service, &args.mount, hand_over),
    }
}

fn passthrough_off(args: &MirrorArgs) -> Option<String> {
    match args.passthrough {
        PassthroughArg::Auto | PassthroughArg::Always => None,
        PassthroughArg::Off => Some("by --passthrough off".to_owned()),
    }
}

/// The mount options of a mirror.
fn mount_options(mirror: &Mirror) -> MountOptions {
    MountOptions::new().default_permissions(true).root_permissions(mirror.root_permissions())
}

/// The capabilities that a session negotiates with the kernel.
fn config(args: &MirrorArgs, mirror: &Mirror) -> Config {
    match args.killpriv {
        KillprivArg::V2 => mirror.config(),
        KillprivArg::Off => mirror.config().without(Capabilities::HANDLE_KILLPRIV_V2),
    }
}

fn service(args: &MirrorArgs, mirror: Mirror, source: PathBuf) -> Service<Mirror> {
    Service {
        kind: "mirror",
        source,
        options: mount_options(&mirror),
        config: config(args, &mirror),
        cache: mirror.caching().to_string(),
        fs: Arc::new(mirror).into(),
        passthrough_off: passthrough_off(args),
        tuning: BdiTuning::default(),
        block: None,
        sandbox: None,
        status: fs_status,
        before_sandbox: None,
        mounted: None,
        reload: None,
        online: None,
        answers: None,
    }
}

fn options(args: &MirrorArgs) -> Result<MirrorOptions> {
    let (uid_map, gid_map) = (ids::map("--uid-map", &args.uid_map)?, ids::map("--gid-map", &args.gid_map)?);
    let mount = args.mount.mount_options(MountOptions::new())?;
    ids::refuse_root(&uid_map, &gid_map, &mount, args.mapped_root_suid)?;
    Ok(MirrorOptions {
        source: args.source.clone(),
        cache: match args.cache {
            CacheArg::Auto => CacheMode::Auto,
            CacheArg::Coherent => CacheMode::Coherent,
            CacheArg::Exclusive => CacheMode::Exclusive,
            CacheArg::Timeout(time) => CacheMode::Timeout(time),
            CacheArg::None => CacheMode::None,
        },
        read_only: mount.is_read_only(),
        read_times: ReadTimes { atime: mount.explicit_atime(), nodiratime: mount.is_nodiratime() },
        uid_map,
        gid_map,
        max_inodes: args.max_inodes,
        passthrough: match args.passthrough {
            PassthroughArg::Auto => PassthroughMode::Auto,
            PassthroughArg::Always => PassthroughMode::Always,
            PassthroughArg::Off => PassthroughMode::Off,
        },
        resumes: false,
        inotify: args.inotify,
        always_opens: false,
        passes_rereads: extension::opens_files(args),
    })
}

fn explain(error: MirrorError) -> Failure {
    let code = match error {
        MirrorError::Permission(_) => Code::Privilege,
        _ => Code::Failed,
    };
    Failure::new(code, format_args!("cannot mirror {error}"))
}

fn fs_status(mirror: &Mirror) -> FsStatus {
    let memory = mirror.memory();
    let watch = mirror.caching().watcher.zip(mirror.event_counters());
    let watch = watch.map(|(by, counters)| Watch {
        by: by.to_owned(),
        events: counters.events,
        overflows: counters.overflows,
    });
    FsStatus { nodes: memory.nodes, bytes: Some(memory.node_bytes), watch, ..FsStatus::default() }
}
