//! A session and its mount, brought up in the right order.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use rustix::fs::{Mode, OFlags};

use crate::guardian::{Guardian, GuardianError, HandOver, Watch};
use crate::mount::{self, MountError, MountMethod, MountOptions, MountPoint, Unmount};
use crate::negotiate::{Config, NegotiationError};
use crate::session::FileSystem;
use crate::session::{Agreed, Handle, Session};
use crate::transport::device::Device;

/// A file system that could not be brought up.
#[derive(Debug, thiserror::Error)]
pub enum MountSessionError {
    /// The mount failed.
    #[error(transparent)]
    Mount(#[from] MountError),
    /// Kernel and server did not agree.
    #[error(transparent)]
    Negotiation(#[from] NegotiationError),
    /// The guardian failed.
    #[error(transparent)]
    Guardian(#[from] GuardianError),
    /// A thread or descriptor could not be had.
    #[error("cannot start serving: {0}")]
    Io(#[from] io::Error),
}

/// A file system that is mounted and served by threads of its own.
#[derive(Debug)]
pub struct Mounted {
    mount: MountPoint,
    method: Option<MountMethod>,
    handle: Handle,
    serving: JoinHandle<io::Result<()>>,
    guard: Option<(Arc<Guardian>, Watch)>,
}

/// A mount that has no file system yet: what is asked of it waits in the kernel.
#[derive(Debug)]
#[must_use = "dropping it leaves a mount that nobody serves"]
pub struct Connected {
    mount: MountPoint,
    method: MountMethod,
    agreed: Agreed,
    guard: Option<(Arc<Guardian>, Watch)>,
}

/// Mounts a file system and serves it.
///
/// Where the kernel can prepare a mount before it is visible (Linux 5.2), INIT is answered before anyone can reach the
/// mount point.
///
/// # Errors
/// Nothing is left mounted.
pub fn mount<F: FileSystem>(
    fs: impl Into<Arc<F>>,
    config: Config,
    mountpoint: &Path,
    options: &MountOptions,
) -> Result<Mounted, MountSessionError> {
    mount_guarded(fs, config, mountpoint, options, None)
}

/// As [`mount()`], and `guardian` takes the mount away should this process be killed.
///
/// # Errors
/// Nothing is left mounted.
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

/// Mounts, and has no file system yet: one is made, by a process that has given up what mounting takes, and
/// [served](Connected::serve) later. Whoever looks at the mount waits until then.
///
/// # Errors
/// Nothing is left mounted.
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
    // A failure from here on ends the watch by itself: a mount that never came is nothing to clean up.
    let (mounted, agreed) = match early {
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
    // The session holds the connection from here on: `device` goes.
    let mount::Mounted { mount, method, .. } = mounted;
    let confirmed = guard.as_ref().map_or(Ok(()), |(guardian, watch)| guardian.confirm(*watch, &mount));
    if let Err(error) = confirmed {
        mount.unmount(Unmount::Lazy).ok();
        return Err(error.into());
    }
    let point = mount.clone();
    agreed.handle().set_mountpoint(move || open_root(&point));
    Ok(Connected { mount, method, agreed, guard })
}

impl Connected {
    /// The session that is to be.
    pub fn handle(&self) -> &Handle {
        self.agreed.handle()
    }

    /// Where it is mounted.
    pub fn mount_point(&self) -> &MountPoint {
        &self.mount
    }

    /// The guardian of this mount, if it has one.
    pub fn guardian(&self) -> Option<&Arc<Guardian>> {
        self.guard.as_ref().map(|(guardian, _)| guardian)
    }

    /// Starts a file system and serves it.
    ///
    /// # Errors
    /// Those of its start, and of starting a thread. The mount is left to the caller to be taken away; nobody serves it.
    pub fn serve<F: FileSystem>(self, fs: impl Into<Arc<F>>) -> Result<Mounted, MountSessionError> {
        let Self { mount, method, agreed, guard } = self;
        let (handle, serving) = run(agreed.start(fs.into())?)?;
        if let Some((guardian, _)) = guard.as_ref().filter(|_| handle.takeover().is_some()) {
            guardian.arm()?;
        }
        Ok(Mounted { mount, method: Some(method), handle, serving, guard })
    }
}

/// Serves a mount on whose server has ended.
///
/// The file system must be the same, with the same options; `config` is to ask for nothing that it did not ask for then.
///
/// # Errors
/// What was handed over is of another version, or no session of this file system. The mount is left as it is.
pub fn resume<F: FileSystem>(
    fs: impl Into<Arc<F>>,
    config: Config,
    hand_over: HandOver,
) -> Result<Mounted, MountSessionError> {
    let HandOver { guardian, held, watch, mount, takeovers, .. } = hand_over;
    let guardian = Arc::new(guardian);
    let session = Session::<F>::resume(fs.into(), config, guardian.clone(), held, takeovers)?;
    guardian.taken_over()?;
    let (handle, serving) = run(session)?;
    let point = mount.clone();
    handle.set_mountpoint(move || open_root(&point));
    Ok(Mounted { mount, method: None, handle, serving, guard: Some((guardian, watch)) })
}

type Serving = (Handle, JoinHandle<io::Result<()>>);

fn run<F: FileSystem>(session: Session<F>) -> Result<Serving, MountSessionError> {
    let handle = session.handle();
    let serving = thread::Builder::new().name("shunt-session".into()).spawn(move || session.run())?;
    Ok((handle, serving))
}

/// Opens the root of a mount, and nothing that has covered it since.
fn open_root(mount: &MountPoint) -> io::Result<OwnedFd> {
    if MountPoint::find(mount.path()).ok().map(|found| found.id()) != Some(mount.id()) {
        return Err(io::ErrorKind::NotConnected.into());
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(mount.path(), flags, Mode::empty())?)
}

impl Mounted {
    /// The running session.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Where it is mounted.
    pub fn mount_point(&self) -> &MountPoint {
        &self.mount
    }

    /// The guardian of this mount, if it has one.
    pub fn guardian(&self) -> Option<&Arc<Guardian>> {
        self.guard.as_ref().map(|(guardian, _)| guardian)
    }

    /// How it was mounted; none where an earlier server did that.
    pub fn method(&self) -> Option<MountMethod> {
        self.method
    }

    /// Serves until somebody unmounts it.
    ///
    /// # Errors
    /// Those of the device.
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
    /// Where the mount is busy it stays, and is given back with the error.
    pub fn unmount(self, how: Unmount) -> Result<io::Result<()>, Box<(Self, MountError)>> {
        match self.mount.unmount(how) {
            Ok(()) => Ok(self.wait()),
            Err(error) => Err(Box::new((self, error))),
        }
    }
}
