//! Leaves the container: the plugin enters the namespaces of a process of the host, but stays in its cgroup.

use std::fs::File;
use std::os::fd::AsFd as _;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::error::{Code, Failure, Result};

/// The namespaces that decide what paths, sockets and cgroups mean. The mount namespace is last, since /proc changes with it.
const NAMESPACES: [(&str, LinkNameSpaceType); 5] = [
    ("ipc", LinkNameSpaceType::InterProcessCommunication),
    ("uts", LinkNameSpaceType::HostNameAndNISDomainName),
    ("net", LinkNameSpaceType::Network),
    ("cgroup", LinkNameSpaceType::ControlGroup),
    ("mnt", LinkNameSpaceType::Mount),
];

/// Enters the namespaces of a process. This process must have one thread.
///
/// # Errors
/// The process is not visible, or this one lacks the privileges.
pub fn enter(pid: u32) -> Result<()> {
    let cannot = |name: &str, error: std::io::Error| {
        Failure::new(
            Code::Privilege,
            format_args!(
                "cannot enter the {name} namespace of process {pid}: {error}: the container must be privileged, in the PID \
                 namespace of the host"
            ),
        )
    };
    let open = |name: &'static str| {
        File::open(format!("/proc/{pid}/ns/{name}")).map_err(|error| cannot(name, error))
    };
    let files: Vec<File> = NAMESPACES.iter().map(|(name, _)| open(name)).collect::<Result<_>>()?;
    for ((name, kind), file) in NAMESPACES.into_iter().zip(&files) {
        move_into_link_name_space(file.as_fd(), Some(kind)).map_err(|error| cannot(name, error.into()))?;
    }
    Ok(())
}
