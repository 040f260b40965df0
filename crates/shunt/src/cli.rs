//! The command line: subcommands, their options, and the expansion of `-o`.

use std::ffi::OsString;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, CommandFactory, Parser, Subcommand};
use shunt_fuse::mount::MountOptions;

use crate::args::{
    BenchArgs, CacheArg, Expanded, Ext4Args, KillprivArg, LogArgs, LsmArg, MountArgs, PassthroughArg,
    SurveyArgs, VolumeCommand, WebArgs, expand, ids,
};
#[cfg(feature = "csi")]
use crate::args::{CsiArgs, CsiMountArgs};
use crate::error::Result;
use crate::top::{MAX_INTERVAL, MIN_INTERVAL, SortKey};

const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  failed, for the reason in the message
  2  wrong command line
  3  the path is not a mount of shunt
  4  the mount is busy
  5  not permitted
  6  not finished within --timeout";

const EXAMPLES: &str = "\
Examples:
  shunt mirror /data /mnt/data            mirror /data at /mnt/data, until Ctrl-C
  shunt mirror --daemon /data /mnt/data   the same in the background
  shunt list                              list the mounts
  shunt stat /mnt/data                    show request counts and latencies
  shunt top                               show what all mounts do now
  shunt upgrade /mnt/data                 hand it over to the version of this command
  shunt umount /mnt/data                  unmount, and wait for the last commit
  shunt bench /mnt/data                   compare its speed with that of /data
  shunt doctor                            check this machine, and say how to fix what is wrong";

const EXT4_EXAMPLES: &str = "\
Examples:
  shunt ext4 disk.img /mnt/disk                mount it, until Ctrl-C
  shunt ext4 --daemon disk.img /mnt/disk       the same in the background; then `shunt umount /mnt/disk`
  shunt ext4 --read-only disk.img /mnt/disk    mount it without changing the image
  shunt ext4 info disk.img                     describe it, without a mount or privileges
  shunt ext4 ls -l disk.img /etc
  shunt ext4 cat disk.img /etc/fstab
  shunt ext4 extract --offset 1048576 disk.img /home home";

const MIRROR_EXAMPLES: &str = "\
Examples:
  shunt mirror /data /mnt/data
      Other programs may change /data, too: their changes are visible within a second.

  shunt mirror --daemon --cache exclusive /data /mnt/data
      Only this mount changes /data: cached names and attributes never expire. The fastest mode.

  shunt mirror --read-only --uid-map 0:1000 --gid-map 0:1000 /backup /mnt/backup
      Files of root in /backup belong to user and group 1000 in the mount.

  mount -t shunt.mirror /data /mnt/data -o cache=exclusive,noatime
      The same through mount(8), after `shunt install-helpers`. In /etc/fstab:
      /data  /mnt/data  shunt.mirror  cache=exclusive,nofail  0  0

  shunt mirror --virtiofs /run/data.sock /data
      Serve /data to a virtual machine. QEMU needs these options, besides those of the machine:
      -object memory-backend-memfd,id=ram,size=2G,share=on -machine memory-backend=ram
      -chardev socket,id=data,path=/run/data.sock -device vhost-user-fs-pci,chardev=data,tag=data
      In the guest: mount -t virtiofs data /mnt

Signals: SIGTERM and SIGINT unmount and exit, even if the mount is in use; a second one does not wait
for its users. SIGUSR1 writes the statistics to the log. SIGHUP reloads the policy, if there is one.";

const POLICY_EXAMPLES: &str = "\
Examples:
  shunt policy check policy.toml
  shunt policy explain --uid 1000 policy.toml /photos/a.jpg
  shunt policy explain --uid 1000 --gid 100 --group 44 --exe /usr/bin/gallery --op write policy.toml /photos/a.jpg";

const TOP_EXAMPLES: &str = "\
Examples:
  shunt top                                               then: s sorts, Enter shows one mount, / filters, q quits
  shunt top --sort p99 --interval 5
  shunt top --once --json | jq '.mounts[].rates'          two readings, one interval apart";

const METRICS_EXAMPLES: &str = "\
Examples:
  shunt metrics                                           then: curl http://127.0.0.1:9555/metrics
  shunt metrics --listen [::1]:9600
  shunt mirror --metrics 127.0.0.1:9556 /data /mnt/data   one mount, from its own daemon";

const BENCH_EXAMPLES: &str = "\
Examples:
  shunt bench /mnt/data                              a mirror with its source
  shunt bench --html bench.html /mnt/data            with plots
  shunt bench --against /srv/copy /mnt/volume        a volume with a local directory
  shunt bench --size 1G --time 120 --block-size 64K /mnt/data
  shunt bench --only read --only stat --json /mnt/data";
const WEB_EXAMPLES: &str = "\
Examples:
  shunt web                                      then open the printed link
  shunt web --allow-changes                      also resolve conflicts, restore versions, pin files, invite nodes
  shunt web --registry notes=/srv/notes.nodes    the nodes of a volume whose gateway has this registry
  ssh -t -L 9550:127.0.0.1:9550 HOST shunt web   the mounts of another machine; open the link in a browser here";

#[cfg(feature = "csi")]
const CSI_EXAMPLES: &str = "\
Examples:
  shunt csi --endpoint unix:///run/shunt-csi.sock --node-id $(hostname)
  shunt csi --endpoint unix:///var/lib/kubelet/plugins/csi.shunt.dev/csi.sock --node-id node-1 --host-namespaces \\
      --provision-dir /var/lib/shunt/csi

Signals: SIGTERM and SIGINT end the plugin. The mounts stay, and the next plugin with the same --state-dir knows them.";

const UPGRADE_EXAMPLES: &str = "\
Examples:
  shunt upgrade /mnt/data                                 to the version of this command
  shunt upgrade --binary /opt/shunt-new/shunt /mnt/data   to another binary
  shunt upgrade --all                                     every mount, after the binary was replaced";

/// File systems in user space at kernel speed.
#[derive(Debug, Parser)]
#[command(name = "shunt", version, after_help = EXAMPLES, after_long_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"))]
#[command(propagate_version = true, max_term_width = 100, args_override_self = true)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Mirror a directory at a mount point, with kernel passthrough of file data
    ///
    /// Once mounted, prints one line with the transport, and whether passthrough is on or why it is off.
    #[command(after_help = MIRROR_EXAMPLES, args_override_self = true)]
    Mirror(MirrorArgs),

    /// Mount an ext2, ext3 or ext4 image, or inspect it without a mount
    ///
    /// Given an image and a directory, mounts the image at the directory. The commands below change nothing and need only read
    /// permission on the image. The image may be untrusted. Write ./info for an image whose name is that of a command.
    #[command(after_help = EXT4_EXAMPLES, args_override_self = true)]
    Ext4(Ext4Args),

    /// Manage and mount volumes: file trees that several machines share and that stay usable offline
    Volume {
        #[command(subcommand)]
        command: VolumeCommand,
    },

    /// Check the rules of a policy, or explain their decisions
    ///
    /// A policy decides which users may see and change which files in a mount: `shunt mirror --policy FILE`.
    #[command(after_help = POLICY_EXAMPLES)]
    Policy {
        #[command(subcommand)]
        command: PolicyCommand,
    },

    /// Unmount and wait until the daemon has committed everything
    ///
    /// Also removes dead mounts ("transport endpoint is not connected"). Sends no request to the mount.
    Umount(UmountArgs),

    /// Hand a live mount over to another binary without interrupting its users
    ///
    /// The daemon finishes its pending requests and exits; the new one continues with all open files. Programs pause for some
    /// milliseconds. The new binary is checked first: if it cannot take over, nothing changes.
    #[command(after_help = UPGRADE_EXAMPLES)]
    Upgrade(UpgradeArgs),

    /// List the mounts of shunt
    List(ListArgs),

    /// Show the request counts and latencies of a mount, and the common operations that never reached its daemon
    Stat(StatArgs),

    /// Show what the mounts do now: rates, latencies, passthrough, caches, and the processes that use them
    ///
    /// A full-screen display that is renewed at an interval; ? lists its keys, q ends it. Run it as root for the mounts of all users.
    /// Requests that the kernel answers from its caches, and data of passed-through files, do not reach the daemons and are not
    /// counted.
    #[command(after_help = TOP_EXAMPLES)]
    Top(TopArgs),

    /// Export metrics of all mounts of this machine to Prometheus, until Ctrl-C
    ///
    /// Serves http://ADDRESS/metrics in the OpenMetrics format. Each scrape asks the daemons for their counters; run it as root for
    /// the mounts of all users. Gateways export their own: `shunt volume serve --metrics ADDRESS`.
    #[command(after_help = METRICS_EXAMPLES)]
    Metrics(MetricsArgs),

    /// Compare the speed of a mount with that of the directory below it
    ///
    /// Reads, writes, creates, stats, lists, renames and removes files in a fresh subdirectory of both, in turn, and prints rates,
    /// their ratios with confidence intervals, and latencies. The subdirectories are removed at the end, also after an error or Ctrl-C.
    #[command(after_help = BENCH_EXAMPLES)]
    Bench(BenchArgs),
    /// Show all mounts in a browser on this machine, until Ctrl-C
    ///
    /// Prints a link, which works once, for a browser on this machine. The page plots rates and latencies of all mounts; of volumes it
    /// shows synchronisation, cache, files with their history, conflicts and nodes. It can do what the user who runs it can do; without
    /// --allow-changes it changes nothing.
    #[command(after_help = WEB_EXAMPLES)]
    Web(WebArgs),

    /// Serve mirrors and volumes to the pods of this node: a plugin of the Container Storage Interface (CSI)
    ///
    /// The plugin starts a daemon for each volume, outside of its own container, so that its end, restart or upgrade is not noticed by pods.
    /// A plugin with another version hands the mounts over to it when it starts. Manifests for Kubernetes are in contrib/kubernetes.
    #[cfg(feature = "csi")]
    #[command(after_help = CSI_EXAMPLES)]
    Csi(CsiArgs),

    /// Check this machine: kernel features, privileges, limits, dead mounts, disk space
    ///
    /// Says for each finding which file systems it affects, and the command that fixes it. Changes nothing.
    Doctor(DoctorArgs),

    /// Pack versions, options, statistics and logs into an archive for a bug report, without names
    ///
    /// Paths, names of files, users, hosts and volumes, addresses and keys are replaced by name-1, name-2, ... Run it as root to include
    /// the mounts of all users and the messages of the kernel. Nothing is sent anywhere.
    Bugreport(BugreportArgs),

    /// Install helpers of mount(8) and umount(8) for the types `shunt.mirror`, `shunt.ext4`, `shunt.volume` and `shunt.tree`
    ///
    /// Creates symbolic links to this binary under the names that mount(8) and umount(8) look up, so that these types also work in
    /// /etc/fstab.
    InstallHelpers(InstallHelpersArgs),

    /// Print the completion script of a shell
    #[command(after_help = "Example: shunt completions bash > /etc/bash_completion.d/shunt")]
    Completions {
        /// Shell to complete for
        shell: clap_complete::Shell,
    },

    /// Print the manual page, or write the pages of all commands
    #[command(after_help = "Example: shunt man --dir /usr/local/share/man/man1")]
    Man {
        /// Directory to write shunt.1, shunt-mirror.1, ... to
        #[arg(long)]
        dir: Option<PathBuf>,
    },

    /// Watches a daemon and removes its mount, or starts another daemon, if it dies
    #[command(name = "__guardian", hide = true)]
    Guardian {
        #[arg(allow_hyphen_values = true, trailing_var_arg = true)]
        rest: Vec<OsString>,
    },

    /// Starts a daemon for the CSI plugin
    #[cfg(feature = "csi")]
    #[command(name = "__csi-mount", hide = true)]
    CsiMount(CsiMountArgs),

    /// Inspects an image before it is mounted
    #[command(name = "__survey", hide = true)]
    Survey(SurveyArgs),

    /// Asks a file system that may never answer
    #[command(name = "__probe", hide = true)]
    Probe { question: String, path: PathBuf },

    /// Unmounts on behalf of a sandboxed daemon
    #[command(name = "__outside", hide = true)]
    Outside { mountpoint: PathBuf, socket: Option<PathBuf> },
}

#[derive(Clone, Debug, Subcommand)]
pub enum PolicyCommand {
    /// Report errors of a policy, by line and column
    Check {
        /// Policy file
        file: PathBuf,
    },
    /// Explain what a caller may do at a path, and which rule decides
    Explain(ExplainArgs),
}

#[derive(Args, Clone, Debug)]
pub struct ExplainArgs {
    /// User id of the caller
    #[arg(long)]
    pub uid: u32,

    /// Group id of the caller [default: the user id]
    #[arg(long)]
    pub gid: Option<u32>,

    /// Supplementary group id of the caller; may be repeated
    #[arg(long, value_name = "GID")]
    pub group: Vec<u32>,

    /// Program that the caller runs [default: unknown; rules that depend on it are then evaluated in the strictest way]
    #[arg(long, value_name = "PATH")]
    pub exe: Option<PathBuf>,

    /// Operation of the caller: lookup, read, write, list, create, delete or attributes
    #[arg(long, value_name = "OPERATION", default_value = "read")]
    pub op: String,

    /// File whose contents the rules examine [default: an empty file]
    #[arg(long, value_name = "FILE")]
    pub content: Option<PathBuf>,

    /// Policy file
    pub file: PathBuf,

    /// Path from the root of the mount, as /photos/a.jpg
    pub path: PathBuf,
}

#[derive(Args, Clone, Debug)]
#[command(mut_arg("mountpoint", |mountpoint| {
    mountpoint
        .required(false)
        .required_unless_present("virtiofs")
        .default_value_if("virtiofs", clap::builder::ArgPredicate::IsPresent, "-")
}))]
pub struct MirrorArgs {
    /// Directory to mirror
    #[arg(value_name = "SOURCE", index = 1)]
    pub source: PathBuf,

    /// How long the kernel may cache names and attributes: `coherent` where others change the source too (their changes are
    /// visible within 100 ms), `timeout=SECONDS` (within that time), `exclusive` where only this mount changes it, `none` to send
    /// every lookup to the daemon; `auto` is `coherent` where that is available, else `timeout=1`
    #[arg(long, value_name = "MODE", default_value_t)]
    pub cache: CacheArg,

    /// Policy file with the access rules, reloaded when it changes or on SIGHUP; see `shunt policy --help`
    #[arg(long, value_name = "FILE")]
    pub policy: Option<PathBuf>,

    /// Append the decisions of rules with `audit` to this file, one JSON object per line [default: the log]
    #[arg(long, value_name = "FILE", requires = "policy")]
    pub audit_log: Option<PathBuf>,

    /// Fail an operation that a rule with `audit` decides with EIO when the audit log cannot be written
    #[arg(long, requires = "audit_log")]
    pub audit_required: bool,

    /// Component that enforces the rules
    #[arg(long, value_enum, value_name = "HOW", default_value = "auto")]
    pub lsm: LsmArg,

    /// Watch at most this many directories by inotify, even where fanotify works
    #[arg(long, value_name = "DIRECTORIES", hide = true)]
    pub inotify: Option<usize>,

    /// Passthrough: the kernel reads and writes file data without the daemon
    #[arg(long, value_enum, value_name = "HOW", default_value = "auto")]
    pub passthrough: PassthroughArg,

    /// Have a BPF program in the kernel answer repeated requests, and open files again: `builtin`, or an object file made by
    /// clang. Needs the module shunt_fuse_ext and a build with the feature `extension`; without them the daemon answers
    #[arg(long, value_name = "PROGRAM")]
    pub extension: Option<PathBuf>,

    /// Do not let the kernel cache names and attributes, so that the extension sees every call: for programs whose answers depend
    /// on the caller
    #[arg(long, alias = "ask-always", requires = "extension")]
    pub no_kernel_cache: bool,

    /// Show users FROM, FROM+1, ... of the source as TO, TO+1, ...; may be repeated
    #[arg(long, value_name = "FROM:TO[:COUNT]", value_parser = ids::rule)]
    pub uid_map: Vec<String>,

    /// Show groups FROM, FROM+1, ... of the source as TO, TO+1, ...; may be repeated
    #[arg(long, value_name = "FROM:TO[:COUNT]", value_parser = ids::rule)]
    pub gid_map: Vec<String>,

    /// With `-o suid` and an id mapped to 0: allow set-user-ID programs of that id to run as root on this machine
    #[arg(long)]
    pub mapped_root_suid: bool,

    /// Serve a virtual machine by virtiofs instead of mounting: listen on this socket for QEMU (vhost-user-fs-pci) or another
    /// emulator that speaks vhost-user
    #[arg(long, value_name = "SOCKET", conflicts_with = "mountpoint")]
    pub virtiofs: Option<PathBuf>,

    /// Tag by which the guest mounts the directory, 1 to 36 bytes, for emulators that request it; QEMU uses its own option `tag=`
    #[arg(long, value_name = "NAME")]
    pub tag: Option<String>,

    /// Let the daemon clear setuid, setgid and capabilities at a write (`v2`), or have the kernel request the capabilities before
    /// each (`off`)
    #[arg(long, value_enum, value_name = "HOW", default_value = "v2", hide = true)]
    pub killpriv: KillprivArg,

    /// Once sandboxed, try operations that must fail
    #[arg(long, hide = true)]
    pub sandbox_probe: bool,

    /// Ask the kernel to forget unused inodes above this number, at least 1000 (Linux 6.18) [default: no limit]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1000..))]
    pub max_inodes: Option<u64>,

    #[command(flatten)]
    pub mount: MountArgs,
}

#[derive(Args, Clone, Debug)]
#[command(
    after_help = "A busy mount stays mounted, and the error lists its users. --lazy detaches it from the \
    tree and serves those users until they close it; --force fails their requests."
)]
pub struct UmountArgs {
    /// Detach the mount from the tree now; the daemon exits after its last user
    #[arg(short, long)]
    pub lazy: bool,

    /// Fail pending and later requests
    #[arg(short, long)]
    pub force: bool,

    /// Seconds to wait for the daemon's last commit; 0: do not wait [default: no limit]
    #[arg(long, value_name = "SECONDS")]
    pub timeout: Option<u64>,

    /// Mount points to unmount
    #[arg(value_name = "MOUNTPOINT", required = true)]
    pub mountpoints: Vec<PathBuf>,
}

#[derive(Args, Clone, Debug)]
pub struct UpgradeArgs {
    /// New binary [default: the binary of this command]
    #[arg(long, value_name = "PATH")]
    pub binary: Option<PathBuf>,

    /// Upgrade all mounts that another binary serves; except those of systemd units, which a restart of the unit upgrades
    #[arg(long, conflicts_with = "mountpoint")]
    pub all: bool,

    /// Print JSON: {mountpoint, binary, old_version, version, old_pid, pid, pause_ms, takeovers}; an array with --all
    #[arg(long)]
    pub json: bool,

    /// Mount point of the file system
    #[arg(value_name = "MOUNTPOINT", required_unless_present = "all")]
    pub mountpoint: Option<PathBuf>,
}

#[derive(Args, Clone, Debug)]
pub struct ListArgs {
    /// Print a JSON array of {mountpoint, source, kind, pid, transport, transport_reason, passthrough}
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Clone, Debug)]
pub struct StatArgs {
    /// Print JSON: {requests: {getattr: {count, p50_us, p99_us, ...}, ...}, passthrough, cache, memory, ...}
    #[arg(long)]
    pub json: bool,

    /// Print again every SECONDS (1 to 86400), with the requests since the last time
    #[arg(short, long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub watch: Option<u64>,

    /// Mount point of the file system
    #[arg(value_name = "MOUNTPOINT")]
    pub mountpoint: PathBuf,
}

#[derive(Args, Clone, Debug)]
pub struct TopArgs {
    /// Time between two readings (0.2 to 3600 seconds)
    #[arg(short, long, value_name = "SECONDS", default_value = "1", value_parser = parse_interval)]
    pub interval: Duration,

    /// Column by which mounts are sorted
    #[arg(short, long, value_name = "COLUMN", default_value = "ops")]
    pub sort: SortKey,

    /// Reverse the order
    #[arg(short, long)]
    pub reverse: bool,

    /// Show only mounts whose mount point, source, kind, state or calling program contains TEXT
    #[arg(short, long, value_name = "TEXT")]
    pub filter: Option<String>,

    /// Print the changes during one interval, and exit
    #[arg(long)]
    pub once: bool,

    /// With --once: print JSON: {interval_s, mounts: [{mountpoint, state, rates, latency, operations, callers, ...}]}
    #[arg(long, requires = "once")]
    pub json: bool,
}

fn parse_interval(text: &str) -> std::result::Result<Duration, String> {
    let interval = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    interval.filter(|interval| (MIN_INTERVAL..=MAX_INTERVAL).contains(interval)).ok_or_else(|| {
        format!("not from {} to {} seconds", MIN_INTERVAL.as_secs_f64(), MAX_INTERVAL.as_secs())
    })
}

#[derive(Args, Clone, Debug)]
pub struct MetricsArgs {
    /// Host and port to listen on. Other machines can read the metrics if it is not a loopback address
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9555")]
    pub listen: String,

    #[command(flatten)]
    pub log: LogArgs,
}

#[derive(Args, Clone, Debug)]
#[command(
    after_help = "The exit code is 1 if there is an error: a file system cannot be mounted, or a mount does not work. Warnings \
    (slow or limited) and notes (optional features) leave it 0; with --strict a warning counts as well."
)]
pub struct DoctorArgs {
    /// Print JSON: {version, errors, warnings, findings: [{check, level, message, products, effect, fix}]}
    #[arg(long)]
    pub json: bool,

    /// Exit with 1 for warnings, too
    #[arg(long)]
    pub strict: bool,

    /// Print only warnings and errors
    #[arg(short, long)]
    pub quiet: bool,
}

#[derive(Args, Clone, Debug)]
pub struct BugreportArgs {
    /// Archive to create, `-` for standard output [default: shunt-bugreport-TIME.tar.gz in the working directory]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

#[derive(Args, Clone, Debug)]
pub struct InstallHelpersArgs {
    /// Directory in which mount(8) looks for its helpers
    #[arg(long, value_name = "DIR", default_value = "/sbin")]
    pub dir: PathBuf,
}

/// Parses a command line. Help, version and usage errors are printed and end the process here.
///
/// # Errors
/// A wrong `-o`.
pub fn parse(argv: &[OsString]) -> Result<Command> {
    let cli = Cli::try_parse_from(argv).unwrap_or_else(|error| error.exit());
    let (names, mount): (&[&str], _) = match &cli.command {
        Command::Mirror(args) => (&["mirror"], &args.mount),
        Command::Ext4(Ext4Args::Mount(args)) => (&["ext4"], &args.mount),
        Command::Volume { command: VolumeCommand::Mount(args) } => (&["volume", "mount"], &args.mount),
        Command::Volume { command: VolumeCommand::Tree(args) } => (&["volume", "tree"], &args.mount),
        _ => return Ok(cli.command),
    };
    let mut command = Cli::command();
    command.build();
    let command = names
        .iter()
        .fold(&command, |command, name| command.find_subcommand(name).expect("it was just parsed"));
    let Expanded { long: extra, notes } = expand(&mount.options, &mut MountOptions::new(), command)?;
    // The process that started this one in the background has printed them.
    if !mount.background && !mount.successor {
        for note in notes {
            let _ = writeln!(std::io::stderr(), "shunt: {note}");
        }
    }
    if extra.is_empty() {
        return Ok(cli.command);
    }
    // Inserted in front of the user's options, so that a long option overrides its twin in -o: the last one counts.
    let (head, tail) = argv.split_at(argv.len().min(1 + names.len()));
    let argv = head.iter().chain(&extra).chain(tail);
    Ok(Cli::try_parse_from(argv).unwrap_or_else(|error| error.exit()).command)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{BusyPollArg, CacheModeArg, ConflictsArg, Ext4Command, LocksArg, VolumeMountArgs};
    use shunt_volume::gateway::Role;

    fn mirror(line: &str) -> (MirrorArgs, MountOptions) {
        let argv: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        match parse(&argv).unwrap() {
            Command::Mirror(args) => {
                let options = args.mount.mount_options(MountOptions::new()).unwrap();
                (args, options)
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn clap_finds_no_fault() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_interval_of_top_is_bounded() {
        let of = |text: &str| match Cli::try_parse_from(["shunt", "top", "-i", text]).ok()?.command {
            Command::Top(args) => Some(args.interval),
            other => panic!("{other:?}"),
        };
        assert_eq!((of("0.5"), of("3600")), (Some(Duration::from_millis(500)), Some(MAX_INTERVAL)));
        for wrong in ["0", "0.1", "3601", "-1", "nan", "inf", "1e300", "x", ""] {
            assert_eq!(of(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_shortest_mirror() {
        let (args, options) = mirror("shunt mirror /a /b");
        assert_eq!((args.source, args.mount.mountpoint), ("/a".into(), "/b".into()));
        assert_eq!(args.cache, CacheArg::Auto);
        assert!(!options.is_read_only());
    }

    #[test]
    fn a_guest_takes_the_place_of_a_mount() {
        let (args, _) = mirror("shunt mirror /a --virtiofs /s -o cache=none");
        assert_eq!((args.virtiofs, args.cache), (Some("/s".into()), CacheArg::None));
        for wrong in ["shunt mirror /a", "shunt mirror /a /b --virtiofs /s"] {
            assert!(Cli::try_parse_from(wrong.split(' ')).is_err(), "{wrong}");
        }
    }

    #[test]
    fn options_of_the_command_come_through_dash_o() {
        let (args, options) = mirror(
            "shunt mirror -o ro,cache=exclusive,uid-map=0:1 /a /b -o threads=3,passthrough=off,log-file=/l -vv",
        );
        assert_eq!(args.cache, CacheArg::Exclusive);
        assert_eq!(args.uid_map, ["0:1"]);
        assert_eq!((args.mount.threads, args.mount.log.verbose), (Some(3), 2));
        assert_eq!(args.passthrough, PassthroughArg::Off);
        assert_eq!(args.mount.log.log_file, Some("/l".into()));
        assert!(options.is_read_only());
    }

    #[test]
    fn a_long_option_beats_dash_o() {
        let (args, _) = mirror("shunt mirror --cache none -o cache=exclusive /a /b");
        assert_eq!(args.cache, CacheArg::None);
    }

    fn volume(line: &str) -> VolumeCommand {
        let argv: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        match parse(&argv).unwrap() {
            Command::Volume { command } => command,
            other => panic!("{other:?}"),
        }
    }

    fn volume_mount(options: &str) -> VolumeMountArgs {
        match volume(&format!("shunt volume mount notes /mnt {options}")) {
            VolumeCommand::Mount(args) => *args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn cache_modes_have_former_names() {
        for (options, mode) in [
            ("--cache-mode full", CacheModeArg::Full),
            ("--cache-mode cached", CacheModeArg::Cached),
            ("--cache-mode on-demand", CacheModeArg::OnDemand),
            ("--role complete", CacheModeArg::Full),
            ("--role cached", CacheModeArg::Cached),
            ("--role=remote", CacheModeArg::OnDemand),
            ("-o cache_mode=full", CacheModeArg::Full),
            ("-o cache-mode=on-demand,ro", CacheModeArg::OnDemand),
            ("-o role=complete", CacheModeArg::Full),
            ("-o ro,role=remote", CacheModeArg::OnDemand),
            ("--role complete --cache-mode on-demand", CacheModeArg::OnDemand),
            ("--cache-mode on-demand -o role=complete", CacheModeArg::OnDemand),
            ("-o ro", CacheModeArg::Cached),
        ] {
            assert_eq!(volume_mount(options).cache_mode, mode, "{options}");
        }
    }

    #[test]
    fn options_of_a_volume_have_former_names() {
        for options in ["--locks cluster", "--locks leased", "-o locks=cluster", "-o locks=leased"] {
            assert_eq!(volume_mount(options).locks, LocksArg::Cluster, "{options}");
        }
        for word in ["copy", "beside"] {
            let set = volume(&format!("shunt volume set --conflicts {word} notes"));
            let VolumeCommand::Set(args) = set else { panic!("{set:?}") };
            assert_eq!(args.conflicts, Some(ConflictsArg::Copy), "{word}");
        }
        for option in ["--registry", "--book"] {
            let invite = volume(&format!("shunt volume invite notes --role read {option} /r"));
            let VolumeCommand::Invite(args) = invite else { panic!("{invite:?}") };
            assert_eq!((args.role, args.served.registry), (Role::Read, Some("/r".into())), "{option}");
            let serve = volume(&format!("shunt volume serve notes {option} /r"));
            let VolumeCommand::Serve(args) = serve else { panic!("{serve:?}") };
            assert_eq!(args.served.registry, Some("/r".into()), "{option}");
        }
    }

    #[test]
    fn options_of_every_mount_have_former_names() {
        for options in ["--busy-poll off", "--wakeful off", "-o busy_poll=off", "-o wakeful=off"] {
            assert_eq!(volume_mount(options).mount.busy_poll, BusyPollArg::Off, "{options}");
            let (args, _) = mirror(&format!("shunt mirror /a /b {options}"));
            assert_eq!(args.mount.busy_poll, BusyPollArg::Off, "{options}");
        }
        for options in
            ["--read-ahead 64K", "--max-readahead 64K", "-o read_ahead=64K", "-o max_readahead=65536"]
        {
            assert_eq!(volume_mount(options).mount.read_ahead, 64 << 10, "{options}");
        }
        for options in ["--no-kernel-cache", "--ask-always", "-o no_kernel_cache", "-o ask_always"] {
            let options = format!("--extension builtin {options}");
            assert!(volume_mount(&options).no_kernel_cache, "{options}");
            assert!(mirror(&format!("shunt mirror /a /b {options}")).0.no_kernel_cache, "{options}");
            let image = ext4(&format!("shunt ext4 a.img /b {options}"));
            let Ext4Args::Mount(args) = image else { panic!("{image:?}") };
            assert!(args.no_kernel_cache, "{options}");
        }
    }

    /// Help shows the current names alone.
    #[test]
    fn former_names_are_hidden() {
        let mut command = Cli::command();
        command.build();
        let volume = command.find_subcommand_mut("volume").unwrap();
        let help = ["mount", "set", "serve", "invite"]
            .map(|name| volume.find_subcommand_mut(name).unwrap().render_long_help().to_string())
            .concat();
        for word in ["--cache-mode", "on-demand", "cluster", "copy", "--registry", "--busy-poll"] {
            assert!(help.contains(word), "{word}");
        }
        for word in ["complete:", "remote:", "leased", "beside:", "--book", "--wakeful", "--ask-always"] {
            assert!(!help.contains(word), "{word}");
        }
    }

    fn ext4(line: &str) -> Ext4Args {
        let argv: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        match parse(&argv).unwrap() {
            Command::Ext4(args) => args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_image_is_mounted_or_looked_into() {
        let Ext4Args::Mount(mount) = ext4("shunt ext4 --offset 512 a.img /mnt -o ro,threads=2") else {
            panic!("no mount")
        };
        assert_eq!((mount.image, mount.location.offset), ("a.img".into(), Some(512)));
        assert_eq!((mount.mount.mountpoint, mount.mount.threads), ("/mnt".into(), Some(2)));

        let args = ext4("shunt ext4 ls -l --offset 512 a.img /etc");
        assert!(matches!(args, Ext4Args::Inspect(Ext4Command::Ls { long: true, .. })));
        assert!(matches!(ext4("shunt ext4 ./info /mnt"), Ext4Args::Mount(_)));
        for wrong in ["shunt ext4 a.img", "shunt ext4", "shunt ext4 ls --read-only a.img"] {
            assert!(Cli::try_parse_from(wrong.split(' ')).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_last_word_on_other_users() {
        assert!(!mirror("shunt mirror --no-allow-other -o allow_other /a /b").1.is_allow_other());
        assert!(mirror("shunt mirror --allow-other /a /b").1.is_allow_other());
        let root = rustix::process::geteuid().is_root();
        assert_eq!(mirror("shunt mirror /a /b").1.is_allow_other(), root);
    }
}
