//! The service manager that started this process, if one did: readiness and status notifications, the watchdog, and the
//! descriptor store by which a restart takes over. The protocol is that of sd_notify(3), spoken by the crate `sd-notify`.

mod notify;
mod store;
mod watchdog;

use std::ffi::OsString;

use shunt_fuse::guardian::{Guardian, GuardianError, HandOver, Inherited};

use crate::args::{MountArgs, TakeoverArg};
use crate::error::{Code, Failure, Result};

pub use notify::{connect, is_present, ready, reloading, restarting, stopping};
pub use watchdog::{disable as disable_watchdog, start as start_watchdog, stop as stop_watchdog};

/// Makes the descriptor store of the service manager the guardian of a new mount.
///
/// # Errors
/// No memory file can be created.
pub fn guardian(arguments: Vec<OsString>) -> Result<Guardian, GuardianError> {
    Guardian::in_service_manager(Box::new(store::ServiceManagerStore), arguments)
}

/// The mount that the last process of this service left for this one, if `--takeover service` asks for it.
///
/// # Errors
/// No service manager started this process.
pub fn inherit(args: &MountArgs, argv: &[OsString]) -> Result<Option<HandOver>> {
    if args.takeover != TakeoverArg::Service {
        return Ok(None);
    }
    if !notify::is_present() {
        return Err(Failure::new(
            Code::Usage,
            "--takeover service requires a service manager: NOTIFY_SOCKET is not set; start the mount as a service of systemd, or \
             use --takeover auto",
        ));
    }
    let store = Box::new(store::ServiceManagerStore);
    match HandOver::inherit(store, store::passed(), argv, args.crashes) {
        Inherited::HandOver(hand_over) => Ok(Some(*hand_over)),
        Inherited::Nothing => Ok(None),
        Inherited::Refused(reason) => {
            tracing::warn!("cannot continue the mount of the last process: {reason}; mounting again");
            Ok(None)
        }
    }
}
