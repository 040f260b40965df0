//! Replaces names on the command lines of daemons. Options that exist and values that the command line defines stay.

use std::collections::HashSet;

use clap::CommandFactory;

use super::Redactor;
use crate::cli::Cli;

/// Values that clap does not list, and options of mount(8) and of the kernel.
const FURTHER: &[&str] = &[
    "allow_other",
    "auto",
    "blksize",
    "coherent",
    "default_permissions",
    "dirsync",
    "exclusive",
    "fsname",
    "group_id",
    "lazytime",
    "max_read",
    "noatime",
    "nodev",
    "nodiratime",
    "noexec",
    "none",
    "nosuid",
    "off",
    "on",
    "relatime",
    "ro",
    "rootmode",
    "rw",
    "subtype",
    "sync",
    "timeout",
    "user_id",
];

/// The words of the command line: commands, long options and possible values.
#[derive(Debug)]
pub struct Words(HashSet<String>);

impl Words {
    /// Collects them from all commands.
    pub fn new() -> Self {
        let mut words: HashSet<String> = FURTHER.iter().map(|word| (*word).to_owned()).collect();
        add(&Cli::command(), &mut words);
        Words(words)
    }

    /// The command line without names.
    pub fn redact(&self, redactor: &mut Redactor, argv: &[String]) -> String {
        let words: Vec<String> = argv.iter().skip(1).map(|word| self.word(redactor, word)).collect();
        format!("shunt {}", words.join(" "))
    }

    /// A list of options, separated by commas, without names.
    pub fn word(&self, redactor: &mut Redactor, word: &str) -> String {
        let parts: Vec<String> = word
            .split(',')
            .map(|part| match part.split_once('=') {
                Some((key, value)) => format!("{}={}", self.part(redactor, key), self.part(redactor, value)),
                None => self.part(redactor, part),
            })
            .collect();
        parts.join(",")
    }

    fn part(&self, redactor: &mut Redactor, part: &str) -> String {
        let name = part.trim_start_matches('-');
        let short = part.starts_with('-') && !part.starts_with("--") && name.len() <= 3;
        let size = name.trim_end_matches(|c: char| "KMGTkmgts".contains(c));
        let number = !size.is_empty()
            && size.len() <= 6
            && name.len() <= size.len() + 1
            && size.bytes().all(|b| b.is_ascii_digit());
        match short || number || name.is_empty() || self.0.contains(name) {
            true => part.to_owned(),
            false => redactor.name(part),
        }
    }
}

fn add(command: &clap::Command, words: &mut HashSet<String>) {
    words.insert(command.get_name().to_owned());
    for argument in command.get_arguments() {
        words.extend(argument.get_long().map(str::to_owned));
        words.extend(argument.get_all_aliases().into_iter().flatten().map(str::to_owned));
        words.extend(argument.get_possible_values().iter().map(|value| value.get_name().to_owned()));
    }
    command.get_subcommands().for_each(|command| add(command, words));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bugreport::vocabulary::Vocabulary;

    #[test]
    fn options_stay_and_names_go() {
        let argv = "shunt volume mount notes /mnt/notes --meta s3://b/k --cache-mode full -o ro,fsname=acme,cache=none --cache-size=20G -vv";
        let argv: Vec<String> = argv.split(' ').map(str::to_owned).collect();
        let mut redactor = Redactor::new(Vocabulary::of("notes acme"));
        let line = Words::new().redact(&mut redactor, &argv);
        assert!(!line.contains("notes") && !line.contains("acme") && !line.contains("s3"), "{line}");
        assert!(line.starts_with("shunt volume mount name-1 /mnt/name-1 --meta "), "{line}");
        assert!(
            line.contains("--cache-mode full -o ro,fsname=name-")
                && line.contains(",cache=none ")
                && line.ends_with("--cache-size=20G -vv"),
            "{line}"
        );
    }
}
