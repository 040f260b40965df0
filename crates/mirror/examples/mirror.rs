//! Mirrors a directory until it is unmounted: `mirror SOURCE MOUNTPOINT [exclusive|none|SECONDS] [off]`.

use std::time::Duration;

use shunt_fuse::mount::MountOptions;
use shunt_mirror::{CacheMode, Mirror, MirrorOptions, PassthroughMode};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let usage = "usage: mirror SOURCE MOUNTPOINT [exclusive|none|SECONDS] [off]";
    let (source, mountpoint) = (arguments.next().ok_or(usage)?, arguments.next().ok_or(usage)?);
    let cache = match arguments.next().and_then(|word| word.into_string().ok()).as_deref() {
        None => CacheMode::default(),
        Some("exclusive") => CacheMode::Exclusive,
        Some("none") => CacheMode::None,
        Some(seconds) => CacheMode::Timeout(Duration::from_secs(seconds.parse()?)),
    };
    let passthrough = if arguments.next().is_some() { PassthroughMode::Off } else { PassthroughMode::Auto };
    let mirror = Mirror::open(MirrorOptions { cache, passthrough, ..MirrorOptions::new(source) })?;
    println!("{}", mirror.describe());
    let config = mirror.config();
    // The kernel must check permissions, because the daemon acts as root.
    let options = MountOptions::new().allow_other(true).default_permissions(true).nosuid(false).nodev(false);
    let mounted = shunt_fuse::mount(mirror, config, mountpoint.as_ref(), &options)?;
    for refusal in &mounted.handle().negotiated().refused {
        println!("{refusal}");
    }
    Ok(mounted.wait()?)
}
