//! `shunt volume mount NAME MOUNTPOINT`: opens the replica, starts its synchronisation, and serves it.

pub(super) mod cache_status;
mod control_handler;
mod descriptor_cache;
mod extension;
pub(super) mod owners;
pub(super) mod status;
mod sync;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use shunt_fuse::guardian::{HandOver, run_on_own_mount};
use shunt_fuse::mount::MountPoint;
use shunt_fuse::mount::bdi::BdiTuning;
use shunt_volume::history::View;
use shunt_volume::id::NodeName;
use shunt_volume::replica::{Options, Replica, ReplicaError};
use shunt_volume::volume::VolumeDescriptor;
use shunt_volumefs::{Succession, VolumeFs};

use self::control_handler::ControlHandler;
use super::admin::quota;
use super::defaults::{self, default_cache, own_name};
use super::key;
use super::sandbox::accessible_paths;
use crate::args::{LocksArg, PassthroughArg, TakeoverArg, VolumeMountArgs};
use crate::cmd::serve_by_mode;
use crate::daemon;
use crate::error::{Code, Failure, Result, failed, usage};
use crate::report::VolumeReport;
use crate::sandbox;
use crate::serve::{self, FsStatus, Service};
use crate::xdg;

/// Number of words of `shunt volume mount`.
const COMMAND_WORDS: usize = 3;

/// Attempts of [`first_lookup`]: one suffices unless an invalidation races with it. Limited, since the mode of a root directory may
/// really be 000.
const MAX_LOOKUP_ATTEMPTS: usize = 10;

pub fn run(args: &VolumeMountArgs, argv: &[OsString]) -> Result<ExitCode> {
    if args.mount.probe {
        crate::cmd::print(serve::probe()?)?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.sandbox_probe {
        sandbox::probe_on_entry();
    }
    if args.mount.successor {
        return Ok(daemon::take_over(&args.mount.log, |hand_over| take_over(args, hand_over)));
    }
    serve_by_mode(&args.mount, argv, COMMAND_WORDS, || serve(args, argv))
}

/// Opens the replica, mounts it, and serves.
fn serve(args: &VolumeMountArgs, argv: &[OsString]) -> Result<()> {
    let restart = match no_takeover(args) {
        Some(reason) => Err(reason.to_owned()),
        None => serve::restart_command(argv, COMMAND_WORDS, &args.mount),
    };
    let succession = restart.is_ok().then(Succession::begin).transpose();
    let succession = succession
        .map_err(|error| failed(format_args!("cannot create the memory for a takeover: {error}")))?;
    let service = service(args, succession)?;
    match &args.extension {
        Some(program) => extension::serve(service, program, args, restart),
        None => serve::serve(service, &args.mount, restart),
    }
}

/// Takes over from another daemon of the mount.
fn take_over(args: &VolumeMountArgs, mut hand_over: HandOver) -> Result<()> {
    let succession = Succession::inherit(&mut hand_over)
        .map_err(|error| failed(format_args!("cannot take over volume {}: {error}", args.name)))?;
    serve::take_over(service(args, Some(succession))?, &args.mount, hand_over)
}

/// The reason why no other daemon can take over, if there is one.
fn no_takeover(args: &VolumeMountArgs) -> Option<&'static str> {
    match (args.locks, args.mount.takeover) {
        (LocksArg::Cluster, _) => Some("locks of --locks cluster end with the daemon that holds them"),
        (_, TakeoverArg::Service) => Some("the service manager cannot be the guardian of a volume"),
        _ if args.extension.is_some() => Some("takeover of volumes is not supported with --extension"),
        // Not yet proven by many kills.
        _ => Some("takeover is not supported for volumes"),
    }
}

/// Opens the replica, and continues with it where the last daemon ended.
fn service(args: &VolumeMountArgs, succession: Option<Succession>) -> Result<Service<VolumeFs>> {
    let cache = match &args.cache {
        Some(cache) => std::path::absolute(cache)
            .map_err(|error| usage(format_args!("cannot use --cache {}: {error}", cache.display())))?,
        None => default_cache(&args.name),
    };
    let (at, joined) = defaults::address(args.meta.as_deref(), &args.name)?;
    let node = match (joined, args.node.clone()) {
        (Some(joined), Some(node)) if joined != node => {
            return Err(usage(format_args!(
                "this machine joined volume {} as {joined}; omit --node",
                args.name
            )));
        }
        (Some(joined), _) => joined,
        (None, node) => node.map_or_else(own_name, Ok)?,
    };
    let secret = key::find(args.key_file.as_deref(), &args.name)?;
    let is_successor = succession.as_ref().is_some_and(Succession::is_inherited);
    let volume = match is_successor {
        true => descriptor_cache::reopen(&cache, &at, &args.name, secret.as_ref())?,
        false => descriptor_cache::open(&cache, &at, &args.name, secret.as_ref())?,
    };
    let replica = Arc::new(open(&cache, args, &volume.described, &node, succession.as_ref())?);
    if !is_successor {
        descriptor_cache::save(&cache, &volume.described)?;
    }
    let (runner, leases, from) = sync::start(&replica, &volume, &node, succession.as_ref())?;
    let connect = {
        let (runner, leases, replica) = (runner.clone(), leases.clone(), replica.clone());
        move || sync::connect(&replica, &runner, &leases)
    };
    let online: serve::SetOnline = {
        let (runner, leases, replica) = (runner.clone(), leases.clone(), replica.clone());
        Arc::new(move |online| {
            runner.set_online(online);
            leases.set_online(online);
            if let Err(errno) = replica.set_offline(!online) {
                tracing::warn!(%errno, "cannot save whether the volume is offline; the next mount forgets it");
            }
        })
    };
    let asked = ControlHandler { replica: replica.clone(), meta: volume.meta.clone() };
    let answers: serve::AnswerVolume = Arc::new(move |ask| asked.answer(ask));
    let cache_manager = cache_status::start(&replica, args.cache_mode, args.cache_size)?;
    let past = View::new(volume.meta.clone());
    let meta = volume.meta.clone();
    let table = args.owner_table.as_deref().map(owners::Table::read).transpose()?;
    let reload = table.clone().map(|table| reload(table, replica.clone()));
    let owners_in = args.owner_table.as_deref().map(|file| xdg::directory_of(file).to_owned());
    let mut paths = accessible_paths(&at, &volume.described, [cache.clone()]);
    paths.readable.extend(owners_in);
    let fs = VolumeFs::new(replica)
        .with_runner(runner)
        .with_leases(leases)
        .read_only_while(move || meta.only_reads().is_some())
        .with_cache_manager(cache_manager)
        .with_history(past, from.clone())
        .with_timestamped_names(args.at_names)
        .with_fetcher(from);
    let fs = match args.locks {
        LocksArg::Cluster => fs.with_cluster_locks(),
        LocksArg::Local => fs,
    };
    let fs = match (table, owners::mapped(args)?) {
        (Some(table), _) => fs.with_owners(Box::new(table)),
        (None, Some(owners)) => fs.with_owners(owners),
        (None, None) => fs,
    };
    let (fs, passthrough_off) = match args.passthrough {
        PassthroughArg::Auto => (fs, None),
        PassthroughArg::Always => (fs.trusting_open_flags(), None),
        PassthroughArg::Off => (fs.without_passthrough(), Some("by --passthrough off".to_owned())),
    };
    let fs = match succession {
        Some(succession) => fs.with_succession(succession).once_adopted(connect),
        None => fs,
    };
    Ok(Service {
        kind: "volume",
        source: PathBuf::from(args.name.as_str()),
        config: fs.config(),
        options: fs.mount_options(),
        cache: "invalidated by synchronisation".to_owned(),
        passthrough_off,
        tuning: BdiTuning::default(),
        sandbox: Some(serve::SandboxKind::Network { paths, kernel: args.extension.is_some() }),
        block: None,
        status: fs_status,
        fs: Arc::new(fs.named(args.name.as_str())).into(),
        before_sandbox: None,
        mounted: Some(Arc::new(first_lookup)),
        reload,
        online: Some(online),
        answers: Some(answers),
    })
}

/// Returns the action that reloads the table of owners from its file.
fn reload(table: owners::Table, replica: Arc<Replica>) -> Arc<dyn Fn() + Send + Sync> {
    Arc::new(move || match table.reload() {
        Ok(()) => replica.invalidate_all_attributes(),
        Err(failure) => {
            tracing::error!("cannot reload the owner table, the previous one stays in effect: {failure}")
        }
    })
}

/// Has the kernel cache the attributes of the root directory before users arrive. The kernel discards a reply that races with an
/// invalidation, and the root is the one inode without earlier attributes: until the next reply only root could enter it.
fn first_lookup(point: &MountPoint) -> Result<()> {
    let is_closed = || {
        let known = statx(CWD, point.path(), AtFlags::STATX_FORCE_SYNC, StatxFlags::MODE);
        known.is_ok_and(|known| u32::from(known.stx_mode) & 0o777 == 0)
    };
    run_on_own_mount(|| (0..MAX_LOOKUP_ATTEMPTS).any(|_| !is_closed())).map(drop).map_err(failed)
}

pub(super) fn fs_status(fs: &VolumeFs) -> FsStatus {
    FsStatus { nodes: fs.replica().looked_up_inodes(), volume: Some(report(fs)), ..FsStatus::default() }
}

fn report(fs: &VolumeFs) -> VolumeReport {
    let replica = fs.replica();
    let mut report = VolumeReport {
        name: fs.name().to_owned(),
        node: replica.node_name().to_string(),
        cache: replica.directory().display().to_string(),
        pending: replica.pending_count().unwrap_or(0),
        objects_known: replica.looked_up_inodes(),
        read_only: fs.is_read_only(),
        conflicts: replica.conflict_count(),
        ..VolumeReport::default()
    };
    if let (Some(runner), Some(leases)) = (fs.runner(), fs.leases()) {
        sync::report(runner, leases, &mut report);
    }
    report.space = cache_status::report(fs);
    report.quota = replica.quota().map(|quota| quota::report(&quota)).unwrap_or_default();
    report
}

fn open(
    cache: &Path,
    args: &VolumeMountArgs,
    described: &VolumeDescriptor,
    node: &NodeName,
    succession: Option<&Succession>,
) -> Result<Replica> {
    let name = &args.name;
    let mut options = Options::new(format!("{:032x}", described.id), node.clone());
    if let Some(succession) = succession {
        succession
            .apply(&mut options)
            .map_err(|error| failed(format_args!("cannot take over volume {name}: {error}")))?;
    }
    options.owner = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    Replica::open(cache, options).map_err(|error| match error {
        ReplicaError::Busy(_) => {
            Failure::new(Code::Busy, format_args!("cannot mount volume {name}: {error}"))
        }
        error => failed(format_args!("cannot mount volume {name}: {error}")),
    })
}
