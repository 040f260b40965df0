//! `shunt volume tree NAME MOUNTPOINT`: a tree of mounted volumes, described by the files of one of them.
//!
//! This process serves the directories that join the volumes. Each volume, including the one that describes the tree, is mounted
//! at its path by a process of its own, as by `shunt volume mount`: a failure of one does not affect the others, and all
//! commands work on each.

mod plan;
mod read;
mod reconciler;
mod volume_process;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use shunt_fuse::mount::MountPoint;
use shunt_fuse::mount::bdi::BdiTuning;
use shunt_volumefs::TreeFs;

use crate::args::VolumeTreeArgs;
use crate::cmd::serve_by_mode;
use crate::control::VolumeAsk;
use crate::error::Result;
use crate::serve::{self, FsStatus, Service};
use plan::Plan;
use reconciler::Reconciler;

/// Number of words of `shunt volume tree`.
const COMMAND_WORDS: usize = 3;

/// The reason why no other daemon takes over from one that was killed.
const NO_TAKEOVER: &str = "takeover is not supported for trees of volumes";

pub fn run(args: &VolumeTreeArgs, argv: &[OsString]) -> Result<ExitCode> {
    serve_by_mode(&args.mount, argv, COMMAND_WORDS, || serve(args))
}

fn serve(args: &VolumeTreeArgs) -> Result<()> {
    let fs = Arc::new(TreeFs::default());
    let plan = Mutex::new(Some(Plan::new(args)?));
    let reconciler = Arc::new(Reconciler::new());
    let (starts, shown) = (reconciler.clone(), fs.clone());
    let mounted = move |mount: &MountPoint| {
        let plan = plan.lock().unwrap_or_else(PoisonError::into_inner).take();
        plan.map_or(Ok(()), |plan| starts.start(shown.clone(), plan, mount))
    };
    let reporting = reconciler.clone();
    let answers = move |ask: &VolumeAsk| match ask {
        VolumeAsk::Tree => serde_json::to_value(reporting.report()).map_err(|error| error.to_string()),
        _ => Err("the mount is a tree of volumes: give the path of one volume in it".to_owned()),
    };
    let service = Service {
        kind: "tree",
        source: PathBuf::from(args.name.as_str()),
        config: fs.config(),
        options: fs.mount_options(),
        cache: "invalidated on change".to_owned(),
        passthrough_off: Some("a tree has no files of its own".to_owned()),
        tuning: BdiTuning::default(),
        sandbox: None,
        block: None,
        status: |fs: &TreeFs| FsStatus {
            nodes: fs.len() as u64,
            grafts: fs.mount_points(),
            ..FsStatus::default()
        },
        fs: fs.into(),
        before_sandbox: None,
        mounted: Some(Arc::new(mounted)),
        reload: None,
        online: None,
        answers: Some(Arc::new(answers)),
    };
    let served = serve::serve(service, &args.mount, Err(NO_TAKEOVER.to_owned()));
    reconciler.end();
    served
}
