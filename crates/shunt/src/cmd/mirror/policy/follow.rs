//! Reloads a policy when its file changes.
//!
//! A change is put in force only when it is complete: no writer has the file open, and either another file was renamed to its
//! place, or the file was the same at two looks. In all other cases the rules in force stay, and one warning reports the reason.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use shunt_fuse::mount::MountPoint;
use shunt_mirror::PolicyFs;

use crate::cmd::policy::file::{PolicyFile, Stamp, Writers};
use crate::cmd::policy::origin::Origin;
use crate::error::{Result, failed};

/// Polling interval of the file. SIGHUP reloads it at once.
const LOOK: Duration = Duration::from_secs(1);

/// A policy in force, and the file that it was read from.
pub(super) struct Followed {
    policed: Arc<PolicyFs>,
    file: PathBuf,
    source: PathBuf,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The version of the file that was last put in force or refused.
    judged: Option<Stamp>,
    /// The version of the file at the last look.
    seen: Option<Stamp>,
    /// The reason why the file is not in force, which is logged once.
    told: Option<String>,
}

/// The trigger of a look at the file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Look {
    /// The polling interval.
    Timed,
    /// SIGHUP: its sender asserts that the file is complete.
    Demanded,
}

impl Followed {
    pub(super) fn new(policed: Arc<PolicyFs>, file: PathBuf, source: PathBuf) -> Self {
        Self { policed, file, source, state: Mutex::default() }
    }

    /// Puts the file in force, unless a program is writing to it or it is invalid.
    pub(super) fn reload(&self) {
        self.look(Look::Demanded);
    }

    fn look(&self, look: Look) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if look == Look::Demanded {
            state.told = None;
        }
        // A removed file is waited for: editors remove a file before they write it.
        let Some(now) = Stamp::of(&self.file) else {
            if look == Look::Demanded {
                self.stays(&mut state, format!("{} is gone", self.file.display()));
            }
            return;
        };
        let unchanged = state.seen.replace(now) == Some(now);
        if look == Look::Timed && state.judged == Some(now) {
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
            Err(reason) => return self.stays(&mut state, reason),
        };
        let is_renamed = state.judged.is_some_and(|judged| !judged.is_same_file(&stamp));
        let (text, complete) = match text {
            Writers::None(text) => (text, is_renamed || unchanged),
            Writers::Unknown(text) => (text, unchanged),
            Writers::Some if look == Look::Timed && !unchanged => return,
            Writers::Some => {
                let reason =
                    format!("{} is open for writing, and read when it is closed", self.file.display());
                return self.stays(&mut state, reason);
            }
        };
        if look == Look::Timed && (!complete || stamp != now) {
            return;
        }
        state.judged = Some(stamp);
        state.seen = Some(stamp);
        self.put_in_force(&mut state, text);
    }

    fn put_in_force(&self, state: &mut State, text: String) {
        let origin = Origin::new(&self.file, &self.source, text);
        let policy = match origin.complete_policy() {
            Ok(policy) => policy,
            Err(failure) => return self.stays(state, failure.message),
        };
        let (rules, before) = (policy.rules().len(), self.policed.rule_count());
        match self.policed.reload(policy, origin.save()) {
            Ok(()) if rules < before => {
                tracing::warn!("{}: {rules} rules in force, {before} before", self.file.display());
            }
            Ok(()) => tracing::info!("{}: {rules} rules in force", self.file.display()),
            Err(reason) => return self.stays(state, reason.to_owned()),
        }
        state.told = None;
    }

    fn stays(&self, state: &mut State, reason: String) {
        if state.told.as_ref() != Some(&reason) {
            tracing::warn!("the policy stays as it was: {reason}");
            state.told = Some(reason);
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
pub(super) fn start(followed: Arc<Followed>, place: Arc<OnceLock<MountPoint>>, text: String) -> Result<()> {
    let work = move || {
        // Before the mount exists, a change could reach neither the kernel nor the next daemon.
        place.wait();
        followed.policed.refresh_programs();
        followed.begin(&text);
        drop(text);
        loop {
            thread::sleep(LOOK);
            followed.look(Look::Timed);
            followed.policed.refresh_programs();
            super::graft(&followed.policed, &place);
        }
    };
    let spawned = thread::Builder::new().name("policy".into()).spawn(work);
    spawned.map(drop).map_err(|error| failed(format_args!("cannot start a thread: {error}")))
}
