//! Builder for the extensions of a request.

use std::ffi::CStr;

use crate::consts::{EXT_GROUPS, MAX_NR_SECCTX};
use crate::{ExtHeader, Secctx, SecctxHeader, SuppGroups, Wire};

/// Collects extensions, laid out as the kernel does.
#[derive(Debug, Clone, Default)]
pub struct ExtBuilder {
    bytes: Vec<u8>,
}

impl ExtBuilder {
    /// Adds security contexts as pairs of name and value. Those above [`MAX_NR_SECCTX`] are skipped.
    #[must_use]
    pub fn security_contexts(mut self, contexts: &[(&CStr, &[u8])]) -> Self {
        let contexts = contexts.get(..MAX_NR_SECCTX as usize).unwrap_or(contexts);
        let start = self.bytes.len();
        self.bytes.resize(start + size_of::<SecctxHeader>(), 0);
        for (name, value) in contexts {
            let head = Secctx { size: saturate(value.len()), padding: 0 };
            self.bytes.extend_from_slice(head.as_bytes());
            self.bytes.extend_from_slice(name.to_bytes_with_nul());
            self.bytes.extend_from_slice(value);
            self.pad();
        }
        self.finish(start, saturate(contexts.len()))
    }

    /// Adds supplementary groups.
    #[must_use]
    pub fn groups(mut self, groups: &[u32]) -> Self {
        let start = self.bytes.len();
        self.bytes.resize(start + size_of::<ExtHeader>(), 0);
        self.bytes.extend_from_slice(SuppGroups { nr_groups: saturate(groups.len()) }.as_bytes());
        self.bytes.extend_from_slice(bytemuck::cast_slice(groups));
        self.pad();
        self.finish(start, EXT_GROUPS)
    }

    /// Returns the encoded extensions: a multiple of 8 bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
    }

    /// Fills in the head of the record at `start`.
    fn finish(mut self, start: usize, kind: u32) -> Self {
        let head = ExtHeader { size: saturate(self.bytes.len() - start), r#type: kind };
        for (to, from) in self.bytes.iter_mut().skip(start).zip(head.as_bytes()) {
            *to = *from;
        }
        self
    }
}

fn saturate(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}
