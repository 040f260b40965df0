//! The mounts of Shunt: dead ones, silent daemons, features that are off, read-ahead, and sockets of dead daemons.

use std::path::{Path, PathBuf};

use rustix::io::Errno;
use shunt_fuse::mount::{MountInfo, bdi};

use super::{ALL, Finding, Level, Product, number};
use crate::control::{self, Hello, QueryResult};
use crate::own_mounts;
use crate::probe;
use crate::text::shell_quoted;

/// Read-ahead below which sequential reads are slow, in KiB. The kernel's default.
const MIN_READAHEAD_KIB: u64 = 128;

/// The mounts, with the replies of their daemons.
#[derive(Debug)]
pub struct Mounts {
    error: Option<String>,
    found: Vec<(MountInfo, QueryResult<Hello>)>,
    stale_sockets: Vec<PathBuf>,
}

impl Mounts {
    /// Returns the cache directories of mounted volumes.
    pub fn volume_caches(&self) -> Vec<PathBuf> {
        let infos = self.found.iter().map(|(info, _)| info);
        let volumes: Vec<_> = infos
            .filter(|info| own_mounts::kind(info) == Some("volume"))
            .map(own_mounts::query_target)
            .collect();
        let stats = control::inspect_all_stats(&volumes).into_iter().filter_map(QueryResult::into_answer);
        stats.filter_map(|stat| Some(PathBuf::from(stat.volume?.cache))).collect()
    }
}

/// Reads the mount table and queries the daemons.
pub fn survey() -> Mounts {
    let (mounts, error) = match own_mounts::all() {
        Ok(mounts) => (mounts, None),
        Err(error) => (Vec::new(), Some(error.to_string())),
    };
    let targets: Vec<_> = mounts.iter().map(own_mounts::query_target).collect();
    let (answers, stale_sockets) = control::inspect_all(&targets);
    Mounts { error, found: mounts.into_iter().zip(answers).collect(), stale_sockets }
}

pub fn check(mounts: &Mounts) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(error) = &mounts.error {
        let effect = "mounts cannot be found or listed";
        findings.push(
            Finding::new(Level::Error, "mounts.table", error.clone(), ALL, effect)
                .fix("mount -t proc proc /proc"),
        );
    }
    for (info, answer) in &mounts.found {
        findings.extend(mount(info, answer));
    }
    findings.extend(mounts.stale_sockets.iter().map(|path| stale_socket(path)));
    if findings.iter().all(|finding| finding.level == Level::Ok) {
        findings.push(Finding::ok("mounts.sockets", "no dead mounts and no stale sockets"));
    }
    findings
}

fn product(info: &MountInfo) -> Vec<Product> {
    let kind = own_mounts::kind(info).unwrap_or_default();
    let kind = if kind == "tree" { "volume" } else { kind };
    ALL.iter().copied().filter(|product| product.name() == kind).collect()
}

fn mount(info: &MountInfo, answer: &QueryResult<Hello>) -> Vec<Finding> {
    let products = product(info);
    let path = info.mountpoint.display();
    let quoted = shell_quoted(&info.mountpoint.to_string_lossy()).into_owned();
    let mut findings = Vec::new();
    match answer {
        QueryResult::Answer(hello) => {
            findings.push(Finding::ok("mounts.daemon", format!("{path}: the daemon replies")));
            if let Some(reason) = &hello.passthrough_reason {
                let message = format!("{path}: passthrough is off: {reason}");
                let effect = "file data of this mount goes through its daemon";
                findings.push(Finding::new(Level::Note, "mounts.passthrough", message, &products, effect));
            }
        }
        QueryResult::Silent(pid, error) => {
            let message = format!("{path}: the daemon does not reply: {error}");
            let effect = "programs that use this mount wait";
            let pid = pid.map_or_else(|| "PID".to_owned(), |pid| pid.as_raw_nonzero().to_string());
            findings.push(
                Finding::new(Level::Error, "mounts.daemon", message, &products, effect)
                    .fix(format!("kill -CONT {pid} if it is stopped; else shunt umount --force {quoted}")),
            );
        }
        QueryResult::NoDaemon => findings.push(without_daemon(info, &products, &quoted)),
    }
    findings.extend(readahead(info, &products));
    findings
}

/// A mount whose daemon this user cannot query: it is dead, or another user's.
fn without_daemon(info: &MountInfo, products: &[Product], quoted: &str) -> Finding {
    let path = info.mountpoint.display();
    match probe::statfs(&info.mountpoint) {
        Some(Err(Errno::NOTCONN | Errno::CONNABORTED)) => {
            let message = format!("{path}: the mount is dead: Transport endpoint is not connected");
            let effect = "every access fails with ENOTCONN";
            Finding::new(Level::Error, "mounts.dead", message, products, effect)
                .fix(format!("shunt umount {quoted}"))
        }
        None => {
            let message = format!("{path}: no daemon of this user serves it, and it does not answer");
            let effect = "programs that use this mount wait";
            Finding::new(Level::Error, "mounts.silent", message, products, effect)
                .fix(format!("shunt umount --force {quoted}"))
        }
        Some(Ok(_)) if own_mounts::owner(info) == Some(rustix::process::geteuid().as_raw()) => {
            let message = format!("{path}: it is served, but its control socket is missing");
            let effect = "`shunt stat`, `umount` and `upgrade` cannot reach its daemon";
            Finding::new(Level::Warning, "mounts.socket", message, products, effect)
                .fix(format!("shunt umount {quoted}, and mount it again"))
        }
        Some(_) => Finding::ok("mounts.daemon", format!("{path}: it belongs to another user")),
    }
}

fn readahead(info: &MountInfo, products: &[Product]) -> Option<Finding> {
    let file = bdi::directory(info.dev).join("read_ahead_kb").display().to_string();
    let kib = number(&file).filter(|kib| *kib < MIN_READAHEAD_KIB)?;
    let message = format!("{}: read-ahead is {kib} KiB", info.mountpoint.display());
    let effect = "sequential reads that go through the daemon are slow";
    Some(
        Finding::new(Level::Warning, "mounts.read_ahead", message, products, effect)
            .fix(format!("echo 1024 > {file}")),
    )
}

fn stale_socket(path: &Path) -> Finding {
    let message = format!("{}: nobody listens on this control socket", path.display());
    let effect = "none; a daemon was killed, or the machine lost power";
    Finding::new(Level::Warning, "mounts.stale_socket", message, ALL, effect)
        .fix(format!("rm {}", shell_quoted(&path.to_string_lossy())))
}
