//! Mounting and unmounting by the set-user-id helper `fusermount3`, for unprivileged users. The helper opens `/dev/fuse` and
//! passes the descriptor over a socket. Options that an older helper does not know, and that only save work, are dropped with a
//! warning.

use std::ffi::OsString;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType, recvmsg,
    socketpair,
};

use super::options::{Atime, MountOptions};
use super::target::Target;
use super::{MountError, MountMethod, MountPoint, Mounted};

/// Options that older helpers do not support. They only save work, so mounting without them is better than not at all.
const OPTIONAL_OPTIONS: [&str; 3] = ["nodiratime", "lazytime", "strictatime"];

/// Mounts through the helper, which opens `/dev/fuse` and sends the descriptor back over a socket.
pub(super) fn attach(opts: &MountOptions, target: &Target) -> Result<Mounted, MountError> {
    if opts.blkdev.is_some() {
        return Err(MountError::option("blkdev", "only root can mount a block device"));
    }
    let mut without = Vec::new();
    let device = loop {
        let message = match try_mount(opts, &without, target)? {
            Ok(device) => break device,
            Err(output) => output,
        };
        let text = String::from_utf8_lossy(&message.stderr);
        let refused = OPTIONAL_OPTIONS
            .into_iter()
            .find(|word| !without.contains(word) && text.contains(&format!("unknown option '{word}'")));
        let Some(word) = refused else {
            return Err(classify(&target.path, &message));
        };
        tracing::warn!("fusermount3 does not support the mount option {word}: mounting without it");
        without.push(word);
    };
    let mount = MountPoint::find(&target.path).inspect_err(|_| {
        let _ = unmount(&target.path, true);
    })?;
    Ok(Mounted { device, mount, method: MountMethod::Fusermount })
}

/// Returns the path of the helper. Root runs it from a system directory only, not from a directory in `PATH`.
fn program() -> &'static Path {
    const HELPER_PATHS: [&str; 3] =
        ["/usr/bin/fusermount3", "/bin/fusermount3", "/usr/local/bin/fusermount3"];
    if !rustix::process::geteuid().is_root() {
        return Path::new("fusermount3");
    }
    HELPER_PATHS.into_iter().map(Path::new).find(|path| path.is_file()).unwrap_or(Path::new(HELPER_PATHS[0]))
}

/// Runs the helper once. Returns the device, or the helper's output.
fn try_mount(
    opts: &MountOptions,
    without: &[&str],
    target: &Target,
) -> Result<Result<OwnedFd, Output>, MountError> {
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
        .map_err(|errno| failed(&target.path, &io::Error::from(errno).to_string()))?;
    // The socket is passed as standard input: an inherited descriptor that needs no code after fork.
    let mut command = Command::new(program());
    command.env("_FUSE_COMMFD", "0").stdin(theirs);
    command.arg("-o").arg(option_string(opts, without)).arg("--").arg(&target.path);
    let output = run(&mut command, &target.path)?;
    if !output.status.success() {
        return Ok(Err(output));
    }
    receive_fd(&ours).map(Ok).map_err(|error| {
        let _ = unmount(&target.path, true);
        failed(&target.path, &error.to_string())
    })
}

/// Unmounts through the helper. It checks that the mount is the caller's, but goes by path.
pub(super) fn unmount(path: &Path, lazy: bool) -> Result<(), MountError> {
    let mut command = Command::new(program());
    command.stdin(Stdio::null()).arg("-u");
    if lazy {
        command.arg("-z");
    }
    let output = run(command.arg("--").arg(path), path)?;
    if output.status.success() {
        return Ok(());
    }
    if String::from_utf8_lossy(&output.stderr).contains("busy") {
        return Err(MountError::Busy(path.to_owned()));
    }
    Err(classify(path, &output))
}

fn run(command: &mut Command, path: &Path) -> Result<Output, MountError> {
    // The messages are parsed, so they must not be translated.
    command.env("LC_ALL", "C").stdout(Stdio::null()).stderr(Stdio::piped()).output().map_err(|error| {
        match error.kind() {
            io::ErrorKind::NotFound => MountError::NoHelper,
            _ => failed(path, &error.to_string()),
        }
    })
}

fn option_string(opts: &MountOptions, without: &[&str]) -> OsString {
    let mut parts: Vec<Vec<u8>> = Vec::new();
    let mut word = |on: bool, word: &str| {
        if on && !without.contains(&word) {
            parts.push(word.into());
        }
    };
    word(true, if opts.read_only { "ro" } else { "rw" });
    word(opts.nosuid, "nosuid");
    word(opts.nodev, "nodev");
    word(opts.noexec, "noexec");
    word(opts.nosymfollow, "nosymfollow");
    word(opts.atime == Some(Atime::Never), "noatime");
    word(opts.atime == Some(Atime::Strict), "strictatime");
    word(opts.nodiratime, "nodiratime");
    word(opts.lazytime, "lazytime");
    word(opts.sync, "sync");
    word(opts.dirsync, "dirsync");
    word(true, &format!("rootmode={:o}", opts.root_mode()));
    let (values, words) = opts.fuse_keys();
    for (key, value) in values {
        word(true, &format!("{key}={value}"));
    }
    for key in words {
        word(true, key);
    }
    if let Some(subtype) = &opts.subtype {
        word(true, &format!("subtype={subtype}"));
    }
    let mut fsname = b"fsname=".to_vec();
    for byte in opts.fsname.as_bytes() {
        if matches!(byte, b',' | b'\\') {
            fsname.push(b'\\');
        }
        fsname.push(*byte);
    }
    parts.push(fsname);
    OsString::from_vec(parts.join(&b','))
}

fn receive_fd(socket: impl AsFd) -> io::Result<OwnedFd> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    // The helper has exited, so its message has arrived or never will.
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, flags)?;
    control
        .drain()
        .find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
            _ => None,
        })
        .ok_or_else(|| io::Error::other("it sent no descriptor of /dev/fuse"))
}

fn classify(path: &Path, output: &Output) -> MountError {
    let message = String::from_utf8_lossy(&output.stderr);
    if message.contains("user_allow_other") {
        return MountError::AllowOther;
    }
    if message.contains("/dev/fuse: Permission denied") {
        return MountError::DeviceDenied;
    }
    let line = message.lines().next().unwrap_or_default().trim_start_matches("fusermount3: ").trim();
    if line.is_empty() { failed(path, &output.status.to_string()) } else { failed(path, line) }
}

fn failed(path: &Path, message: &str) -> MountError {
    MountError::Helper { path: path.to_owned(), message: message.to_owned() }
}
