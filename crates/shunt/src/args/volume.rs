//! The arguments of `shunt volume`.

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
  shunt volume create notes                                    in a local directory, without servers
  shunt volume create --meta postgres://ada@db/volumes --data s3://bucket/team team
  shunt volume create --encrypt diary                          keep a copy of the key file that it prints
      The credentials of a bucket are read from AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION and AWS_ENDPOINT_URL;
      of gs:// from GOOGLE_APPLICATION_CREDENTIALS, of az:// from AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY,
      of a WebDAV server from SHUNT_HTTP_USER and SHUNT_HTTP_PASSWORD.";

#[derive(Clone, Debug, Subcommand)]
pub enum VolumeCommand {
    /// Create a volume
    #[command(after_help = CREATE_EXAMPLES)]
    Create(VolumeCreateArgs),

    /// Mount a volume, which is read and written at local speed, online or offline
    #[command(after_help = MOUNT_EXAMPLES, args_override_self = true)]
    Mount(Box<VolumeMountArgs>),

    /// Mount a tree of volumes, as the files in one of them describe it
    ///
    /// The volume NAME is mounted at MOUNTPOINT/.tree. Its files volumes/VOLUME.toml, nodes/NODE.toml and users.toml define which
    /// volumes are where in the tree, and on which machines. A change of them takes effect on all machines that have the tree
    /// mounted. Each volume is served by a process of its own; `status MOUNTPOINT` lists them.
    #[command(after_help = TREE_EXAMPLES, args_override_self = true)]
    Tree(Box<VolumeTreeArgs>),

    /// List the conflicts between changes of two machines
    Conflicts(ConflictsArgs),

    /// Choose a version of a file in conflict
    #[command(after_help = RESOLVE_EXAMPLES)]
    Resolve(ResolveArgs),

    /// Show the changes of a mounted volume with node and time, the latest first
    Log(VolumeLogArgs),

    /// Show the kept versions of a path, the latest first; each can be read at .shunt-history/NAME@#SEQ
    History(HistoryArgs),

    /// Restore an earlier version of a path
    #[command(after_help = RESTORE_EXAMPLES)]
    Restore(RestoreArgs),

    /// Show or change the settings of a volume: how much history is kept (`gc` deletes the rest), quotas, conflicts
    #[command(after_help = SET_EXAMPLES)]
    Set(VolumeSetArgs),

    /// Disconnect a mounted volume from its store until `online`, also across mounts: cached files stay usable, changes are queued
    Offline(VolumeMountpointArgs),

    /// Reconnect a mounted volume to its store
    Online(VolumeMountpointArgs),

    /// Pin files: download missing contents and keep them on this machine, for use while offline
    Pin(PinArgs),

    /// Unpin files: allow them to be evicted again
    Unpin(PinArgs),

    /// Check a volume: every name, the counts of links and entries, and the location of every chunk
    Check(VolumeCheckArgs),

    /// Delete chunks that no file or kept version references, a day after a run found them unreferenced, and compact packs that are
    /// mostly unused
    Gc(VolumeGcArgs),

    /// Upgrade an encrypted volume of an older version to format 3, which detects tampering; see the guide
    UpgradeFormat(VolumeUpgradeArgs),

    /// Show the state of a mounted volume: connection, cache, and changes that wait for the network
    Status(VolumeStatusArgs),

    /// Serve a volume over TLS to machines without credentials for its stores, until Ctrl-C
    Serve(ServeArgs),

    /// Print a token with which one machine can join a volume
    Invite(InviteArgs),

    /// Join a volume with a token
    Join(JoinArgs),

    /// Manage the machines that joined a volume
    Nodes {
        #[command(subcommand)]
        command: NodesCommand,
    },
}

#[derive(Args, Clone, Debug)]
pub struct VolumeCreateArgs {
    /// Address of the volume's metadata: sqlite:DIR, postgres://USER@HOST/DATABASE, or map:FILE, a file with a line VOLUME = ADDRESS
    /// for each volume [default: sqlite:$XDG_DATA_HOME/shunt/volumes/NAME]
    #[arg(long, value_name = "ADDRESS", env = "SHUNT_VOLUME_META", hide_env_values = true)]
    pub meta: Option<String>,

    /// Address of the volume's contents: file:DIR, s3://BUCKET/PREFIX, gs://BUCKET/PREFIX (Google Cloud Storage),
    /// az://CONTAINER/PREFIX (Azure Blob Storage), or https://HOST/DIR (WebDAV) [default: beside the metadata]
    #[arg(long, value_name = "ADDRESS")]
    pub data: Option<String>,

    #[command(flatten)]
    pub retention: RetentionArgs,

    #[command(flatten)]
    pub quota: QuotaArgs,

    /// Encrypt file contents, names, targets of symbolic links and extended attributes, with a key that is in no store. The shape
    /// of the tree, lengths of names, sizes, times, modes and owners are not encrypted
    #[arg(long)]
    pub encrypt: bool,

    /// With --encrypt: the key file, created with a new key if it does not exist. Keep a copy: without it the contents are lost
    /// [default: $XDG_CONFIG_HOME/shunt/volumes/NAME.key]
    #[arg(long, value_name = "FILE", requires = "encrypt")]
    pub key_file: Option<PathBuf>,

    /// Name of the volume: 1 to 64 letters, digits, `-`, `_` and `.`
    #[arg(value_name = "NAME")]
    pub name: VolumeName,
}

#[derive(Args, Clone, Debug)]
pub struct VolumeMountArgs {
    /// The volume
    #[arg(value_name = "NAME", index = 1)]
    pub name: VolumeName,

    /// Address of the volume's metadata, as given to `create` [default: through the gateway that this machine joined, or
    /// sqlite:$XDG_DATA_HOME/shunt/volumes/NAME]
    #[arg(long, value_name = "ADDRESS", env = "SHUNT_VOLUME_META", hide_env_values = true)]
    pub meta: Option<String>,

    /// Cache directory of this machine, for the volume's tree and downloaded contents: plain files, also of an encrypted volume
    /// [default: $XDG_CACHE_HOME/shunt/volumes/NAME]
    #[arg(long, value_name = "DIR")]
    pub cache: Option<PathBuf>,

    /// The key file of an encrypted volume [default: $XDG_CONFIG_HOME/shunt/volumes/NAME.key]
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<PathBuf>,

    /// How much of the volume is cached on this machine
    #[arg(long, alias = "role", value_enum, value_name = "MODE", default_value = "cached")]
    pub cache_mode: CacheModeArg,

    /// With --cache-mode cached: limit of cached contents that the store has too: 500M, 20G. Above it, the least recently opened files
    /// are evicted; never those that are open, pinned, or not in the store yet [default: as much as the disk has room for]
    #[arg(long, value_name = "SIZE")]
    pub cache_size: Option<Size>,

    /// Name of this machine in conflicts and in the log [default: its host name]
    #[arg(long, value_name = "NAME")]
    pub node: Option<NodeName>,

    /// Show past versions as NAME@TIME beside NAME, not only in .shunt-history/NAME@TIME; new files cannot have such names then.
    /// Always on in a read-only mount
    #[arg(long)]
    pub at_names: bool,

    /// Show users FROM, FROM+1, ... of the volume as TO, TO+1, ... of this machine; may be repeated
    #[arg(long, value_name = "FROM:TO[:COUNT]", value_parser = ids::rule)]
    pub uid_map: Vec<String>,

    /// Show groups FROM, FROM+1, ... of the volume as TO, TO+1, ... of this machine; may be repeated
    #[arg(long, value_name = "FROM:TO[:COUNT]", value_parser = ids::rule)]
    pub gid_map: Vec<String>,

    /// With `-o suid` and an id mapped to 0: allow set-user-ID programs of that id to run as root on this machine
    #[arg(long)]
    pub mapped_root_suid: bool,

    /// Map owners by this file, which is reloaded on SIGHUP: used by `shunt volume tree`
    #[arg(long, value_name = "FILE", hide = true, conflicts_with_all = ["uid_map", "gid_map"])]
    pub owner_table: Option<PathBuf>,

    /// Scope of locks (fcntl, flock): this machine, or all connected machines that mount with the same value
    #[arg(long, value_enum, value_name = "HOW", default_value = "local")]
    pub locks: LocksArg,

    /// Passthrough: the kernel reads and writes file data without the daemon
    #[arg(long, value_enum, value_name = "HOW", default_value = "auto")]
    pub passthrough: PassthroughArg,

    /// Have a BPF program in the kernel answer repeated requests: `builtin`, or an object file made by clang. Needs the module
    /// shunt_fuse_ext and a build with the feature `extension`; without them the daemon answers
    #[arg(long, value_name = "PROGRAM")]
    pub extension: Option<PathBuf>,

    /// Do not let the kernel cache names and attributes, so that the extension sees every call: a change of another machine then
    /// becomes visible to all programs at the same moment
    #[arg(long, alias = "ask-always", requires = "extension")]
    pub no_kernel_cache: bool,

    /// Once sandboxed, try operations that must fail
    #[arg(long, hide = true)]
    pub sandbox_probe: bool,

    #[command(flatten)]
    pub mount: MountArgs,
}

/// The scope of locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LocksArg {
    /// Programs of this machine
    Local,
    /// Programs of all connected machines that mount with this value. While offline, locking fails with ENOLCK
    #[value(alias = "leased")]
    Cluster,
}

/// The part of a volume that a machine caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CacheModeArg {
    /// Everything: contents are downloaded in the background
    #[value(alias = "complete")]
    Full,
    /// Used and pinned files
    Cached,
    /// Only what is open, pinned or not in the store yet
    #[value(alias = "remote")]
    OnDemand,
}

#[derive(Args, Clone, Debug)]
pub struct PinArgs {
    /// Files, or directories with everything below them, including files created later
    #[arg(value_name = "PATH", required = true)]
    pub paths: Vec<PathBuf>,
}

#[derive(Args, Clone, Debug)]
pub struct VolumeMountpointArgs {
    /// Mount point of the volume
    #[arg(value_name = "MOUNTPOINT")]
    pub mountpoint: PathBuf,
}

#[derive(Args, Clone, Debug)]
pub struct VolumeStatusArgs {
    /// Print JSON: {name, node, cache, state, reason, read_only, connected, peers, leases, pending, blocked, sent, received,
    /// conflicts, objects_known, cache_mode, cached_bytes, cached_limit, pinned_bytes, pinned, unsent_bytes, unevictable_bytes,
    /// missing_files, offline_misses, offline_miss_paths, answer_ms, bytes_per_second, slow, objects_unreachable,
    /// quota: {held, users, user_count}}, where `held` and each of `users` is {user, bytes, objects, limit_bytes,
    /// limit_objects}; of a tree: {config, node, error, volumes: [{name, place, status, error}]}
    #[arg(long)]
    pub json: bool,

    /// Mount point of the volume
    #[arg(value_name = "MOUNTPOINT")]
    pub mountpoint: PathBuf,
}

#[derive(Args, Clone, Debug)]
pub struct VolumeUpgradeArgs {
    /// Address of the volume's metadata, as given to `create` [default: sqlite:$XDG_DATA_HOME/shunt/volumes/NAME]
    #[arg(long, value_name = "ADDRESS", env = "SHUNT_VOLUME_META", hide_env_values = true)]
    pub meta: Option<String>,

    /// The key file of the volume [default: $XDG_CONFIG_HOME/shunt/volumes/NAME.key]
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<PathBuf>,

    /// The volume
    #[arg(value_name = "NAME")]
    pub name: VolumeName,
}

#[derive(Args, Clone, Debug)]
pub struct VolumeCheckArgs {
    /// Address of the volume's metadata, as given to `create` [default: sqlite:$XDG_DATA_HOME/shunt/volumes/NAME]
    #[arg(long, value_name = "ADDRESS", env = "SHUNT_VOLUME_META", hide_env_values = true)]
    pub meta: Option<String>,

    /// The key file of an encrypted volume [default: $XDG_CONFIG_HOME/shunt/volumes/NAME.key]
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<PathBuf>,

    /// Read every chunk instead of only its location: downloads all contents
    #[arg(long)]
    pub read: bool,

    /// Cache directory of this machine, in which the usage of each user is checked too [default:
    /// $XDG_CACHE_HOME/shunt/volumes/NAME]
    #[arg(long, value_name = "DIR")]
    pub cache: Option<PathBuf>,

    /// Repair damage from intact data, and check again
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
    /// Delete commits from the volume's log that are older than this many days [default: keep all]
    #[arg(long, value_name = "DAYS")]
    pub history_days: Option<u64>,

    /// With --history-days: number of the latest commits to keep in any case
    #[arg(long, value_name = "N", default_value_t = 10_000, requires = "history_days")]
    pub history_commits: u64,

    /// Address of the volume's metadata, as given to `create` [default: sqlite:$XDG_DATA_HOME/shunt/volumes/NAME]
    #[arg(long, value_name = "ADDRESS", env = "SHUNT_VOLUME_META", hide_env_values = true)]
    pub meta: Option<String>,

    /// The key file of an encrypted volume [default: $XDG_CONFIG_HOME/shunt/volumes/NAME.key]
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<PathBuf>,

    /// The volume
    #[arg(value_name = "NAME")]
    pub name: VolumeName,
}
