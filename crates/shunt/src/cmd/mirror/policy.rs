//! `shunt mirror --policy`: serves a mirror that enforces a policy.

mod follow;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};

use shunt_fuse::guardian::HandOver;
use shunt_fuse::mount::MountPoint;
use shunt_fuse::mount::bdi::BdiTuning;
use shunt_mirror::MirrorOptions;
use shunt_policyfs::{AuditLog, KernelEnforcer, PolicyFs};

use self::follow::WatchedPolicy;
use crate::args::LsmArg;
use crate::cli::MirrorArgs;
use crate::cmd::policy::file::PolicyFile;
use crate::cmd::policy::origin::Origin;
use crate::error::{Result, failed};
use crate::serve::{self, FsStatus, Service};

/// The reason why a mount with a policy may end with its daemon: what the kernel has cached is safe only while its programs
/// check.
const GUARDED: &str =
    "the kernel enforces the policy by programs that end with the daemon; use --lsm off for takeover";

/// Mounts and serves a mirror with a policy.
pub fn serve(args: &MirrorArgs, argv: &[OsString], file: &Path) -> Result<()> {
    let file = fs::canonicalize(file)
        .map_err(|error| failed(format_args!("cannot read the policy {}: {error}", file.display())))?;
    let source = super::source(args)?;
    let text = PolicyFile::open(&file).and_then(|opened| opened.protected(&file)?.read()).map_err(failed)?;
    let origin = Origin::new(&file, &source, text);
    let policy = origin.complete_policy()?;
    let audit = match &args.audit_log {
        None => AuditLog::new(),
        Some(path) => AuditLog::to(path)
            .map_err(|error| failed(format_args!("cannot open the audit log {}: {error}", path.display())))?,
    };
    let policed = PolicyFs::open(super::options(args)?, policy, origin.save(), audit);
    let mut policed = policed.map_err(super::explain)?;
    if policed.has_ambiguous_names() {
        return Err(failed(format_args!(
            "cannot apply a policy to {}: it ignores case, so names have several spellings; omit --policy",
            source.display()
        )));
    }
    if args.audit_required {
        policed.require_audit();
    }
    let policed = Arc::new(policed);
    tracing::info!("{}", policed.mirror().describe());
    let programs = load(args.lsm);
    let restart = match (&programs, policed.mirror().can_be_taken_over()) {
        (Ok(_), _) => Err(GUARDED.to_owned()),
        (_, true) => serve::restart(argv, &args.mount),
        (_, false) => Err(super::no_handles(&source)),
    };
    let service = service(args, policed, source, file, Mutex::new(Some(programs)), origin.text)?;
    serve::serve(service, &args.mount, restart)
}

/// Takes over from another daemon, with the rules that it had in force. No path is accessed: it may lead through the mount.
pub fn take_over(args: &MirrorArgs, mut hand_over: HandOver) -> Result<()> {
    let lost = || failed("cannot take over: the policy of the previous daemon is missing or invalid");
    let saved = PolicyFs::origin(&mut hand_over).ok_or_else(lost)?;
    let origin: Origin = serde_json::from_slice(&saved).map_err(|_| lost())?;
    let (policy, file, source) = (origin.policy()?, origin.file(), origin.source());
    let options = MirrorOptions { source: source.clone(), ..super::options(args)? };
    let mut policed = PolicyFs::resume(options, policy, saved, &mut hand_over).map_err(super::explain)?;
    if args.audit_required {
        policed.require_audit();
    }
    // A daemon that loaded programs leaves no successor, so this one loads none.
    let programs = Mutex::new(Some(Err("the previous daemon did so".to_owned())));
    let service = service(args, Arc::new(policed), source, file, programs, origin.text)?;
    serve::take_over(service, &args.mount, hand_over)
}

/// Builds the service. `text` is the policy in force, independent of the current content of the file.
fn service(
    args: &MirrorArgs,
    policed: Arc<PolicyFs>,
    source: PathBuf,
    file: PathBuf,
    programs: Mutex<Option<Result<Loaded, String>>>,
    text: String,
) -> Result<Service<PolicyFs>> {
    let mount_point = Arc::new(OnceLock::new());
    let followed = Arc::new(WatchedPolicy::new(policed.clone(), file, source.clone()));
    let reload = {
        let (policed, mount_point, followed) = (policed.clone(), mount_point.clone(), followed.clone());
        Arc::new(move || {
            followed.reload();
            graft(&policed, &mount_point);
        })
    };
    let mounted = {
        let (policed, mount_point) = (policed.clone(), mount_point.clone());
        Arc::new(move |mount: &MountPoint| {
            if let Some(programs) = programs.lock().ok().and_then(|mut programs| programs.take()) {
                policed.set_kernel_enforcer(programs.and_then(|programs| gate(programs, mount)));
            }
            let _ = mount_point.set(mount.clone());
            graft(&policed, &mount_point);
            Ok(())
        })
    };
    follow::start(followed, mount_point, text)?;
    Ok(Service {
        kind: "mirror",
        source,
        options: super::mount_options(policed.mirror()),
        config: policed.config(),
        cache: policed.mirror().caching().to_string(),
        fs: policed.into(),
        passthrough_off: super::passthrough_off(args),
        tuning: BdiTuning::default(),
        sandbox: None,
        status: |policed: &PolicyFs| FsStatus {
            grafts: policed.grafts(),
            rules: Some(policed.checks()),
            ..super::fs_status(policed.mirror())
        },
        before_sandbox: None,
        mounted: Some(mounted),
        reload: Some(reload),
        online: None,
        answers: None,
        block: None,
    })
}

/// The loaded BPF programs that enforce rules in the kernel, not yet attached to a mount.
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
fn gate(programs: Loaded, mount: &MountPoint) -> Result<Box<dyn KernelEnforcer>, String> {
    let dev = mount.dev();
    programs.guard((dev.major, dev.minor)).map_err(|error| error.to_string())
}

/// Without the feature there are no programs.
#[cfg(not(feature = "lsm"))]
fn load(wish: LsmArg) -> Result<Loaded, String> {
    Err(match wish {
        LsmArg::Auto => "this build lacks the feature `lsm`".to_owned(),
        LsmArg::Off => "by --lsm off".to_owned(),
    })
}

#[cfg(not(feature = "lsm"))]
fn gate(programs: Loaded, _mount: &MountPoint) -> Result<Box<dyn KernelEnforcer>, String> {
    match programs {}
}

fn graft(policed: &PolicyFs, mount_point: &OnceLock<MountPoint>) {
    if let Some(mount) = mount_point.get() {
        policed.keep_grafts(mount);
    }
}
