//! `shunt volume` and what it does.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use shunt_volume::id::{NodeName, VolumeName};

use super::history::{
    ConflictsArgs, HistoryArgs, RESOLVE_EXAMPLES, RESTORE_EXAMPLES, ResolveArgs, RestoreArgs, RetentionArgs,
    SET_EXAMPLES, VolumeLogArgs, VolumeSetArgs,
};
use super::ids;
use super::quota::QuotaArgs;
use super::size::Size;
use super::tree::{TREE_EXAMPLES, VolumeTreeArgs};
use super::{InviteArgs, JoinArgs, MountArgs, NodesCommand, PassthroughArg, ServeArgs};

const MOUNT_EXAMPLES: &str = "\
Examples:
  shunt volume mount notes /mnt/notes              until Ctrl-C
  shunt volume mount --daemon notes /mnt/notes     in the background; then `shunt umount /mnt/notes`

With `shunt install-helpers`, mount(8) and /etc/fstab know volumes:
  notes  /mnt/notes  shunt.volume  cache=/var/cache/notes,nofail  0  0";

const CREATE_EXAMPLES: &str = "\
Examples:
  shunt volume create notes                                    in a directory of this machine: nothing to install
  shunt volume create --meta postgres://ada@db/volumes --data s3://bucket/team team
  shunt volume create --encrypt diary                          copy the key it tells of to a safe place
      The keys of a bucket come from AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION and AWS_ENDPOINT_URL.";

#[derive(Clone, Debug, Subcommand)]
pub enum VolumeCommand {
    /// Make a volume
    #[command(after_help = CREATE_EXAMPLES)]
    Create(VolumeCreateArgs),

    /// Mount a volume: it is read and written at local speed, on the network or off it
    #[command(after_help = MOUNT_EXAMPLES, args_override_self = true)]
    Mount(Box<VolumeMountArgs>),

    /// Mount a tree of volumes, as the files of one of them describe it
    ///
    /// The volume NAME is at MOUNTPOINT/.tree, and its files say which volumes are where in the tree, on which machines:
    /// volumes/VOLUME.toml, nodes/NODE.toml, users.toml. A change of them takes effect on all machines that have the tree
    /// mounted. Each volume is served by a process of its own; `status MOUNTPOINT` lists them.
    #[command(after_help = TREE_EXAMPLES, args_override_self = true)]
    Tree(Box<VolumeTreeArgs>),

    /// List what two machines changed to different things
    Conflicts(ConflictsArgs),

    /// Choose a version of what is in conflict
    #[command(after_help = RESOLVE_EXAMPLES)]
    Resolve(ResolveArgs),

    /// Show what was changed in a mounted volume, by whom and when, the latest first
    Log(VolumeLogArgs),

    /// Show the versions of a path that are kept, the latest first: .shunt-history/NAME@#SEQ is one of them
    History(HistoryArgs),

    /// Bring back what was at a path
    #[command(after_help = RESTORE_EXAMPLES)]
    Restore(RestoreArgs),

    /// Show or change what is set for a volume: how much of its past is kept (`gc` forgets what is not), what it may hold
    #[command(after_help = SET_EXAMPLES)]
    Set(VolumeSetArgs),

    /// Leave the volume's store alone, also after the next mount: what is here is read and written, and waits
    Offline(VolumePlaceArgs),

    /// Be in touch with the volume's store again
    Online(VolumePlaceArgs),

    /// Keep files on this machine, and bring those that are not here: for off the network
    Pin(PinArgs),

    /// Let files leave again that were pinned
    Unpin(PinArgs),

    /// Check a volume: each name, each count, and where each piece of its contents is
    Check(VolumeCheckArgs),

    /// Free what no file of a volume and no version of one speaks of, a day after that was noticed, and rewrite stored
    /// objects of which little is in use
    Gc(VolumeGcArgs),

    /// Bring an encrypted volume that an older version made to the format that notices tampering: see the guide
    UpgradeFormat(VolumeUpgradeArgs),

    /// Show how a mounted volume is: what is here, what waits for the network
    Status(VolumeStatusArgs),

    /// Serve a volume to machines that hold no password of its stores, over TLS, until Ctrl-C
    Serve(ServeArgs),

    /// Print a token by which one machine can take part
    Invite(InviteArgs),

    /// Take part in a volume by a token
    Join(JoinArgs),

    /// Look after the machines that take part
    Nodes {
        #[command(subcommand)]
        command: NodesCommand,
    },
}

#[derive(Args, Clone, Debug)]
pub struct VolumeCreateArgs {
    /// Where its metadata are to be: sqlite:DIR, postgres://USER@HOST/DATABASE, or map:FILE, a file with a line
    /// VOLUME = ADDRESS for each volume [default: sqlite:$XDG_DATA_HOME/shunt/volumes/NAME]
    #[arg(long, value_name = "ADDRESS", env = "SHUNT_VOLUME_META", hide_env_values = true)]
    pub meta: Option<String>,

    /// Where its contents are to be: file:DIR, or s3://BUCKET/PREFIX [default: beside the metadata]
    #[arg(long, value_name = "ADDRESS")]
    pub data: Option<String>,

    #[command(flatten)]
    pub retention: RetentionArgs,

    #[command(flatten)]
    pub quota: QuotaArgs,

    /// Encrypt what its files hold, names, targets of symbolic links and extended attributes, with a key that is in no store.
    /// The shape of its tree, lengths of names, sizes, times, modes and owners are not encrypted
    #[arg(long)]
    pub encrypt: bool,

    /// With --encrypt: the file of the key, made with a new key if it is not there. Keep a copy: without it the contents are
    /// lost [default: $XDG_CONFIG_HOME/shunt/volumes/NAME.key]
    #[arg(long, value_name = "FILE", requires = "encrypt")]
    pub key_file: Option<PathBuf>,

    /// What it is called: 1 to 64 letters, digits, `-`, `_` and `.`
    #[arg(value_name = "NAME")]
    pub name: VolumeName,
}

#[derive(Args, Clone, Debug)]
pub struct VolumeMountArgs {
    /// The volume
    #[arg(value_name = "NAME", index = 1)]
    pub name: VolumeName,

    /// Where the metadata of the volume are, as it was made [default: through the gateway that this machine joined, or
    /// sqlite:$XDG_DATA_HOME/shunt/volumes/NAME]
    #[arg(long, value_name = "ADDRESS", env = "SHUNT_VOLUME_META", hide_env_values = true)]
    pub meta: Option<String>,

    /// Where this machine keeps the volume's tree, and contents as far as they were wanted: plain files, also of an
    /// encrypted volume [default: $XDG_CACHE_HOME/shunt/volumes/NAME]
    #[arg(long, value_name = "DIR")]
    pub cache: Option<PathBuf>,

    /// The file with the key of an encrypted volume [default: $XDG_CONFIG_HOME/shunt/volumes/NAME.key]
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<PathBuf>,

    /// How much of the volume is kept here
    #[arg(long, value_enum, value_name = "ROLE", default_value = "cached")]
    pub role: RoleArg,

    /// With --role cached: at most so many bytes of contents that can be had again: 500M, 20G. Beyond, what was not opened
    /// for longest leaves; never what is open, pinned, or not in the store yet [default: as the disk has room]
    #[arg(long, value_name = "SIZE")]
    pub cache_size: Option<Size>,

    /// What this machine is called, in conflicts and in the log [default: its host name]
    #[arg(long, value_name = "NAME")]
    pub node: Option<NodeName>,

    /// Show what was as NAME@TIME beside NAME, too, and not in .shunt-history/NAME@TIME alone: such names cannot be given to
    /// anything new then. Always so where nothing can be made
    #[arg(long)]
    pub at_names: bool,

    /// Show users FROM, FROM+1, ... of the volume as TO, TO+1, ... of this machine; may be repeated
    #[arg(long, value_name = "FROM:TO[:COUNT]", value_parser = ids::rule)]
    pub uid_map: Vec<String>,

    /// The same for groups
    #[arg(long, value_name = "FROM:TO[:COUNT]", value_parser = ids::rule)]
    pub gid_map: Vec<String>,

    /// With `-o suid` and a map by which an id is 0 here: programs of its owner may run as root here
    #[arg(long)]
    pub mapped_root_suid: bool,

    /// Show owners as this file says, which is read again on SIGHUP: how a tree tells
    #[arg(long, value_name = "FILE", hide = true, conflicts_with_all = ["uid_map", "gid_map"])]
    pub owner_table: Option<PathBuf>,

    /// For whom locks (fcntl, flock) are: those of this machine, or of all that are connected and say the same
    #[arg(long, value_enum, value_name = "HOW", default_value = "local")]
    pub locks: LocksArg,

    /// Whether file data goes past the daemon
    #[arg(long, value_enum, value_name = "HOW", default_value = "auto")]
    pub passthrough: PassthroughArg,

    /// Have the kernel answer what was asked before, by a program in it: `builtin`, or a file that clang made. Needs the
    /// module shunt_fuse_ext and a build with the feature `extension`; without them the daemon answers
    #[arg(long, value_name = "PROGRAM")]
    pub extension: Option<PathBuf>,

    /// Have the kernel keep no names and attributes, so that the extension sees every call: a change that came from
    /// elsewhere is then seen by all from one moment on
    #[arg(long, requires = "extension")]
    pub ask_always: bool,

    /// Once locked in, try what must not work
    #[arg(long, hide = true)]
    pub sandbox_probe: bool,

    #[command(flatten)]
    pub mount: MountArgs,
}

/// For whom locks are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LocksArg {
    /// Programs of this machine
    Local,
    /// Programs of all machines that are connected and mount with it. Off the network there are none: ENOLCK
    Leased,
}

/// How much of a volume is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RoleArg {
    /// All: contents come by themselves
    Complete,
    /// What was used, and what is pinned
    Cached,
    /// What is open, pinned or not in the store yet, and nothing else
    Remote,
}

#[derive(Args, Clone, Debug)]
pub struct PinArgs {
    /// Files, or directories with all that is below them, now or later
    #[arg(value_name = "PATH", required = true)]
    pub paths: Vec<PathBuf>,
}

#[derive(Args, Clone, Debug)]
pub struct VolumePlaceArgs {
    /// Where it is mounted
    #[arg(value_name = "MOUNTPOINT")]
    pub mountpoint: PathBuf,
}

#[derive(Args, Clone, Debug)]
pub struct VolumeStatusArgs {
    /// Print JSON: {name, node, cache, state, reason, read_only, connected, others, leases, pending, held, sent, received,
    /// objects_known, role, cached_bytes, cached_limit, pinned_bytes, pinned, unsent_bytes, stuck_bytes, awaited_files,
    /// unmet, unmet_paths, answer_ms, bytes_per_second, slow, contents_away, quota: {held, users, user_count}}, where `held`
    /// and each of `users` is {user, bytes, objects, limit_bytes, limit_objects}
    #[arg(long)]
    pub json: bool,

    /// Where it is mounted
    #[arg(value_name = "MOUNTPOINT")]
    pub mountpoint: PathBuf,
}

#[derive(Args, Clone, Debug)]
pub struct VolumeUpgradeArgs {
    /// Where the metadata of the volume are, as it was made [default: sqlite:$XDG_DATA_HOME/shunt/volumes/NAME]
    #[arg(long, value_name = "ADDRESS", env = "SHUNT_VOLUME_META", hide_env_values = true)]
    pub meta: Option<String>,

    /// The file with the key of the volume [default: $XDG_CONFIG_HOME/shunt/volumes/NAME.key]
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<PathBuf>,

    /// The volume
    #[arg(value_name = "NAME")]
    pub name: VolumeName,
}

#[derive(Args, Clone, Debug)]
pub struct VolumeCheckArgs {
    /// Where the metadata of the volume are, as it was made [default: sqlite:$XDG_DATA_HOME/shunt/volumes/NAME]
    #[arg(long, value_name = "ADDRESS", env = "SHUNT_VOLUME_META", hide_env_values = true)]
    pub meta: Option<String>,

    /// The file with the key of an encrypted volume [default: $XDG_CONFIG_HOME/shunt/volumes/NAME.key]
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<PathBuf>,

    /// Read every piece, not only look where it is: all of the contents travel
    #[arg(long)]
    pub read: bool,

    /// Where this machine keeps the volume's tree, of which it is checked what each user holds [default:
    /// $XDG_CACHE_HOME/shunt/volumes/NAME]
    #[arg(long, value_name = "DIR")]
    pub cache: Option<PathBuf>,

    /// Repair what is wrong from what is intact, and check again
    #[arg(long)]
    pub repair: bool,

    /// Print JSON: {objects, names, pieces, bytes, problem_count, problems, repaired, held_still}
    #[arg(long)]
    pub json: bool,

    /// The volume
    #[arg(value_name = "NAME")]
    pub name: VolumeName,
}

#[derive(Args, Clone, Debug)]
pub struct VolumeGcArgs {
    /// Give up the history of the volume that is older [default: keep all of it]
    #[arg(long, value_name = "DAYS")]
    pub history_days: Option<u64>,

    /// With --history-days: keep at least so many of the last commits
    #[arg(long, value_name = "N", default_value_t = 10_000, requires = "history_days")]
    pub history_commits: u64,

    /// Where the metadata of the volume are, as it was made [default: sqlite:$XDG_DATA_HOME/shunt/volumes/NAME]
    #[arg(long, value_name = "ADDRESS", env = "SHUNT_VOLUME_META", hide_env_values = true)]
    pub meta: Option<String>,

    /// The file with the key of an encrypted volume [default: $XDG_CONFIG_HOME/shunt/volumes/NAME.key]
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<PathBuf>,

    /// The volume
    #[arg(value_name = "NAME")]
    pub name: VolumeName,
}
