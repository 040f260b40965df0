//! The file formats of a config volume, in TOML. Unknown keys are errors, which name file and line.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::ConfigError;
use crate::id::NodeName;

/// `volumes/NAME.toml`, or its settings for one node.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct VolumeFile {
    pub(super) place: Option<String>,
    pub(super) shown: Option<bool>,
    pub(super) store: Option<String>,
    pub(super) through: Option<NodeName>,
    /// `role` is its former name.
    #[serde(alias = "role")]
    pub(super) cache_mode: Option<super::CacheMode>,
    pub(super) cache_size: Option<String>,
    #[serde(default)]
    pub(super) on: BTreeMap<NodeName, VolumeFile>,
}

/// `nodes/NAME.toml`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct NodeFile {
    pub(super) address: Option<String>,
    #[serde(default)]
    pub(super) users: BTreeMap<String, u32>,
    #[serde(default)]
    pub(super) groups: BTreeMap<String, u32>,
    #[serde(default)]
    pub(super) default: Defaults,
}

/// The accounts that stand for owners without a name.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Defaults {
    pub(super) user: Option<Account>,
    pub(super) group: Option<Account>,
}

/// An account, by name or by number.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub(super) enum Account {
    Number(u32),
    Name(String),
}

/// `users.toml`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct UsersFile {
    #[serde(default)]
    pub(super) users: BTreeMap<String, u32>,
    #[serde(default)]
    pub(super) groups: BTreeMap<String, u32>,
}

/// Parses a file.
pub(super) fn parse<T: DeserializeOwned>(file: &str, text: &str) -> Result<T, ConfigError> {
    toml::from_str(text).map_err(|error| {
        let line = error.span().map(|span| {
            let before = text.as_bytes().iter().take(span.start);
            1 + before.filter(|byte| **byte == b'\n').count()
        });
        // Only the first line of the message has the reason.
        let why = error.message().lines().next().unwrap_or("invalid TOML").to_owned();
        ConfigError { file: file.to_owned(), line, why }
    })
}
