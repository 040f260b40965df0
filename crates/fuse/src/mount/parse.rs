//! Parser of `-o` strings: the options of mount(8) and of FUSE.

use std::str::FromStr;

use super::MountError;
use super::options::{Atime, MountOptions};

impl MountOptions {
    /// Applies a comma-separated `-o` string; a later option overrides an earlier one.
    ///
    /// A backslash quotes the next character, so `fsname=a\,b` is one option. Options that are only for mount(8) and fstab
    /// (`auto`, `nofail`, `_netdev`, `x-*`, `user`, ...) are ignored. Returns the unknown options in order; they belong to the
    /// file system or are a mistake of the user.
    ///
    /// # Errors
    ///
    /// A known option with a missing, wrong or superfluous value, or one that is refused.
    pub fn apply_str(&mut self, options: &str) -> Result<Vec<String>, MountError> {
        let mut unknown = Vec::new();
        for option in split(options) {
            if !self.apply_one(&option)? {
                unknown.push(option);
            }
        }
        Ok(unknown)
    }

    /// Applies one option; returns `false` if it is unknown.
    fn apply_one(&mut self, option: &str) -> Result<bool, MountError> {
        let (key, value) = match option.split_once('=') {
            Some((key, value)) => (key, Some(value)),
            None => (option, None),
        };
        match key {
            "max_read" => self.max_read = Some(number(option, value)?),
            "blksize" => self.blksize = Some(number(option, value)?),
            "fsname" => self.fsname = text(option, value)?.into(),
            "subtype" => self.subtype = Some(text(option, value)?),
            "allow_root" => {
                return Err(MountError::option(
                    option,
                    "the kernel has no such rule; use allow_other with default_permissions",
                ));
            }
            "user" | "users" | "owner" | "group" | "comment" | "uhelper" | "helper" => {}
            key if key.starts_with("x-") || key.starts_with("X-") => {}
            key if self.apply_word(key) => {
                if value.is_some() {
                    return Err(MountError::option(option, "takes no value"));
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Applies an option that has no value; returns `false` if it is unknown.
    fn apply_word(&mut self, word: &str) -> bool {
        match word {
            "ro" => self.read_only = true,
            "rw" => self.read_only = false,
            "suid" => self.nosuid = false,
            "nosuid" => self.nosuid = true,
            "dev" => self.nodev = false,
            "nodev" => self.nodev = true,
            "exec" => self.noexec = false,
            "noexec" => self.noexec = true,
            "symfollow" => self.nosymfollow = false,
            "nosymfollow" => self.nosymfollow = true,
            "noatime" => self.atime = Some(Atime::Never),
            "atime" | "relatime" | "norelatime" | "nostrictatime" => self.atime = Some(Atime::Relative),
            "strictatime" => self.atime = Some(Atime::Strict),
            "diratime" => self.nodiratime = false,
            "nodiratime" => self.nodiratime = true,
            "lazytime" => self.lazytime = true,
            "nolazytime" => self.lazytime = false,
            "sync" => self.sync = true,
            "async" => self.sync = false,
            "dirsync" => self.dirsync = true,
            "allow_other" => self.allow_other = true,
            "default_permissions" => self.default_permissions = true,
            "defaults" | "nouser" | "nousers" | "nofail" | "auto" | "noauto" | "_netdev" | "silent"
            | "loud" => {}
            _ => return false,
        }
        true
    }
}

/// Splits at commas without a preceding backslash; drops empty parts.
fn split(options: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut chars = options.chars();
    while let Some(c) = chars.next() {
        match c {
            ',' => parts.push(String::new()),
            '\\' => parts.last_mut().expect("never empty").push(chars.next().unwrap_or('\\')),
            c => parts.last_mut().expect("never empty").push(c),
        }
    }
    parts.retain(|part| !part.is_empty());
    parts
}

fn text(option: &str, value: Option<&str>) -> Result<String, MountError> {
    match value {
        Some(value) if !value.is_empty() => Ok(value.to_owned()),
        _ => Err(MountError::option(option, "needs a value")),
    }
}

fn number<T: FromStr>(option: &str, value: Option<&str>) -> Result<T, MountError> {
    text(option, value)?.parse().map_err(|_| MountError::option(option, "needs a whole number of bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_options_are_applied_and_unknown_ones_returned() {
        let mut opts = MountOptions::new();
        let unknown = opts
            .apply_str("ro,suid,dev,noexec,noatime,nodiratime,sync,dirsync,allow_other,default_permissions,max_read=65536,defaults,x-systemd.automount,comment=a,_netdev,nofail,user=joe,cache=none,,zap")
            .unwrap();
        assert_eq!(unknown, ["cache=none", "zap"]);
        assert!(opts.read_only && !opts.nosuid && !opts.nodev && opts.noexec);
        assert!(opts.nodiratime && opts.sync && opts.dirsync && opts.allow_other && opts.default_permissions);
        assert_eq!((opts.atime, opts.max_read), (Some(Atime::Never), Some(65536)));
    }

    #[test]
    fn the_last_one_wins() {
        let mut opts = MountOptions::new();
        opts.apply_str("ro,rw,strictatime,relatime,suid,nosuid").unwrap();
        assert!(!opts.read_only && opts.nosuid);
        assert_eq!(opts.atime, Some(Atime::Relative));
    }

    #[test]
    fn a_backslash_keeps_a_comma() {
        let mut opts = MountOptions::new();
        assert!(opts.apply_str(r"fsname=/a\,b\\c,ro").unwrap().is_empty());
        assert_eq!(opts.fsname, r"/a,b\c");
        assert!(opts.read_only);
    }

    #[test]
    fn mistakes_are_named() {
        for (input, part) in [
            ("max_read=many", "whole number"),
            ("max_read", "needs a value"),
            ("fsname=", "needs a value"),
            ("ro=1", "takes no value"),
            ("allow_root", "allow_other"),
        ] {
            let message = MountOptions::new().apply_str(input).unwrap_err().to_string();
            assert!(message.contains(part) && message.contains(input), "{message}");
        }
    }
}
