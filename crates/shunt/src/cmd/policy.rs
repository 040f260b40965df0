//! `shunt policy`, and `shunt mirror --policy`.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use shunt_fuse::mount::MountPoint;
use shunt_fuse::mount::bdi::BdiTuning;
use shunt_mirror::{AuditLog, Gate, Policed};
use shunt_policy::{Content, Names, Op, Policy, Somebody};

use super::mirror;
use crate::args::LsmArg;
use crate::cli::{ExplainArgs, MirrorArgs, PolicyCommand};
use crate::error::{Code, Failure, Result, failed};
use crate::serve::{self, Held, Service};

/// Why a mount with a policy ends with its daemon.
pub const NO_TAKEOVER: &str = "a mount with a policy is not taken over";

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

/// Reads a policy, and the users and groups of this machine.
fn read(file: &Path) -> Result<Policy> {
    let text = |path: &str| fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let names =
        Names::parse(&text("/etc/passwd").unwrap_or_default(), &text("/etc/group").unwrap_or_default());
    let text = fs::read_to_string(file).map_err(|error| match error.kind() {
        ErrorKind::InvalidData => failed(format_args!("{}: not a text in UTF-8", file.display())),
        _ => failed(format_args!("cannot read the policy {}: {error}", file.display())),
    })?;
    Policy::parse(&text, &names).map_err(|error| failed(format_args!("{}: {error}", file.display())))
}

/// Mounts with a policy, and serves.
pub fn serve(args: &MirrorArgs, file: &Path) -> Result<()> {
    let file = fs::canonicalize(file)
        .map_err(|error| failed(format_args!("cannot read the policy {}: {error}", file.display())))?;
    let policy = read(&file)?;
    let audit = match &args.audit_log {
        None => AuditLog::new(),
        Some(path) => AuditLog::to(path)
            .map_err(|error| failed(format_args!("cannot open the audit log {}: {error}", path.display())))?,
    };
    let policed = Arc::new(Policed::open(mirror::options(args)?, policy, audit).map_err(mirror::explain)?);
    tracing::info!("{}", policed.mirror().describe());
    let place = Arc::new(OnceLock::new());
    let reload = {
        let (policed, file, place) = (policed.clone(), file.clone(), place.clone());
        Arc::new(move || {
            reload(&policed, &file);
            graft(&policed, &place);
        })
    };
    let mounted = {
        let (policed, place, lsm) = (policed.clone(), place.clone(), args.lsm);
        Arc::new(move |mount: &MountPoint| {
            policed.guard(gate(lsm, mount));
            let _ = place.set(mount.clone());
            graft(&policed, &place);
        })
    };
    follow(policed.clone(), file, place, reload.clone())?;
    let service = Service {
        kind: "mirror",
        source: mirror::source(args)?,
        options: mirror::mount_options(policed.mirror()),
        config: policed.config(),
        cache: policed.mirror().caching().to_string(),
        fs: policed,
        passthrough_off: mirror::passthrough_off(args),
        tuning: BdiTuning::default(),
        untrusted: false,
        held: |policed: &Policed| Held {
            grafts: policed.grafts(),
            rules: Some(policed.checks()),
            ..mirror::held(policed.mirror())
        },
        mounted: Some(mounted),
        reload: Some(reload),
        block: None,
    };
    serve::serve(service, &args.mount, Err(NO_TAKEOVER.to_owned()))
}

/// Puts the file in force as it is now. One that is wrong changes nothing.
fn reload(policed: &Policed, file: &Path) {
    match read(file) {
        Ok(policy) => {
            let rules = policy.rules().len();
            match policed.reload(policy) {
                Ok(()) => tracing::info!("{}: {rules} rules in force", file.display()),
                Err(reason) => tracing::error!("the policy stays as it was: {reason}"),
            }
        }
        Err(failure) => tracing::error!("the policy stays as it was: {}", failure.message),
    }
}

/// What checks rules in the kernel.
#[cfg(feature = "lsm")]
fn gate(wish: LsmArg, mount: &MountPoint) -> Result<Box<dyn Gate>, String> {
    let dev = mount.dev();
    match wish {
        LsmArg::Auto => shunt_lsm::guard((dev.major, dev.minor)).map_err(|error| error.to_string()),
        LsmArg::Off => Err("by --lsm off".to_owned()),
    }
}

/// Nothing does.
#[cfg(not(feature = "lsm"))]
fn gate(wish: LsmArg, _mount: &MountPoint) -> Result<Box<dyn Gate>, String> {
    Err(match wish {
        LsmArg::Auto => "this build has no programs for the kernel (feature `lsm`)".to_owned(),
        LsmArg::Off => "by --lsm off".to_owned(),
    })
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

/// Reads the file again when it changes. An editor that removes it first is waited for.
fn follow(
    policed: Arc<Policed>,
    file: PathBuf,
    place: Arc<OnceLock<MountPoint>>,
    reload: Arc<dyn Fn() + Send + Sync>,
) -> Result<()> {
    let work = move || {
        let mut known = stamp(&file);
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
