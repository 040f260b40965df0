//! Parameters of requests. Values are bytes, percent-encoded, since names of files need not be UTF-8.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Component, Path, PathBuf};

use percent_encoding::percent_decode_str;

use super::error::{Failure, Result};

/// The parameters of a query string, or of the body of a change.
#[derive(Debug, Default)]
pub struct Parameters(BTreeMap<String, Vec<u8>>);

impl Parameters {
    /// Parses `name=value&name=value`.
    pub fn parse(query: &str) -> Self {
        let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        Parameters(
            pairs.map(|(name, value)| (name.to_owned(), percent_decode_str(value).collect())).collect(),
        )
    }

    /// A parameter that must be given.
    pub fn text(&self, name: &str) -> Result<&str> {
        self.optional(name)?.ok_or_else(|| Failure::bad(format_args!("the parameter {name} is missing")))
    }

    /// A parameter that may be absent or empty.
    pub fn optional(&self, name: &str) -> Result<Option<&str>> {
        let Some(value) = self.0.get(name).filter(|value| !value.is_empty()) else { return Ok(None) };
        let text = std::str::from_utf8(value)
            .map_err(|_| Failure::bad(format_args!("the parameter {name} is not UTF-8")))?;
        Ok(Some(text))
    }

    /// The parameters for the other of two files: `other_path` becomes `path`, and so on. The mount is the same.
    pub fn other(&self) -> Self {
        let others = self.0.iter().filter_map(|(name, value)| {
            let name = if name == "mount" { name } else { name.strip_prefix("other_")? };
            Some((name.to_owned(), value.clone()))
        });
        Parameters(others.collect())
    }

    /// A path relative to the root directory of a volume; empty for that directory. It has no `.` and `..`.
    pub fn path(&self) -> Result<PathBuf> {
        let bytes = self.0.get("path").cloned().unwrap_or_default();
        if bytes.contains(&0) {
            return Err(Failure::bad("the path contains a NUL"));
        }
        let path = PathBuf::from(OsString::from_vec(bytes));
        is_below(&path).then_some(path).ok_or_else(|| Failure::bad("the path must be relative, without `..`"))
    }
}

fn is_below(path: &Path) -> bool {
    path.components().all(|component| matches!(component, Component::Normal(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_bytes() {
        let given = Parameters::parse("path=a%2Fb%FF+%26&at=&x&mount=%2Fm");
        assert_eq!(given.path().unwrap(), Path::new(&OsString::from_vec(b"a/b\xff+&".to_vec())));
        assert_eq!(given.optional("at").unwrap(), None);
        assert_eq!(given.text("mount").unwrap(), "/m");
        assert!(given.text("path").is_err() && given.text("other").is_err());
    }

    #[test]
    fn paths_stay_below_the_root() {
        for path in ["%2Fetc", "..", "a/../../b", "./..", "a%00b"] {
            assert!(Parameters::parse(&format!("path={path}")).path().is_err(), "{path}");
        }
        assert_eq!(Parameters::parse("").path().unwrap(), Path::new(""));
    }
}
