//! The kernel's switch for FUSE over io_uring.

use std::fs;

use anyhow::{Context, Result};

const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

/// Turns the transport on for mounts made while it lives; restores the old setting on drop. A mount keeps what it negotiated.
#[derive(Debug)]
pub struct UringSwitch(String);

impl UringSwitch {
    /// Turns the transport on.
    ///
    /// # Errors
    /// When the kernel has no such transport (it came with 6.14), or without root.
    pub fn on() -> Result<Self> {
        let before = fs::read_to_string(SWITCH).context("this kernel does not support FUSE over io_uring")?;
        fs::write(SWITCH, "Y").context("enable FUSE over io_uring")?;
        Ok(Self(before))
    }
}

impl Drop for UringSwitch {
    fn drop(&mut self) {
        let _ = fs::write(SWITCH, &self.0);
    }
}
