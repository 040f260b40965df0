//! `shunt mirror --virtiofs`: serves a directory to the guest of a virtual machine instead of a mount.

use std::io;
use std::path::Path;

use shunt_fuse::Handle;
use shunt_fuse::virtiofs::Server;
use shunt_mirror::{CacheMode, Mirror, MirrorOptions, PassthroughMode};

use super::{config, explain, options, source};
use crate::args::CacheArg;
use crate::cli::MirrorArgs;
use crate::error::{Result, usage};
use crate::serve::virtiofs::{self, MountLabel};

pub fn serve(args: &MirrorArgs, socket: &Path) -> Result<()> {
    let options = guest_options(args)?;
    let mirror = Mirror::open(options.clone()).map_err(explain)?;
    tracing::info!("{}", mirror.describe());
    let shown = MountLabel { source: source(args)?, cache: mirror.caching().to_string() };
    let config = virtiofs::configured(config(args, &mirror), &args.mount);
    let tag = args.tag.clone();
    virtiofs::serve(
        socket,
        &args.mount,
        shown,
        args.sandbox_probe,
        move |began: Box<dyn Fn(&Handle) + Send + Sync>| {
            let make = move || mirror.reopen(options.clone()).map_err(io::Error::other);
            let server = Server::new(config, make, began);
            match tag {
                None => Ok(server),
                Some(tag) => server.tag(tag.as_bytes()).ok_or_else(|| usage("--tag takes 1 to 36 bytes")),
            }
        },
    )
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
