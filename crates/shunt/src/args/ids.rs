//! The options `--uid-map` and `--gid-map`: `FROM:TO[:COUNT]`, any number of times.

use shunt_fuse::mount::MountOptions;
use shunt_mirror::{IdMap, IdMapError};

use crate::error::{Result, usage};

/// Parses one rule by itself, so that clap can name the option at fault.
///
/// # Errors
/// A malformed rule, or one beyond the last id.
pub fn rule(text: &str) -> Result<String, IdMapError> {
    IdMap::default().add(text).map(|()| text.to_owned())
}

/// Combines all rules of an option.
///
/// # Errors
/// Two rules that contradict each other about an id.
pub fn map(option: &str, rules: &[String]) -> Result<IdMap> {
    let mut map = IdMap::default();
    for rule in rules {
        map.add(rule).map_err(|error| usage(format_args!("{option}: {error}")))?;
    }
    Ok(map)
}

/// Refuses a mount on which the owner of ordinary files could run programs as root: set-user-ID bits are honoured, and an id
/// other than 0 in the source is mapped to 0.
///
/// # Errors
/// The mount is of that kind, and the user did not allow it.
pub fn refuse_root(users: &IdMap, groups: &IdMap, options: &MountOptions, allowed: bool) -> Result<()> {
    let mapped = [("--uid-map", users), ("--gid-map", groups)].into_iter().find(|(_, map)| map.store(0) != 0);
    match mapped {
        Some((option, map)) if options.is_suid() && !allowed => Err(usage(format_args!(
            "-o suid with {option}: programs of {} would run as root on this machine; omit suid, or add --mapped-root-suid",
            map.store(0)
        ))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_becomes_root_by_a_map_unless_that_is_said() {
        let (suid, nosuid) = (MountOptions::new().nosuid(false), MountOptions::new());
        let container = map("--uid-map", &["100000:0:65536".into()]).unwrap();
        let (none, others) = (IdMap::default(), map("--uid-map", &["0:1000".into()]).unwrap());
        let failure = refuse_root(&container, &none, &suid, false).unwrap_err();
        assert!(failure.message.contains("programs of 100000 would run as root"), "{failure}");
        refuse_root(&none, &container, &suid, false).unwrap_err();
        refuse_root(&container, &none, &suid, true).unwrap();
        refuse_root(&container, &container, &nosuid, false).unwrap();
        refuse_root(&none, &others, &suid, false).unwrap();
    }

    #[test]
    fn rules_are_checked_one_by_one_and_together() {
        for right in ["0:1000", "100000:0:65536", "4294967294:0"] {
            assert_eq!(rule(right).unwrap(), right);
        }
        for wrong in ["", "5", "1:2:3:4", "a:1", "1:-2", "1:2:0", "4294967295:0", "1:4294967290:9"] {
            assert!(rule(wrong).is_err(), "{wrong}");
        }
        let ids = map("--uid-map", &["0:1000".into(), "1:2000:5".into()]).unwrap();
        assert_eq!((ids.show(0), ids.show(3), ids.show(77)), (1000, 2002, 77));
        let failure = map("--uid-map", &["0:1".into(), "0:2".into()]).unwrap_err();
        assert!(failure.message.starts_with("--uid-map: '0:2' overlaps"), "{failure}");
    }
}
