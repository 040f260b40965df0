//! Runs the command `shunt` for mounts: to start, query, upgrade and stop their daemons.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use serde::Deserialize;
use tonic::Code;

use crate::config::Config;
use crate::inflight::Operation;
use crate::parameters::VolumePlaces;
use crate::record_file;
use crate::secrets::Secrets;
use crate::stages::Stage;
use crate::status::{self, Result, internal};

/// Limit of a mount and of an unmount. Orchestrators wait for two minutes.
const MOUNT_TIMEOUT: Duration = Duration::from_secs(100);
/// Limit of a query. The daemon answers within two seconds, or is hung.
pub(crate) const QUERY_TIMEOUT: Duration = Duration::from_secs(10);
/// Limit of a daemon's last commit, in seconds; it continues afterwards.
const UMOUNT_SECONDS: u32 = 60;
/// Limit of the output of a command that is read.
const MAX_OUTPUT_BYTES: u64 = 256 << 10;
/// Size at which the log of a mount begins anew when it is mounted.
const MAX_LOG_BYTES: u64 = 4 << 20;

/// The free space of a mount.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct Space {
    /// Bytes that may still be written.
    pub(crate) free_bytes: u64,
    /// Size, in bytes.
    pub(crate) total_bytes: u64,
    /// Inodes that may still be created.
    pub(crate) free_inodes: u64,
    /// Number of inodes; zero if it is not limited.
    pub(crate) inodes: u64,
}

/// Runs the command.
#[derive(Clone, Debug)]
pub(crate) struct Commands {
    config: Arc<Config>,
}

impl Commands {
    /// Commands with these settings.
    ///
    /// # Errors
    /// The directories of logs and locks cannot be created.
    pub(crate) fn new(config: Arc<Config>) -> io::Result<Self> {
        record_file::create_private_dir(&config.logs())?;
        record_file::create_private_dir(&config.state_dir.join("locks"))?;
        Ok(Self { config })
    }

    /// Mounts a volume, and returns when its daemon serves. If the plugin is killed meanwhile, the mount is still made.
    ///
    /// # Errors
    /// The failure of the command.
    pub(crate) fn mount(&self, stage: &Stage, secrets: &Secrets) -> Result<()> {
        let name = record_file::file_name(&stage.volume_id);
        let state = &self.config.state_dir;
        let log = self.config.logs().join(format!("{name}.log"));
        let (cache, lock) = (state.join("cache").join(&name), state.join("locks").join(&name));
        let mut command = self.config.detach.command(&self.config.program, &name);
        self.set_environment(&mut command);
        if let crate::parameters::MountSpec::Volume { volume, .. } = &stage.spec {
            record_file::create_private_dir(&cache).map_err(internal)?;
            secrets.pass_to(&mut command, &self.keys(&stage.volume_id), volume).map_err(internal)?;
        }
        let places = VolumePlaces { cache: &cache, node: &self.config.node_id };
        command.arg("--lock").arg(lock).arg("--mountpoint").arg(&stage.staging_path).arg("--");
        command.args(stage.spec.arguments(
            places,
            stage.read_only,
            &stage.mount_flags,
            &log,
            &stage.staging_path,
        ));
        let mut errors = open_log(&log).map_err(internal)?;
        let begin = errors.seek(SeekFrom::End(0)).map_err(internal)?;
        // The guardian keeps this descriptor, and reports the end of a daemon there.
        let stderr = errors.try_clone().map_err(internal)?;
        let status = run(command.stdout(Stdio::null()).stderr(stderr), MOUNT_TIMEOUT, |_| ())
            .map(|(status, ())| status)?;
        let mut text = String::new();
        let _ = errors.seek(SeekFrom::Start(begin));
        let _ = errors.take(MAX_OUTPUT_BYTES).read_to_string(&mut text);
        check(status, &text)
    }

    /// Unmounts, and waits until the daemon has committed everything.
    ///
    /// # Errors
    /// The mount is busy, or the commit takes longer than a minute.
    pub(crate) fn umount(&self, path: &Path) -> Result<()> {
        let timeout = UMOUNT_SECONDS.to_string();
        self.output(
            [OsStr::new("umount"), "--timeout".as_ref(), timeout.as_ref(), "--".as_ref(), path.as_ref()],
            MOUNT_TIMEOUT,
        )
        .map(drop)
    }

    /// Reports whether a daemon serves the mount at a path.
    pub(crate) fn is_served(&self, path: &Path) -> bool {
        self.output([OsStr::new("stat"), "--json".as_ref(), "--".as_ref(), path.as_ref()], QUERY_TIMEOUT)
            .is_ok()
    }

    /// The free space of the mount at a path; `None` if it does not answer. The query may take for ever, and cannot be ended then: it
    /// ends `query` when it does.
    pub(crate) fn space(&self, path: &Path, query: Operation) -> Option<Space> {
        let mut command = Command::new(&self.config.program);
        self.set_environment(&mut command);
        command.args(["__probe", "--", "statfs"]).arg(path).stdout(Stdio::piped()).stderr(Stdio::null());
        let collect = move |child: &mut Child| {
            let output = read(child.stdout.take());
            drop(query);
            output
        };
        let (_, output) = run(&mut command, QUERY_TIMEOUT, collect).ok()?;
        serde_json::from_slice::<std::result::Result<Space, i32>>(&output).ok()?.ok()
    }

    /// Hands the mount at a path over to the program of the configuration.
    ///
    /// # Errors
    /// The failure of the command: the daemon continues as before.
    pub(crate) fn upgrade(&self, path: &Path) -> Result<()> {
        let words = [OsStr::new("upgrade"), "--".as_ref(), path.as_ref()];
        self.output(words, MOUNT_TIMEOUT).map(drop)
    }

    /// The process that serves the mount at a path.
    pub(crate) fn pid(&self, path: &Path) -> Option<u32> {
        #[derive(Deserialize)]
        struct Stat {
            pid: u32,
        }
        let words = [OsStr::new("stat"), "--json".as_ref(), "--".as_ref(), path.as_ref()];
        let output = self.output(words, QUERY_TIMEOUT).ok()?;
        serde_json::from_slice::<Stat>(&output).ok().map(|stat| stat.pid)
    }

    /// Runs a command of `shunt volume` with secrets.
    ///
    /// # Errors
    /// The failure of the command.
    pub(crate) fn volume(
        &self,
        words: &[String],
        volume_id: &str,
        volume: &str,
        secrets: &Secrets,
    ) -> Result<()> {
        let mut command = Command::new(&self.config.program);
        self.set_environment(&mut command);
        secrets.pass_to(&mut command, &self.keys(volume_id), volume).map_err(internal)?;
        self.run(command.arg("volume").args(words), MOUNT_TIMEOUT).map(drop)
    }

    /// Removes the files that a mount needed, except the cache of a volume, which may have changes that were not sent.
    pub(crate) fn forget(&self, volume_id: &str) {
        self.forget_keys(volume_id);
        let name = record_file::file_name(volume_id);
        if let Some(cgroup) = self.config.detach.cgroup(&name) {
            let _ = std::fs::remove_dir(cgroup);
        }
        for file in
            [self.config.logs().join(format!("{name}.log")), self.config.state_dir.join("locks").join(&name)]
        {
            let _ = record_file::remove(&file);
        }
    }

    /// Removes the keys and credentials of a volume.
    pub(crate) fn forget_keys(&self, volume_id: &str) {
        let _ = std::fs::remove_dir_all(self.keys(volume_id));
    }

    /// Directory of configuration for the commands of a volume.
    fn keys(&self, volume_id: &str) -> PathBuf {
        self.config.state_dir.join("keys").join(record_file::file_name(volume_id))
    }

    fn output<'a>(&self, words: impl IntoIterator<Item = &'a OsStr>, timeout: Duration) -> Result<Vec<u8>> {
        let mut command = Command::new(&self.config.program);
        self.set_environment(&mut command);
        self.run(command.args(words), timeout)
    }

    fn run(&self, command: &mut Command, timeout: Duration) -> Result<Vec<u8>> {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let (status, (out, err)) = run(command, timeout, |child| {
            // A command that writes more than the limit gets EPIPE.
            let err = child.stderr.take();
            let err = thread::spawn(move || read(err));
            (read(child.stdout.take()), err.join().unwrap_or_default())
        })?;
        check(status, &String::from_utf8_lossy(&err)).map(|()| out)
    }

    /// Nothing of the plugin's environment is for daemons of the host, except the search path and the level of the log.
    fn set_environment(&self, command: &mut Command) {
        command.env_clear().current_dir("/").stdin(Stdio::null());
        command.env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        command.env("XDG_DATA_HOME", self.config.state_dir.join("data"));
        command.env("XDG_CACHE_HOME", self.config.state_dir.join("cache"));
        command.env("XDG_CONFIG_HOME", self.config.state_dir.join("keys"));
        command.envs(std::env::var_os("RUST_LOG").map(|level| ("RUST_LOG", level)));
    }
}

/// Runs a command in a thread that waits for it as long as it takes, and returns its status and what `collect` returned.
///
/// # Errors
/// INTERNAL if it cannot be started, DEADLINE_EXCEEDED if it takes longer: it continues then.
fn run<T: Send + 'static>(
    command: &mut Command,
    timeout: Duration,
    collect: impl FnOnce(&mut Child) -> T + Send + 'static,
) -> Result<(ExitStatus, T)> {
    let program = command.get_program().to_string_lossy().into_owned();
    let mut child =
        command.spawn().map_err(|error| internal(format_args!("cannot execute {program}: {error}")))?;
    let (send, receive) = mpsc::channel();
    let work = move || {
        let collected = collect(&mut child);
        let _ = send.send(child.wait().map(|status| (status, collected)));
    };
    thread::Builder::new().name("command".into()).spawn(work).map_err(internal)?;
    match receive.recv_timeout(timeout) {
        Ok(done) => done.map_err(internal),
        Err(_) => Err(status::new(
            Code::DeadlineExceeded,
            format_args!("{program} has not finished within {} seconds", timeout.as_secs()),
        )),
    }
}

fn read(pipe: Option<impl io::Read>) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(pipe) = pipe {
        let _ = pipe.take(MAX_OUTPUT_BYTES).read_to_end(&mut bytes);
    }
    bytes
}

/// Opens the log of a mount for reading and appending.
fn open_log(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let file = options.create(true).read(true).append(true).mode(0o600).open(path)?;
    if file.metadata()?.len() > MAX_LOG_BYTES {
        file.set_len(0)?;
    }
    Ok(file)
}

/// The result of a command with this exit status and standard error.
fn check(status: ExitStatus, errors: &str) -> Result<()> {
    let code = match status.code() {
        Some(0) => return Ok(()),
        // The exit codes of the command are a contract: `shunt --help`.
        Some(2) => Code::InvalidArgument,
        Some(4) => Code::Aborted,
        Some(5) => Code::PermissionDenied,
        Some(6) => Code::DeadlineExceeded,
        _ => Code::Internal,
    };
    let line = errors.lines().rev().find_map(|line| line.strip_prefix("shunt: "));
    // clap's messages for a wrong option.
    let line = line.or_else(|| errors.lines().find_map(|line| line.strip_prefix("error: ")));
    let line = line.or_else(|| errors.lines().rev().find(|line| !line.trim().is_empty()));
    Err(match line {
        Some(line) => status::new(code, line.trim()),
        None => status::new(code, format_args!("the command ended without a message: {status}")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt as _;

    #[test]
    fn exit_codes_become_codes_of_grpc() {
        let of = |code: i32, errors: &str| {
            let failure = check(ExitStatus::from_raw(code << 8), errors).unwrap_err();
            (failure.code(), failure.message().to_owned())
        };
        assert_eq!(
            of(1, "x\nshunt: cannot mirror /a: gone\n"),
            (Code::Internal, "cannot mirror /a: gone".into())
        );
        assert_eq!(
            of(2, "error: invalid value\n\nUsage:\n"),
            (Code::InvalidArgument, "invalid value".into())
        );
        assert_eq!(of(4, "shunt: busy").0, Code::Aborted);
        assert_eq!(of(6, "shunt: late").0, Code::DeadlineExceeded);
        assert!(of(101, "").1.contains("without a message"));
        check(ExitStatus::from_raw(0), "").unwrap();
    }

    #[test]
    fn a_command_that_takes_too_long_is_left_alone() {
        let failure =
            run(Command::new("sleep").arg("1"), Duration::from_millis(10), |_| ()).map(drop).unwrap_err();
        assert_eq!(failure.code(), Code::DeadlineExceeded);
        let missing = run(&mut Command::new("/nowhere/shunt"), QUERY_TIMEOUT, |_| ()).map(drop).unwrap_err();
        assert!(missing.message().contains("cannot execute /nowhere/shunt"), "{missing}");
    }
}
