//! Examines this machine for `shunt doctor` and `shunt bugreport`: kernel features, privileges, limits, optional modules, mounts and
//! disks. Each check yields findings with their consequence and the command that fixes it. Nothing is changed, and no request is
//! sent to a mount without a time limit.

mod environment;
mod finding;
mod kernel;
mod kernel_config;
mod limits;
mod modules;
mod mounts;
mod privileges;
mod probes;

pub use finding::{ALL, Finding, Level, Product};

/// Runs all checks. Takes some seconds at most, even with daemons that do not reply.
pub fn examine() -> Vec<Finding> {
    let mounts = mounts::survey();
    let mut findings = kernel::check();
    findings.extend(privileges::check());
    findings.extend(limits::check());
    findings.extend(modules::check());
    findings.extend(mounts::check(&mounts));
    findings.extend(environment::check(&mounts));
    findings
}

/// Reads a number from a file of /proc or /sys.
fn number(path: &str) -> Option<u64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// The command that installs packages, by the package manager that exists here.
fn install(package: &str) -> String {
    let managers = [
        ("/usr/bin/apt-get", "apt-get install"),
        ("/usr/bin/dnf", "dnf install"),
        ("/usr/bin/zypper", "zypper install"),
        ("/sbin/apk", "apk add"),
        ("/usr/bin/pacman", "pacman -S"),
    ];
    let found = managers.iter().find(|(path, _)| std::path::Path::new(path).exists());
    found.map_or_else(
        || format!("install the package {package}"),
        |(_, command)| format!("{command} {package}"),
    )
}

/// A command that sets a sysctl now.
fn sysctl(name: &str, value: u64) -> String {
    format!("sysctl -w {name}={value}")
}
