//! The privileges of this user, and the helper by which users without privileges mount.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::thread::CapabilitySet;

use super::Product::{Mirror, Volume};
use super::{ALL, Finding, Level, install};

const FUSE_CONF: &str = "/etc/fuse.conf";

/// Capabilities that daemons of root use, with their names.
const WANTED_CAPABILITIES: [(CapabilitySet, &str); 6] = [
    (CapabilitySet::SYS_ADMIN, "CAP_SYS_ADMIN"),
    (CapabilitySet::DAC_READ_SEARCH, "CAP_DAC_READ_SEARCH"),
    (CapabilitySet::DAC_OVERRIDE, "CAP_DAC_OVERRIDE"),
    (CapabilitySet::CHOWN, "CAP_CHOWN"),
    (CapabilitySet::FOWNER, "CAP_FOWNER"),
    (CapabilitySet::SETUID, "CAP_SETUID"),
];

pub fn check() -> Vec<Finding> {
    let root = rustix::process::geteuid().is_root();
    let mut findings = vec![capabilities(root), fusermount(root)];
    if !root {
        findings.push(fuse_conf(fs::read_to_string(FUSE_CONF).ok().as_deref()));
    }
    findings
}

fn capabilities(root: bool) -> Finding {
    let check = "privileges.capabilities";
    let held = rustix::thread::capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.effective);
    let missing: Vec<&str> =
        WANTED_CAPABILITIES.iter().filter(|(one, _)| !held.contains(*one)).map(|(_, name)| *name).collect();
    if missing.is_empty() {
        return Finding::ok(check, "this user may mount and register files for passthrough");
    }
    if !root {
        let effect = "mounts of this user have no passthrough, see no changes by fanotify, and serve this user's files only";
        let message = "this user has no privileges (CAP_SYS_ADMIN)";
        return Finding::new(Level::Note, check, message, &[Mirror, Volume], effect).fix("mount as root");
    }
    let message = format!("root lacks {}", missing.join(", "));
    let effect = "mounts fail, or have no passthrough and fewer rights on files of others";
    let fix = format!("in a container, start it with --cap-add {}", missing.join(" --cap-add "));
    Finding::new(Level::Warning, check, message, ALL, effect).fix(fix.replace("CAP_", ""))
}

/// The helper in the directories of `PATH`, or where Debian and others install it.
fn find_helper() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/bin", "/bin", "/usr/local/bin"].map(PathBuf::from);
    let mut places = std::env::split_paths(&path).chain(usual).map(|dir| dir.join("fusermount3"));
    places.find(|place| place.is_file())
}

fn fusermount(root: bool) -> Finding {
    let check = "privileges.fusermount3";
    let effect = "users without privileges can neither mount nor unmount";
    // Root mounts itself.
    let level = if root { Level::Note } else { Level::Error };
    let Some(helper) = find_helper() else {
        return Finding::new(level, check, "fusermount3 is not installed", ALL, effect).fix(install("fuse3"));
    };
    let setuid = fs::metadata(&helper).is_ok_and(|file| file.mode() & 0o4000 != 0 && file.uid() == 0);
    let shown = helper.display();
    if setuid {
        return Finding::ok(check, format!("{shown} is set-user-id root"));
    }
    let message = format!("{shown} is not set-user-id root");
    Finding::new(level, check, message, ALL, effect).fix(format!("chown root {shown} && chmod 4755 {shown}"))
}

fn fuse_conf(text: Option<&str>) -> Finding {
    let check = "privileges.fuse_conf";
    let allows = text.is_some_and(|text| text.lines().any(|line| line.trim() == "user_allow_other"));
    if allows {
        return Finding::ok(check, format!("{FUSE_CONF} permits --allow-other"));
    }
    let state = if Path::new(FUSE_CONF).exists() { "has no line" } else { "is missing, and so is the line" };
    let message = format!("{FUSE_CONF} {state} user_allow_other");
    let effect = "this user's mounts are closed to other users, root included: --allow-other is refused";
    Finding::new(Level::Note, check, message, ALL, effect)
        .fix(format!("echo user_allow_other >> {FUSE_CONF} (as root)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_counts_only_without_a_comment_sign() {
        assert_eq!(fuse_conf(Some("mount_max = 1000\n user_allow_other \n")).level, Level::Ok);
        assert_eq!(fuse_conf(Some("#user_allow_other\n")).level, Level::Note);
        assert_eq!(fuse_conf(None).level, Level::Note);
    }
}
