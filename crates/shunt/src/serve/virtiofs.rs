//! Serves the guests of virtual machines by virtiofs, on a vhost-user socket instead of a mount point.

use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use rustix::fs::Mode;
use shunt_fuse::virtiofs::{Server, Stop};
use shunt_fuse::{Config, FileSystem, Handle};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;

use super::{announce, announcement, daemon_info};
use crate::args::MountArgs;
use crate::error::{Code, Failure, Result, failed};
use crate::log::STATISTICS;
use crate::metrics::{Listener, Scrape};
use crate::process;
use crate::report::{Cache, Memory, Stat};
use crate::sandbox;
use crate::xdg;

/// The mount as shown to people.
#[derive(Clone, Debug)]
pub struct MountLabel {
    /// The source directory.
    pub source: PathBuf,
    /// The cache mode.
    pub cache: String,
}

/// The current session, or the last one.
type Current = Arc<Mutex<Option<Handle>>>;

/// Threads for requests that block.
const DEFAULT_THREADS: usize = 16;

/// The options of the command line that concern serving.
pub fn configured(config: Config, args: &MountArgs) -> Config {
    let threads = args.threads.map_or(DEFAULT_THREADS, usize::from);
    config.threads(threads, threads).splice(false)
}

/// Listens at `socket` and serves guests until a signal ends it. `make` receives the function to call for each new session.
///
/// # Errors
/// The socket cannot be created, or the process cannot be sandboxed.
pub fn serve<F: FileSystem>(
    socket: &Path,
    args: &MountArgs,
    shown: MountLabel,
    probe: bool,
    make: impl FnOnce(Box<dyn Fn(&Handle) + Send + Sync>) -> Result<Server<F>>,
) -> Result<()> {
    let metrics = args.metrics.as_deref().map(Listener::bind).transpose()?;
    let signals = Signals::new([SIGTERM, SIGINT, SIGHUP, SIGUSR1])
        .map_err(|error| failed(format_args!("cannot install signal handlers: {error}")))?;
    let listener = listen(socket)?;
    warn_of_others(socket);
    let current = Current::default();
    let began = current.clone();
    let server = make(Box::new(move |handle| {
        tracing::info!("a guest mounted the directory");
        *began.lock().unwrap_or_else(PoisonError::into_inner) = Some(handle.clone());
    }))?;
    if probe {
        sandbox::probe_on_entry();
    }
    // Threads started later inherit the sandbox.
    sandbox::enter_for_guest().map_err(|error| failed(format_args!("cannot sandbox the daemon: {error}")))?;
    let line = format!(
        "{} shows {} to a guest (transport virtio, no passthrough, no takeover, cache {})",
        socket.display(),
        shown.source.display(),
        shown.cache
    );
    if let Some(listener) = metrics {
        let (current, shown, socket) = (current.clone(), shown.clone(), socket.display().to_string());
        let started = daemon_info::seconds_since_1970();
        listener.serve(Arc::new(move || {
            let stat = Stat { mountpoint: socket.clone(), started_s: started, ..stat(&current, &shown) };
            Scrape::of_mount(stat)
        }))?;
    }
    watch(signals, server.stop(), current.clone(), shown)?;
    announce(announcement(args)?, &crate::text::printable(&line))?;
    server
        .serve(listener)
        .map_err(|error| failed(format_args!("stopped serving {}: {error}", socket.display())))
}

/// Creates the socket, in place of one without a listener. Only its owner may connect.
fn listen(socket: &Path) -> Result<UnixListener> {
    let before = rustix::process::umask(Mode::from_raw_mode(0o177));
    let bound = match UnixListener::bind(socket) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_socket(socket) => {
            match UnixStream::connect(socket) {
                Err(refused) if refused.kind() == io::ErrorKind::ConnectionRefused => replace(socket),
                Ok(_) => {
                    let message = format_args!(
                        "another process listens on {} already; end it, or name another socket",
                        socket.display()
                    )
                    .to_string();
                    return Err(Failure::new(Code::Busy, message));
                }
                Err(error) => Err(error),
            }
        }
        bound => bound,
    };
    rustix::process::umask(before);
    bound.map_err(|error| failed(format_args!("cannot create the socket {}: {error}", socket.display())))
}

/// Creates the socket under a temporary name and renames it over the existing one, so that no other can appear in between.
fn replace(socket: &Path) -> io::Result<UnixListener> {
    let name = socket.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_string_lossy();
    let temporary = socket.with_file_name(format!(".{name}.{}", std::process::id()));
    let listener = UnixListener::bind(&temporary)?;
    std::fs::rename(&temporary, socket).inspect_err(|_| {
        let _ = std::fs::remove_file(&temporary);
    })?;
    Ok(listener)
}

/// Warns if other users can rename entries of the directory: they could have guests connect to a socket of their own.
fn warn_of_others(socket: &Path) {
    let directory = xdg::directory_of(socket);
    let Ok(found) = std::fs::metadata(directory) else { return };
    if found.mode() & 0o022 != 0 && found.mode() & 0o1000 == 0 {
        tracing::warn!(
            "users other than the owner of {} can replace the socket {}; use a directory with mode 0700",
            directory.display(),
            socket.display()
        );
    }
}

/// Any other kind of file must not be removed.
fn is_socket(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket())
}

fn watch(mut signals: Signals, stop: Stop, current: Current, shown: MountLabel) -> Result<()> {
    let work = move || {
        for signal in signals.forever() {
            if signal == SIGUSR1 {
                log_statistics(&current, &shown);
            } else {
                stop.stop();
            }
        }
    };
    let started = thread::Builder::new().name("signals".into()).spawn(work);
    started.map(drop).map_err(|error| failed(format_args!("cannot start a thread: {error}")))
}

/// The statistics of the current session, or the last one; without figures if no guest has mounted the directory yet.
fn stat(current: &Current, shown: &MountLabel) -> Stat {
    let stat = Stat {
        source: shown.source.to_string_lossy().into_owned(),
        kind: "mirror".to_owned(),
        pid: std::process::id(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        transport: "virtio".to_owned(),
        cpu_s: process::cpu_seconds(),
        memory: Memory {
            descriptors: process::descriptors(),
            rss_bytes: process::resident_bytes(),
            ..Memory::default()
        },
        cache: Cache { mode: shown.cache.clone(), ..Cache::default() },
        ..Stat::default()
    };
    let Some(handle) = current.lock().unwrap_or_else(PoisonError::into_inner).clone() else { return stat };
    let figures = handle.statistics();
    Stat {
        transport: handle.transport().transport.to_string(),
        waiting: handle.waiting_requests() as u64,
        cancelled: figures.cancelled,
        malformed: figures.malformed,
        transferred: daemon_info::transferred(&figures),
        latency_bounds_us: daemon_info::latency_bounds_us(),
        requests: daemon_info::requests(&figures),
        memory: Memory { open_nodes: handle.open_nodes() as u64, ..stat.memory },
        ..stat
    }
}

fn log_statistics(current: &Current, shown: &MountLabel) {
    if current.lock().unwrap_or_else(PoisonError::into_inner).is_none() {
        return;
    }
    match serde_json::to_string(&stat(current, shown)) {
        Ok(json) => tracing::info!(target: STATISTICS, "{json}"),
        Err(error) => tracing::warn!("cannot write statistics: {error}"),
    }
}
