//! Mounts a file system and serves it until it is unmounted: the part that all mount commands share.
//!
//! It starts a guardian for the case that the daemon dies, opens the control socket, handles signals, and sandboxes the daemon.

mod block;
mod daemon_info;
mod kernel;
pub mod signals;
mod source;
mod upgrade;
pub mod virtiofs;

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use rustix::thread::CapabilitySet;
use shunt_fuse::guardian::{Guardian, GuardianError, HandOver, Restart};
use shunt_fuse::mount::bdi::BdiTuning;
use shunt_fuse::mount::{MountError, MountOptions, MountPoint, Unmount};
use shunt_fuse::takeover::Takeover;
use shunt_fuse::{Config, Connected, FileSystem, Handle, MountSessionError, Mounted};

use crate::args::{BusyPollArg, MountArgs, TakeoverArg};
use crate::control::{self, Control, SocketName, VolumeAsk};
use crate::daemon;
use crate::error::{Code, Failure, Result, failed};
use crate::log;
use crate::metrics;
use crate::own_mounts;
use crate::report::counters::Ext4Report;
use crate::report::{VolumeReport, Watch};
use crate::sandbox::{self, AccessiblePaths, DaemonFeatures, HelperArgs};
use crate::service_manager;
use block::MountAttempt;
use daemon_info::DaemonInfo;
use upgrade::Successor;

pub use block::{Block, CLAIM, ExclusiveClaim};
pub use source::Source;
pub use upgrade::probe;

/// The sandbox of a daemon once it serves.
#[derive(Clone, Debug)]
pub enum SandboxKind {
    /// Access to everything but the open image is dropped, since its bytes are untrusted.
    Image {
        /// A kernel module takes part in serving it.
        kernel: bool,
        /// Capabilities of root that are kept.
        kept: CapabilitySet,
    },
    /// Access to all files but these, and the right to execute programs, are dropped; the network stays usable.
    Network {
        /// The files that it can still open.
        paths: AccessiblePaths,
        /// A kernel module takes part in serving it.
        kernel: bool,
    },
}

/// The resources and state of a file system, for statistics.
#[derive(Clone, Debug, Default)]
pub struct FsStatus {
    /// Inodes that the kernel has looked up.
    pub nodes: u64,
    /// Size of their table in bytes.
    pub bytes: Option<u64>,
    /// The watch for changes that others make.
    pub watch: Option<Watch>,
    /// Directories of the source that are mounted on the mount, as paths below the root.
    pub grafts: Vec<PathBuf>,
    /// The extension in the kernel, if one was requested.
    pub extension: Option<Extended>,
    /// The enforcer of the rules of its policy, if there is one.
    pub rules: Option<String>,
    /// The volume, for mounts of volumes.
    pub volume: Option<VolumeReport>,
    /// The file system on the image, for mounts of ext4.
    pub ext4: Option<Ext4Report>,
}

/// The extension in the kernel.
#[derive(Clone, Debug, Default)]
pub struct Extended {
    /// The reason why there is none.
    pub refusal: Option<String>,
    /// Files that it opens.
    pub files: u64,
}

/// An action after the mount. If it fails the file system is unmounted again.
pub type OnceMounted = Arc<dyn Fn(&MountPoint) -> Result<()> + Send + Sync>;

/// An action after the mount, in a successor as well, which needs files that the sandbox denies.
pub type BeforeSandbox = Arc<dyn Fn(&MountPoint, &Handle) + Send + Sync>;

/// Answers requests about a volume.
pub type AnswerVolume = Arc<dyn Fn(&VolumeAsk) -> Result<serde_json::Value, String> + Send + Sync>;

/// Connects a volume to its store, or disconnects it.
pub type SetOnline = Arc<dyn Fn(bool) + Send + Sync>;

/// A file system that is ready to be mounted.
pub struct Service<F> {
    /// Its kind: `mirror`, ...
    pub kind: &'static str,
    /// The source: an absolute path.
    pub source: PathBuf,
    /// The file system. If it is opened later, it is opened inside the sandbox.
    pub fs: Source<F>,
    /// The capabilities and limits requested from the kernel.
    pub config: Config,
    /// The mount options, except those of the command line.
    pub options: MountOptions,
    /// The cache mode in the words of the command line, and the reason for it.
    pub cache: String,
    /// The reason, if passthrough is switched off.
    pub passthrough_off: Option<String>,
    /// Settings of writeback.
    pub tuning: BdiTuning,
    /// The block device that it lies on.
    pub block: Option<Block>,
    /// The sandbox to enter once it serves.
    pub sandbox: Option<SandboxKind>,
    /// Queries its current state.
    pub status: fn(&F) -> FsStatus,
    /// An action after the mount, before the sandbox is entered.
    pub before_sandbox: Option<BeforeSandbox>,
    /// An action after the mount, before readiness is reported.
    pub mounted: Option<OnceMounted>,
    /// The action of SIGHUP, if that is not to end the daemon.
    pub reload: Option<Arc<dyn Fn() + Send + Sync>>,
    /// Connects a volume to its store, or disconnects it.
    pub online: Option<SetOnline>,
    /// Answers requests about a volume.
    pub answers: Option<AnswerVolume>,
}

impl<F> Service<F> {
    /// The service with a file system wrapped around this one.
    #[cfg_attr(not(feature = "extension"), expect(dead_code))]
    pub fn wrap<G>(self, around: impl FnOnce(Arc<F>) -> G + 'static, held: fn(&G) -> FsStatus) -> Service<G>
    where
        F: 'static,
    {
        Service {
            kind: self.kind,
            source: self.source,
            fs: self.fs.wrap(around),
            config: self.config,
            options: self.options,
            cache: self.cache,
            passthrough_off: self.passthrough_off,
            tuning: self.tuning,
            block: self.block,
            sandbox: self.sandbox,
            status: held,
            before_sandbox: self.before_sandbox,
            mounted: self.mounted,
            reload: self.reload,
            online: self.online,
            answers: self.answers,
        }
    }
}

/// Mounts, reports that, and serves until the file system is unmounted. `restart` is how another daemon takes over, or the reason
/// why none does.
///
/// # Errors
/// The mount or the service fails; nothing is left mounted. In the background, failures before the mount is ready are reported to
/// the process that waits.
pub fn serve<F: FileSystem>(
    mut service: Service<F>,
    args: &MountArgs,
    restart: Result<Restart, String>,
) -> Result<()> {
    let signals = signals()?;
    let listener = args.metrics.as_deref().map(metrics::Listener::bind).transpose()?;
    let options = service.options.clone().fsname(&service.source).subtype(format!("shunt.{}", service.kind));
    let options = args.mount_options(options)?;
    let (restart, refused) = match restart {
        Ok(restart) => (Some(restart), None),
        Err(reason) => (None, Some(reason)),
    };
    if let Some(reason) = &refused {
        tracing::info!("no takeover after a crash: {reason}");
    }
    let connected = mount(&mut service, args, &options, restart)?;
    let attached = Attached {
        mount: connected.mount_point().clone(),
        handle: connected.handle().clone(),
        guardian: connected.guardian().cloned(),
    };
    for (name, value, error) in service.tuning.apply(&attached.mount).refused {
        tracing::info!("cannot set {name} to {value}: {error}; throughput may be lower");
    }
    if let Some(action) = &service.before_sandbox {
        action(&attached.mount, &attached.handle);
    }
    if let Some((block, takeover)) = service.block.as_ref().zip(attached.handle.takeover()) {
        block.keep(takeover);
    }
    let (facts, control) = create_control_socket(&service, &attached, refused, service.sandbox.is_some());
    let is_closed = service.fs.is_closed();
    let sandbox = service.sandbox.take();
    let enter = || {
        if let Some(sandbox) = &sandbox {
            enter(sandbox, &attached, control.as_ref().ok(), args.background);
        }
    };
    let begin = || -> Result<Mounted> {
        watch(signals, &attached, &facts, &service)?;
        if let Some(listener) = listener {
            listener.serve(facts.clone())?;
        }
        let ready = announcement(args)?;
        if is_closed {
            enter();
        }
        let fs = service.fs.open()?;
        let mounted = connected.serve::<F>(fs).map_err(|error| explain(error, &args.mountpoint))?;
        run_mounted_action(&service, &attached)?;
        announce(ready, &facts.line())?;
        Ok(mounted)
    };
    let mounted = begin().inspect_err(|_| {
        // Nobody uses this mount yet, so it is simply removed.
        let _ = attached.guardian.as_ref().map(|guardian| guardian.end());
        signals::remove_unserved(&attached.mount);
    })?;
    match &sandbox {
        Some(SandboxKind::Image { .. }) => service_manager::disable_watchdog(),
        _ => service_manager::start_watchdog(mounted.handle(), &attached.mount),
    }
    if !is_closed {
        enter();
    }
    wait(mounted, args)
}

fn enter(sandbox: &SandboxKind, attached: &Attached, control: Option<&Control>, background: bool) {
    if let Some(Err(error)) = attached.guardian.as_ref().map(|guardian| guardian.seal()) {
        tracing::warn!("{error}");
    }
    let rings = attached.handle.transport().transport == shunt_fuse::Transport::Uring;
    kernel::keep_open();
    let socket = control.map(Control::path);
    let outside = HelperArgs { mountpoint: attached.mount.path(), socket: socket.as_deref(), background };
    match sandbox {
        SandboxKind::Image { kernel, kept } => {
            sandbox::enter(outside, DaemonFeatures { rings, kernel: *kernel }, *kept);
        }
        SandboxKind::Network { paths, kernel } => {
            let served = DaemonFeatures { rings, kernel: *kernel };
            sandbox::enter_volume(outside, paths, served);
        }
    }
}

/// Takes over a mount whose daemon ended, and serves it until it is unmounted.
///
/// # Errors
/// The state of that daemon is unusable. The mount stays, and the guardian decides about it.
pub fn take_over<F: FileSystem>(
    mut service: Service<F>,
    args: &MountArgs,
    hand_over: HandOver,
) -> Result<()> {
    let signals = signals()?;
    let found_gone = Instant::now().checked_sub(hand_over.pause());
    let cause = hand_over.cause();
    let path = hand_over.mount_point().path().display().to_string();
    let cannot = |error| failed(format_args!("cannot take over {path}: {error}"));
    let connected = shunt_fuse::reconnect(configured(&service, args), hand_over).map_err(cannot)?;
    let attached = Attached {
        mount: connected.mount_point().clone(),
        handle: connected.handle().clone(),
        guardian: connected.guardian().cloned(),
    };
    if let Some(action) = &service.before_sandbox {
        action(&attached.mount, &attached.handle);
    }
    // Users wait, so whatever the sandbox does not deny comes once the mount is served.
    let sandbox = service.sandbox.take();
    if let Some(Err(error)) =
        attached.guardian.as_ref().filter(|_| sandbox.is_some()).map(|guardian| guardian.seal())
    {
        // The last daemon has sealed it already: no thread may count on storing more of the session.
        tracing::warn!("{error}");
    }
    let early = sandbox.as_ref().map(|_| {
        let listener = args.metrics.as_deref().map(metrics::Listener::bind);
        (create_control_socket(&service, &attached, None, true), listener)
    });
    let enter = |control: &io::Result<Control>| {
        if let Some(sandbox) = &sandbox {
            enter(sandbox, &attached, control.as_ref().ok(), true);
        }
    };
    let is_closed = service.fs.is_closed();
    if let Some(((_, control), _)) = early.as_ref().filter(|_| is_closed) {
        enter(control);
    }
    let mounted = connected.serve::<F>(service.fs.open()?).map_err(cannot)?;
    let pause = found_gone.map_or(0.0, |then| then.elapsed().as_secs_f64() * 1e3);
    let ((facts, control), listener) =
        early.unwrap_or_else(|| (create_control_socket(&service, &attached, None, false), None));
    if !is_closed {
        enter(&control);
    }
    facts.set_took_over(daemon_info::took_over(cause, pause));
    match (listener, &args.metrics) {
        (Some(Ok(listener)), _) => listener.serve(facts.clone())?,
        (Some(Err(failure)), _) => tracing::warn!("no metrics of this daemon: {failure}"),
        (None, Some(address)) => metrics::Listener::serve_when_free(address, facts.clone()),
        (None, None) => {}
    }
    run_mounted_action(&service, &attached)?;
    watch(signals, &attached, &facts, &service)?;
    let number = mounted.handle().takeover().map_or(0, Takeover::takeovers);
    tracing::warn!("took over {path} after {pause:.1} ms (takeover {number})");
    tracing::info!("{}", facts.line());
    service_manager::ready(&facts.line());
    match &sandbox {
        Some(SandboxKind::Image { .. }) => service_manager::disable_watchdog(),
        _ => service_manager::start_watchdog(mounted.handle(), &attached.mount),
    }
    wait(mounted, args)
}

/// The command that starts another daemon if this one ends; `argv` is the command line of this one.
pub fn restart(argv: &[OsString], args: &MountArgs) -> Result<Restart, String> {
    restart_command(argv, 2, args)
}

/// [`restart`] for a command of so many words, with the program.
pub fn restart_command(argv: &[OsString], words: usize, args: &MountArgs) -> Result<Restart, String> {
    let Some((head, rest)) = argv.split_at_checked(words) else {
        return Err("the command line is empty".to_owned());
    };
    let head = head.iter().cloned().chain(["--successor".into()]);
    let arguments = head.chain(rest.iter().cloned()).collect();
    match args.takeover {
        TakeoverArg::Auto => Ok(Restart { arguments, crashes: args.crashes }),
        TakeoverArg::Service => Ok(Restart { arguments: argv.to_vec(), crashes: args.crashes }),
        TakeoverArg::Off => Err("by --takeover off".to_owned()),
    }
}

/// A mount, served already or not.
#[derive(Clone)]
pub struct Attached {
    mount: MountPoint,
    handle: Handle,
    guardian: Option<Arc<Guardian>>,
}

fn run_mounted_action<F>(service: &Service<F>, attached: &Attached) -> Result<()> {
    service.mounted.as_ref().map_or(Ok(()), |done| done(&attached.mount))
}

/// Registered before any thread starts, so that none of them takes a signal's default action.
fn signals() -> Result<signals::Signals> {
    signals::Signals::register()
        .map_err(|error| failed(format_args!("cannot install signal handlers: {error}")))
}

/// Creates the control socket and the state that it reports.
fn create_control_socket<F: FileSystem>(
    service: &Service<F>,
    attached: &Attached,
    refused: Option<String>,
    is_sandboxed: bool,
) -> (Arc<DaemonInfo>, io::Result<Control>) {
    let held = Box::new(service.fs.query(service.status));
    let successor = Successor::new(attached, refused, is_sandboxed);
    let facts = Arc::new(DaemonInfo::new(service, attached, held, successor));
    let control = control::serve(SocketName::of(&attached.mount), facts.clone());
    if let Err(error) = &control {
        tracing::warn!(
            "cannot create the control socket: {error}; `shunt stat` and `shunt umount` cannot reach this daemon"
        );
    }
    (facts, control)
}

fn watch<F>(
    signals: signals::Signals,
    attached: &Attached,
    facts: &Arc<DaemonInfo>,
    service: &Service<F>,
) -> Result<()> {
    signals.watch(attached.clone(), facts.clone(), service.reload.clone())
}

fn wait(mounted: Mounted, args: &MountArgs) -> Result<()> {
    let served = mounted.wait();
    served.map_err(|error| failed(format_args!("stopped serving {}: {error}", args.mountpoint.display())))
}

fn configured<F>(service: &Service<F>, args: &MountArgs) -> Config {
    let busy_poll = args.busy_poll == BusyPollArg::Auto;
    let config = service.config.clone().busy_poll(busy_poll).transport(args.transport.into());
    let config = config.max_readahead(args.read_ahead).ring_buffers(args.ring_buffers.into());
    let config = if args.no_splice { config.splice(false) } else { config };
    // A sandboxed process can create no rings, so all of them are created ahead.
    let config = config.rings_ahead(service.sandbox.is_some());
    let Some(threads) = args.threads.map(usize::from) else { return config };
    config.threads(threads, threads.max(64))
}

fn mount<F>(
    service: &mut Service<F>,
    args: &MountArgs,
    options: &MountOptions,
    restart: Option<Restart>,
) -> Result<Connected> {
    let (path, config) = (&args.mountpoint, configured(service, args));
    let mount = |options: &MountOptions| {
        let guardian = match guardian(args, restart.clone()) {
            Ok(guardian) => Some(Arc::new(guardian)),
            Err(error) => {
                tracing::warn!("{error}; if this process is killed, remove the mount with `shunt umount`");
                None
            }
        };
        shunt_fuse::connect(config.clone(), path, options, guardian)
    };
    // A service manager that stopped the last process by force has left a dead mount.
    let mount = |options: &MountOptions| match mount(options) {
        Err(error) if args.takeover == TakeoverArg::Service && is_dead(&error) => {
            remove_dead(path);
            mount(options)
        }
        tried => tried,
    };
    let tried = match &mut service.block {
        Some(block) => block.mount(options, mount),
        None => mount(options).map_or_else(MountAttempt::Failed, MountAttempt::Done),
    };
    match tried {
        MountAttempt::Done(mounted) => Ok(mounted),
        MountAttempt::Failed(error) => Err(explain(error, path)),
        MountAttempt::Lost => {
            // If the file system is open already, dropping it would write its final state to the device.
            std::mem::forget(service.fs.get());
            let source = service.source.display();
            Err(Failure::new(
                Code::Busy,
                format_args!(
                    "cannot mount {source}: another process mounted it meanwhile; unmount it there first"
                ),
            ))
        }
    }
}

fn is_dead(error: &MountSessionError) -> bool {
    matches!(
        error,
        MountSessionError::Mount(MountError::Dead(_))
            | MountSessionError::Guardian(GuardianError::Mount(MountError::Dead(_)))
    )
}

/// Removes a mount of Shunt whose daemon has exited.
fn remove_dead(path: &Path) {
    let Ok((dead, _)) = own_mounts::find(path) else { return };
    match dead.unmount(Unmount::Lazy) {
        Ok(()) => tracing::warn!("unmounted {}, which no daemon served", path.display()),
        Err(error) => tracing::warn!("{error}"),
    }
}

/// Starts the process that removes the mount if this one is killed.
fn guardian(args: &MountArgs, restart: Option<Restart>) -> Result<Guardian, GuardianError> {
    let mut command = Command::new("/proc/self/exe");
    command.arg("__guardian");
    if args.background {
        // Standard error may be the terminal, or a pipe whose reader waits for its end.
        command.stderr(Stdio::null());
    }
    let Some(restart) = restart else { return Guardian::spawn(command) };
    if args.takeover == TakeoverArg::Service {
        return service_manager::guardian(restart.arguments);
    }
    let guardian = Guardian::spawn_restarting(command, restart)?;
    if let Some(log) = log::file() {
        guardian.store_log(log.as_fd())?;
    }
    Ok(guardian)
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

/// The resources for going into the background, if requested: a sandboxed process cannot acquire them.
fn announcement(args: &MountArgs) -> Result<Option<daemon::Detach>> {
    let departure = args.background.then(daemon::Detach::prepare).transpose();
    departure.map_err(cannot_depart)
}

/// Reports that the mount is served, to the user or to the process that started this one.
fn announce(departure: Option<daemon::Detach>, line: &str) -> Result<()> {
    tracing::info!("{line}");
    service_manager::ready(line);
    let line = format!("shunt: {line}");
    if let Some(departure) = departure {
        return departure.report_ready(&line).map_err(cannot_depart);
    }
    let mut out = io::stdout();
    // The mount is served even if the line cannot be printed.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
    Ok(())
}

fn cannot_depart(error: io::Error) -> Failure {
    failed(format_args!("cannot go into the background: {error}"))
}
