//! The build configuration of the running kernel, for features that only root can probe.

use std::fs::{self, File};
use std::io::Read;

/// Limit of a configuration, in bytes.
const MAX_CONFIG_BYTES: u64 = 4 << 20;

/// The options of the kernel.
#[derive(Debug)]
pub struct KernelConfig(Option<String>);

impl KernelConfig {
    /// Reads `/proc/config.gz` or `/boot/config-RELEASE`.
    pub fn read(release: &str) -> Self {
        let packed = File::open("/proc/config.gz").ok().and_then(|file| {
            let mut text = String::new();
            flate2::read::GzDecoder::new(file).take(MAX_CONFIG_BYTES).read_to_string(&mut text).ok()?;
            Some(text)
        });
        KernelConfig(packed.or_else(|| fs::read_to_string(format!("/boot/config-{release}")).ok()))
    }

    /// Reports whether an option is built in or a module; none if the configuration is not known.
    pub fn has(&self, option: &str) -> Option<bool> {
        let text = self.0.as_ref()?;
        let set = |line: &str| line.strip_prefix(option).is_some_and(|rest| rest == "=y" || rest == "=m");
        Some(text.lines().any(set))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_found_by_their_whole_name() {
        let config =
            KernelConfig(Some("CONFIG_FUSE_FS=m\n# CONFIG_FUSE is not set\nCONFIG_FUSE_IO=\"y\"\n".into()));
        assert_eq!(config.has("CONFIG_FUSE_FS"), Some(true));
        assert_eq!(config.has("CONFIG_FUSE"), Some(false));
        assert_eq!(config.has("CONFIG_FUSE_IO"), Some(false));
        assert_eq!(KernelConfig(None).has("CONFIG_FUSE_FS"), None);
    }
}
