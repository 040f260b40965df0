//! The format numbers with which a volume's descriptor begins. A store reads the number and nothing else of the descriptor.

/// The newest format: names are encrypted, and the log is sealed.
pub const SEALED_LOG: u32 = 3;
/// The format of a volume whose names are encrypted and whose log is not sealed.
pub const ENCRYPTED_NAMES: u32 = 2;
/// The format of a volume that is not encrypted.
pub const PLAIN_NAMES: u32 = 1;

/// Reports whether a descriptor, of which this is the beginning, is of a volume whose log is sealed: its store then takes
/// sealed transactions only.
pub(crate) fn is_sealed_log(descriptor: &[u8]) -> bool {
    descriptor.starts_with(&SEALED_LOG.to_le_bytes())
}
