//! A volume of a tree: the process that serves it, and where it is on its way to what is wanted.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use shunt_fuse::mount::{MountError, MountPoint, Unmount};

use crate::error::Result;
use crate::{daemon, xdg};

/// How long a volume stays away that was unmounted, or whose process ended.
const AWAY: Duration = Duration::from_secs(5);
/// Between tries to mount one: the first and the longest.
const AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// How a volume is to be mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Where, from the mount point of the tree on.
    pub names: Vec<String>,
    /// The same, with that in front.
    pub at: PathBuf,
    /// The rest of the command line.
    pub args: Vec<OsString>,
    /// The address of its store, if one was said: there may be a password in it.
    pub meta: Option<String>,
    /// Files that are to be there: who may read them is their owner.
    pub files: Vec<(PathBuf, Vec<u8>)>,
    /// The table of its owners: it may change while the volume is mounted.
    pub owners: (PathBuf, String),
}

impl Wanted {
    fn is_but_for_owners(&self, other: &Self) -> bool {
        *self == Self { owners: self.owners.clone(), ..other.clone() }
    }

    /// Whether one of the places is in the other.
    fn meets(&self, other: &Self) -> bool {
        self.names.starts_with(&other.names) || other.names.starts_with(&self.names)
    }
}

enum State {
    /// It is not mounted; from then on it may be.
    Away(Instant),
    Starting(JoinHandle<Result<Child>>),
    Mounted(Child),
    /// It was unmounted, and its process commits what is left.
    Leaving(Child),
}

/// See the [module](self).
pub struct Volume {
    name: String,
    wanted: Option<Wanted>,
    /// As its process has it.
    is: Option<Wanted>,
    state: State,
    pause: Duration,
    error: Option<String>,
    /// Somebody else tells of the first failure.
    quiet: bool,
}

impl Volume {
    pub fn new(name: String) -> Self {
        let state = State::Away(Instant::now());
        Self { name, wanted: None, is: None, state, pause: AGAIN.0, error: None, quiet: false }
    }

    /// Has what goes wrong at first be told by who asks.
    pub fn quiet(self) -> Self {
        Self { quiet: true, ..self }
    }

    /// What it is to be from now on; `None`: gone.
    pub fn want(&mut self, wanted: Option<Wanted>) {
        if self.wanted != wanted {
            self.wanted = wanted;
            self.pause = AGAIN.0;
            if let State::Away(again) = &mut self.state {
                *again = Instant::now();
            }
        }
    }

    /// Where it is, or is to be.
    pub fn places(&self) -> impl Iterator<Item = &[String]> {
        self.is.iter().chain(&self.wanted).map(|wanted| wanted.names.as_slice())
    }

    /// Where it is mounted now, as far as is known.
    pub fn held(&self) -> Option<&Wanted> {
        self.is.as_ref()
    }

    /// Whether there is nothing left of it.
    pub fn is_gone(&self) -> bool {
        self.wanted.is_none() && matches!(self.state, State::Away(_))
    }

    /// Whether it is as it is wanted, or was tried in vain.
    pub fn is_settled(&self) -> bool {
        match self.state {
            State::Away(_) => self.wanted.is_none() || self.error.is_some(),
            State::Mounted(_) => self.is == self.wanted || self.error.is_some(),
            State::Starting(_) | State::Leaving(_) => false,
        }
    }

    /// `mounted`, `leaving` or `away`; and why it is not as it is wanted.
    pub fn tell(&self) -> (&'static str, Option<&str>) {
        let state = match self.state {
            State::Mounted(_) => "mounted",
            State::Leaving(_) => "leaving",
            State::Away(_) | State::Starting(_) => "away",
        };
        (state, self.error.as_deref())
    }

    /// Goes on towards what is wanted. `others`: what else is mounted.
    pub fn step(&mut self, others: &[&Wanted]) {
        let state = std::mem::replace(&mut self.state, State::Away(Instant::now()));
        self.state = match state {
            State::Away(again) if Instant::now() < again => State::Away(again),
            State::Away(again) => match self.wanted.clone() {
                Some(wanted) if others.iter().any(|other| other.meets(&wanted)) => State::Away(again),
                Some(wanted) => self.start(wanted),
                None => State::Away(again),
            },
            State::Starting(start) if !start.is_finished() => State::Starting(start),
            State::Starting(start) => match start.join() {
                Ok(Ok(child)) => {
                    (self.error, self.quiet) = (None, false);
                    self.pause = AGAIN.0;
                    State::Mounted(child)
                }
                Ok(Err(failure)) => self.failed(failure.message),
                Err(_) => self.failed("the thread that mounts it ended".to_owned()),
            },
            State::Mounted(mut child) => match child.try_wait() {
                Ok(None) => self.adapt(child),
                Ok(Some(status)) => {
                    if !status.success() {
                        tracing::warn!("the daemon of volume {} ended ({status})", self.name);
                    }
                    self.is = None;
                    State::Away(Instant::now() + AWAY)
                }
                Err(error) => self.failed(error.to_string()),
            },
            State::Leaving(mut child) => match child.try_wait() {
                Ok(None) => State::Leaving(child),
                _ => {
                    self.is = None;
                    State::Away(Instant::now())
                }
            },
        };
    }

    fn failed(&mut self, error: String) -> State {
        self.is = None;
        self.complain(error);
        let again = Instant::now() + self.pause;
        self.pause = (self.pause * 2).min(AGAIN.1);
        State::Away(again)
    }

    /// Once.
    fn complain(&mut self, error: String) {
        if self.error.as_ref() != Some(&error) && !self.quiet {
            tracing::warn!("volume {}: {error}", self.name);
        }
        self.error = Some(error);
    }

    fn start(&mut self, wanted: Wanted) -> State {
        self.is = Some(wanted.clone());
        let begun = std::thread::Builder::new().name("mount-volume".into()).spawn(move || mount(&wanted));
        begun.map_or_else(|error| self.failed(error.to_string()), State::Starting)
    }

    /// What is mounted is not as it is wanted: what can be done about it now?
    fn adapt(&mut self, child: Child) -> State {
        let Some(is) = self.is.clone() else { return State::Mounted(child) };
        if self.wanted.as_ref() == Some(&is) {
            self.error = None;
            return State::Mounted(child);
        }
        if let Some(wanted) = self.wanted.clone().filter(|wanted| wanted.is_but_for_owners(&is)) {
            match write_owners(&wanted).map(|()| reload(&child)) {
                Ok(()) => self.is = Some(wanted),
                Err(error) => self.complain(error.to_string()),
            }
            return State::Mounted(child);
        }
        match MountPoint::find(&is.at).and_then(|mount| mount.unmount(Unmount::Normal)) {
            Ok(()) | Err(MountError::NotMounted(_)) => {
                self.error = None;
                State::Leaving(child)
            }
            Err(MountError::Busy(_)) => {
                self.complain(format!("it stays at {} until nobody uses it", is.names.join("/")));
                State::Mounted(child)
            }
            Err(error) => {
                self.complain(error.to_string());
                State::Mounted(child)
            }
        }
    }

    /// Waits for the end of its process.
    pub fn outlast(self) {
        let child = match self.state {
            State::Starting(start) => start.join().ok().and_then(Result::ok),
            State::Mounted(child) | State::Leaving(child) => Some(child),
            State::Away(_) => None,
        };
        let Some(mut child) = child else { return };
        // What was mounted late, or is elsewhere by now.
        if let Some(mount) = self.is.and_then(|is| MountPoint::find(&is.at).ok()) {
            let _ = mount.unmount(Unmount::Lazy);
        }
        let _ = child.wait();
    }
}

/// Starts its process, and waits until it serves.
fn mount(wanted: &Wanted) -> Result<Child> {
    let ready = || -> std::io::Result<()> {
        write_owners(wanted)?;
        wanted.files.iter().try_for_each(|(file, bytes)| write(file, bytes))
    };
    ready().map_err(crate::error::failed)?;
    let mut command = Command::new("/proc/self/exe");
    command.arg0("shunt").args(["volume", "mount", "--background"]).args(&wanted.args).arg(&wanted.at);
    command.process_group(0);
    if let Some(meta) = &wanted.meta {
        command.env("SHUNT_VOLUME_META", meta);
    }
    daemon::start(command).map(|(child, _)| child)
}

fn reload(child: &Child) {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let _ = pid.map(|pid| kill_process(pid, Signal::HUP));
}

fn write_owners(wanted: &Wanted) -> std::io::Result<()> {
    let (file, text) = &wanted.owners;
    write(file, text.as_bytes())
}

/// There whole or not at all, and nobody else's to read.
pub fn write(file: &std::path::Path, bytes: &[u8]) -> std::io::Result<()> {
    xdg::make_directory_of(file)?;
    shunt_volume::private::write(file, bytes)
}
