//! Collects the sections of a report.

use std::fmt::Write as _;
use std::fs;

use serde::Serialize;
use shunt_fuse::mount::MountInfo;

use super::command_line::Words;
use super::vocabulary::Vocabulary;
use super::{Redactor, Section, json, logs, tool};
use crate::control::{self, QueryResult};
use crate::own_mounts;
use crate::report::Stat;

const README: &str = "\
This archive was made by `shunt bugreport`. It contains versions, options, statistics, the findings of `shunt doctor`, logs and
messages of the kernel.

Words that are not part of Shunt's own messages, paths, names of files, users, hosts and volumes, addresses, keys and long numbers are
replaced by name-1, name-2, ... The same name has the same number in all files. Read the files before you send them.
";

/// Settings of the kernel that matter for mounts.
const SETTINGS: &[&str] = &[
    "/proc/sys/fs/fuse/max_pages_limit",
    "/proc/sys/fs/fuse/default_request_timeout",
    "/proc/sys/fs/fuse/max_request_timeout",
    "/proc/sys/fs/inotify/max_user_watches",
    "/proc/sys/fs/inotify/max_user_instances",
    "/proc/sys/fs/fanotify/max_user_groups",
    "/proc/sys/fs/file-nr",
    "/proc/sys/kernel/io_uring_disabled",
    "/proc/sys/kernel/unprivileged_bpf_disabled",
    "/sys/module/fuse/parameters/enable_uring",
    "/sys/module/fuse/parameters/max_user_bgreq",
    "/sys/kernel/security/lsm",
];

/// Collects all sections; `doctor` is the report of `shunt doctor`.
pub fn collect(doctor: &impl Serialize) -> Vec<Section> {
    let mut redactor = Redactor::new(Vocabulary::of_program());
    redactor.know(users());
    redactor.know(hosts());
    let mounts = mounts();
    for mount in &mounts {
        redactor.know_path(&mount.info.mountpoint.to_string_lossy());
        redactor.know_path(&mount.info.source.to_string_lossy());
        mount.argv.iter().filter(|word| word.contains('/')).for_each(|word| redactor.know_path(word));
    }
    let section = |name: &str, text: String| Section { name: name.to_owned(), text };
    let mut sections = vec![
        section("README.txt", README.to_owned()),
        section("versions.txt", redactor.text(&versions())),
        section("settings.txt", redactor.text(&settings())),
        section("doctor.json", as_json(&mut redactor, doctor)),
    ];
    let words = Words::new();
    for (number, mount) in mounts.iter().enumerate() {
        let name = |file: &str| format!("mount-{}/{file}", number + 1);
        sections.push(section(&name("options.txt"), mount.options(&words, &mut redactor)));
        if let Some(stat) = &mount.stat {
            sections.push(section(&name("stat.json"), as_json(&mut redactor, stat)));
            for (file, title) in [("limits", "limits.txt"), ("status", "status.txt")] {
                let text = fs::read_to_string(format!("/proc/{}/{file}", stat.pid)).unwrap_or_default();
                sections.push(section(&name(title), redactor.text(&text)));
            }
            if let Some(log) = logs::log_file(&mount.argv, stat.pid) {
                sections.push(section(&name("log.txt"), logs::redact(&mut redactor, &log)));
            }
        }
    }
    sections.push(section("journal.txt", logs::redact(&mut redactor, &logs::journal())));
    let kernel = logs::kernel().unwrap_or_else(|| "not readable by this user\n".to_owned());
    sections.push(section("kernel.txt", redactor.text(&kernel)));
    sections
}

fn as_json(redactor: &mut Redactor, value: &impl Serialize) -> String {
    let value = serde_json::to_value(value).unwrap_or_default();
    let value = json::redact(redactor, value);
    format!("{}\n", serde_json::to_string_pretty(&value).unwrap_or_default())
}

/// A mount with what is known about its daemon.
struct Mount {
    info: MountInfo,
    stat: Option<Stat>,
    argv: Vec<String>,
}

impl Mount {
    fn options(&self, words: &Words, redactor: &mut Redactor) -> String {
        let mut out = format!("type {}\n", redactor.line(&self.info.fstype));
        let _ = writeln!(out, "mountpoint {}", redactor.name(&self.info.mountpoint.to_string_lossy()));
        let _ = writeln!(out, "source {}", redactor.name(&self.info.source.to_string_lossy()));
        let _ = writeln!(out, "options {}", words.word(redactor, &self.info.options));
        let _ = writeln!(out, "super options {}", words.word(redactor, &self.info.super_options));
        if !self.argv.is_empty() {
            let _ = writeln!(out, "command {}", words.redact(redactor, &self.argv));
        }
        out
    }
}

fn mounts() -> Vec<Mount> {
    let infos = own_mounts::all().unwrap_or_default();
    let targets: Vec<_> = infos.iter().map(own_mounts::query_target).collect();
    let answers = control::inspect_all_stats(&targets);
    let with_daemon = |(info, answer): (MountInfo, QueryResult<Stat>)| {
        let stat = answer.into_answer();
        let argv = stat.as_ref().map(|stat| command_line(stat.pid)).unwrap_or_default();
        Mount { info, stat, argv }
    };
    infos.into_iter().zip(answers).map(with_daemon).collect()
}

fn command_line(pid: u32) -> Vec<String> {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words = line.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned());
    words.filter(|word| !word.is_empty()).collect()
}

fn versions() -> String {
    let uname = rustix::system::uname();
    let mut out = format!("shunt {}\n", env!("CARGO_PKG_VERSION"));
    for (feature, on) in [("extension", cfg!(feature = "extension")), ("lsm", cfg!(feature = "lsm"))] {
        let _ = writeln!(out, "feature {feature} {}", if on { "on" } else { "off" });
    }
    let (release, machine) = (uname.release().to_string_lossy(), uname.machine().to_string_lossy());
    let _ = writeln!(out, "Linux {release}\nmachine {machine}");
    let system = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let wanted = |line: &&str| line.starts_with("ID=") || line.starts_with("VERSION_ID=");
    system.lines().filter(wanted).for_each(|line| _ = writeln!(out, "{line}"));
    out.push_str(&tool::output("fusermount3", &["--version"]).unwrap_or_default());
    out
}

fn settings() -> String {
    let mut out = String::new();
    for path in SETTINGS {
        let value = fs::read_to_string(path).unwrap_or_else(|_| "missing".to_owned());
        let _ = writeln!(out, "{} {}", path.trim_start_matches('/').replace('/', "."), value.trim());
    }
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    out + &limits
}

/// The names of the users of this machine, except those of the system.
fn users() -> Vec<String> {
    let table = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let of_person = |line: &str| {
        let mut fields = line.split(':');
        let (name, uid) = (fields.next()?, fields.nth(1)?.parse::<u32>().ok()?);
        (uid >= 1000 && uid != 65_534).then(|| name.to_owned())
    };
    let mut names: Vec<String> = table.lines().filter_map(of_person).collect();
    // Those who are not in the file, as users of a directory service.
    let environment = ["USER", "LOGNAME", "SUDO_USER"].iter().filter_map(|name| std::env::var(name).ok());
    names.extend(environment.filter(|name| name != "root"));
    names
}

/// The names of this machine.
fn hosts() -> Vec<String> {
    let uname = rustix::system::uname();
    let full = uname.nodename().to_string_lossy().into_owned();
    let domain = uname.domainname().to_string_lossy().into_owned();
    let short = full.split('.').next().unwrap_or_default().to_owned();
    let machine_id = fs::read_to_string("/etc/machine-id").unwrap_or_default().trim().to_owned();
    [full, short, domain, machine_id]
        .into_iter()
        .filter(|name| name != "localhost" && name != "(none)")
        .collect()
}
