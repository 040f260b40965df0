//! The option `-o`: the options of mount(8), and every long option of the command by its name.

use std::ffi::OsString;

use clap::{Arg, Command};
use shunt_fuse::mount::MountOptions;

use super::foreign;
use crate::error::{Result, usage};

/// Options of the command that make no sense in fstab.
const NOT_IN_FSTAB: &[&str] = &["help", "version", "daemon", "background", "verbose"];

/// The result of expanding `-o` strings.
#[derive(Debug, Default)]
pub struct Expanded {
    /// Long options for the command.
    pub long: Vec<OsString>,
    /// A line for each option that has no effect.
    pub notes: Vec<String>,
}

/// Applies `-o` strings to `mount` and returns the others as long options of `command`.
///
/// # Errors
/// An option that neither mount(8) nor the command knows or that is refused, a missing value, or a superfluous one.
pub fn expand(strings: &[String], mount: &mut MountOptions, command: &Command) -> Result<Expanded> {
    let mut expanded = Expanded::default();
    for string in strings {
        for option in mount.apply_str(string)? {
            match foreign::resolve(command.get_name(), &option)? {
                Some(note) => expanded.notes.extend(note),
                None => expanded.long.push(as_long_option(&option, command)?.into()),
            }
        }
    }
    Ok(expanded)
}

fn as_long_option(option: &str, command: &Command) -> Result<String> {
    let (key, value) = match option.split_once('=') {
        Some((key, value)) => (key, Some(value)),
        None => (option, None),
    };
    let name = key.replace('_', "-");
    let known = command
        .get_arguments()
        .filter(|arg| is_named(arg, &name) && !NOT_IN_FSTAB.contains(&name.as_str()))
        .map(|arg| arg.get_action().takes_values())
        .next();
    match (known, value) {
        (Some(true), Some(value)) => Ok(format!("--{name}={value}")),
        (Some(false), None) => Ok(format!("--{name}")),
        (Some(true), None) => Err(usage(format_args!("mount option `{key}` needs a value: write {key}=..."))),
        (Some(false), Some(_)) => Err(usage(format_args!("mount option `{key}` takes no value"))),
        (None, _) => Err(usage(format_args!(
            "unknown mount option `{option}`: `shunt {} --help` lists the known options",
            command.get_bin_name().map_or(command.get_name(), |name| name.trim_start_matches("shunt "))
        ))),
    }
}

/// Reports whether an option has this long name, or had it in former versions.
fn is_named(arg: &Arg, name: &str) -> bool {
    arg.get_long() == Some(name) || arg.get_all_aliases().is_some_and(|aliases| aliases.contains(&name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ArgAction;

    fn command() -> Command {
        Command::new("mirror")
            .arg(Arg::new("cache").long("cache"))
            .arg(Arg::new("uid_map").long("uid-map"))
            .arg(Arg::new("busy_poll").long("busy-poll").alias("wakeful"))
            .arg(Arg::new("daemon").long("daemon").action(ArgAction::SetTrue))
            .arg(Arg::new("read_only").long("read-only").action(ArgAction::SetTrue))
    }

    fn expanded(option: &str) -> Result<Vec<OsString>> {
        Ok(expand(&[option.to_owned()], &mut MountOptions::new(), &command())?.long)
    }

    #[test]
    fn options_unknown_to_mount_become_long_options() {
        assert_eq!(
            expanded("noatime,cache=timeout=3,uid_map=0:1,nofail,x-a.b=c,uid-map=5:6:7,read_only").unwrap(),
            ["--cache=timeout=3", "--uid-map=0:1", "--uid-map=5:6:7", "--read-only"]
        );
    }

    #[test]
    fn former_names_become_long_options() {
        assert_eq!(expanded("wakeful=off,busy_poll=auto").unwrap(), ["--wakeful=off", "--busy-poll=auto"]);
        assert!(expanded("wakeful").unwrap_err().message.contains("`wakeful` needs a value"));
    }

    #[test]
    fn the_mount_takes_its_own() {
        let mut mount = MountOptions::new();
        expand(&["ro".into(), "allow_other".into()], &mut mount, &command()).unwrap();
        assert!(mount.is_read_only() && mount.is_allow_other());
    }

    #[test]
    fn mistakes_are_named() {
        for (wrong, part) in [
            ("zap", "unknown mount option `zap`"),
            ("background", "unknown"),
            ("pri=5", "swap"),
            ("cache", "needs a value"),
            ("read-only=1", "takes no value"),
            ("max_read=x", "max_read"),
        ] {
            let failure = expanded(wrong).unwrap_err();
            assert!(failure.message.contains(part), "{failure}");
            assert_eq!(failure.code, crate::error::Code::Usage);
        }
    }
}
