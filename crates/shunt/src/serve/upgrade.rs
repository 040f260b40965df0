//! The daemon's side of an upgrade: hands the mount over to another program.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{Access, AtFlags, CWD, FileType, Mode, OFlags};
use serde::{Deserialize, Serialize};
use shunt_fuse::guardian::Guardian;
use shunt_fuse::mount::Dev;
use shunt_fuse::{Capabilities, Handle, takeover};

use super::Attached;
use crate::error::{Result, failed};
use crate::files;

/// Timeout of the requests that are being served; the kernel queues later ones meanwhile.
pub(super) const DRAIN_TIMEOUT: Duration = Duration::from_millis(500);
/// Timeout of the program's answer to `--probe`.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);
/// Limit of that answer.
const MAX_PROBE_REPLY_BYTES: u64 = 4096;

/// The answer of a program that is started with this one's arguments and `--probe`.
#[derive(Debug, Serialize, Deserialize)]
struct Probe {
    /// [`takeover::VERSION`].
    takeover: u32,
    version: String,
}

/// The answer of this program.
///
/// # Errors
/// It cannot be serialised.
pub fn probe() -> Result<String> {
    let probe = Probe { takeover: takeover::VERSION, version: env!("CARGO_PKG_VERSION").to_owned() };
    serde_json::to_string(&probe).map(|line| line + "\n").map_err(failed)
}

/// The means to hand over to another daemon.
pub struct Successor {
    handle: Handle,
    guardian: Option<Arc<Guardian>>,
    mount: Dev,
    /// The path of this program, if it is sandboxed: it can be upgraded to no other one.
    only: Option<PathBuf>,
    arguments: Vec<OsString>,
    /// The reason why no other daemon may take over.
    refused: Option<String>,
}

impl Successor {
    /// `refused`: the reason why no daemon is to take over. Called before the sandbox is entered.
    pub fn new(attached: &Attached, refused: Option<String>, is_sandboxed: bool) -> Self {
        Self {
            handle: attached.handle.clone(),
            guardian: attached.guardian.clone(),
            mount: attached.mount.dev(),
            only: if is_sandboxed { std::env::current_exe().ok() } else { None },
            arguments: std::env::args_os().collect(),
            refused,
        }
    }

    /// The reason why no daemon can take over from this one; none if one can.
    pub fn obstacle(&self) -> Option<String> {
        if self.handle.takeover().is_some() {
            if self.guardian.as_ref().is_some_and(|guardian| guardian.is_service_manager()) {
                return None;
            }
            let has_exited = self.guardian.as_ref().is_some_and(|guardian| guardian.has_exited());
            return has_exited.then(|| "its guardian was killed".to_owned());
        }
        Some(match &self.refused {
            Some(reason) => reason.clone(),
            None if self.guardian.is_none() => "it has no guardian (see the log)".to_owned(),
            None if !self.handle.negotiated().has(Capabilities::HAS_RESEND) => {
                "the kernel cannot resend requests (requires Linux 6.9)".to_owned()
            }
            None => match self.handle.transport().transport {
                shunt_fuse::Transport::Uring => {
                    "the transport is io_uring; mount with --transport dev".to_owned()
                }
                _ => "its state could not be saved (see the log)".to_owned(),
            },
        })
    }

    /// Verifies that the program is fit, and has the guardian start it next. The returned function ends this process.
    ///
    /// # Errors
    /// The reason, in one line. Nothing has changed then.
    pub fn upgrade(&self, binary: &Path) -> Result<Box<dyn FnOnce()>, String> {
        if let Some(obstacle) = self.obstacle() {
            return Err(format!("no daemon can take over this mount: {obstacle}"));
        }
        let guardian = self.guardian.clone().ok_or("it has no guardian")?;
        if guardian.is_service_manager() {
            return Err("the mount is a service: install the new program, and restart the service with `systemctl restart`; \
                        its users notice a pause only"
                .to_owned());
        }
        if let Some(only) = &self.only {
            return self.upgrade_in_place(&guardian, binary, only);
        }
        let path = binary.display();
        let program = self.open(binary).map_err(|reason| format!("cannot run {path}: {reason}"))?;
        let reply = self.probe(&program).map_err(|reason| format!("{path} cannot take over: {reason}"))?;
        if reply.takeover != takeover::VERSION {
            return Err(format!(
                "{path} (version {}) cannot take over: it speaks version {} of takeover, and the daemon version {}; \
                 unmount, and mount with the new binary",
                reply.version,
                reply.takeover,
                takeover::VERSION
            ));
        }
        guardian.upgrade(program.as_fd()).map_err(|error| error.to_string())?;
        tracing::warn!("handing over to {path} (version {})", reply.version);
        Ok(self.leave())
    }

    /// Has the guardian start what is installed at the path of this program. A sandboxed daemon can open no other, and the guardian
    /// would not accept one from it. If it does not take over, this program continues.
    fn upgrade_in_place(
        &self,
        guardian: &Guardian,
        binary: &Path,
        only: &Path,
    ) -> Result<Box<dyn FnOnce()>, String> {
        let (path, only) = (binary.display(), without_deleted(only));
        if binary != only {
            return Err(format!(
                "the daemon is sandboxed, so it can be upgraded in place only: install {path} as {}",
                only.display()
            ));
        }
        guardian.upgrade_in_place().map_err(|error| error.to_string())?;
        tracing::warn!("handing over to {path}");
        Ok(self.leave())
    }

    /// The function that ends this process, for the next one to take over.
    fn leave(&self) -> Box<dyn FnOnce()> {
        let handle = self.handle.clone();
        Box::new(move || {
            if !handle.drain(DRAIN_TIMEOUT) {
                tracing::warn!(
                    "upgrade: some requests did not finish within {} ms; the kernel resends them to the new daemon",
                    DRAIN_TIMEOUT.as_millis()
                );
            }
            // No cleanup: the guardian holds the state, and starts the program when this process has exited.
            std::process::exit(0);
        })
    }

    /// Opens the program once: the descriptor that is probed is the one that is run.
    fn open(&self, binary: &Path) -> Result<OwnedFd, String> {
        if !binary.is_absolute() {
            return Err("the path is not absolute".to_owned());
        }
        let plain =
            |errno: rustix::io::Errno| crate::text::without_numbers(&io::Error::from(errno).to_string());
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let program = rustix::fs::open(binary, flags, Mode::empty()).map_err(plain)?;
        let stat = rustix::fs::fstat(&program).map_err(plain)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err("it is not a file".to_owned());
        }
        // Starting a program from the mount itself would wait for a reply of this daemon.
        if (Dev { major: rustix::fs::major(stat.st_dev), minor: rustix::fs::minor(stat.st_dev) })
            == self.mount
        {
            return Err("it is in the mount itself; copy it elsewhere".to_owned());
        }
        let link = files::path_of(&program);
        rustix::fs::accessat(CWD, link, Access::EXEC_OK, AtFlags::EACCESS).map_err(plain)?;
        Ok(program)
    }

    /// Probes the program with the arguments that it will get.
    fn probe(&self, program: &OwnedFd) -> Result<Probe, String> {
        let [name, command, rest @ ..] = self.arguments.as_slice() else {
            return Err("the command line is empty".to_owned());
        };
        let child = Command::new(files::path_of(program))
            .arg0(name)
            .args([command, &"--probe".into()])
            .args(rest)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let mut child = child.map_err(|error| crate::text::without_numbers(&error.to_string()))?;
        let ended = ended_well(&mut child);
        let mut reply = String::new();
        if let (Ok(()), Some(pipe)) = (&ended, child.stdout.take()) {
            let _ = pipe.take(MAX_PROBE_REPLY_BYTES).read_to_string(&mut reply);
        }
        ended?;
        serde_json::from_str(&reply).map_err(|_| "it is not a shunt binary with takeover".to_owned())
    }
}

/// Returns the path of a running program, also if another file was installed there since.
fn without_deleted(path: &Path) -> PathBuf {
    let bytes = path.as_os_str().as_bytes();
    OsStr::from_bytes(bytes.strip_suffix(b" (deleted)").unwrap_or(bytes)).into()
}

/// Waits for the end of a child, with a timeout.
fn ended_well(child: &mut Child) -> Result<(), String> {
    let end = Instant::now() + PROBE_TIMEOUT;
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => {
                return Err(format!("it does not accept the options of this mount ({status})"));
            }
            Ok(None) if Instant::now() < end => thread::sleep(Duration::from_millis(1)),
            _ => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("it printed nothing within {} seconds", PROBE_TIMEOUT.as_secs()));
            }
        }
    }
}
