//! Negotiation: the INIT exchange, which selects protocol version, capabilities and sizes. A requested capability that cannot be
//! granted is recorded with its reason; if the file system requires it, the session does not start.

mod config;

use std::fmt;

use shunt_fuse_abi::{InitFlags, InitIn, InitOut};

use crate::transport::PAGE_BYTES;

pub use config::{Config, Profile, RingBuffers, Transport};

/// The newest protocol version that the framework supports completely.
pub const PROTOCOL: (u32, u32) = (7, 46);
/// The oldest supported minor version; kernels below it have no `max_pages` and no large writes.
const OLDEST_MINOR: u32 = 28;

/// The result of the negotiation.
#[derive(Debug, Clone)]
pub struct Negotiated {
    /// Protocol version in use.
    pub minor: u32,
    /// Granted capabilities.
    pub granted: InitFlags,
    /// Requested capabilities that were refused, with the reason.
    pub refused: Vec<Refusal>,
    /// Maximum size of a WRITE in bytes.
    pub max_write: u32,
    /// Maximum read-ahead in bytes.
    pub max_readahead: u32,
    /// The profile in use.
    pub profile: Profile,
}

impl Negotiated {
    /// Reports whether a capability was granted.
    pub fn has(&self, capability: InitFlags) -> bool {
        self.granted.contains(capability)
    }

    /// Returns the reason why a capability was refused, if it was requested.
    pub fn refusal(&self, capability: InitFlags) -> Option<&Refusal> {
        self.refused.iter().find(|refusal| refusal.capability.intersects(capability))
    }
}

/// A capability that was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The refused capability.
    pub capability: InitFlags,
    /// The reason.
    pub reason: &'static str,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut names = self.capability.iter_names().map(|(name, _)| name);
        write!(f, "{}", names.next().unwrap_or("?"))?;
        names.try_for_each(|name| write!(f, "|{name}"))?;
        write!(f, ": {}", self.reason)
    }
}

/// An error that prevents a session from starting.
#[derive(Debug)]
pub enum NegotiationError {
    /// The kernel's protocol version is too old.
    TooOld {
        /// Major version of the kernel.
        major: u32,
        /// Minor version of the kernel.
        minor: u32,
    },
    /// A required capability was refused.
    Required(Refusal),
    /// The connection ended before INIT.
    NoInit(std::io::Error),
    /// The first message was not INIT.
    NotInit(String),
    /// The start of the file system failed.
    Start(std::io::Error),
}

impl fmt::Display for NegotiationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooOld { major, minor } => write!(
                f,
                "the kernel supports FUSE {major}.{minor}; version 7.{OLDEST_MINOR} (Linux 4.20) or later is needed"
            ),
            Self::Required(refusal) => {
                write!(f, "a capability that this file system needs is not available: {refusal}")
            }
            Self::NoInit(error) => write!(f, "cannot receive INIT from the kernel: {error}"),
            Self::NotInit(message) => write!(f, "the first message is not INIT: {message}"),
            Self::Start(error) => write!(f, "the file system could not start: {error}"),
        }
    }
}

impl std::error::Error for NegotiationError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::NoInit(error) | Self::Start(error) => Some(error),
            Self::TooOld { .. } | Self::Required(_) | Self::NotInit(_) => None,
        }
    }
}

/// The outcome of one INIT.
pub(crate) enum Outcome {
    /// Send this reply and start the session.
    Agreed(InitOut, Negotiated),
    /// The kernel is newer than version 7: send this reply and wait for another INIT.
    AskAgain(InitOut),
}

/// Returns the refusals for a resumed session of capabilities that were not negotiated at its start.
pub(crate) fn refused_earlier(capabilities: InitFlags) -> Vec<Refusal> {
    let reason = "it was not negotiated when the mount was created";
    capabilities.iter().map(|capability| Refusal { capability, reason }).collect()
}

/// Properties of the server that decide which capabilities are available.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Circumstances {
    /// CAP_SYS_ADMIN in the initial user namespace, which passthrough requires.
    pub(crate) may_register_backing_files: bool,
    /// The device is a real `/dev/fuse`, not a mock or a virtual machine's queue.
    pub(crate) local_device: bool,
}

/// Selects the reply to INIT.
pub(crate) fn negotiate(
    init: &InitIn,
    config: &Config,
    circumstances: Circumstances,
) -> Result<Outcome, NegotiationError> {
    if init.major > PROTOCOL.0 {
        return Ok(Outcome::AskAgain(InitOut { major: PROTOCOL.0, minor: PROTOCOL.1, ..Default::default() }));
    }
    if init.major < PROTOCOL.0 || init.minor < OLDEST_MINOR {
        return Err(NegotiationError::TooOld { major: init.major, minor: init.minor });
    }
    let mut offered = InitFlags::from_bits_retain(u64::from(init.flags));
    if offered.contains(InitFlags::INIT_EXT) {
        offered |= InitFlags::from_bits_retain(u64::from(init.flags2) << 32);
    }

    let mut granted = InitFlags::empty();
    let mut refused = Vec::new();
    for capability in config.requested.iter() {
        match refuse(capability, offered, config, circumstances) {
            None => granted |= capability,
            Some(reason) => refused.push(Refusal { capability, reason }),
        }
    }
    if let Some(refusal) = refused.iter().find(|refusal| config.required.intersects(refusal.capability)) {
        return Err(NegotiationError::Required(refusal.clone()));
    }

    let max_write = if granted.contains(InitFlags::MAX_PAGES) { config.max_write } else { 32 * PAGE_BYTES };
    let max_readahead = init.max_readahead.min(config.max_readahead);
    let wire = granted | offered & InitFlags::INIT_EXT;
    let out = InitOut {
        major: PROTOCOL.0,
        minor: PROTOCOL.1,
        max_readahead,
        flags: wire.bits() as u32,
        flags2: (wire.bits() >> 32) as u32,
        max_background: config.max_background,
        congestion_threshold: config.max_background / 4 * 3,
        max_write,
        time_gran: config.time_granularity,
        max_pages: (config.largest_message().max(max_write) / PAGE_BYTES).min(u16::MAX.into()) as u16,
        max_stack_depth: if granted.contains(InitFlags::PASSTHROUGH) { config.max_stack_depth } else { 0 },
        request_timeout: match config.request_timeout {
            Some(timeout) if granted.contains(InitFlags::REQUEST_TIMEOUT) => {
                (timeout.as_secs() + u64::from(timeout.subsec_nanos() > 0)).clamp(15, u16::MAX.into()) as u16
            }
            _ => 0,
        },
        ..Default::default()
    };
    let negotiated = Negotiated {
        minor: init.minor.min(PROTOCOL.1),
        granted,
        refused,
        max_write,
        max_readahead,
        profile: config.profile,
    };
    Ok(Outcome::Agreed(out, negotiated))
}

/// Returns the reason why a requested capability must be refused, if there is one.
fn refuse(
    capability: InitFlags,
    offered: InitFlags,
    config: &Config,
    circumstances: Circumstances,
) -> Option<&'static str> {
    let requested = config.requested;
    let both = |a: InitFlags, b: InitFlags| capability == a && requested.contains(b);
    if !offered.contains(capability) {
        return Some("the kernel does not offer it");
    }
    if capability == InitFlags::PASSTHROUGH && !circumstances.local_device {
        return Some("backing files can only be registered on /dev/fuse");
    }
    if capability == InitFlags::PASSTHROUGH && !circumstances.may_register_backing_files {
        return Some("registering backing files needs CAP_SYS_ADMIN in the initial user namespace");
    }
    if both(InitFlags::PASSTHROUGH, InitFlags::WRITEBACK_CACHE) {
        return Some("passthrough and the write-back cache exclude each other");
    }
    if both(InitFlags::HANDLE_KILLPRIV, InitFlags::HANDLE_KILLPRIV_V2) {
        return Some("HANDLE_KILLPRIV_V2 replaces it");
    }
    if both(InitFlags::EXPLICIT_INVAL_DATA, InitFlags::AUTO_INVAL_DATA) {
        return Some("AUTO_INVAL_DATA was requested, and the kernel accepts only one of the two");
    }
    if capability == InitFlags::READDIRPLUS_AUTO && !offered.contains(InitFlags::DO_READDIRPLUS) {
        return Some("it needs DO_READDIRPLUS");
    }
    if capability == InitFlags::REQUEST_TIMEOUT && config.request_timeout.is_none() {
        return Some("no timeout was set");
    }
    if capability == InitFlags::MAP_ALIGNMENT || capability == InitFlags::HAS_INODE_DAX {
        return Some("DAX mappings are not supported");
    }
    if capability == InitFlags::INIT_RESERVED || !InitFlags::all().contains(capability) {
        return Some("unknown capability");
    }
    if capability == InitFlags::OVER_IO_URING && !config.rings_ready {
        return Some("the transport setting decides it");
    }
    if capability == InitFlags::HAS_IO_URING_BUFPOOL {
        return Some("the kernel only announces it");
    }
    if capability == InitFlags::SUBMOUNTS {
        return Some("automatic submounts are a virtiofs feature");
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: Circumstances = Circumstances { may_register_backing_files: true, local_device: true };

    fn init(offered: InitFlags) -> InitIn {
        let offered = offered | InitFlags::INIT_EXT;
        InitIn {
            major: 7,
            minor: 45,
            max_readahead: 131_072,
            flags: offered.bits() as u32,
            flags2: (offered.bits() >> 32) as u32,
            ..Default::default()
        }
    }

    fn agree(offered: InitFlags, config: &Config, who: Circumstances) -> (InitOut, Negotiated) {
        match negotiate(&init(offered), config, who) {
            Ok(Outcome::Agreed(out, negotiated)) => (out, negotiated),
            Ok(Outcome::AskAgain(_)) => panic!("asked again"),
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn passthrough_and_writeback_exclude_each_other_with_a_reason() {
        let config = Config::new(Profile::Passthrough).request(InitFlags::WRITEBACK_CACHE);
        let (out, negotiated) = agree(InitFlags::all(), &config, ROOT);
        assert!(!negotiated.has(InitFlags::PASSTHROUGH));
        assert_eq!(out.max_stack_depth, 0);
        assert!(negotiated.refusal(InitFlags::PASSTHROUGH).unwrap().reason.contains("exclude each other"));
    }

    #[test]
    fn passthrough_without_the_privilege_is_refused_by_name() {
        let who = Circumstances { may_register_backing_files: false, ..ROOT };
        let (_, negotiated) = agree(InitFlags::all(), &Config::new(Profile::Passthrough), who);
        let refusal = negotiated.refusal(InitFlags::PASSTHROUGH).unwrap();
        assert!(refusal.to_string().starts_with("PASSTHROUGH: "), "{refusal}");
        assert!(refusal.reason.contains("CAP_SYS_ADMIN"));
    }

    #[test]
    fn capabilities_not_offered_are_not_requested() {
        let config = Config::new(Profile::Passthrough).request(InitFlags::POSIX_ACL);
        let (out, negotiated) = agree(InitFlags::all() - InitFlags::POSIX_ACL, &config, ROOT);
        assert!(!negotiated.has(InitFlags::POSIX_ACL));
        assert_eq!(out.flags & InitFlags::POSIX_ACL.bits() as u32, 0);
    }

    #[test]
    fn a_required_capability_refused_ends_the_session() {
        let config = Config::new(Profile::Passthrough).require(InitFlags::HANDLE_KILLPRIV_V2);
        let result = negotiate(&init(InitFlags::empty()), &config, ROOT);
        assert!(
            matches!(result, Err(NegotiationError::Required(r)) if r.capability == InitFlags::HANDLE_KILLPRIV_V2)
        );
    }

    #[test]
    fn a_newer_major_version_is_asked_again_and_an_older_one_refused() {
        let config = Config::new(Profile::Passthrough);
        let newer = InitIn { major: 8, ..init(InitFlags::empty()) };
        assert!(matches!(negotiate(&newer, &config, ROOT), Ok(Outcome::AskAgain(out)) if out.major == 7));
        let older = InitIn { minor: 27, ..init(InitFlags::empty()) };
        assert!(matches!(negotiate(&older, &config, ROOT), Err(NegotiationError::TooOld { .. })));
    }

    #[test]
    fn a_request_timeout_is_sent_only_when_given() {
        let (out, _) = agree(InitFlags::all(), &Config::new(Profile::Passthrough), ROOT);
        assert_eq!(out.request_timeout, 0);
        let config =
            Config::new(Profile::Passthrough).request_timeout(std::time::Duration::from_millis(30_500));
        assert_eq!(agree(InitFlags::all(), &config, ROOT).0.request_timeout, 31);
    }
}
