//! The inputs that a policy in force was built from.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use shunt_policy::{Names, Policy};

use crate::error::{Result, failed};

/// The inputs of a policy, from which another daemon can build the same policy.
#[derive(Serialize, Deserialize)]
pub struct Origin {
    /// Paths as bytes.
    file: Vec<u8>,
    source: Vec<u8>,
    pub text: String,
    passwd: String,
    group: String,
}

impl Origin {
    /// Captures the text of a policy, and the users and groups of this machine.
    pub fn new(file: &Path, source: &Path, text: String) -> Self {
        let names = |path: &str| fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        Self {
            file: file.as_os_str().as_bytes().to_vec(),
            source: source.as_os_str().as_bytes().to_vec(),
            text,
            passwd: names("/etc/passwd").unwrap_or_default(),
            group: names("/etc/group").unwrap_or_default(),
        }
    }

    /// Parses rules that are to be put in force.
    ///
    /// # Errors
    /// A policy that is invalid, or that has no rule without an explicit default.
    pub fn complete_policy(&self) -> Result<Policy> {
        let policy = self.policy()?;
        if policy.is_unfinished() {
            return Err(failed(format_args!(
                "{}: the policy has no rule, which would allow everything; add default = \"allow\" if that is intended",
                self.file().display()
            )));
        }
        Ok(policy)
    }

    /// Parses the rules that another daemon had in force.
    pub fn policy(&self) -> Result<Policy> {
        let names = Names::parse(&self.passwd, &self.group);
        Policy::parse(&self.text, &names)
            .map_err(|error| failed(format_args!("{}: {error}", self.file().display())))
    }

    pub fn file(&self) -> PathBuf {
        PathBuf::from(OsString::from_vec(self.file.clone()))
    }

    pub fn source(&self) -> PathBuf {
        PathBuf::from(OsString::from_vec(self.source.clone()))
    }

    pub fn save(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }
}
