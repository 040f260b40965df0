//! What must be known of an image before it is mounted.
//!
//! Nobody vouches for an image, and mounting takes rights that a process which reads it must not have. So a process of its own
//! looks first: it is handed the open image, gives up files, programs, sockets and rights, and then replays the journal and
//! opens the file system once, as the daemon will, which is locked in by then, too. What it says is a few numbers; failures are
//! told before there is a mount.
//!
//! The two speak in lines of JSON. The looker says which part of the image it means; it goes on when that is locked.

use std::io::{self, BufReader, Read as _, Write as _};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd as _};
use std::process::{Child, Command, ExitCode, Stdio};

use rustix::io::FdFlags;
use serde::{Deserialize, Serialize};
use shunt_ext4::layout::Incompat;
use shunt_ext4::{Error, Filesystem, Kind};
use shunt_ext4fs::Summary;

use super::{Ext4MountArgs, Image, disk};
use crate::args::SurveyArgs;
use crate::error::{Code, Failure, Result, failed};
use crate::{log, sandbox};

/// More than it has to say.
const MAX_LINE_BYTES: u64 = 64 << 10;

/// What was found.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Survey {
    /// The part of the image that the file system lies in, in bytes; all of it where there is none.
    #[serde(skip)]
    pub part: Option<Range<u64>>,
    /// In bytes: a power of two from 1 KiB to 64 KiB.
    pub block_size: u32,
    /// Files lie in extents.
    pub extents: bool,
    /// It can be changed.
    pub writable: bool,
    xattrs: bool,
    root_permissions: u16,
}

impl Survey {
    fn new(filesystem: &Filesystem) -> Self {
        let Summary { writable, xattrs, root_permissions } = Summary::of(filesystem);
        let geometry = filesystem.geometry();
        let extents = geometry.incompat.contains(Incompat::EXTENT);
        Self { part: None, block_size: geometry.block_size, extents, writable, xattrs, root_permissions }
    }

    /// What the mount is made of.
    pub fn summary(&self) -> Summary {
        Summary {
            writable: self.writable,
            xattrs: self.xattrs,
            root_permissions: self.root_permissions & 0o7777,
        }
    }

    /// Whether it can be true of an image that may be written or not. Who said it may have been talked into it by the image.
    fn is_possible(&self, image: &Image) -> bool {
        self.block_size.is_power_of_two()
            && (1024..=65536).contains(&self.block_size)
            && (image.writable || !self.writable)
    }
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Message {
    Part(Option<Range<u64>>),
    Found(Survey),
    Failed { code: u8, message: String },
}

/// Has an image looked at. From the moment on when it is known where in it the file system lies nobody else may change that.
///
/// # Errors
/// It cannot be mounted as it is to be, or somebody else has it.
pub fn of(image: &Image, args: &Ext4MountArgs) -> Result<Survey> {
    let path = image.path.display();
    let cannot = |error: io::Error| failed(format_args!("cannot have a process look at {path}: {error}"));
    let mut looker = start(image, args).map_err(cannot)?;
    let said = looker.stdout.take().expect("it was asked for");
    let mut said = BufReader::new(said.take(MAX_LINE_BYTES));
    let part = match hear(&mut said)? {
        Some(Message::Part(part)) => part,
        _ => return Err(lost(image, looker)),
    };
    if part.as_ref().is_some_and(|part| part.start >= part.end || part.end > image.device.size()) {
        return Err(lost(image, looker));
    }
    image.lock(part.clone())?;
    let go_on = looker.stdin.take().map_or(Ok(()), |mut stdin| stdin.write_all(b"\n"));
    match go_on.map_err(cannot).and_then(|()| hear(&mut said))? {
        Some(Message::Found(survey)) if survey.is_possible(image) => {
            // It closes the image before it says that, and has nothing more to do.
            let _ = looker.wait();
            Ok(Survey { part, ..survey })
        }
        _ => Err(lost(image, looker)),
    }
}

/// Nothing of sense was said.
fn lost(image: &Image, mut looker: Child) -> Failure {
    let _ = looker.kill();
    let ended = looker.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
    failed(format_args!(
        "cannot mount {}: the process that looked at it broke down ({ended}); repair the image with e2fsck",
        image.path.display()
    ))
}

/// What it says next; a failure of its own is ours.
fn hear(said: &mut impl io::BufRead) -> Result<Option<Message>> {
    let mut line = String::new();
    let read = said.read_line(&mut line);
    match read.ok().and_then(|_| serde_json::from_str(&line).ok()) {
        Some(Message::Failed { code, message }) => Err(Failure::new(Code::from_number(code), message)),
        message => Ok(message),
    }
}

fn start(image: &Image, args: &Ext4MountArgs) -> io::Result<Child> {
    let mut command = Command::new("/proc/self/exe");
    command.arg("__survey").arg(&image.path);
    let mut handed = vec![image.file.as_fd()];
    command.arg(format!("--fd={}", image.file.as_raw_fd()));
    if let Some(journal) = &image.journal {
        handed.push(journal.file.as_fd());
        command.arg(format!("--journal-fd={}", journal.file.as_raw_fd()));
    }
    let place = &args.place;
    command.args(place.offset.map(|offset| format!("--offset={offset}")));
    command.args(place.partition.as_ref().map(|partition| format!("--partition={partition}")));
    if let Some(journal) = &place.journal {
        command.arg("--journal").arg(journal);
    }
    command.args(image.writable.then_some("--write"));
    command.args(args.norecovery.then_some("--norecovery"));
    command.args((0..args.mount.log.verbose).map(|_| "-v"));
    command.args(args.mount.log.log_json.then_some("--log-json"));
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    if let Some(log) = log::file() {
        command.stderr(log.try_clone()?);
    }
    // This process has one thread yet, and starts nobody else meanwhile.
    let hand_on = |flags| handed.iter().try_for_each(|file| rustix::io::fcntl_setfd(file, flags));
    let child = hand_on(FdFlags::empty()).map_err(Into::into).and_then(|()| command.spawn());
    hand_on(FdFlags::CLOEXEC)?;
    child
}

/// Runs as the process that looks.
pub fn main(args: &SurveyArgs) -> ExitCode {
    log::start_in(&args.log, None);
    let said = match look(args) {
        Ok(Some(survey)) => Message::Found(survey),
        // Who asked has gone.
        Ok(None) => return ExitCode::FAILURE,
        Err(failure) => Message::Failed { code: failure.code as u8, message: failure.message },
    };
    match say(&said) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn say(message: &Message) -> io::Result<()> {
    let mut out = io::stdout().lock();
    serde_json::to_writer(&mut out, message)?;
    out.write_all(b"\n").and_then(|()| out.flush())
}

fn look(args: &SurveyArgs) -> Result<Option<Survey>> {
    let journal = args.place.journal.as_deref().zip(args.journal_fd);
    let image = Image::handed_over(&args.image, args.fd, journal, args.write)?;
    sandbox::enter_to_look();
    let part = disk::part(&image.path, &image.device, &args.place)?;
    let cannot = |error: io::Error| failed(format_args!("cannot say what was found: {error}"));
    say(&Message::Part(part.clone())).map_err(cannot)?;
    if io::stdin().read(&mut [0]).map_err(cannot)? == 0 {
        return Ok(None);
    }
    let filesystem = open(&image, part)?;
    if args.norecovery {
        refuse_recovery(&image, &filesystem)?;
    }
    check_root(&image, &filesystem)?;
    let survey = Survey::new(&filesystem);
    // All is in its place, and nothing is left in memory, before somebody else opens it.
    filesystem.finish().map_err(|error| image.cannot("write to", &error))?;
    Ok(Some(survey))
}

/// Opens the file system, to be written where that can be.
fn open(image: &Image, part: Option<Range<u64>>) -> Result<Filesystem> {
    if !image.writable {
        return image.open_to_read(part);
    }
    match image.open_writable(part.clone())? {
        Err(Error::Unsupported(reason)) => image.open_to_read(part).inspect(|_| {
            let path = image.path.display();
            tracing::warn!("{path} is mounted read-only: not supported: {reason}");
        }),
        // With or without the wish to write, the journal comes first.
        Err(error @ Error::Journal(_)) => Err(image.cannot("open", &error)),
        opened => opened.map_err(|error| {
            let path = image.path.display();
            // What cannot be mended or replayed may still be fit to be read.
            let hint = if matches!(error, Error::NotExt(_)) { "" } else { "; try --read-only" };
            failed(format_args!("cannot open {path} for writing: {error}{hint}"))
        }),
    }
}

/// A file system whose root cannot be shown is not mounted: nothing in it could be reached, and the mount point neither.
fn check_root(image: &Image, filesystem: &Filesystem) -> Result<()> {
    let found = match filesystem.inode(shunt_ext4::ROOT) {
        Ok(root) if root.kind == Kind::Directory => return Ok(()),
        Ok(_) => "its inode is not that of a directory".to_owned(),
        Err(error) => error.to_string(),
    };
    let path = image.path.display();
    Err(failed(format_args!(
        "cannot mount {path}: the root directory is damaged ({found}); repair it with e2fsck"
    )))
}

/// Without recovery only a file system is shown that needs none: nobody is to see what a crash left half done.
fn refuse_recovery(image: &Image, filesystem: &Filesystem) -> Result<()> {
    let path = image.path.display();
    match filesystem.recovered() {
        None => Ok(()),
        Some(_) => Err(failed(format_args!(
            "cannot mount {path} with norecovery: its journal holds changes that are not in their places; a read-only mount \
             without it replays them in memory alone"
        ))),
    }
}
