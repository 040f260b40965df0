//! `shunt mirror`.

use std::ffi::OsString;
use std::fs;
use std::process::ExitCode;
use std::sync::Arc;

use shunt_fuse::mount::MountOptions;
use shunt_mirror::{CacheMode, Mirror, MirrorError, MirrorOptions, PassthroughMode};

use crate::args::{CacheArg, PassthroughArg, ids};
use crate::cli::MirrorArgs;
use crate::daemon;
use crate::error::{Code, Failure, Result, failed};
use crate::log;
use crate::report::Watch;
use crate::serve::{self, Held, Service};

pub fn run(args: &MirrorArgs, argv: &[OsString]) -> Result<ExitCode> {
    if args.mount.background {
        return Ok(daemon::run(&args.mount.log, || serve(args)));
    }
    if args.mount.daemon {
        let line = daemon::launch(argv)?;
        super::print(format!("{line}\n"))?;
    } else {
        log::start(&args.mount.log)?;
        serve(args)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Opens the source, mounts it, and serves.
fn serve(args: &MirrorArgs) -> Result<()> {
    let mirror = Mirror::open(options(args)?).map_err(explain)?;
    tracing::info!("{}", mirror.describe());
    let source = fs::canonicalize(&args.source)
        .map_err(|error| failed(format_args!("cannot mirror {}: {error}", args.source.display())))?;
    let passthrough_off = match args.passthrough {
        PassthroughArg::Auto => None,
        PassthroughArg::Off => Some("by --passthrough off".to_owned()),
    };
    let service = Service {
        kind: "mirror",
        source,
        config: mirror.config(),
        cache: mirror.caching().to_string(),
        fs: Arc::new(mirror),
        options: MountOptions::new().default_permissions(true),
        passthrough_off,
        held,
    };
    serve::serve(service, &args.mount)
}

fn options(args: &MirrorArgs) -> Result<MirrorOptions> {
    Ok(MirrorOptions {
        source: args.source.clone(),
        cache: match args.cache {
            CacheArg::Auto => CacheMode::Auto,
            CacheArg::Coherent => CacheMode::Coherent,
            CacheArg::Exclusive => CacheMode::Exclusive,
            CacheArg::Timeout(time) => CacheMode::Timeout(time),
            CacheArg::None => CacheMode::None,
        },
        read_only: args.mount.mount_options(MountOptions::new())?.is_read_only(),
        uid_map: ids::map("--uid-map", &args.uid_map)?,
        gid_map: ids::map("--gid-map", &args.gid_map)?,
        max_inodes: args.max_inodes,
        passthrough: match args.passthrough {
            PassthroughArg::Auto => PassthroughMode::Auto,
            PassthroughArg::Off => PassthroughMode::Off,
        },
        resumes: false,
    })
}

fn explain(error: MirrorError) -> Failure {
    let code = match error {
        MirrorError::Permission(_) => Code::Privilege,
        _ => Code::Failed,
    };
    Failure::new(code, format_args!("cannot mirror {error}"))
}

fn held(mirror: &Mirror) -> Held {
    let memory = mirror.memory();
    let watch = mirror.caching().watcher.zip(mirror.heard());
    let watch = watch.map(|(by, heard)| Watch {
        by: by.to_owned(),
        events: heard.events,
        overflows: heard.overflows,
    });
    Held { nodes: memory.nodes, bytes: Some(memory.node_bytes), watch }
}
