//! Reloads a policy when its file changes.
//!
//! A change is put in force only when it is complete: no writer has the file open, and either another file was renamed to its
//! place, or the file was the same at two looks. In all other cases the rules in force stay, and one warning reports the reason.

use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use shunt_change_stamp::ChangeStamp;
use shunt_fuse::mount::MountPoint;
use shunt_policyfs::PolicyFs;

use crate::cmd::policy::file::{PolicyFile, Writers};
use crate::cmd::policy::origin::Origin;
use crate::error::{Result, failed};

/// Polling interval of the file. SIGHUP reloads it at once.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// A policy in force, and the file that it was read from.
pub(super) struct WatchedPolicy {
    policy_fs: Arc<PolicyFs>,
    file: PathBuf,
    source: PathBuf,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The version of the file that was last put in force or refused.
    judged: Option<ChangeStamp>,
    /// The version of the file at the last look.
    last_seen: Option<ChangeStamp>,
    /// The reason why the file is not in force, which is logged once.
    reported: Option<String>,
}

/// The trigger of a look at the file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CheckTrigger {
    /// The polling interval.
    Poll,
    /// SIGHUP: its sender asserts that the file is complete.
    Signal,
}

impl WatchedPolicy {
    pub(super) fn new(policed: Arc<PolicyFs>, file: PathBuf, source: PathBuf) -> Self {
        Self { policy_fs: policed, file, source, state: Mutex::default() }
    }

    /// Puts the file in force, unless a program is writing to it or it is invalid.
    pub(super) fn reload(&self) {
        self.check_file(CheckTrigger::Signal);
    }

    fn check_file(&self, look: CheckTrigger) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if look == CheckTrigger::Signal {
            state.reported = None;
        }
        // A removed file is waited for: editors remove a file before they write it.
        let Some(now) = fs::metadata(&self.file).ok().map(|metadata| ChangeStamp::from(&metadata)) else {
            if look == CheckTrigger::Signal {
                self.report_unchanged(&mut state, format!("{} does not exist", self.file.display()));
            }
            return;
        };
        let unchanged = state.last_seen.replace(now) == Some(now);
        if look == CheckTrigger::Poll && state.judged == Some(now) {
            return;
        }
        let opened =
            PolicyFile::open(&self.file).and_then(|file| file.protected(&self.file)).and_then(|file| {
                let text = file.read_undisturbed()?;
                Ok((file.stamp(), text))
            });
        let (stamp, text) = match opened {
            Ok(opened) => opened,
            // Not recorded as judged: the reason may be the mode of its directory, which the stamp does not cover.
            Err(reason) => return self.report_unchanged(&mut state, reason),
        };
        let is_renamed = state.judged.is_some_and(|judged| !judged.is_same_file(&stamp));
        let (text, complete) = match text {
            Writers::None(text) => (text, is_renamed || unchanged),
            Writers::Unknown(text) => (text, unchanged),
            Writers::Some if look == CheckTrigger::Poll && !unchanged => return,
            Writers::Some => {
                let reason =
                    format!("{} is open for writing; it is read when it is closed", self.file.display());
                return self.report_unchanged(&mut state, reason);
            }
        };
        if look == CheckTrigger::Poll && (!complete || stamp != now) {
            return;
        }
        state.judged = Some(stamp);
        state.last_seen = Some(stamp);
        self.put_in_force(&mut state, text);
    }

    fn put_in_force(&self, state: &mut State, text: String) {
        let origin = Origin::new(&self.file, &self.source, text);
        let policy = match origin.complete_policy() {
            Ok(policy) => policy,
            Err(failure) => return self.report_unchanged(state, failure.message),
        };
        let (rules, before) = (policy.rules().len(), self.policy_fs.rule_count());
        match self.policy_fs.reload(policy, origin.save()) {
            Ok(()) if rules < before => {
                tracing::warn!("{}: {rules} rules in force, {before} before", self.file.display());
            }
            Ok(()) => tracing::info!("{}: {rules} rules in force", self.file.display()),
            Err(reason) => return self.report_unchanged(state, reason.to_owned()),
        }
        state.reported = None;
    }

    fn report_unchanged(&self, state: &mut State, reason: String) {
        if state.reported.as_ref() != Some(&reason) {
            tracing::warn!("cannot reload the policy, the previous one stays in force: {reason}");
            state.reported = Some(reason);
        }
    }

    /// Records the file as judged if it holds the text in force; otherwise the next look reads it.
    fn begin(&self, text: &str) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.judged.is_some() {
            return;
        }
        let opened = PolicyFile::open(&self.file).and_then(|file| Ok((file.stamp(), file.read()?)));
        if let Ok((stamp, now)) = opened
            && now == text
        {
            state.judged = Some(stamp);
        }
    }
}

/// Starts the thread that reloads the file when it changes, or when it no longer holds `text`, which is in force.
pub(super) fn start(
    followed: Arc<WatchedPolicy>,
    mount_point: Arc<OnceLock<MountPoint>>,
    text: String,
) -> Result<()> {
    let work = move || {
        // Before the mount exists, a change could reach neither the kernel nor the next daemon.
        mount_point.wait();
        followed.policy_fs.refresh_programs();
        followed.begin(&text);
        drop(text);
        loop {
            thread::sleep(POLL_INTERVAL);
            followed.check_file(CheckTrigger::Poll);
            followed.policy_fs.refresh_programs();
            super::graft(&followed.policy_fs, &mount_point);
        }
    };
    let spawned = thread::Builder::new().name("policy".into()).spawn(work);
    spawned.map(drop).map_err(|error| failed(format_args!("cannot start a thread: {error}")))
}
