//! Starts commands so that the daemons that they leave behind outlive the plugin.
//!
//! When a container ends, the kernel's cgroup of it is emptied by SIGKILL. So a daemon must be a member of another cgroup, which the service
//! manager of the host, or else the plugin itself, creates.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// How daemons are kept alive after the end of the plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Detach {
    /// Each mount is a transient scope of the host's systemd.
    Systemd,
    /// Each mount has a cgroup below this directory of the cgroup file system.
    Cgroup(PathBuf),
    /// Each mount is a session of its own, in the cgroup of the plugin: for a plugin that is not in a container, and not a service.
    Session,
}

impl Detach {
    /// Chooses the strongest one that this host has: systemd if process 1 is systemd and its socket is visible, else a session.
    pub fn detect() -> Self {
        let is_systemd =
            std::fs::read_to_string("/proc/1/comm").is_ok_and(|name| name.trim_end() == "systemd");
        match is_systemd && Path::new("/run/systemd/private").exists() {
            true => Self::Systemd,
            false => Self::Session,
        }
    }

    /// The command that runs `program __csi-mount` detached. `name` is a valid file name; arguments are to be added.
    pub(crate) fn command(&self, program: &Path, name: &str) -> Command {
        let mut command = match self {
            Detach::Systemd => {
                let mut command = Command::new("systemd-run");
                // A former scope of the volume may not have ended yet.
                let unit = format!("shunt-csi-{name}-{}.scope", unique());
                command
                    .args(["--scope", "--quiet", "--collect", "--slice=shuntcsi.slice", "--unit"])
                    .arg(unit);
                command.arg("--").arg(program);
                command
            }
            Detach::Cgroup(_) | Detach::Session => Command::new(program),
        };
        command.arg("__csi-mount");
        if let Some(directory) = self.cgroup(name) {
            command.arg("--cgroup").arg(directory);
        }
        command
    }

    /// The cgroup of a mount.
    pub(crate) fn cgroup(&self, name: &str) -> Option<PathBuf> {
        match self {
            Detach::Cgroup(parent) => Some(parent.join(format!("shunt-csi-{name}"))),
            Detach::Systemd | Detach::Session => None,
        }
    }
}

/// A text that no earlier call of this or another plugin process on this host has returned.
fn unique() -> String {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{:x}-{:x}", time.as_nanos(), CALLS.fetch_add(1, Ordering::Relaxed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_have_names_of_their_own() {
        let line = |detach: &Detach| format!("{:?}", detach.command(Path::new("/s/shunt"), "v-1"));
        let (first, second) = (line(&Detach::Systemd), line(&Detach::Systemd));
        assert!(
            first.starts_with(r#""systemd-run" "--scope""#) && first.contains("shunt-csi-v-1-"),
            "{first}"
        );
        assert!(first.ends_with(r#""--" "/s/shunt" "__csi-mount""#), "{first}");
        assert_ne!(first, second);
        assert_eq!(line(&Detach::Session), r#""/s/shunt" "__csi-mount""#);
        let cgroup = Detach::Cgroup("/c".into());
        assert_eq!(line(&cgroup), r#""/s/shunt" "__csi-mount" "--cgroup" "/c/shunt-csi-v-1""#);
    }
}
