//! A volume of a tree: the process that serves it, and its state machine between mounted and unmounted.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use shunt_fuse::mount::{MountError, MountPoint, Unmount};
use shunt_volume::backoff::{Backoff, jittered};

use crate::error::Result;
use crate::{daemon, xdg};

/// The longest pause before a volume that was unmounted, or whose process ended, is mounted again.
const REMOUNT_DELAY: Duration = Duration::from_secs(5);
/// Backoff between attempts to mount a volume: the bound of the first pause, and that of all.
const MOUNT_BACKOFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// The requested mount of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountRequest {
    /// The names of its path, relative to the mount point of the tree.
    pub names: Vec<String>,
    /// The full path of its mount point.
    pub at: PathBuf,
    /// Further arguments of the command line.
    pub args: Vec<OsString>,
    /// The address of its store, if one is given. Passed in the environment, as it may contain a password.
    pub meta: Option<String>,
    /// Files to write before the start, readable by their owner only.
    pub files: Vec<(PathBuf, Vec<u8>)>,
    /// The file and content of its owner table, which may change while the volume is mounted.
    pub owners: (PathBuf, String),
}

impl MountRequest {
    fn differs_only_in_owners(&self, other: &Self) -> bool {
        *self == Self { owners: self.owners.clone(), ..other.clone() }
    }

    /// Reports whether one of the two paths is a prefix of the other.
    fn overlaps(&self, other: &Self) -> bool {
        self.names.starts_with(&other.names) || other.names.starts_with(&self.names)
    }
}

enum State {
    /// Not mounted, and not to be mounted before this time.
    Unmounted(Instant),
    Starting(JoinHandle<Result<Child>>),
    Mounted(Child),
    /// Unmounted, while its process commits the remaining changes.
    Unmounting(Child),
}

/// A volume and its process: see the [module](self).
pub struct Volume {
    name: String,
    requested: Option<MountRequest>,
    /// The mount that its process serves.
    current: Option<MountRequest>,
    state: State,
    pauses: Backoff,
    error: Option<String>,
    /// The caller reports the first failure.
    quiet: bool,
}

impl Volume {
    pub fn new(name: String) -> Self {
        let state = State::Unmounted(Instant::now());
        Self {
            name,
            requested: None,
            current: None,
            state,
            pauses: Backoff::between(MOUNT_BACKOFF.0, MOUNT_BACKOFF.1),
            error: None,
            quiet: false,
        }
    }

    /// Leaves the report of the first failure to the caller.
    pub fn quiet(self) -> Self {
        Self { quiet: true, ..self }
    }

    /// Sets the requested mount; `None` unmounts the volume.
    pub fn request(&mut self, request: Option<MountRequest>) {
        if self.requested != request {
            self.requested = request;
            self.pauses.reset();
            if let State::Unmounted(again) = &mut self.state {
                *again = Instant::now();
            }
        }
    }

    /// The paths at which it is, or is to be, mounted.
    pub fn mount_paths(&self) -> impl Iterator<Item = &[String]> {
        self.current.iter().chain(&self.requested).map(|request| request.names.as_slice())
    }

    /// The current mount, as far as it is known.
    pub fn current_mount(&self) -> Option<&MountRequest> {
        self.current.as_ref()
    }

    /// Reports whether it is unmounted and no longer requested.
    pub fn is_removed(&self) -> bool {
        self.requested.is_none() && matches!(self.state, State::Unmounted(_))
    }

    /// Reports whether it is in the requested state, or an attempt failed.
    pub fn is_settled(&self) -> bool {
        match self.state {
            State::Unmounted(_) => self.requested.is_none() || self.error.is_some(),
            State::Mounted(_) => self.current == self.requested || self.error.is_some(),
            State::Starting(_) | State::Unmounting(_) => false,
        }
    }

    /// Its state, `mounted`, `unmounting` or `unmounted`; and the reason why it is not in the requested one.
    pub fn report(&self) -> (&'static str, Option<&str>) {
        let state = match self.state {
            State::Mounted(_) => "mounted",
            State::Unmounting(_) => "unmounting",
            State::Unmounted(_) | State::Starting(_) => "unmounted",
        };
        (state, self.error.as_deref())
    }

    /// Advances one step towards the requested state. `others` are the mounts of the other volumes.
    pub fn step(&mut self, others: &[&MountRequest]) {
        let state = std::mem::replace(&mut self.state, State::Unmounted(Instant::now()));
        self.state = match state {
            State::Unmounted(again) if Instant::now() < again => State::Unmounted(again),
            State::Unmounted(again) => match self.requested.clone() {
                Some(request) if others.iter().any(|other| other.overlaps(&request)) => {
                    State::Unmounted(again)
                }
                Some(request) => self.start(request),
                None => State::Unmounted(again),
            },
            State::Starting(start) if !start.is_finished() => State::Starting(start),
            State::Starting(start) => match start.join() {
                Ok(Ok(child)) => {
                    (self.error, self.quiet) = (None, false);
                    self.pauses.reset();
                    State::Mounted(child)
                }
                Ok(Err(failure)) => self.failed(failure.message),
                Err(_) => self.failed("the thread that mounts the volume panicked".to_owned()),
            },
            State::Mounted(mut child) => match child.try_wait() {
                Ok(None) => self.adapt(child),
                Ok(Some(status)) => {
                    if !status.success() {
                        tracing::warn!("the daemon of volume {} exited ({status})", self.name);
                    }
                    self.current = None;
                    State::Unmounted(Instant::now() + jittered(REMOUNT_DELAY))
                }
                Err(error) => self.failed(error.to_string()),
            },
            State::Unmounting(mut child) => match child.try_wait() {
                Ok(None) => State::Unmounting(child),
                _ => {
                    self.current = None;
                    State::Unmounted(Instant::now())
                }
            },
        };
    }

    fn failed(&mut self, error: String) -> State {
        self.current = None;
        self.complain(error);
        let again = Instant::now() + self.pauses.next_pause();
        State::Unmounted(again)
    }

    /// Records an error, and logs it if it is new.
    fn complain(&mut self, error: String) {
        if self.error.as_ref() != Some(&error) && !self.quiet {
            tracing::warn!("volume {}: {error}", self.name);
        }
        self.error = Some(error);
    }

    fn start(&mut self, request: MountRequest) -> State {
        self.current = Some(request.clone());
        let begun = std::thread::Builder::new().name("mount-volume".into()).spawn(move || mount(&request));
        begun.map_or_else(|error| self.failed(error.to_string()), State::Starting)
    }

    /// Compares the mount with the requested one: reloads changed owners, and unmounts it on any other difference.
    fn adapt(&mut self, child: Child) -> State {
        let Some(is) = self.current.clone() else { return State::Mounted(child) };
        if self.requested.as_ref() == Some(&is) {
            self.error = None;
            return State::Mounted(child);
        }
        if let Some(request) = self.requested.clone().filter(|request| request.differs_only_in_owners(&is)) {
            match write_owners(&request).map(|()| reload(&child)) {
                Ok(()) => self.current = Some(request),
                Err(error) => self.complain(error.to_string()),
            }
            return State::Mounted(child);
        }
        match MountPoint::find(&is.at).and_then(|mount| mount.unmount(Unmount::Normal)) {
            Ok(()) | Err(MountError::NotMounted(_)) => {
                self.error = None;
                State::Unmounting(child)
            }
            Err(MountError::Busy(_)) => {
                self.complain(format!("it stays at {} while it is in use", is.names.join("/")));
                State::Mounted(child)
            }
            Err(error) => {
                self.complain(error.to_string());
                State::Mounted(child)
            }
        }
    }

    /// Waits for the end of its process.
    pub fn wait_for_exit(self) {
        let child = match self.state {
            State::Starting(start) => start.join().ok().and_then(Result::ok),
            State::Mounted(child) | State::Unmounting(child) => Some(child),
            State::Unmounted(_) => None,
        };
        let Some(mut child) = child else { return };
        // Unmounted here if it was mounted late, or has been moved since.
        if let Some(mount) = self.current.and_then(|is| MountPoint::find(&is.at).ok()) {
            let _ = mount.unmount(Unmount::Lazy);
        }
        let _ = child.wait();
    }
}

/// Starts its process, and waits until it serves.
fn mount(request: &MountRequest) -> Result<Child> {
    let ready = || -> std::io::Result<()> {
        write_owners(request)?;
        request.files.iter().try_for_each(|(file, bytes)| write(file, bytes))
    };
    ready().map_err(crate::error::failed)?;
    let mut command = Command::new("/proc/self/exe");
    command.arg0("shunt").args(["volume", "mount", "--background"]).args(&request.args).arg(&request.at);
    command.process_group(0);
    if let Some(meta) = &request.meta {
        command.env("SHUNT_VOLUME_META", meta);
    }
    daemon::start(command).map(|(child, _)| child)
}

fn reload(child: &Child) {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let _ = pid.map(|pid| kill_process(pid, Signal::HUP));
}

fn write_owners(request: &MountRequest) -> std::io::Result<()> {
    let (file, text) = &request.owners;
    write(file, text.as_bytes())
}

/// Writes a file atomically, readable by its owner only.
pub fn write(file: &std::path::Path, bytes: &[u8]) -> std::io::Result<()> {
    xdg::make_directory_of(file)?;
    shunt_volume::private::write(file, bytes)
}
