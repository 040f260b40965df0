//! The kernel: its version, FUSE, and the features that make mounts fast or secure.

use std::fs;
use std::path::Path;

use shunt_fuse::mount::{KernelOffer, MountError, kernel_offer};
use shunt_fuse::{Capabilities, Errno};
use shunt_mirror::check_fanotify;

use super::Product::{Ext4, Mirror, Volume};
use super::kernel_config::KernelConfig;
use super::{ALL, Finding, Level, number, probes, sysctl};
use crate::text::bytes;

/// The oldest kernel with FUSE 7.28.
const MIN_KERNEL: (u32, u32) = (4, 20);
/// The first kernel with FUSE passthrough.
const PASSTHROUGH_KERNEL: (u32, u32) = (6, 9);
/// The version of landlock that allows renames between directories, which volumes need.
const MIN_LANDLOCK: i64 = 2;
/// Pages of one request for reads and writes of 1 MiB.
const WANTED_PAGES: u64 = 256;

const URING_SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";
const NEWER_KERNEL: &str = "boot Linux 6.9 or later, built with CONFIG_FUSE_PASSTHROUGH=y";

pub fn check() -> Vec<Finding> {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let version = version(&release);
    let mut findings = vec![kernel_version(&release, version), device()];
    let offer = kernel_offer();
    findings.push(fsopen(&offer));
    findings.push(passthrough(&offer, version, &KernelConfig::read(&release)));
    findings.push(uring());
    findings.push(fanotify());
    findings.push(landlock());
    findings.push(max_pages());
    findings
}

/// The first two numbers of a release.
fn version(release: &str) -> (u32, u32) {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

fn kernel_version(release: &str, version: (u32, u32)) -> Finding {
    if version < MIN_KERNEL {
        let effect = "no mount is possible: FUSE 7.28 (Linux 4.20) is the oldest supported protocol";
        return Finding::new(Level::Error, "kernel.version", format!("Linux {release}"), ALL, effect)
            .fix(NEWER_KERNEL);
    }
    Finding::ok("kernel.version", format!("Linux {release}"))
}

fn device() -> Finding {
    let none = "no mount is possible";
    match fs::OpenOptions::new().read(true).write(true).open("/dev/fuse") {
        Ok(_) => Finding::ok("kernel.fuse", "/dev/fuse can be opened"),
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            let message = "this user may not open /dev/fuse";
            Finding::new(Level::Error, "kernel.fuse", message, ALL, none).fix("chmod 666 /dev/fuse")
        }
        Err(error) => {
            let message = format!("/dev/fuse: {error}");
            Finding::new(Level::Error, "kernel.fuse", message, ALL, none)
                .fix("modprobe fuse; in a container, start it with --device /dev/fuse --cap-add SYS_ADMIN")
        }
    }
}

fn fsopen(offer: &Result<KernelOffer, MountError>) -> Finding {
    let check = "kernel.fsopen";
    match offer {
        Ok(offer) => Finding::ok(
            check,
            format!(
                "fsopen works; FUSE 7.{}, read-ahead up to {}",
                offer.minor,
                bytes(offer.max_readahead.into())
            ),
        ),
        Err(error) if !rustix::process::geteuid().is_root() => {
            let message = format!("fsopen cannot be probed by this user ({error})");
            Finding::new(Level::Note, check, message, ALL, "mounts are made by fusermount3 instead")
        }
        Err(error) => {
            let effect =
                "mounts are made by mount(2) or fusermount3: processes may see a mount before it serves";
            Finding::new(Level::Note, check, format!("fsopen does not work ({error})"), ALL, effect)
                .fix("boot Linux 5.2 or later; in a container, allow fsopen, fsmount and move_mount in its seccomp profile")
        }
    }
}

fn passthrough(
    offer: &Result<KernelOffer, MountError>,
    version: (u32, u32),
    config: &KernelConfig,
) -> Finding {
    let check = "kernel.passthrough";
    let (offered, probed) = match offer {
        Ok(offer) => (offer.capabilities.contains(Capabilities::PASSTHROUGH), true),
        Err(_) => {
            let built = config.has("CONFIG_FUSE_PASSTHROUGH").unwrap_or(version >= PASSTHROUGH_KERNEL);
            (version >= PASSTHROUGH_KERNEL && built, false)
        }
    };
    match (offered, probed) {
        (true, true) => Finding::ok(check, "the kernel offers FUSE passthrough"),
        (true, false) => {
            Finding::ok(check, "the kernel has FUSE passthrough, according to its configuration")
        }
        (false, _) => {
            let effect = "file data goes through the daemon: reads and writes are slower";
            Finding::new(
                Level::Warning,
                check,
                "the kernel has no FUSE passthrough",
                &[Mirror, Volume],
                effect,
            )
            .fix(NEWER_KERNEL)
        }
    }
}

fn uring() -> Finding {
    let check = "kernel.io_uring";
    let effect = "--transport uring falls back to /dev/fuse, which costs more processor time per request";
    let note = |message: &str| Finding::new(Level::Note, check, message, ALL, effect);
    match fs::read_to_string(URING_SWITCH).as_deref().map(str::trim) {
        Err(_) => note("the kernel has no FUSE over io_uring")
            .fix("boot Linux 6.14 or later, built with CONFIG_FUSE_IO_URING=y"),
        Ok("N" | "0") => note("FUSE over io_uring is switched off").fix(format!(
            "echo Y > {URING_SWITCH}; to keep it: echo 'options fuse enable_uring=Y' > /etc/modprobe.d/fuse-uring.conf"
        )),
        Ok(_) => match number("/proc/sys/kernel/io_uring_disabled") {
            Some(level @ 1..) if level >= 2 || !rustix::process::geteuid().is_root() => {
                note("io_uring is disabled for this user").fix(sysctl("kernel.io_uring_disabled", 0))
            }
            _ => Finding::ok(check, "FUSE over io_uring is on"),
        },
    }
}

fn fanotify() -> Finding {
    let check = "kernel.fanotify";
    let effect = "changes in the source are watched by inotify: one watch per directory, names elsewhere are cached for 1 s";
    match check_fanotify() {
        Ok(_) => Finding::ok(check, "fanotify reports changes of whole file systems"),
        Err(Errno::MFILE) => {
            let message = "the limit of fanotify groups is reached";
            Finding::new(Level::Warning, check, message, &[Mirror], effect)
                .fix(sysctl("fs.fanotify.max_user_groups", 1024))
        }
        Err(Errno::PERM) => {
            let message = "this user may not use fanotify";
            Finding::new(Level::Note, check, message, &[Mirror], effect).fix("mount as root (CAP_SYS_ADMIN)")
        }
        Err(errno) => {
            let message = format!("fanotify cannot report names ({errno})");
            Finding::new(Level::Warning, check, message, &[Mirror], effect)
                .fix("boot Linux 5.17 or later, built with CONFIG_FANOTIFY=y")
        }
    }
}

fn landlock() -> Finding {
    let check = "kernel.landlock";
    let effect =
        "the sandbox is incomplete: a daemon that untrusted data takes over could open files of its user";
    let remedy =
        "boot Linux 5.19 or later with CONFIG_SECURITY_LANDLOCK=y and `landlock` in the parameter lsm=";
    match probes::landlock_version() {
        Ok(version) if version >= MIN_LANDLOCK => Finding::ok(check, format!("landlock version {version}")),
        Ok(version) => {
            let message = format!("landlock version {version} is too old");
            Finding::new(Level::Warning, check, message, &[Volume], effect).fix(remedy)
        }
        Err(error) => {
            let message = format!("landlock is not available ({error})");
            Finding::new(Level::Warning, check, message, &[Ext4, Volume], effect).fix(remedy)
        }
    }
}

fn max_pages() -> Finding {
    let check = "kernel.max_pages_limit";
    // Missing before Linux 6.13, where the limit is fixed at the wanted value.
    match number("/proc/sys/fs/fuse/max_pages_limit") {
        Some(pages) if pages < WANTED_PAGES && Path::new("/dev/fuse").exists() => {
            let size = bytes(pages * rustix::param::page_size() as u64);
            let message = format!("fs.fuse.max_pages_limit is {pages}: a request carries at most {size}");
            let effect = "more requests for the same data, where data goes through the daemon";
            Finding::new(Level::Warning, check, message, ALL, effect)
                .fix(sysctl("fs.fuse.max_pages_limit", WANTED_PAGES))
        }
        Some(pages) => Finding::ok(check, format!("fs.fuse.max_pages_limit is {pages}")),
        None => Finding::ok(check, format!("a request carries {WANTED_PAGES} pages")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_compared_by_number() {
        assert_eq!(version("6.18.5-rc1+deb13"), (6, 18));
        assert_eq!(version("4.9"), (4, 9));
        assert!(version("4.19.0-27") < MIN_KERNEL && version("5.2") > MIN_KERNEL);
        assert_eq!(kernel_version("3.10.0", (3, 10)).level, Level::Error);
        assert_eq!(version(""), (0, 0));
    }
}
