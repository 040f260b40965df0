//! The credentials of stores. They reach the commands in the environment and in files of the state directory that only root may read,
//! never on a command line, and are never logged.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::Path;
use std::process::Command;

use crate::record_file;
use crate::status::{Result, invalid};

/// Beginnings of the names of variables that stores read.
const VARIABLES: [&str; 6] = ["AWS_", "AZURE_", "GOOGLE_", "SHUNT_HTTP_", "SHUNT_VOLUME_META", "PGPASSWORD"];

/// The credentials of one volume.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Secrets {
    variables: BTreeMap<String, String>,
    /// The file of the key of an encrypted volume.
    key: Option<String>,
    /// The file with which this node joined a gateway.
    node: Option<String>,
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secrets")
    }
}

impl Secrets {
    /// Parses the secrets of a call.
    ///
    /// # Errors
    /// INVALID_ARGUMENT with the name of an unknown one.
    pub(crate) fn parse(secrets: &BTreeMap<String, String>) -> Result<Self> {
        let mut parsed = Self::default();
        for (name, value) in secrets {
            match name.as_str() {
                "key" => parsed.key = Some(value.clone()),
                "node" => parsed.node = Some(value.clone()),
                _ if VARIABLES.iter().any(|prefix| name.starts_with(prefix))
                    && !name.contains(['=', '\0'])
                    && !value.contains('\0') =>
                {
                    parsed.variables.insert(name.clone(), value.clone());
                }
                _ => {
                    return Err(invalid(format_args!(
                        "unknown secret `{}`: known are key, node, AWS_*, AZURE_*, GOOGLE_*, SHUNT_HTTP_*, SHUNT_VOLUME_META and \
                         PGPASSWORD",
                        name.escape_debug()
                    )));
                }
            }
        }
        Ok(parsed)
    }

    /// Reports whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Reports whether there is the key of an encrypted volume.
    pub(crate) fn has_key(&self) -> bool {
        self.key.is_some()
    }

    /// Reports whether the address of the metadata is among them.
    pub(crate) fn has_meta(&self) -> bool {
        self.variables.contains_key("SHUNT_VOLUME_META")
    }

    /// Writes the files to a directory of configuration, and adds it and the variables to the environment of a command.
    ///
    /// # Errors
    /// The errors of the file system.
    pub(crate) fn pass_to(&self, command: &mut Command, config_home: &Path, volume: &str) -> io::Result<()> {
        let directory = config_home.join("shunt/volumes");
        for (content, extension) in [(&self.key, "key"), (&self.node, "node")] {
            let Some(content) = content else { continue };
            record_file::create_private_dir(&directory)?;
            record_file::write_bytes(&directory.join(format!("{volume}.{extension}")), content.as_bytes())?;
        }
        command.env("XDG_CONFIG_HOME", config_home).envs(&self.variables);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn parse(pairs: &[(&str, &str)]) -> Result<Secrets> {
        Secrets::parse(&pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect())
    }

    #[test]
    fn they_are_in_no_argument_and_in_no_message() {
        let dir = tempfile::tempdir().unwrap();
        let secrets = parse(&[("AWS_SECRET_ACCESS_KEY", "hush"), ("key", "hushkey")]).unwrap();
        let mut command = Command::new("shunt");
        secrets.pass_to(&mut command, dir.path(), "v").unwrap();
        assert_eq!(command.get_args().count(), 0);
        assert!(command.get_envs().any(|(name, value)| {
            name == "AWS_SECRET_ACCESS_KEY" && value.is_some_and(|value| value == "hush")
        }));
        let key = dir.path().join("shunt/volumes/v.key");
        assert_eq!(std::fs::read_to_string(&key).unwrap(), "hushkey");
        assert_eq!(std::fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(!format!("{secrets:?}").contains("hush"));
    }

    #[test]
    fn variables_that_change_the_program_are_refused() {
        for name in ["LD_PRELOAD", "PATH", "RUST_LOG", "", "AWS_A=B"] {
            let failure = parse(&[(name, "hush")]).unwrap_err();
            assert!(!failure.message().contains("hush"), "{failure}");
        }
    }
}
