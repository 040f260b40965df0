//! A mount together with the session that serves it, brought up in the right order: INIT is answered before the mount is visible,
//! where the kernel can do that, and the file system is started last.

use std::error::Error;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use rustix::fs::{Mode, OFlags};

use crate::guardian::{Guardian, GuardianError, HandOver, Watch};
use crate::mount::bdi::BdiTuning;
use crate::mount::{self, MountError, MountMethod, MountOptions, MountPoint, Unmount};
use crate::negotiate::{Config, NegotiationError};
use crate::session::FileSystem;
use crate::session::{Agreed, Handle, Session};
use crate::transport::device::Device;

/// A file system could not be mounted and served.
#[derive(Debug)]
pub enum MountSessionError {
    /// The mount failed.
    Mount(MountError),
    /// The negotiation between kernel and server failed.
    Negotiation(NegotiationError),
    /// The guardian failed.
    Guardian(GuardianError),
    /// A thread or descriptor could not be created.
    Io(io::Error),
}

impl fmt::Display for MountSessionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mount(error) => error.fmt(f),
            Self::Negotiation(error) => error.fmt(f),
            Self::Guardian(error) => error.fmt(f),
            Self::Io(error) => write!(f, "cannot start serving: {error}"),
        }
    }
}

impl Error for MountSessionError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            // The message is that of the inner error, so the cause is that of the inner error, too.
            Self::Mount(error) => error.source(),
            Self::Negotiation(error) => error.source(),
            Self::Guardian(error) => error.source(),
            Self::Io(error) => Some(error),
        }
    }
}

impl From<MountError> for MountSessionError {
    fn from(error: MountError) -> Self {
        Self::Mount(error)
    }
}

impl From<NegotiationError> for MountSessionError {
    fn from(error: NegotiationError) -> Self {
        Self::Negotiation(error)
    }
}

impl From<GuardianError> for MountSessionError {
    fn from(error: GuardianError) -> Self {
        Self::Guardian(error)
    }
}

impl From<io::Error> for MountSessionError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// A file system that is mounted and served by its own threads.
#[derive(Debug)]
pub struct Mounted {
    mount: MountPoint,
    method: Option<MountMethod>,
    handle: Handle,
    serving: JoinHandle<io::Result<()>>,
    guard: Option<(Arc<Guardian>, Watch)>,
}

/// A mount without a file system yet: requests wait in the kernel.
#[derive(Debug)]
#[must_use = "dropping it leaves a mount without a server"]
pub struct Connected {
    mount: MountPoint,
    /// `None` where an earlier server mounted it, whose session this one continues.
    method: Option<MountMethod>,
    agreed: Agreed,
    guard: Option<(Arc<Guardian>, Watch)>,
}

/// Mounts a file system and serves it.
///
/// INIT is answered before any process can reach the mount point, on kernels that can prepare a mount before it is visible (Linux
/// 5.2).
///
/// # Errors
/// An error of mounting, negotiation, or starting the file system. Nothing is left mounted.
pub fn mount<F: FileSystem>(
    fs: impl Into<Arc<F>>,
    config: Config,
    mountpoint: &Path,
    options: &MountOptions,
) -> Result<Mounted, MountSessionError> {
    mount_guarded(fs, config, mountpoint, options, None)
}

/// Mounts a file system and serves it, as [`mount()`] does; `guardian` unmounts it if this process is killed.
///
/// # Errors
/// An error of mounting, negotiation, the guardian, or starting the file system. Nothing is left mounted.
pub fn mount_guarded<F: FileSystem>(
    fs: impl Into<Arc<F>>,
    config: Config,
    mountpoint: &Path,
    options: &MountOptions,
    guardian: Option<Arc<Guardian>>,
) -> Result<Mounted, MountSessionError> {
    let connected = connect(config, mountpoint, options, guardian)?;
    let mount = connected.mount.clone();
    connected.serve(fs).inspect_err(|_| {
        mount.unmount(Unmount::Lazy).ok();
    })
}

/// Mounts without a file system, which the process can make and [serve](Connected::serve) after it has dropped the privileges
/// that mounting takes. Requests on the mount wait until then.
///
/// # Errors
/// An error of mounting, negotiation or the guardian. Nothing is left mounted.
pub fn connect(
    config: Config,
    mountpoint: &Path,
    options: &MountOptions,
    guardian: Option<Arc<Guardian>>,
) -> Result<Connected, MountSessionError> {
    let detached = mount::prepare(options)?;
    let keeper = guardian.clone();
    let negotiate = |device: OwnedFd| -> Result<_, MountSessionError> {
        Ok(Agreed::negotiate(&config, Device::new(device)?, keeper)?)
    };
    let early = detached.device().map(|device| device.try_clone_to_owned()).transpose()?;
    let guard = match guardian {
        Some(guardian) => {
            let watch = guardian.watch(&detached, mountpoint)?;
            Some((guardian, watch))
        }
        None => None,
    };
    // A failure from here on ends the watch: where nothing was mounted, there is nothing to clean up.
    let (mounted, mut agreed) = match early {
        Some(device) => {
            let agreed = negotiate(device)?;
            (detached.attach(mountpoint)?, agreed)
        }
        None => {
            let mounted = detached.attach(mountpoint)?;
            match mounted.device.try_clone().map_err(Into::into).and_then(negotiate) {
                Ok(agreed) => (mounted, agreed),
                Err(error) => {
                    mounted.mount.unmount(Unmount::Lazy).ok();
                    return Err(error);
                }
            }
        }
    };
    // From here on the session owns the connection; `device` is dropped.
    let mount::Mounted { mount, method, .. } = mounted;
    let confirmed = guard.as_ref().map_or(Ok(()), |(guardian, watch)| guardian.confirm(*watch, &mount));
    if let Err(error) = confirmed {
        mount.unmount(Unmount::Lazy).ok();
        return Err(error.into());
    }
    agreed.use_privileges();
    raise_read_ahead(&mount, &config, agreed.handle().negotiated().max_readahead);
    let point = mount.clone();
    agreed.handle().set_mountpoint(move || open_root(&point));
    Ok(Connected { mount, method: Some(method), agreed, guard })
}

impl Connected {
    /// Returns a handle on the session that will be started.
    pub fn handle(&self) -> &Handle {
        self.agreed.handle()
    }

    /// Returns the mount point.
    pub fn mount_point(&self) -> &MountPoint {
        &self.mount
    }

    /// Returns the guardian of this mount, if it has one.
    pub fn guardian(&self) -> Option<&Arc<Guardian>> {
        self.guard.as_ref().map(|(guardian, _)| guardian)
    }

    /// Starts a file system and serves it.
    ///
    /// # Errors
    /// An error of the file system's start, or of starting a thread. The mount stays, unserved, for the caller to unmount.
    pub fn serve<F: FileSystem>(self, fs: impl Into<Arc<F>>) -> Result<Mounted, MountSessionError> {
        let Self { mount, method, agreed, guard } = self;
        let session = agreed.start(fs.into())?;
        let guardian = guard.as_ref().map(|(guardian, _)| guardian);
        let guardian = guardian.filter(|_| session.handle().takeover().is_some());
        match guardian {
            Some(guardian) if method.is_none() => {
                session.continue_requests()?;
                guardian.taken_over()?;
            }
            Some(guardian) => guardian.arm()?,
            None => {}
        }
        let (handle, serving) = run(session)?;
        if method.is_none() {
            // Not before requests are read: the file system may wait at its start for a notification behind one that uses the mount.
            let point = mount.clone();
            handle.set_mountpoint(move || open_root(&point));
        }
        Ok(Mounted { mount, method, handle, serving, guard })
    }
}

/// Continues to serve a mount whose server has ended.
///
/// The file system must be of the same type, with the same options; `config` must not request anything that the earlier server
/// did not request.
///
/// # Errors
/// The handed-over state is of another version, or is not a session of this file system. The mount stays as it is.
pub fn resume<F: FileSystem>(
    fs: impl Into<Arc<F>>,
    config: Config,
    hand_over: HandOver,
) -> Result<Mounted, MountSessionError> {
    reconnect(config, hand_over)?.serve(fs)
}

/// Connects to a mount whose server has ended, without a file system, which the process can make and
/// [serve](Connected::serve) after it has dropped privileges. Requests on the mount wait until then. Otherwise like
/// [`resume`].
///
/// # Errors
/// The handed-over state is of another version, or lacks what `config` requires. The mount stays as it is.
pub fn reconnect(config: Config, hand_over: HandOver) -> Result<Connected, MountSessionError> {
    let HandOver { guardian, descriptors: held, watch, mount, takeovers, .. } = hand_over;
    let guardian = Arc::new(guardian);
    let agreed = Agreed::resume(&config, guardian.clone(), held, takeovers)?;
    Ok(Connected { mount, method: None, agreed, guard: Some((guardian, watch)) })
}

type Serving = (Handle, JoinHandle<io::Result<()>>);

fn run<F: FileSystem>(session: Session<F>) -> Result<Serving, MountSessionError> {
    let handle = session.handle();
    let serving = thread::Builder::new().name("shunt-session".into()).spawn(move || session.run())?;
    Ok((handle, serving))
}

/// Widens the read-ahead window beyond the `offered` bytes, to which INIT limits it.
fn raise_read_ahead(mount: &MountPoint, config: &Config, offered: u32) {
    if config.max_readahead <= offered {
        return;
    }
    let kib = config.max_readahead / 1024;
    let wider = BdiTuning { read_ahead_kb: Some(kib), ..Default::default() };
    for (name, _, error) in wider.apply(mount).refused {
        tracing::debug!("cannot set {name} to {kib}: {error}; it stays at {}", offered / 1024);
    }
}

/// Opens the root of a mount, and fails where another mount covers it.
fn open_root(mount: &MountPoint) -> io::Result<OwnedFd> {
    if MountPoint::find(mount.path()).ok().map(|found| found.id()) != Some(mount.id()) {
        return Err(io::ErrorKind::NotConnected.into());
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(mount.path(), flags, Mode::empty())?)
}

impl Mounted {
    /// Returns a handle on the running session.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Returns the mount point.
    pub fn mount_point(&self) -> &MountPoint {
        &self.mount
    }

    /// Returns the guardian of this mount, if it has one.
    pub fn guardian(&self) -> Option<&Arc<Guardian>> {
        self.guard.as_ref().map(|(guardian, _)| guardian)
    }

    /// Returns how it was mounted; `None` where an earlier server mounted it.
    pub fn method(&self) -> Option<MountMethod> {
        self.method
    }

    /// Serves until the file system is unmounted.
    ///
    /// # Errors
    /// I/O errors of the FUSE device.
    pub fn wait(self) -> io::Result<()> {
        let served =
            self.serving.join().unwrap_or_else(|_| Err(io::Error::other("the serving thread panicked")));
        if let Some((guardian, watch)) = self.guard {
            guardian.release(watch).map_err(io::Error::other)?;
        }
        served
    }

    /// Unmounts, and waits until the last request is served.
    ///
    /// # Errors
    /// A busy mount stays mounted, and is returned with the error.
    pub fn unmount(self, how: Unmount) -> Result<io::Result<()>, Box<(Self, MountError)>> {
        match self.mount.unmount(how) {
            Ok(()) => Ok(self.wait()),
            Err(error) => Err(Box::new((self, error))),
        }
    }
}
