//! Going on where another daemon ended, by the rules that were in force: see [`shunt_fuse::takeover`].
//!
//! What is open stays open as it was, redacted or not, and every node is what it was. The rules are those that the other
//! daemon had, whatever the file says by now: it is read again afterwards. What cannot be restored is not served: a node
//! is looked up again, and an open file fails with EBADF.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::fd::AsFd;

use rustix::fs::{MemfdFlags, OFlags};
use shunt_fuse::guardian::HandOver;
use shunt_fuse::{Handle, NodeId};
use shunt_policy::Policy;

use super::policy_inodes::Seen;
use super::programs::Programs;
use super::records::Records;
use super::redacted::Redacted;
use super::{AuditLog, PolicyFs};
use crate::{Mirror, MirrorError, MirrorOptions};

// Under which ids descriptors are held, beside those of the mirror.
const AUDIT: u64 = 0;
const ORIGIN: u64 = 1;
const RECORDS: u64 = 2;
const TEXTS: u64 = 3;

impl PolicyFs {
    /// What the last daemon had told of the policy in force: the `origin` of [`open`](Self::open) or
    /// [`reload`](Self::reload). None where that is lost.
    pub fn origin(hand_over: &mut HandOver) -> Option<Vec<u8>> {
        let mut file = File::from(hand_over.take(ORIGIN)?);
        let mut origin = Vec::new();
        file.rewind().and_then(|()| file.read_to_end(&mut origin)).ok()?;
        Some(origin)
    }

    /// Goes on where another daemon of the same options ended. `policy` is what was made of its
    /// [`origin`](Self::origin). The paths of source and audit log are not looked at: they may lead through the mount.
    ///
    /// # Errors
    /// What was handed over is not whole.
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
        let policed = Self::new(mirror, source.clone(), policy, origin, audit, programs);
        policed.views.restore(records, restored, &none);
        policed.pin_grafts();
        Ok(policed)
    }

    /// The session began, or goes on.
    pub(super) fn start_takeover(&self, session: &Handle) -> io::Result<()> {
        let Some(takeover) = session.takeover() else { return self.mirror.start_with(session, &Some) };
        if takeover.takeovers() == 0 {
            let records = Records::create()?;
            for (id, file) in [RECORDS, TEXTS].into_iter().zip(records.files()) {
                takeover.store(id, file);
            }
            self.views.keep(records);
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
            if let Ok(Seen::View(view) | Seen::Retired(view)) = self.views.get(record.node)
                && let (Some(redaction), true) = (view.redaction, reads)
                && let Ok(file) = self.mirror.lower.file(record.handle.0)
            {
                self.redacted.add(record.handle.0, Redacted::again(file, redaction));
            }
        }
        if self.views.with_records(Records::is_unsettled) == Some(true) {
            // It ended before all was expired that the kernel believed by the rules before. Once more than needed is no harm:
            // the next reload says that it is done.
            session.caches().invalidate_all();
        }
        Ok(())
    }

    /// Whether the kernel may believe what was said by other rules, for the next daemon.
    pub(super) fn set_unsettled(&self, unsettled: bool) {
        self.views.with_records(|records| records.set_unsettled(unsettled));
    }

    /// Has the next daemon told of the policy in force.
    pub(super) fn hold_origin(&self) {
        let Some(takeover) = self.session.get().and_then(Handle::takeover) else { return };
        let held = || -> io::Result<()> {
            let mut file = File::from(rustix::fs::memfd_create("shunt-policy", MemfdFlags::CLOEXEC)?);
            file.write_all(&self.origin.lock())?;
            takeover.store(ORIGIN, file.as_fd());
            Ok(())
        };
        if let Err(error) = held() {
            // Better none than one of other rules.
            takeover.remove(ORIGIN);
            tracing::warn!("no daemon will take over: {error}");
        }
    }

    /// Whether it goes on where another daemon ended.
    pub fn is_resumed(&self) -> bool {
        let takeovers =
            |session: &Handle| session.takeover().is_some_and(|takeover| takeover.takeovers() > 0);
        self.session.get().is_some_and(takeovers)
    }
}
