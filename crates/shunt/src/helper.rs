//! The helpers `mount.shunt.KIND` and `umount.fuse.shunt.KIND`: translates the calls of mount(8) and umount(8).

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use crate::error::{Code, Result, usage};

/// The file systems that can be mounted.
pub const KINDS: &[&str] = &["mirror", "ext4", "volume", "tree"];
/// The kinds that may be mounted from a block device, as `fuseblk`.
pub const BLOCK_KINDS: &[&str] = &["ext4"];
/// Options that enable set-user-ID bits and device nodes. Another user may have made them, in an image, in a container or on
/// another machine, and they would act as root here. They have names of their own because mount(8) does not pass on `suid` and
/// `dev`, its defaults.
const ALLOWED: &[(&str, &str)] = &[("allow_suid", "suid"), ("allow_dev", "dev")];

/// A call of mount(8) or umount(8), as a command line of `shunt`.
#[derive(Debug, PartialEq, Eq)]
pub struct Call {
    /// `shunt mirror --daemon ...` or `shunt umount ...`.
    pub argv: Vec<OsString>,
    /// `-f`: do everything except the mount.
    pub fake: bool,
}

/// Translates the command line if the program was called by the name of a helper.
///
/// # Errors
/// A command line that mount(8) would not write.
pub fn translate(argv: &[OsString]) -> Result<Option<Call>> {
    let Some((program, args)) = argv.split_first() else { return Ok(None) };
    let name = Path::new(program).file_name().unwrap_or_default().to_str().unwrap_or_default();
    if let Some(kind) = name.strip_prefix("mount.") {
        let kind = kind.strip_prefix("fuse.").unwrap_or(kind);
        return match kind.strip_prefix("shunt") {
            Some(kind) => mount(kind.strip_prefix('.'), args).map(Some),
            None => Ok(None),
        };
    }
    if let Some(kind) = name.strip_prefix("umount.") {
        let kind = kind.strip_prefix("fuseblk.").or_else(|| kind.strip_prefix("fuse.")).unwrap_or(kind);
        return if kind.starts_with("shunt") { umount(args).map(Some) } else { Ok(None) };
    }
    Ok(None)
}

/// `mount.TYPE SOURCE DIRECTORY [-sfnv] [-N NAMESPACE] [-o OPTIONS] [-t TYPE]`
fn mount(kind: Option<&str>, args: &[OsString]) -> Result<Call> {
    let mut kind = kind.map(str::to_owned);
    let mut operands = Vec::new();
    let mut options = Vec::new();
    let mut extra = Vec::new();
    let mut fake = false;
    let mut words = args.iter();
    while let Some(word) = words.next() {
        let Some(letters) = word.as_bytes().strip_prefix(b"-").filter(|l| !l.is_empty()) else {
            operands.push(word.clone());
            continue;
        };
        for (at, letter) in letters.iter().enumerate() {
            match letter {
                b's' | b'n' => {}
                b'f' => fake = true,
                b'v' => extra.push(OsString::from("-v")),
                b'r' => extra.push("--read-only".into()),
                b'w' => {}
                b'o' | b't' | b'N' => {
                    let value = value(&letters[at + 1..], &mut words, *letter)?;
                    match letter {
                        b'o' => options.push(value),
                        b't' => kind = subtype(&value),
                        _ => {
                            return Err(usage(
                                "mount namespaces (-N) are not supported; enter the namespace with nsenter(1)",
                            ));
                        }
                    }
                    break;
                }
                other => {
                    let other = char::from(*other);
                    return Err(usage(format_args!("unknown flag -{other} from mount(8)")));
                }
            }
        }
    }
    let [source, mountpoint] = <[OsString; 2]>::try_from(operands)
        .map_err(|_| usage("expected a source and a mount point: mount -t shunt.mirror SOURCE MOUNTPOINT"))?;
    let kind = kind.ok_or_else(|| usage("no file system type given; use a type such as `shunt.mirror`"))?;
    if !KINDS.contains(&kind.as_str()) {
        let known = KINDS.join(", shunt.");
        return Err(usage(format_args!("unknown type shunt.{kind}; known types are shunt.{known}")));
    }
    let mut argv: Vec<OsString> = match kind.as_str() {
        "volume" => ["shunt", "volume", "mount"].map(OsString::from).into(),
        "tree" => ["shunt", "volume", "tree"].map(OsString::from).into(),
        kind => ["shunt", kind].map(OsString::from).into(),
    };
    argv.push("--daemon".into());
    argv.extend(extra);
    for option in options {
        argv.extend(["-o".into(), allowed(&option)]);
    }
    argv.extend(["--".into(), source, mountpoint]);
    Ok(Call { argv, fake })
}

/// Translates the words of [`ALLOWED`] in `-o` to those of the command.
fn allowed(options: &OsStr) -> OsString {
    let mut words: Vec<&[u8]> = options.as_bytes().split(|byte| *byte == b',').collect();
    for at in 0..words.len() {
        // A comma behind a backslash belongs to a value.
        let begins = at.checked_sub(1).is_none_or(|before| !words[before].ends_with(b"\\"));
        let known = ALLOWED.iter().find(|(name, _)| begins && name.as_bytes() == words[at]);
        if let Some((_, means)) = known {
            words[at] = means.as_bytes();
        }
    }
    OsString::from_vec(words.join(&b','))
}

/// `umount.TYPE DIRECTORY [-flnrv] [-N NAMESPACE] [-t TYPE]`
fn umount(args: &[OsString]) -> Result<Call> {
    let mut argv: Vec<OsString> = vec!["shunt".into(), "umount".into()];
    let mut operands = Vec::new();
    let mut words = args.iter();
    while let Some(word) = words.next() {
        let Some(letters) = word.as_bytes().strip_prefix(b"-").filter(|l| !l.is_empty()) else {
            operands.push(word.clone());
            continue;
        };
        for (at, letter) in letters.iter().enumerate() {
            match letter {
                b'f' => argv.push("--force".into()),
                b'l' => argv.push("--lazy".into()),
                // Remounting a busy mount read-only (-r) is not supported; the other flags have no effect here.
                b'n' | b'r' | b'v' | b'i' => {}
                b't' | b'N' => {
                    value(&letters[at + 1..], &mut words, *letter)?;
                    break;
                }
                other => {
                    let other = char::from(*other);
                    return Err(usage(format_args!("unknown flag -{other} from umount(8)")));
                }
            }
        }
    }
    argv.push("--".into());
    argv.extend(operands);
    Ok(Call { argv, fake: false })
}

/// The value of a flag: the rest of its word, or the next word.
fn value<'a>(rest: &[u8], words: &mut impl Iterator<Item = &'a OsString>, letter: u8) -> Result<OsString> {
    if !rest.is_empty() {
        return Ok(OsString::from_vec(rest.to_vec()));
    }
    words.next().cloned().ok_or_else(|| usage(format_args!("-{} needs a value", char::from(letter))))
}

/// Extracts `mirror` from `fuse.shunt.mirror` or `shunt.mirror`.
fn subtype(kind: &OsStr) -> Option<String> {
    let kind = kind.to_str()?;
    kind.strip_prefix("fuse.").unwrap_or(kind).strip_prefix("shunt.").map(str::to_owned)
}

/// The exit code by the convention of mount(8): 1 for a wrong call, 32 for a failed mount.
pub fn exit_code(code: Code) -> u8 {
    match code {
        Code::Usage => 1,
        _ => 32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(line: &str) -> Result<Option<Call>> {
        translate(&line.split(' ').map(OsString::from).collect::<Vec<_>>())
    }

    fn becomes(line: &str, expected: &str) {
        let argv = call(line).unwrap().unwrap().argv;
        assert_eq!(argv.join(OsStr::new(" ")), expected, "{line}");
    }

    #[test]
    fn mount_calls() {
        becomes(
            "mount.shunt.volume notes /b -o rw,cache=/c",
            "shunt volume mount --daemon -o rw,cache=/c -- notes /b",
        );
        becomes("mount.shunt.tree site /b -o rw", "shunt volume tree --daemon -o rw -- site /b");
        becomes("mount.shunt.ext4 /a /b", "shunt ext4 --daemon -- /a /b");
        becomes("/sbin/mount.shunt.mirror /a /b", "shunt mirror --daemon -- /a /b");
        becomes(
            "mount.shunt.mirror /a /b -o rw,cache=none -v",
            "shunt mirror --daemon -v -o rw,cache=none -- /a /b",
        );
        becomes("mount.shunt /a /b -t shunt.mirror -sn", "shunt mirror --daemon -- /a /b");
        becomes("mount.fuse.shunt.mirror /a /b -oro", "shunt mirror --daemon -o ro -- /a /b");
    }

    /// mount(8) does not pass on `suid` and `dev`, which are its defaults.
    #[test]
    fn allow_suid_and_allow_dev_become_suid_and_dev() {
        becomes("mount.shunt.ext4 /a /b -o rw,allow_suid", "shunt ext4 --daemon -o rw,suid -- /a /b");
        becomes("mount.shunt.mirror /a /b -o allow_dev,ro", "shunt mirror --daemon -o dev,ro -- /a /b");
        becomes(
            "mount.shunt.volume notes /b -o rw,allow_suid,cache=/c,allow_dev",
            "shunt volume mount --daemon -o rw,suid,cache=/c,dev -- notes /b",
        );
        becomes("mount.shunt.tree site /b -o suid", "shunt volume tree --daemon -o suid -- site /b");
        becomes(
            r"mount.shunt.volume notes /b -o cache=/a\,allow_suid",
            r"shunt volume mount --daemon -o cache=/a\,allow_suid -- notes /b",
        );
    }

    #[test]
    fn umount_calls() {
        becomes("umount.fuse.shunt.mirror /b -l -t fuse.shunt.mirror", "shunt umount --lazy -- /b");
        becomes("/sbin/umount.fuseblk.shunt.ext4 /b -fn", "shunt umount --force -- /b");
    }

    #[test]
    fn our_own_name_is_no_helper() {
        for line in ["shunt mount.shunt.mirror /b", "mount.ext4 /a /b", "umount.nfs /b", "/x/mount"] {
            assert_eq!(call(line).unwrap(), None, "{line}");
        }
    }

    #[test]
    fn a_fake_mount_is_noticed() {
        assert!(call("mount.shunt.mirror /a /b -f").unwrap().unwrap().fake);
    }

    #[test]
    fn mistakes_are_named() {
        for (line, part) in [
            ("mount.shunt /a /b", "no file system type given"),
            ("mount.shunt.zfs /a /b", "unknown type shunt.zfs"),
            ("mount.shunt.mirror /a", "a source and a mount point"),
            ("mount.shunt.mirror /a /b -o", "-o needs a value"),
            ("mount.shunt.mirror /a /b -q", "-q"),
            ("mount.shunt.mirror /a /b -N 5", "nsenter"),
            ("umount.shunt.mirror /b -q", "-q"),
        ] {
            let failure = call(line).unwrap_err();
            assert!(failure.message.contains(part), "{line}: {failure}");
        }
    }
}
