//! Creates, configures, checks and upgrades volumes, mounted or not, in their stores.

pub(super) mod create;
pub(super) mod maintenance;
pub(super) mod quota;
pub(super) mod settings;
pub(super) mod upgrade;
