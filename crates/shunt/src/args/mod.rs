//! The arguments of the commands, parsed by clap.

mod bench;
mod busy_poll;
mod cache;
#[cfg(feature = "csi")]
mod csi;
mod data;
mod ext4;
mod foreign;
mod gateway;
mod history;
pub mod ids;
mod killpriv;
mod log;
mod lsm;
mod mount;
mod options;
mod passthrough;
mod quota;
mod size;
mod takeover;
mod tree;
mod volume;
mod web;

pub use bench::BenchArgs;
pub use busy_poll::BusyPollArg;
pub use cache::CacheArg;
#[cfg(feature = "csi")]
pub use csi::{CsiArgs, CsiMountArgs, DetachArg};
pub use data::DataArg;
pub use ext4::{ErrorsArg, Ext4Args, Ext4Command, Ext4MountArgs, ImageArgs, LocationArgs, SurveyArgs};
pub use gateway::{InviteArgs, JoinArgs, NodesCommand, ServeArgs, ServedArgs};
pub use history::{
    ConflictsArg, ConflictsArgs, HistoryArgs, ResolveArgs, RestoreArgs, RetentionArgs, VolumeLogArgs,
    VolumeSetArgs,
};
pub use killpriv::KillprivArg;
pub use log::LogArgs;
pub use lsm::LsmArg;
pub use mount::MountArgs;
pub use options::{Expanded, expand};
pub use passthrough::PassthroughArg;
pub use quota::{LimitSubject, QuotaArgs, UserLimit};
pub use size::Size;
pub use takeover::TakeoverArg;
pub use tree::VolumeTreeArgs;
pub use volume::{
    CacheModeArg, LocksArg, PinArgs, VolumeCheckArgs, VolumeCommand, VolumeCreateArgs, VolumeGcArgs,
    VolumeMountArgs, VolumeStatusArgs, VolumeUpgradeArgs,
};
pub use web::WebArgs;
