//! The kernel's offer in INIT, and validation of the reply.

use shunt_fuse_abi::{InitFlags, InitIn, InitOut};

/// A kernel's side of the negotiation.
#[derive(Debug, Clone, Copy)]
pub struct Offer {
    /// Major version.
    pub major: u32,
    /// Minor version.
    pub minor: u32,
    /// Maximum read-ahead in bytes.
    pub max_readahead: u32,
    /// Capabilities; those above bit 31 are sent with `INIT_EXT`.
    pub flags: InitFlags,
}

impl Default for Offer {
    /// Returns the offer of Linux 6.18: 7.45 with all capabilities.
    fn default() -> Self {
        Self { major: 7, minor: 45, max_readahead: 128 << 10, flags: Self::everything() }
    }
}

impl Offer {
    /// Returns all capabilities that a kernel offers. It never offers `INIT_RESERVED`.
    #[must_use]
    pub fn everything() -> InitFlags {
        InitFlags::all() - InitFlags::INIT_RESERVED
    }

    /// Makes an offer of this minor version.
    #[must_use]
    pub fn minor(minor: u32) -> Self {
        Self { minor, ..Self::default() }
    }

    /// Restricts the offer to these capabilities.
    #[must_use]
    pub fn with(self, flags: InitFlags) -> Self {
        Self { flags, ..self }
    }

    pub(crate) fn wire(&self) -> InitIn {
        let mut init = InitIn {
            major: self.major,
            minor: self.minor,
            max_readahead: self.max_readahead,
            ..InitIn::default()
        };
        init.set_init_flags(self.flags);
        init
    }

    /// Returns the parts of a reply to this offer that the kernel would not accept, or would silently ignore.
    pub(crate) fn faults(&self, out: &InitOut) -> Vec<String> {
        let mut faults = Vec::new();
        let mut fault = |wrong: bool, what: String| {
            if wrong {
                faults.push(format!("INIT: {what}"));
            }
        };
        let taken = out.init_flags();
        let unoffered = taken - self.flags - InitFlags::INIT_EXT;
        fault(!unoffered.is_empty(), format!("flags that were not offered: {unoffered:?}"));
        fault(
            taken.contains(InitFlags::PASSTHROUGH | InitFlags::WRITEBACK_CACHE),
            "passthrough and write-back cache exclude each other".into(),
        );
        fault(
            taken.contains(InitFlags::PASSTHROUGH) && !(1..=2).contains(&out.max_stack_depth),
            format!("invalid max_stack_depth {} with passthrough", out.max_stack_depth),
        );
        fault(!(1..=1_000_000_000).contains(&out.time_gran), format!("invalid time_gran {}", out.time_gran));
        fault(out.max_write < 4096, format!("max_write {} is less than 4096", out.max_write));
        fault(
            out.congestion_threshold > out.max_background,
            format!(
                "congestion_threshold {} exceeds max_background {}",
                out.congestion_threshold, out.max_background
            ),
        );
        fault(
            out.max_readahead > self.max_readahead,
            format!("max_readahead {} exceeds the offered {}", out.max_readahead, self.max_readahead),
        );
        fault(
            taken.contains(InitFlags::READDIRPLUS_AUTO) && !taken.contains(InitFlags::DO_READDIRPLUS),
            "READDIRPLUS_AUTO without DO_READDIRPLUS".into(),
        );
        faults
    }
}
