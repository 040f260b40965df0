//! Serves the guests of virtual machines by virtiofs, on a vhost-user socket instead of a mount point.

use std::fmt::Display;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use rustix::fs::Mode;
use shunt_fuse::guardian::{HandOver, Restart};
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
use crate::report::{Cache, Memory, Stat, TookOver};
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

/// The guest that this daemon serves, for statistics.
#[derive(Clone)]
struct Running(Arc<RunningState>);

struct RunningState {
    shown: MountLabel,
    /// The current session, or the last one.
    session: Mutex<Option<Handle>>,
    /// The number of daemons before this one, and how it took over.
    takeover: Mutex<Option<(u32, TookOver)>>,
}

impl Running {
    fn new(shown: &MountLabel) -> Self {
        let (session, takeover) = (Mutex::default(), Mutex::default());
        Self(Arc::new(RunningState { shown: shown.clone(), session, takeover }))
    }

    /// Returns the function to call for each new session.
    fn begin(&self) -> Box<dyn Fn(&Handle) + Send + Sync> {
        let running = self.clone();
        Box::new(move |handle| {
            tracing::info!("a guest mounted the directory");
            *running.0.session.lock().unwrap_or_else(PoisonError::into_inner) = Some(handle.clone());
        })
    }

    fn took_over(&self, number: u32, how: TookOver) {
        *self.0.takeover.lock().unwrap_or_else(PoisonError::into_inner) = Some((number, how));
    }

    /// Returns the source of metrics.
    fn scrapes(&self, socket: &Path) -> Arc<dyn crate::metrics::Source> {
        let (running, socket) = (self.clone(), socket.display().to_string());
        let started = daemon_info::seconds_since_1970();
        Arc::new(move || {
            let stat = Stat { mountpoint: socket.clone(), started_s: started, ..running.stat() };
            Scrape::of_mount(stat)
        })
    }

    fn session(&self) -> Option<Handle> {
        self.0.session.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The statistics of the current session, or the last one; without figures if no guest has mounted the directory yet.
    fn stat(&self) -> Stat {
        let shown = &self.0.shown;
        let takeover = self.0.takeover.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let (takeovers, takeover) = takeover.map_or((0, None), |(number, how)| (number, Some(how)));
        let stat = Stat {
            source: shown.source.to_string_lossy().into_owned(),
            kind: "mirror".to_owned(),
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            transport: "virtio".to_owned(),
            cpu_s: process::cpu_seconds(),
            takeovers: takeovers.into(),
            takeover,
            memory: Memory {
                descriptors: process::descriptors(),
                rss_bytes: process::resident_bytes(),
                ..Memory::default()
            },
            cache: Cache { mode: shown.cache.clone(), ..Cache::default() },
            ..Stat::default()
        };
        let Some(handle) = self.session() else { return stat };
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

    fn log_statistics(&self) {
        if self.session().is_none() {
            return;
        }
        match serde_json::to_string(&self.stat()) {
            Ok(json) => tracing::info!(target: STATISTICS, "{json}"),
            Err(error) => tracing::warn!("cannot write statistics: {error}"),
        }
    }
}

/// Threads for requests that block.
const DEFAULT_THREADS: usize = 16;

/// The options of the command line that concern serving.
pub fn configured(config: Config, args: &MountArgs) -> Config {
    let threads = args.threads.map_or(DEFAULT_THREADS, usize::from);
    config.threads(threads, threads).splice(false)
}

/// How to make the server: called with the function to call for each new session.
type Make<F> = Box<dyn FnOnce(Box<dyn Fn(&Handle) + Send + Sync>) -> Result<Server<F>>>;

/// A file system for guests.
pub struct GuestService<'a, F> {
    /// The path of the socket.
    pub socket: &'a Path,
    /// The options of the command line.
    pub args: &'a MountArgs,
    /// The directory as shown to people.
    pub shown: MountLabel,
    /// Try what the sandbox forbids.
    pub probe: bool,
    /// Makes the server.
    pub make: Make<F>,
}

/// Listens at the socket and serves guests until a signal ends it. `restart` is how another daemon takes over, or the reason why
/// none does.
///
/// # Errors
/// The socket cannot be created, or the process cannot be sandboxed.
pub fn serve<F: FileSystem>(service: GuestService<'_, F>, restart: Result<Restart, String>) -> Result<()> {
    let (socket, args) = (service.socket, service.args);
    let metrics = args.metrics.as_deref().map(Listener::bind).transpose()?;
    let signals = signals()?;
    let listener = listen(socket)?;
    warn_of_others(socket);
    let guardian = restart.map_err(|reason| tracing::info!("no takeover after a crash: {reason}"));
    let guardian = guardian.ok().and_then(|restart| {
        let guardian = super::guardian(args, Some(restart));
        let guardian = guardian.inspect_err(|error| tracing::warn!("no takeover after a crash: {error}"));
        guardian.ok().map(Arc::new)
    });
    let running = Running::new(&service.shown);
    let server = (service.make)(running.begin())?;
    let path = std::path::absolute(socket).unwrap_or_else(|_| socket.to_owned());
    let guarded = guardian.as_ref().map(|guardian| server.guard(guardian, &listener, &path)).transpose();
    let (connections, takeover) = match guarded {
        Ok(Some(connections)) => {
            drop(listener);
            (connections, "")
        }
        Ok(None) => (listener.into(), "no takeover, "),
        Err(error) => return Err(failed(format_args!("cannot serve {}: {error}", socket.display()))),
    };
    enter_sandbox(service.probe)?;
    let line = format!(
        "{} shows {} to a guest (transport virtio, no passthrough, {takeover}cache {})",
        socket.display(),
        service.shown.source.display(),
        service.shown.cache
    );
    if let Some(listener) = metrics {
        listener.serve(running.scrapes(socket))?;
    }
    watch(signals, server.stop(), running.clone())?;
    announce(announcement(args)?, &crate::text::printable(&line))?;
    let served = server.serve(connections);
    server.end_guardian();
    served.map_err(|error| failed(format_args!("stopped serving {}: {error}", socket.display())))
}

/// Takes over from a daemon that ended, and serves its guest on. `fs` is the file system of the guest's session, if it had
/// mounted.
///
/// # Errors
/// The state of that daemon is unusable, or the process cannot be sandboxed. The guardian decides what follows.
pub fn take_over<F: FileSystem>(
    service: GuestService<'_, F>,
    fs: Option<F>,
    hand_over: HandOver,
) -> Result<()> {
    let (socket, args) = (service.socket.display(), service.args);
    let signals = signals()?;
    let metrics = args.metrics.as_deref().map(Listener::bind).transpose();
    let metrics = metrics.inspect_err(|failure| tracing::warn!("no metrics of this daemon: {failure}"));
    let found_gone = Instant::now().checked_sub(hand_over.pause());
    let (cause, number) = (hand_over.cause(), hand_over.takeovers());
    let running = Running::new(&service.shown);
    let mut server = (service.make)(running.begin())?;
    let cannot = |error: &dyn Display| failed(format_args!("cannot take over {socket}: {error}"));
    hand_over.confine_guardian().map_err(|error| cannot(&error))?;
    enter_sandbox(service.probe)?;
    let connections = server.resume(fs, hand_over).map_err(|error| cannot(&error))?;
    let pause = found_gone.map_or(0.0, |then| then.elapsed().as_secs_f64() * 1e3);
    running.took_over(number, daemon_info::took_over(cause, pause));
    if let Ok(Some(listener)) = metrics {
        listener.serve(running.scrapes(service.socket))?;
    }
    watch(signals, server.stop(), running.clone())?;
    tracing::warn!("took over {socket} after {pause:.1} ms (takeover {number})");
    let served = server.serve(connections);
    server.end_guardian();
    served.map_err(|error| failed(format_args!("stopped serving {socket}: {error}")))
}

/// Registered before any thread starts, so that none of them takes a signal's default action.
fn signals() -> Result<Signals> {
    Signals::new([SIGTERM, SIGINT, SIGHUP, SIGUSR1])
        .map_err(|error| failed(format_args!("cannot install signal handlers: {error}")))
}

/// Threads started later inherit the sandbox.
fn enter_sandbox(probe: bool) -> Result<()> {
    if probe {
        sandbox::probe_on_entry();
    }
    sandbox::enter_for_guest().map_err(|error| failed(format_args!("cannot sandbox the daemon: {error}")))
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

fn watch(mut signals: Signals, stop: Stop, running: Running) -> Result<()> {
    let work = move || {
        for signal in signals.forever() {
            if signal == SIGUSR1 {
                running.log_statistics();
            } else {
                stop.stop();
            }
        }
    };
    let started = thread::Builder::new().name("signals".into()).spawn(work);
    started.map(drop).map_err(|error| failed(format_args!("cannot start a thread: {error}")))
}
