//! Collects what a maintainer needs to understand a bug, without names: versions, options, statistics, the findings of
//! `shunt doctor`, logs and kernel messages. Every text passes through the [`Redactor`] before it enters the archive.

mod addresses;
mod archive;
mod collect;
mod command_line;
mod json;
mod logs;
mod pseudonyms;
mod redactor;
mod tool;
mod vocabulary;

pub use archive::write;
pub use collect::collect;
use redactor::Redactor;

/// A file of the archive.
#[derive(Debug)]
pub struct Section {
    /// Its path in the archive.
    pub name: String,
    /// Its content, without names.
    pub text: String,
}
