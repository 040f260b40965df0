//! The parameters of storage classes and the attributes of volumes, parsed into what a mount needs.
//!
//! Only these keys are known, so that a typo is an error and no option is passed on that was not meant for users of a cluster.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::request;
use crate::status::{Result, invalid};

/// Keys that orchestrators add.
const FOREIGN_PREFIXES: [&str; 2] = ["csi.storage.k8s.io/", "storage.kubernetes.io/"];
/// Set by Kubernetes for volumes that a pod declares inline.
const EPHEMERAL: &str = "csi.storage.k8s.io/ephemeral";

/// Keys and the options of `shunt mirror` that they become.
const MIRROR_OPTIONS: [(&str, &str); 4] = [
    ("cache", "--cache"),
    ("passthrough", "--passthrough"),
    ("uidMap", "--uid-map"),
    ("gidMap", "--gid-map"),
];
/// Keys and the options of `shunt volume mount` that they become.
const VOLUME_OPTIONS: [(&str, &str); 6] = [
    ("cacheMode", "--cache-mode"),
    ("cacheSize", "--cache-size"),
    ("locks", "--locks"),
    ("passthrough", "--passthrough"),
    ("uidMap", "--uid-map"),
    ("gidMap", "--gid-map"),
];
/// Options that may be given several times: their values are separated by spaces.
const LISTS: [&str; 2] = ["uidMap", "gidMap"];

/// The key that names the kind.
pub(crate) const KIND: &str = "kind";

/// The mount of a volume. It has no secrets, and is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub(crate) enum MountSpec {
    /// A directory of the node.
    Mirror {
        /// The directory.
        source: PathBuf,
        /// File with the access rules.
        policy: Option<PathBuf>,
        /// Values of [`MIRROR_OPTIONS`] by their keys.
        options: BTreeMap<String, String>,
    },
    /// A volume.
    Volume {
        /// Its name.
        volume: String,
        /// Address of its metadata.
        meta: Option<String>,
        /// Values of [`VOLUME_OPTIONS`] by their keys.
        options: BTreeMap<String, String>,
    },
}

/// The places of a volume's files on this node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VolumePlaces<'a> {
    /// The cache directory.
    pub(crate) cache: &'a Path,
    /// The name of this node in conflicts and in the log.
    pub(crate) node: &'a str,
}

impl MountSpec {
    /// Parses the attributes of a volume.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for unknown, missing and malformed ones.
    pub(crate) fn parse(context: &BTreeMap<String, String>) -> Result<Self> {
        let mut keys = Keys::new(context)?;
        let spec = match keys.take(KIND).as_deref() {
            Some("mirror") => MountSpec::Mirror {
                source: request::path("source", &keys.take("source").unwrap_or_default())?,
                policy: keys.take("policy").map(|policy| request::path("policy", &policy)).transpose()?,
                options: keys.take_all(&MIRROR_OPTIONS),
            },
            Some("volume") => MountSpec::Volume {
                volume: volume_name(keys.take("volume").unwrap_or_default())?,
                meta: keys.take("meta").map(address).transpose()?,
                options: keys.take_all(&VOLUME_OPTIONS),
            },
            other => return Err(wrong_kind(other)),
        };
        keys.end()?;
        Ok(spec)
    }

    /// The arguments of the command that mounts it in the background.
    pub(crate) fn arguments(
        &self,
        places: VolumePlaces<'_>,
        read_only: bool,
        flags: &[String],
        log: &Path,
        mountpoint: &Path,
    ) -> Vec<OsString> {
        let mut words: Vec<OsString> = Vec::new();
        let (names, options, operand): (&[(&str, &str)], _, OsString) = match self {
            MountSpec::Mirror { source, policy, options } => {
                words.extend(["mirror".into(), "--daemon".into()]);
                words.extend(policy.as_ref().map(|policy| option("--policy", policy)));
                (&MIRROR_OPTIONS, options, source.into())
            }
            MountSpec::Volume { volume, meta, options } => {
                words.extend(["volume".into(), "mount".into(), "--daemon".into()]);
                words.push(option("--cache", places.cache));
                words.push(option("--node", places.node));
                words.extend(meta.as_ref().map(|meta| option("--meta", meta)));
                (&VOLUME_OPTIONS, options, volume.into())
            }
        };
        for (key, name) in names {
            let Some(value) = options.get(*key) else { continue };
            match LISTS.contains(key) {
                true => words.extend(value.split_whitespace().map(|value| option(name, value))),
                false => words.push(option(name, value)),
            }
        }
        if read_only {
            words.push("--read-only".into());
        }
        if !flags.is_empty() {
            words.extend(["-o".into(), flags.join(",").into()]);
        }
        words.push(option("--log-file", log));
        words.extend(["--".into(), operand, mountpoint.into()]);
        words
    }
}

fn option(name: &str, value: impl AsRef<std::ffi::OsStr>) -> OsString {
    let mut word = OsString::from(name);
    word.push("=");
    word.push(value);
    word
}

/// The kind of volume that a storage class asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ProvisionSpec {
    /// A directory below the base directory.
    Mirror {
        /// Mode of the directory.
        mode: u32,
    },
    /// A volume.
    Volume {
        /// Address of the metadata; `None`: SQLite below the base directory.
        meta: Option<String>,
        /// Address below which the contents are; `None`: a directory below the base directory.
        data: Option<String>,
        /// Encrypt it with the key of the secrets.
        encrypt: bool,
    },
}

/// Parses the parameters of a storage class. Also returns those that become attributes of the volume.
///
/// # Errors
/// INVALID_ARGUMENT for unknown and malformed ones.
pub(crate) fn provision(
    parameters: &BTreeMap<String, String>,
) -> Result<(ProvisionSpec, BTreeMap<String, String>)> {
    let mut keys = Keys::new(parameters)?;
    let kind = keys.take(KIND);
    let (spec, names, more): (_, &[(&str, &str)], &[&str]) = match kind.as_deref() {
        None | Some("mirror") => {
            let mode = keys.take("directoryMode").unwrap_or_else(|| "0777".to_owned());
            let parsed = u32::from_str_radix(&mode, 8).ok().filter(|mode| *mode <= 0o7777);
            let mode = parsed.ok_or_else(|| {
                invalid(format_args!("directoryMode {mode} is not an octal mode such as 0770"))
            })?;
            (ProvisionSpec::Mirror { mode }, &MIRROR_OPTIONS, &["policy"])
        }
        Some("volume") => {
            let encrypt = match keys.take("encrypt").as_deref() {
                None | Some("false") => false,
                Some("true") => true,
                Some(other) => return Err(invalid(format_args!("encrypt is {other}, not true or false"))),
            };
            let meta = keys.take("meta").map(address).transpose()?;
            let data = keys.take("data").map(address).transpose()?;
            (ProvisionSpec::Volume { meta, data, encrypt }, &VOLUME_OPTIONS, &[])
        }
        other => return Err(wrong_kind(other)),
    };
    let mut context = keys.take_all(names);
    for key in more {
        context.extend(keys.take(key).map(|value| ((*key).to_owned(), value)));
    }
    keys.end()?;
    context.insert(KIND.to_owned(), kind.unwrap_or_else(|| "mirror".to_owned()));
    Ok((spec, context))
}

/// Checks options of the mount, which are joined by commas.
///
/// # Errors
/// INVALID_ARGUMENT for words that the command line would not take as options.
pub(crate) fn mount_flags(flags: &[String]) -> Result<()> {
    match flags
        .iter()
        .find(|flag| flag.is_empty() || flag.starts_with('-') || flag.contains(char::is_control))
    {
        Some(flag) => Err(invalid(format_args!("wrong mount option `{}`", flag.escape_debug()))),
        None => Ok(()),
    }
}

fn wrong_kind(kind: Option<&str>) -> tonic::Status {
    match kind {
        None => invalid("the volume attribute `kind` is missing: it is mirror or volume"),
        Some(kind) => invalid(format_args!("kind is `{kind}`, not mirror or volume")),
    }
}

fn volume_name(name: String) -> Result<String> {
    match is_volume_name(&name) {
        true => Ok(name),
        false => {
            Err(invalid("the attribute `volume` is not the name of a volume: 1 to 64 letters, digits, - _ ."))
        }
    }
}

/// Reports whether volumes may have this name.
pub(crate) fn is_volume_name(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=64).contains(&name.len())
        && name.bytes().all(is_allowed)
        && name.as_bytes()[0].is_ascii_alphanumeric()
}

/// Refuses an address with a password: it would be shown in the list of processes.
fn address(address: String) -> Result<String> {
    let authority = address.split_once("://").map_or("", |(_, rest)| rest.split('/').next().unwrap_or(rest));
    let user = authority.rsplit_once('@').map_or("", |(user, _)| user);
    match user.contains(':') || address.contains("password=") {
        true => Err(invalid(
            "an address contains a password: put the whole address into the secret, as SHUNT_VOLUME_META",
        )),
        false => Ok(address),
    }
}

/// The keys that have not been read yet.
struct Keys(BTreeMap<String, String>);

impl Keys {
    fn new(all: &BTreeMap<String, String>) -> Result<Self> {
        if all.get(EPHEMERAL).is_some_and(|value| value == "true") {
            return Err(invalid(
                "inline volumes of pods are not supported: whoever may create pods could mount any directory of the node",
            ));
        }
        let is_own = |key: &str| !FOREIGN_PREFIXES.iter().any(|prefix| key.starts_with(prefix));
        Ok(Self(all.iter().filter(|(key, _)| is_own(key)).map(|(k, v)| (k.clone(), v.clone())).collect()))
    }

    fn take(&mut self, key: &str) -> Option<String> {
        self.0.remove(key)
    }

    fn take_all(&mut self, names: &[(&str, &str)]) -> BTreeMap<String, String> {
        names.iter().filter_map(|(key, _)| self.0.remove_entry(*key)).collect()
    }

    fn end(self) -> Result<()> {
        match self.0.keys().next() {
            Some(key) => Err(invalid(format_args!("unknown parameter `{key}`"))),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn line(context: &[(&str, &str)], read_only: bool, flags: &[&str]) -> String {
        let spec = MountSpec::parse(&map(context)).unwrap();
        let flags: Vec<String> = flags.iter().map(|flag| (*flag).to_owned()).collect();
        let places = VolumePlaces { cache: Path::new("/c"), node: "n1" };
        let words = spec.arguments(places, read_only, &flags, Path::new("/l"), Path::new("/m"));
        words.join(std::ffi::OsStr::new(" ")).into_string().unwrap()
    }

    #[test]
    fn command_lines() {
        assert_eq!(
            line(
                &[("kind", "mirror"), ("source", "/s"), ("cache", "none"), ("policy", "/p")],
                true,
                &["noexec", "x"]
            ),
            "mirror --daemon --policy=/p --cache=none --read-only -o noexec,x --log-file=/l -- /s /m"
        );
        assert_eq!(
            line(
                &[
                    ("kind", "volume"),
                    ("volume", "v"),
                    ("meta", "sqlite:/d"),
                    ("uidMap", "0:1 2:3"),
                    ("cacheSize", "1G")
                ],
                false,
                &[]
            ),
            "volume mount --daemon --cache=/c --node=n1 --meta=sqlite:/d --cache-size=1G --uid-map=0:1 --uid-map=2:3 \
             --log-file=/l -- v /m"
        );
    }

    #[test]
    fn wrong_attributes() {
        for wrong in [
            &[][..],
            &[("kind", "disk"), ("source", "/s")],
            &[("kind", "mirror")],
            &[("kind", "mirror"), ("source", "s")],
            &[("kind", "mirror"), ("source", "/s"), ("log-file", "/etc/passwd")],
            &[("kind", "mirror"), ("source", "/s"), ("policy", "../p")],
            &[("kind", "volume"), ("volume", "a/b")],
            &[("kind", "volume"), ("volume", "-x")],
            &[("kind", "volume"), ("volume", "v"), ("meta", "postgres://ada:secret@db/v")],
            &[("kind", "mirror"), ("source", "/"), (EPHEMERAL, "true")],
        ] {
            let failure = MountSpec::parse(&map(wrong)).unwrap_err();
            assert_eq!(failure.code(), tonic::Code::InvalidArgument, "{wrong:?}");
            assert!(!failure.message().contains("secret@"), "{failure}");
        }
        mount_flags(&["noatime".into(), "cache=none".into()]).unwrap();
        for wrong in ["", "-o", "--policy", "a\nb"] {
            mount_flags(&[wrong.into()]).unwrap_err();
        }
    }

    #[test]
    fn parameters_of_a_class_become_attributes() {
        let (spec, context) = provision(&map(&[
            ("cache", "exclusive"),
            ("policy", "/p"),
            ("directoryMode", "0750"),
            ("csi.storage.k8s.io/pvc/name", "x"),
        ]))
        .unwrap();
        assert_eq!(spec, ProvisionSpec::Mirror { mode: 0o750 });
        assert_eq!(context, map(&[("kind", "mirror"), ("cache", "exclusive"), ("policy", "/p")]));
        let (spec, context) = provision(&map(&[
            ("kind", "volume"),
            ("data", "s3://b/p"),
            ("encrypt", "true"),
            ("locks", "cluster"),
        ]))
        .unwrap();
        assert_eq!(spec, ProvisionSpec::Volume { meta: None, data: Some("s3://b/p".into()), encrypt: true });
        assert_eq!(context, map(&[("kind", "volume"), ("locks", "cluster")]));
        for wrong in
            [("source", "/etc"), ("kind", "disk"), ("directoryMode", "rwx"), ("directoryMode", "77777")]
        {
            provision(&map(&[wrong])).unwrap_err();
        }
    }
}
