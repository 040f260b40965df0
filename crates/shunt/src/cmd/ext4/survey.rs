//! Surveys an image before it is mounted.
//!
//! An image is untrusted, and mounting needs privileges that a process which parses it must not have. So a process of its own
//! surveys it first: it inherits the open image, gives up files, programs, sockets and privileges, and then replays the journal
//! and opens the file system once, as the daemon will, which is sandboxed before that, too. Its result is a few numbers; errors are
//! reported before there is a mount.
//!
//! The two processes exchange lines of JSON. The survey process reports which part of the image holds the file system, and continues
//! once the mounting process has locked that part.

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

/// Limit of the survey process's output, larger than any valid one.
const MAX_LINE_BYTES: u64 = 64 << 10;

/// The result of a survey.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Survey {
    /// The part of the image that holds the file system, in bytes; `None` for all of it.
    #[serde(skip)]
    pub part: Option<Range<u64>>,
    /// Block size in bytes: a power of two from 1 KiB to 64 KiB.
    pub block_size: u32,
    /// Files are mapped by extents.
    pub extents: bool,
    /// The file system can be modified.
    pub writable: bool,
    /// Number of inodes.
    pub inodes: u32,
    xattrs: bool,
    root_permissions: u16,
}

impl Survey {
    fn new(filesystem: &Filesystem) -> Self {
        let Summary { writable, xattrs, root_permissions } = Summary::of(filesystem);
        let geometry = filesystem.geometry();
        let extents = geometry.incompat.contains(Incompat::EXTENT);
        let (block_size, inodes) = (geometry.block_size, geometry.inodes);
        Self { part: None, block_size, extents, writable, inodes, xattrs, root_permissions }
    }

    /// The facts that the options of the mount depend on.
    pub fn summary(&self) -> Summary {
        Summary {
            writable: self.writable,
            xattrs: self.xattrs,
            root_permissions: self.root_permissions & 0o7777,
        }
    }

    /// Validates the result: a hostile image may have taken control of the process that surveyed it.
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

/// Has an image surveyed. It is locked as soon as the part that holds the file system is known.
///
/// # Errors
/// It cannot be mounted as requested, or another program uses it.
pub fn of(image: &Image, args: &Ext4MountArgs) -> Result<Survey> {
    let path = image.path.display();
    let cannot =
        |error: io::Error| failed(format_args!("cannot inspect {path} in a separate process: {error}"));
    let mut looker = start(image, args).map_err(cannot)?;
    let output = looker.stdout.take().expect("stdout is piped");
    let mut output = BufReader::new(output.take(MAX_LINE_BYTES));
    let part = match receive(&mut output)? {
        Some(Message::Part(part)) => part,
        _ => return Err(survey_failed(image, looker)),
    };
    if part.as_ref().is_some_and(|part| part.start >= part.end || part.end > image.device.size()) {
        return Err(survey_failed(image, looker));
    }
    image.lock(part.clone())?;
    let go_on = looker.stdin.take().map_or(Ok(()), |mut stdin| stdin.write_all(b"\n"));
    match go_on.map_err(cannot).and_then(|()| receive(&mut output))? {
        Some(Message::Found(survey)) if survey.is_possible(image) => {
            // It closes the image before it sends its result, and has nothing more to do.
            let _ = looker.wait();
            Ok(Survey { part, ..survey })
        }
        _ => Err(survey_failed(image, looker)),
    }
}

/// Returns the error for a survey process that ended or sent an invalid message.
fn survey_failed(image: &Image, mut looker: Child) -> Failure {
    let _ = looker.kill();
    let ended = looker.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
    failed(format_args!(
        "cannot mount {}: the process that inspects the image failed ({ended}): check the image with e2fsck -f; \
         report this if e2fsck finds no error",
        image.path.display()
    ))
}

/// Receives the next message; an error sent by the survey process is returned as this one's.
fn receive(output: &mut impl io::BufRead) -> Result<Option<Message>> {
    let mut line = String::new();
    let read = output.read_line(&mut line);
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
    let location = &args.location;
    command.args(location.offset.map(|offset| format!("--offset={offset}")));
    command.args(location.partition.as_ref().map(|partition| format!("--partition={partition}")));
    if let Some(journal) = &location.journal {
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
    // This process still has a single thread and spawns no other child meanwhile, which would inherit the descriptors.
    let hand_on = |flags| handed.iter().try_for_each(|file| rustix::io::fcntl_setfd(file, flags));
    let child = hand_on(FdFlags::empty()).map_err(Into::into).and_then(|()| command.spawn());
    hand_on(FdFlags::CLOEXEC)?;
    child
}

/// The main function of the survey process.
pub fn main(args: &SurveyArgs) -> ExitCode {
    log::start_in(&args.log, None);
    let output = match survey(args) {
        Ok(Some(survey)) => Message::Found(survey),
        // The process that asked has ended.
        Ok(None) => return ExitCode::FAILURE,
        Err(failure) => Message::Failed { code: failure.code as u8, message: failure.message },
    };
    match send(&output) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn send(message: &Message) -> io::Result<()> {
    let mut out = io::stdout().lock();
    serde_json::to_writer(&mut out, message)?;
    out.write_all(b"\n").and_then(|()| out.flush())
}

fn survey(args: &SurveyArgs) -> Result<Option<Survey>> {
    let journal = args.location.journal.as_deref().zip(args.journal_fd);
    let image = Image::handed_over(&args.image, args.fd, journal, args.write)?;
    sandbox::enter_inspect();
    let part = disk::part(&image.path, &image.device, &args.location)?;
    let cannot =
        |error: io::Error| failed(format_args!("cannot report the result of the inspection: {error}"));
    send(&Message::Part(part.clone())).map_err(cannot)?;
    if io::stdin().read(&mut [0]).map_err(cannot)? == 0 {
        return Ok(None);
    }
    let filesystem = open(&image, part)?;
    if args.norecovery {
        refuse_recovery(&image, &filesystem)?;
    }
    check_root(&image, &filesystem)?;
    let survey = Survey::new(&filesystem);
    // Checkpoints everything, so that no change is only in this process's memory when the daemon opens the image.
    filesystem.finish().map_err(|error| image.failure("write to", &error))?;
    Ok(Some(survey))
}

/// Opens the file system, read-write where that is possible.
fn open(image: &Image, part: Option<Range<u64>>) -> Result<Filesystem> {
    if !image.writable {
        return image.open_to_read(part);
    }
    match image.open_writable(part.clone())? {
        Err(Error::Unsupported(reason)) => image.open_to_read(part).inspect(|_| {
            let path = image.path.display();
            tracing::warn!("{path} is mounted read-only: not supported for writing: {reason}");
        }),
        // Without its journal the file system cannot be opened read-only either, so there is no hint.
        Err(error @ Error::Journal(_)) => Err(image.failure("open", &error)),
        opened => opened.map_err(|error| {
            let path = image.path.display();
            // A file system that cannot be repaired or replayed may still be readable.
            let hint = if matches!(error, Error::NotExt(_)) { "" } else { "; try --read-only" };
            failed(format_args!("cannot open {path} for writing: {error}{hint}"))
        }),
    }
}

/// Refuses a file system without a usable root directory: nothing in it could be reached, and nor could the mount point.
fn check_root(image: &Image, filesystem: &Filesystem) -> Result<()> {
    let found = match filesystem.inode(shunt_ext4::ROOT) {
        Ok(root) if root.kind == Kind::Directory => return Ok(()),
        Ok(_) => "its inode is not a directory".to_owned(),
        Err(error) => error.cause().to_string(),
    };
    let path = image.path.display();
    Err(failed(format_args!(
        "cannot mount {path}: the root directory is damaged ({found}); repair it with e2fsck"
    )))
}

/// Refuses an image that needs recovery under norecovery: users must not see operations that a crash left incomplete.
fn refuse_recovery(image: &Image, filesystem: &Filesystem) -> Result<()> {
    let path = image.path.display();
    match filesystem.recovered() {
        None => Ok(()),
        Some(_) => Err(failed(format_args!(
            "cannot mount {path} with norecovery: its journal holds changes that must be replayed; mount it read-only without \
             norecovery, which replays them in memory only"
        ))),
    }
}
