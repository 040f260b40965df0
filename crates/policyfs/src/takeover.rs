//! Takeover of a mount with a policy, under the rules that were in force: see [`shunt_fuse::takeover`].
//!
//! Open files keep their redaction, and every node keeps its rules. The rules are those of the previous daemon,
//! even if the policy file changed: it is read again afterwards. State that cannot be restored is not served: a
//! node is looked up again, and an open file fails with EBADF.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::fd::AsFd;

use rustix::fs::{MemfdFlags, OFlags};
use shunt_fuse::guardian::HandOver;
use shunt_fuse::{Handle, NodeId};
use shunt_mirror::{Mirror, MirrorError, MirrorOptions};
use shunt_policy::Policy;

use crate::policy_inodes::ResolvedNode;
use crate::programs::Programs;
use crate::records::Records;
use crate::redacted::Redacted;
use crate::{AuditLog, PolicyFs};

// Ids of descriptors in the fd store, in addition to those of the mirror.
const AUDIT: u64 = 0;
const ORIGIN: u64 = 1;
const RECORDS: u64 = 2;
const TEXTS: u64 = 3;

impl PolicyFs {
    /// Returns the policy origin that the previous daemon stored: the `origin` of [`open`](Self::open) or
    /// [`reload`](Self::reload). `None` if it is lost.
    pub fn origin(hand_over: &mut HandOver) -> Option<Vec<u8>> {
        let mut file = File::from(hand_over.take(ORIGIN)?);
        let mut origin = Vec::new();
        file.rewind().and_then(|()| file.read_to_end(&mut origin)).ok()?;
        Some(origin)
    }

    /// Continues the session of another daemon with the same options. `policy` must be built from its
    /// [`origin`](Self::origin). The paths of source and audit log are not resolved: they may lead through the mount.
    ///
    /// # Errors
    /// The state that was handed over is incomplete.
    pub fn resume(
        options: MirrorOptions,
        policy: Policy,
        origin: Vec<u8>,
        hand_over: &mut HandOver,
    ) -> Result<Self, MirrorError> {
        let source = options.source.clone();
        let lost = || MirrorError::new(source.clone(), shunt_fuse::Errno::STALE);
        let audit = hand_over.take(AUDIT).map_or_else(AuditLog::new, |file| AuditLog::into(file.into()));
        let (records, texts) = hand_over.take(RECORDS).zip(hand_over.take(TEXTS)).ok_or_else(lost)?;
        let (records, restored) = Records::open(records, texts, &policy).map_err(|_| lost())?;
        let mirror = Mirror::resume(MirrorOptions { always_opens: true, ..options }, hand_over)?;
        let programs = Programs::default();
        programs.refresh_soon(&policy);
        let none = policy.root().class();
        let fs = Self::new(mirror, source.clone(), policy, origin, audit, programs);
        fs.views.restore(records, restored, &none);
        fs.pin_grafts();
        Ok(fs)
    }

    /// Called when a session starts or resumes.
    pub(crate) fn start_takeover(&self, session: &Handle) -> io::Result<()> {
        let Some(takeover) = session.takeover() else { return self.mirror.start_with(session, &Some) };
        if takeover.takeovers() == 0 {
            let records = Records::create()?;
            for (id, file) in [RECORDS, TEXTS].into_iter().zip(records.files()) {
                takeover.store(id, file);
            }
            self.views.start_recording(records);
            self.hold_origin();
            if let Some(audit) = self.audit.file() {
                takeover.store(AUDIT, audit.as_fd());
            }
            return self.mirror.start_with(session, &Some);
        }
        let inner = |node: NodeId| self.inner(node).ok();
        self.mirror.start_with(session, &inner)?;
        for record in takeover.files() {
            let reads = OFlags::from_bits_retain(record.flags) & OFlags::RWMODE != OFlags::WRONLY;
            if let Ok(ResolvedNode::View(view) | ResolvedNode::Retired(view)) = self.views.get(record.node)
                && let (Some(redaction), true) = (view.redaction, reads)
                && let Ok(file) = self.mirror.engine().file(record.handle.0)
            {
                self.redacted.add(record.handle.0, Redacted::from_takeover(file, redaction));
            }
        }
        if self.views.with_records(Records::is_unsettled) == Some(true) {
            // The previous daemon ended before the kernel's caches of the rules before that were expired. The flag
            // stays set, and another expiry does no harm: the next reload clears it.
            session.caches().invalidate_all();
        }
        Ok(())
    }

    /// Records for the next daemon whether the kernel may cache replies of other rules.
    pub(crate) fn set_unsettled(&self, unsettled: bool) {
        self.views.with_records(|records| records.set_unsettled(unsettled));
    }

    /// Stores the policy origin for the next daemon.
    pub(crate) fn hold_origin(&self) {
        let Some(takeover) = self.session.get().and_then(Handle::takeover) else { return };
        let held = || -> io::Result<()> {
            let mut file = File::from(rustix::fs::memfd_create("shunt-policy", MemfdFlags::CLOEXEC)?);
            file.write_all(&self.origin.lock())?;
            takeover.store(ORIGIN, file.as_fd());
            Ok(())
        };
        if let Err(error) = held() {
            // No origin is better than one of other rules.
            takeover.remove(ORIGIN);
            tracing::warn!(
                "cannot store the policy for takeovers: {error}; after a crash no daemon takes over"
            );
        }
    }

    /// Reports whether this daemon took over from another one.
    pub fn is_resumed(&self) -> bool {
        let takeovers =
            |session: &Handle| session.takeover().is_some_and(|takeover| takeover.takeovers() > 0);
        self.session.get().is_some_and(takeovers)
    }
}
