//! `shunt mirror --virtiofs`: serves a directory to the guest of a virtual machine instead of a mount.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use shunt_fuse::Handle;
use shunt_fuse::guardian::HandOver;
use shunt_fuse::virtiofs::Server;
use shunt_mirror::{CacheMode, Mirror, MirrorOptions, PassthroughMode};

use super::{config, explain, no_handles, options, source};
use crate::args::{CacheArg, TakeoverArg};
use crate::cli::MirrorArgs;
use crate::error::{Result, usage};
use crate::serve::virtiofs::{self, GuestService, MountLabel};

pub fn serve(args: &MirrorArgs, argv: &[OsString], socket: &Path) -> Result<()> {
    let options = guest_options(args)?;
    let mirror = Mirror::open(options.clone()).map_err(explain)?;
    tracing::info!("{}", mirror.describe());
    let source = source(args)?;
    let restart = match mirror.can_be_taken_over() {
        _ if args.mount.takeover == TakeoverArg::Service => {
            return Err(usage("--takeover service cannot be combined with --virtiofs: use --takeover auto"));
        }
        true => crate::serve::restart(argv, &args.mount),
        false => Err(no_handles(&source)),
    };
    virtiofs::serve(service(args, socket, source, mirror, options), restart)
}

/// Takes over from another daemon of the same guest.
pub fn take_over(args: &MirrorArgs, socket: &Path, mut hand_over: HandOver) -> Result<()> {
    let options = guest_options(args)?;
    let (mirror, resumed) = if hand_over.has_session() {
        let resumed = Mirror::resume(options.clone(), &mut hand_over).map_err(explain)?;
        (resumed.reopen(options.clone()).map_err(explain)?, Some(resumed))
    } else {
        (Mirror::open(options.clone()).map_err(explain)?, None)
    };
    virtiofs::take_over(service(args, socket, args.source.clone(), mirror, options), resumed, hand_over)
}

/// `mirror` is the one that the file system of each session is opened from.
fn service<'a>(
    args: &'a MirrorArgs,
    socket: &'a Path,
    source: PathBuf,
    mirror: Mirror,
    options: MirrorOptions,
) -> GuestService<'a, Mirror> {
    let shown = MountLabel { source, cache: mirror.caching().to_string() };
    let config = virtiofs::configured(config(args, &mirror), &args.mount);
    let tag = args.tag.clone();
    let make = move |began: Box<dyn Fn(&Handle) + Send + Sync>| {
        let make = move || mirror.reopen(options.clone()).map_err(io::Error::other);
        let server = Server::new(config, make, began);
        match tag {
            None => Ok(server),
            Some(tag) => server.tag(tag.as_bytes()).ok_or_else(|| usage("--tag takes 1 to 36 bytes")),
        }
    };
    GuestService { socket, args: &args.mount, shown, probe: args.sandbox_probe, make: Box::new(make) }
}

/// The options for a guest, which cannot receive notifications: options that need them are refused, or replaced.
fn guest_options(args: &MirrorArgs) -> Result<MirrorOptions> {
    let refused = [
        (
            args.cache == CacheArg::Coherent,
            "--cache coherent",
            "the kernel of a guest cannot be notified of changes; use --cache timeout=SECONDS",
        ),
        (
            args.max_inodes.is_some(),
            "--max-inodes",
            "the kernel of a guest cannot be asked to forget inodes; it forgets them when it needs memory",
        ),
        (args.policy.is_some(), "--policy", "the users and programs of a guest are not known to the host"),
        (args.extension.is_some(), "--extension", "the extension runs in the kernel of the host"),
    ];
    for (asked, option, reason) in refused {
        if asked {
            return Err(usage(format_args!("{option} cannot be combined with --virtiofs: {reason}")));
        }
    }
    let options = options(args)?;
    let cache = match options.cache {
        CacheMode::Auto => CacheMode::default(),
        cache => cache,
    };
    Ok(MirrorOptions { cache, passthrough: PassthroughMode::Off, ..options })
}
