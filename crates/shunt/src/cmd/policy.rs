//! `shunt policy`, and `shunt mirror --policy`.

use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use shunt_fuse::guardian::HandOver;
use shunt_fuse::mount::MountPoint;
use shunt_fuse::mount::bdi::BdiTuning;
use shunt_mirror::{AuditLog, Gate, MirrorOptions, Policed};
use shunt_policy::{Content, Names, Op, Policy, Somebody};

use super::mirror;
use crate::args::LsmArg;
use crate::cli::{ExplainArgs, MirrorArgs, PolicyCommand};
use crate::error::{Code, Failure, Result, failed};
use crate::serve::{self, Held, Service};

/// Why a mount with a policy may end with its daemon: what the kernel believes is true only as long as it checks.
const GUARDED: &str =
    "the kernel checks its rules, by programs that end with the daemon (not with --lsm off)";

/// How often the file is looked at. What SIGHUP does is at once.
const LOOK: Duration = Duration::from_secs(1);

pub fn run(command: &PolicyCommand) -> Result<()> {
    match command {
        PolicyCommand::Check { file } => {
            let policy = read(file)?;
            super::print(format!("{}: {} rules\n", file.display(), policy.rules().len()))
        }
        PolicyCommand::Explain(args) => explain(args),
    }
}

/// Bytes of a file, or none.
struct Bytes(Vec<u8>);

impl Content for Bytes {
    fn read(&self, offset: u64, length: usize) -> Option<Vec<u8>> {
        self.0.as_slice().read(offset, length)
    }
}

fn explain(args: &ExplainArgs) -> Result<()> {
    let policy = read(&args.file)?;
    let op = Op::named(&args.op).ok_or_else(|| {
        let names: Vec<&str> = Op::NAMED.iter().map(|(name, _)| *name).collect();
        let message = format!("there is no operation {}; there are lookup, {}", args.op, names.join(", "));
        Failure::new(Code::Usage, message)
    })?;
    let content = match &args.content {
        None => Vec::new(),
        Some(path) => fs::read(path).map_err(|error| failed(format_args!("{}: {error}", path.display())))?,
    };
    let somebody =
        Somebody::new(args.uid, args.gid.unwrap_or(args.uid)).with_groups(Some(args.group.clone()));
    let somebody = match &args.exe {
        None => somebody,
        Some(program) => somebody.with_program(program),
    };
    let explanation = policy.explain(args.path.as_os_str().as_bytes(), op, &somebody, &Bytes(content));
    super::print(format!("{}\n", explanation.show(&policy)))
}

/// A policy, and all that it was made of: what another daemon needs to make the same.
#[derive(Serialize, Deserialize)]
struct Origin {
    /// Paths as bytes.
    file: Vec<u8>,
    source: Vec<u8>,
    text: String,
    passwd: String,
    group: String,
}

impl Origin {
    /// Reads a policy, and the users and groups of this machine.
    fn read(file: &Path, source: &Path) -> Result<Self> {
        let names = |path: &str| fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        let text = fs::read_to_string(file).map_err(|error| match error.kind() {
            ErrorKind::InvalidData => failed(format_args!("{}: not a text in UTF-8", file.display())),
            _ => failed(format_args!("cannot read the policy {}: {error}", file.display())),
        })?;
        Ok(Self {
            file: file.as_os_str().as_bytes().to_vec(),
            source: source.as_os_str().as_bytes().to_vec(),
            text,
            passwd: names("/etc/passwd").unwrap_or_default(),
            group: names("/etc/group").unwrap_or_default(),
        })
    }

    fn policy(&self) -> Result<Policy> {
        let names = Names::parse(&self.passwd, &self.group);
        Policy::parse(&self.text, &names)
            .map_err(|error| failed(format_args!("{}: {error}", self.file().display())))
    }

    fn file(&self) -> PathBuf {
        PathBuf::from(OsString::from_vec(self.file.clone()))
    }

    fn source(&self) -> PathBuf {
        PathBuf::from(OsString::from_vec(self.source.clone()))
    }

    fn save(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }
}

fn read(file: &Path) -> Result<Policy> {
    Origin::read(file, Path::new("/"))?.policy()
}

/// Mounts with a policy, and serves.
pub fn serve(args: &MirrorArgs, argv: &[OsString], file: &Path) -> Result<()> {
    let file = fs::canonicalize(file)
        .map_err(|error| failed(format_args!("cannot read the policy {}: {error}", file.display())))?;
    let source = mirror::source(args)?;
    let origin = Origin::read(&file, &source)?;
    let policy = origin.policy()?;
    let audit = match &args.audit_log {
        None => AuditLog::new(),
        Some(path) => AuditLog::to(path)
            .map_err(|error| failed(format_args!("cannot open the audit log {}: {error}", path.display())))?,
    };
    let policed = Policed::open(mirror::options(args)?, policy, origin.save(), audit);
    let policed = Arc::new(policed.map_err(mirror::explain)?);
    tracing::info!("{}", policed.mirror().describe());
    let programs = load(args.lsm);
    let restart = match (&programs, policed.mirror().can_be_taken_over()) {
        (Ok(_), _) => Err(GUARDED.to_owned()),
        (_, true) => serve::restart(argv, &args.mount),
        (_, false) => Err(mirror::no_handles(&source)),
    };
    let service = service(args, policed, source, file, Mutex::new(Some(programs)), origin.text)?;
    serve::serve(service, &args.mount, restart)
}

/// Goes on where another daemon ended, by the rules that it had. No path is touched: it may lead through the mount.
pub fn take_over(args: &MirrorArgs, mut hand_over: HandOver) -> Result<()> {
    let lost = || failed("the policy of the last daemon is lost");
    let saved = Policed::origin(&mut hand_over).ok_or_else(lost)?;
    let origin: Origin = serde_json::from_slice(&saved).map_err(|_| lost())?;
    let (policy, file, source) = (origin.policy()?, origin.file(), origin.source());
    let options = MirrorOptions { source: source.clone(), ..mirror::options(args)? };
    let policed = Policed::resume(options, policy, saved, &mut hand_over).map_err(mirror::explain)?;
    // Where programs checked, no daemon would follow.
    let programs = Mutex::new(Some(Err("as before".to_owned())));
    let service = service(args, Arc::new(policed), source, file, programs, origin.text)?;
    serve::take_over(service, &args.mount, hand_over)
}

/// `text` is in force, whatever is in the file by now.
fn service(
    args: &MirrorArgs,
    policed: Arc<Policed>,
    source: PathBuf,
    file: PathBuf,
    programs: Mutex<Option<Result<Loaded, String>>>,
    text: String,
) -> Result<Service<Policed>> {
    let place = Arc::new(OnceLock::new());
    let reload = {
        let (policed, file, place, source) = (policed.clone(), file.clone(), place.clone(), source.clone());
        Arc::new(move || {
            reload(&policed, &file, &source);
            graft(&policed, &place);
        })
    };
    let mounted = {
        let (policed, place) = (policed.clone(), place.clone());
        Arc::new(move |mount: &MountPoint| {
            if let Some(programs) = programs.lock().ok().and_then(|mut programs| programs.take()) {
                policed.guard(programs.and_then(|programs| gate(programs, mount)));
            }
            let _ = place.set(mount.clone());
            graft(&policed, &place);
            Ok(())
        })
    };
    follow(policed.clone(), file, place, reload.clone(), text)?;
    Ok(Service {
        kind: "mirror",
        source,
        options: mirror::mount_options(policed.mirror()),
        config: policed.config(),
        cache: policed.mirror().caching().to_string(),
        fs: policed,
        passthrough_off: mirror::passthrough_off(args),
        tuning: BdiTuning::default(),
        untrusted: None,
        held: |policed: &Policed| Held {
            grafts: policed.grafts(),
            rules: Some(policed.checks()),
            ..mirror::held(policed.mirror())
        },
        mounted: Some(mounted),
        reload: Some(reload),
        online: None,
        answers: None,
        block: None,
    })
}

/// Puts the file in force as it is now. One that is wrong changes nothing.
fn reload(policed: &Policed, file: &Path, source: &Path) {
    let read = Origin::read(file, source).and_then(|origin| Ok((origin.policy()?, origin)));
    match read {
        Ok((policy, origin)) => {
            let rules = policy.rules().len();
            match policed.reload(policy, origin.save()) {
                Ok(()) => tracing::info!("{}: {rules} rules in force", file.display()),
                Err(reason) => tracing::error!("the policy stays as it was: {reason}"),
            }
        }
        Err(failure) => tracing::error!("the policy stays as it was: {}", failure.message),
    }
}

/// What checks rules in the kernel, not yet of any mount.
#[cfg(feature = "lsm")]
type Loaded = shunt_lsm::Loaded;
#[cfg(not(feature = "lsm"))]
type Loaded = std::convert::Infallible;

#[cfg(feature = "lsm")]
fn load(wish: LsmArg) -> Result<Loaded, String> {
    match wish {
        LsmArg::Auto => shunt_lsm::load().map_err(|error| error.to_string()),
        LsmArg::Off => Err("by --lsm off".to_owned()),
    }
}

#[cfg(feature = "lsm")]
fn gate(programs: Loaded, mount: &MountPoint) -> Result<Box<dyn Gate>, String> {
    let dev = mount.dev();
    programs.guard((dev.major, dev.minor)).map_err(|error| error.to_string())
}

/// Nothing does.
#[cfg(not(feature = "lsm"))]
fn load(wish: LsmArg) -> Result<Loaded, String> {
    Err(match wish {
        LsmArg::Auto => "this build has no programs for the kernel (feature `lsm`)".to_owned(),
        LsmArg::Off => "by --lsm off".to_owned(),
    })
}

#[cfg(not(feature = "lsm"))]
fn gate(programs: Loaded, _mount: &MountPoint) -> Result<Box<dyn Gate>, String> {
    match programs {}
}

fn graft(policed: &Policed, place: &OnceLock<MountPoint>) {
    if let Some(mount) = place.get() {
        policed.keep_grafts(mount);
    }
}

/// What tells that a file is another.
fn stamp(file: &Path) -> Option<(u64, u64, i64, i64, u64)> {
    let file = fs::metadata(file).ok()?;
    Some((file.dev(), file.ino(), file.ctime(), file.ctime_nsec(), file.size()))
}

/// Reads the file again when it changes, or is no more what is in force. An editor that removes it first is waited for.
fn follow(
    policed: Arc<Policed>,
    file: PathBuf,
    place: Arc<OnceLock<MountPoint>>,
    reload: Arc<dyn Fn() + Send + Sync>,
    text: String,
) -> Result<()> {
    let work = move || {
        // Before that a change could not be told to the kernel, nor to the next daemon.
        place.wait();
        let mut known = stamp(&file);
        policed.refresh_programs();
        if fs::read_to_string(&file).is_ok_and(|now| now != text) {
            reload();
        }
        drop(text);
        loop {
            thread::sleep(LOOK);
            let now = stamp(&file);
            if now.is_some() && now != known {
                known = now;
                reload();
            }
            policed.refresh_programs();
            graft(&policed, &place);
        }
    };
    let spawned = thread::Builder::new().name("policy".into()).spawn(work);
    spawned.map(drop).map_err(|error| failed(format_args!("cannot start a thread: {error}")))
}
