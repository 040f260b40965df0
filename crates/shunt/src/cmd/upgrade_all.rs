//! `shunt upgrade --all`: hands every mount over to another program, for packages that have replaced the binary.
//!
//! It skips mounts that the program already serves, and mounts of systemd units of Shunt: systemd ends the processes of a service
//! whose main process ends, so such a mount is handed over by a restart of its unit.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::{list, print, upgrade};
use crate::cli::UpgradeArgs;
use crate::error::{Result, failed};
use crate::report::Entry;
use crate::text::printable;

/// Upgrades all mounts of this namespace. A mount that cannot be handed over keeps its daemon, and the others are still upgraded.
///
/// # Errors
/// The mount table cannot be read, or at least one mount was not handed over; each such mount has a line on standard error.
pub fn run(args: &UpgradeArgs) -> Result<()> {
    let binary = upgrade::binary(args.binary.as_deref())?;
    let (mut upgraded, mut failures) = (Vec::new(), 0);
    for entry in list::entries()? {
        // A mount without a daemon is dead: there is nothing to hand over.
        let Some(pid) = entry.pid else { continue };
        if runs(pid, &binary) {
            continue;
        }
        if let Some(unit) = unit(pid) {
            let Entry { mountpoint, .. } = entry;
            print_line(&format!(
                "{mountpoint} is served by the unit {unit}: not upgraded; run `systemctl restart {unit}`"
            ));
            continue;
        }
        match upgrade::hand_over(Path::new(&entry.mountpoint), &binary) {
            Ok(report) if args.json => upgraded.push(report),
            Ok(report) => print(upgrade::line(&report))?,
            Err(failure) => {
                print_line(&failure.to_string());
                failures += 1;
            }
        }
    }
    if args.json {
        print(serde_json::to_string_pretty(&upgraded).map_err(failed)? + "\n")?;
    }
    match failures {
        0 => Ok(()),
        1 => Err(failed(
            "cannot upgrade one mount, for the reason above: it is served by its daemon as before",
        )),
        count => Err(failed(format_args!(
            "cannot upgrade {count} mounts, for the reasons above: they are served by their daemons as before"
        ))),
    }
}

/// One line on standard error, which may be closed.
fn print_line(line: &str) {
    let _ = writeln!(io::stderr(), "shunt: {}", printable(line));
}

/// Reports whether a process runs this file. A file that replaced another one at the same path is a different file.
fn runs(pid: u32, binary: &Path) -> bool {
    let id = |path: &Path| fs::metadata(path).map(|metadata| (metadata.dev(), metadata.ino())).ok();
    let running = id(Path::new(&format!("/proc/{pid}/exe")));
    running.is_some() && running == id(binary)
}

/// The systemd unit of Shunt to which a process belongs.
fn unit(pid: u32) -> Option<String> {
    unit_of(&fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?).map(str::to_owned)
}

/// Finds the unit in the text of `/proc/PID/cgroup`. A service may have cgroups below its own.
fn unit_of(cgroups: &str) -> Option<&str> {
    let is_ours = |name: &&str| name.starts_with("shunt-") && name.ends_with(".service");
    cgroups.lines().find_map(|line| line.split('/').rfind(is_ours))
}

#[cfg(test)]
mod tests {
    use super::unit_of;

    #[test]
    fn finds_the_unit_of_a_service() {
        let system = "0::/system.slice/system-shunt\\x2dmirror.slice/shunt-mirror@srv-data.service\n";
        assert_eq!(unit_of(system), Some("shunt-mirror@srv-data.service"));
        let below =
            "0::/user.slice/user-1.slice/user@1.service/app.slice/shunt-volume@notes.service/payload\n";
        assert_eq!(unit_of(below), Some("shunt-volume@notes.service"));
    }

    #[test]
    fn finds_no_unit_outside_of_services() {
        assert_eq!(unit_of("0::/user.slice/user-0.slice/session-1.scope\n"), None);
        assert_eq!(unit_of("12:pids:/system.slice/ssh.service\n0::/\n"), None);
        assert_eq!(unit_of(""), None);
    }
}
