//! Reads a policy again when its file changes.
//!
//! A change is put in force only when it is complete: no writer has the file open, and either another file was renamed
//! to its place, or the file was the same at two looks. In all other cases the rules stay as they were, and one warning
//! tells why.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use shunt_fuse::mount::MountPoint;
use shunt_mirror::PolicyFs;

use super::file::{PolicyFile, Stamp, Writers};
use super::origin::Origin;
use crate::error::{Result, failed};

/// Interval at which the file is looked at. SIGHUP has it read at once.
const LOOK: Duration = Duration::from_secs(1);

/// A policy in force, and the file that it came from.
pub(super) struct Followed {
    policed: Arc<PolicyFs>,
    file: PathBuf,
    source: PathBuf,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The file that was put in force or refused last.
    judged: Option<Stamp>,
    /// The file at the last look.
    seen: Option<Stamp>,
    /// Why the file is not in force; told once.
    told: Option<String>,
}

/// How a look at the file came about.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Look {
    /// By the clock.
    Timed,
    /// By SIGHUP: who sends it says that the file is complete.
    Demanded,
}

impl Followed {
    pub(super) fn new(policed: Arc<PolicyFs>, file: PathBuf, source: PathBuf) -> Self {
        Self { policed, file, source, state: Mutex::default() }
    }

    /// Puts the file in force, unless somebody writes to it or it is wrong.
    pub(super) fn reload(&self) {
        self.look(Look::Demanded);
    }

    fn look(&self, look: Look) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if look == Look::Demanded {
            state.told = None;
        }
        // One that is gone is waited for: editors remove a file before they write it.
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
            // Not noted as judged: the mode of its directory is none of its own.
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

    /// What is in the file is in force, or it is to be read.
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

/// Reads the file again when it changes, or is no more `text`, which is in force.
pub(super) fn start(followed: Arc<Followed>, place: Arc<OnceLock<MountPoint>>, text: String) -> Result<()> {
    let work = move || {
        // Before that a change could not be told to the kernel, nor to the next daemon.
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
