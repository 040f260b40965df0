//! The system calls of `shunt ext4 extract`. `allowed/extract.txt` gives the reason for each, and the tests compare the two.

use seccompiler::BackendError;

use super::{DaemonFeatures, Rules, image};

/// Restricted by landlock to the target directory.
const ALWAYS: &[libc::c_long] = &[
    libc::SYS_mkdirat,
    libc::SYS_mknodat,
    libc::SYS_symlinkat,
    libc::SYS_linkat,
    libc::SYS_renameat2,
    libc::SYS_ftruncate,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_utimensat,
    libc::SYS_fsetxattr,
    libc::SYS_setxattr,
];

pub(super) fn allowed() -> Result<Rules, BackendError> {
    let mut rules = image::of_readers(DaemonFeatures::default())?;
    rules.extend(ALWAYS.iter().map(|number| (*number, Vec::new())));
    Ok(rules)
}
