//! Mounts a file system and serves it to its end: what every mount command shares.

mod facts;
mod process;
mod stop;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use shunt_fuse::guardian::{Guardian, GuardianError};
use shunt_fuse::mount::{MountError, MountOptions, Unmount};
use shunt_fuse::{Config, FileSystem, MountSessionError, Mounted};

use crate::args::{MountArgs, WakefulArg};
use crate::control::{self, SocketName};
use crate::daemon;
use crate::error::{Failure, Result, failed};
use crate::report::Watch;
use facts::Facts;

/// What a file system holds.
#[derive(Clone, Debug, Default)]
pub struct Held {
    /// Inodes that the kernel knows.
    pub nodes: u64,
    /// Bytes that their table takes.
    pub bytes: Option<u64>,
    /// What hears of changes that others make.
    pub watch: Option<Watch>,
}

/// A file system that is ready to be mounted.
pub struct Service<F> {
    /// Its kind: `mirror`, ...
    pub kind: &'static str,
    /// What it shows: an absolute path.
    pub source: PathBuf,
    /// The file system.
    pub fs: Arc<F>,
    /// What it asks of the kernel.
    pub config: Config,
    /// What the kernel is told, but for the options of the command line.
    pub options: MountOptions,
    /// How it caches, in the words of the command line, and why.
    pub cache: String,
    /// Set where the user does not want passthrough.
    pub passthrough_off: Option<String>,
    /// What it holds now.
    pub held: fn(&F) -> Held,
}

/// Mounts, says so, and serves until the mount is gone.
///
/// # Errors
/// Nothing is left mounted. In the background, failures before the mount is ready go to the process that waits.
pub fn serve<F: FileSystem>(service: Service<F>, args: &MountArgs) -> Result<()> {
    // Before any thread, so that none of them gets a signal's default action.
    let signals = stop::Signals::register()
        .map_err(|error| failed(format_args!("cannot take care of signals: {error}")))?;
    let Service { fs, held, .. } = &service;
    let (fs, held) = (fs.clone(), *held);
    let options = service.options.clone().fsname(&service.source).subtype(format!("shunt.{}", service.kind));
    let options = args.mount_options(options)?;
    let mounted = mount(&service, args, &options)?;

    let facts = Arc::new(Facts::new(&service, &mounted, Box::new(move || held(&fs))));
    let control = control::serve(SocketName::of(mounted.mount_point()), facts.clone());
    if let Err(error) = &control {
        tracing::warn!(
            "no control socket: `shunt stat` and `shunt umount` cannot reach this daemon: {error}"
        );
    }
    let announced = signals
        .watch(mounted.mount_point().clone(), facts.clone())
        .and_then(|()| announce(args, &facts.line()));
    if let Err(failure) = announced {
        // Nobody knows of this mount: it goes as it came.
        mounted.mount_point().unmount(Unmount::Lazy).ok();
        return Err(failure);
    }

    let served = mounted.wait();
    served.map_err(|error| failed(format_args!("stopped serving {}: {error}", args.mountpoint.display())))
}

fn mount<F: FileSystem>(service: &Service<F>, args: &MountArgs, options: &MountOptions) -> Result<Mounted> {
    let wakeful = args.wakeful == WakefulArg::Auto;
    let mut config = service.config.clone().wakeful(wakeful).transport(args.transport.into());
    if let Some(threads) = args.threads {
        let threads = usize::from(threads);
        config = config.threads(threads, threads.max(64));
    }
    let guardian = match guardian(args) {
        Ok(guardian) => Some(Arc::new(guardian)),
        Err(error) => {
            tracing::warn!("{error}; should this process be killed, `shunt umount` removes the mount");
            None
        }
    };
    let path = &args.mountpoint;
    shunt_fuse::mount_guarded::<F>(service.fs.clone(), config, path, options, guardian)
        .map_err(|error| explain(error, path))
}

/// The process that takes the mount away should this one be killed.
fn guardian(args: &MountArgs) -> Result<Guardian, GuardianError> {
    let mut command = Command::new("/proc/self/exe");
    command.arg("__guardian");
    if args.background {
        // The terminal, or a pipe that somebody reads to its end.
        command.stderr(Stdio::null());
    }
    Guardian::spawn(command)
}

fn explain(error: MountSessionError, path: &Path) -> Failure {
    let (MountSessionError::Mount(error) | MountSessionError::Guardian(GuardianError::Mount(error))) = error
    else {
        return failed(format_args!("cannot mount on {}: {error}", path.display()));
    };
    let names_the_path = matches!(
        error,
        MountError::Missing(_)
            | MountError::NotDirectory(_)
            | MountError::IsDirectory(_)
            | MountError::Dead(_)
            | MountError::Unreachable { .. }
            | MountError::Helper { .. }
    );
    let failure = Failure::from(error);
    if names_the_path { failure } else { failure.context(format_args!("cannot mount on {}", path.display())) }
}

/// Says that it serves, to the user or to the process that started us.
fn announce(args: &MountArgs, line: &str) -> Result<()> {
    tracing::info!("{line}");
    let line = format!("shunt: {line}");
    if !args.background {
        use std::io::Write;
        let mut out = std::io::stdout();
        // Serving goes on without a listener.
        let _ = writeln!(out, "{line}").and_then(|()| out.flush());
        return Ok(());
    }
    daemon::ready(&line).map_err(|error| failed(format_args!("cannot go into the background: {error}")))
}
